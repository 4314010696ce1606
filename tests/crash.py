"""Kill a writer at random moments and see whether the last commit is still there, whole.

    python tests/crash.py --times 20 --model mixed

A model is sparse, dense with structures of faiss's, a sum of both, or a sum with token vectors: all of them, those
around centroids in codes, or those of COIL; by default they all take their turns. A child process adds, replaces,
deletes, commits, compacts and replaces the whole index at random. Before each commit it writes down the state the
commit will make, and after it that the commit is done. The parent kills it (SIGKILL) after a random time, opens the
index, and compares: it must show the last commit that was done, or the one that was under way, nothing else; `verify`
must find nothing wrong; and the next child must be able to go on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from progress import Progress
from scattered import Scattered, ScatteredMatches, ScatteredTokens
from vizsla import Index, parse_model
from vizsla.index import replace_index, verify

State = dict[str, int]
TIMES = 300
"""How often a writer of each model is killed."""
SECONDS = 1.0
"""How long one of these takes on an idle machine; most of it is the start of Python."""
MODELS: dict[str, tuple[Any, str]] = {
    "sparse": (parse_model("bm25"), "exact"),
    "dense": (Scattered(), "hnsw(min_documents=50)"),
    "mixed": (parse_model("bm25") + Scattered(), "sq8"),
    "tokens": (parse_model("bm25") + ScatteredTokens(), "exact"),
    "plaid": (parse_model("bm25") + ScatteredTokens(), "plaid(min_documents=50, nlist=16)"),
    "coil": (parse_model("bm25") + ScatteredMatches(), "sq8"),
}


def work(folder: Path, journal: Path, seed: int, kind: str) -> None:
    """The child: random changes until the index is replaced, each document's text saying its version."""
    rng = random.Random(seed)
    with Index.open(folder, memory=rng.choice([1, 1 << 16, 1 << 30])) as index, journal.open("a") as log:

        def note(entry: dict[str, Any]) -> None:
            log.write(json.dumps(entry) + "\n")
            log.flush()
            os.fsync(log.fileno())

        state: State = {d.id: d["version"] for d in index.documents()}
        version = max(state.values(), default=0)
        note({"ready": True})
        while True:
            for _ in range(rng.randrange(1, 4)):
                ids = rng.sample(range(300), rng.randrange(1, 120))
                if rng.random() < 0.7:
                    version += 1
                    index.add({"id": str(i), "text": f"common v{version} {i % 7}", "version": version} for i in ids)
                    state |= {str(i): version for i in ids}
                else:
                    index.delete(map(str, ids))
                    state = {i: v for i, v in state.items() if int(i) not in ids}
            note({"intended": state})
            index.compact() if rng.random() < 0.2 else index.commit()
            note({"done": state})
            if rng.random() < 0.1:
                replace(folder, kind, rng, state, note)
                return


def replace(folder: Path, kind: str, rng: random.Random, state: State, note: Callable[[dict[str, Any]], None]) -> None:
    """Build an index of some of the documents that takes the place of the old one."""
    kept = dict(rng.sample(sorted(state.items()), len(state) // 2))
    model, vector_index = MODELS[kind]
    note({"intended": kept})
    with (
        replace_index(folder, overwrite=True) as building,
        Index.create(building, model, vector_index=vector_index) as index,
    ):
        index.add({"id": i, "text": f"common v{v} {int(i) % 7}", "version": v} for i, v in kept.items())
        index.commit()
    note({"done": kept})


def check(folder: Path, journal: Path) -> str | None:
    """What is wrong after a crash, or None."""
    problems = verify(folder)
    if problems:
        return problems[0]
    done: State = {}
    intended: State | None = None
    for line in journal.read_text().splitlines():
        entry = json.loads(line)
        if "intended" in entry:
            intended = entry["intended"]
        elif "done" in entry:
            done, intended = entry["done"], None
    with Index.open(folder) as index:
        found = {d.id: d["version"] for d in index.documents()}
        hits = {h.id: h["version"] for h in index.search("common", 1000, search_params="exact")}
    if found != hits:
        return f"{len(found)} documents are stored, {len(hits)} can be found"
    if found not in (done, intended):
        return f"{len(found)} documents are there, but neither those of the last commit nor of the one under way"
    with journal.open("w") as log:  # what is there now is the truth from here on
        log.write(json.dumps({"done": found}) + "\n")
    return None


def run(times: int, seed: int, folder: Path, kind: str = "sparse") -> list[str]:
    """Crash so many times; gives what was wrong."""
    rng = random.Random(seed)
    index, journal = folder / "i", folder / "journal"
    model, vector_index = MODELS[kind]
    Index.create(index, model, vector_index=vector_index).close()
    journal.touch()
    wrong = []
    progress = Progress()
    for n in range(times):
        progress.tell(f"{kind}: {n} of {times} crashes")
        before = journal.stat().st_size
        arguments = ["--child", str(folder), "--seed", str(seed + n), "--model", kind]
        child = subprocess.Popen([sys.executable, __file__, *arguments])
        while journal.stat().st_size == before and child.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.expovariate(1 / 0.15))
        child.send_signal(signal.SIGKILL)
        if child.wait() not in (0, -signal.SIGKILL):  # 0: it had just replaced the index
            wrong.append(f"crash {n + 1}: the writer ended by itself")
        problem = check(index, journal)
        if problem is not None:
            wrong.append(f"crash {n + 1}: {problem}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=TIMES, help="for each model; less takes less time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", choices=MODELS, help="one of them instead of all")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        work(options.child / "i", options.child / "journal", options.seed, options.model)
        return
    kinds = [options.model] if options.model else list(MODELS)
    total = options.times * len(kinds)
    print(f"{total:,} crashes, about {max(total * SECONDS / 60, 1):.0f} minutes on an idle machine", flush=True)
    wrong = []
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            wrong += [f"{kind}, {problem}" for problem in run(options.times, options.seed, Path(folder), kind)]
    print("\n".join(wrong) or f"{total:,} crashes, and each time exactly the last commit was there")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
