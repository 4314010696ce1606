"""Back up an index beside a writer that is killed, and see whether what is restored is a commit, whole.

    python tests/backup_crash.py --times 50

The writer is that of crash.py: it adds, deletes, commits, compacts and replaces the whole index at random. While it
runs, its index is backed up; in every other round a first backup is killed (SIGKILL) before. Then the writer is killed.
What is restored must be the last commit that was done when the backup began, or one that was made meanwhile; it must be
found whole by `verify` and by a search, and it must take further documents.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import crash
from progress import Progress
from vizsla import Index
from vizsla.index import backup, list_backups, restore, verify

TIMES = 50
SECONDS = 3.0
"""How long a round takes on an idle machine."""
BACK_UP = "import sys; from vizsla.index import backup; backup(sys.argv[1], sys.argv[2])"
KEPT = 3


def states(journal: Path) -> list[tuple[str, crash.State]]:
    """What the writer has written down so far: states that it intends to make, and that are done."""
    complete = journal.read_text().rpartition("\n")[0]
    entries = [json.loads(line) for line in complete.splitlines()]
    return [(kind, entry[kind]) for entry in entries for kind in ("intended", "done") if kind in entry]


def possible(before: list[tuple[str, crash.State]], after: list[tuple[str, crash.State]]) -> list[crash.State]:
    """The states that a backup may show: the last one that was done before it, and all later ones."""
    last = max((n for n, (kind, _) in enumerate(before) if kind == "done"), default=None)
    return [{}] * (last is None) + [state for _, state in after[last or 0 :]]


def check(place: Path, target: Path, allowed: list[crash.State]) -> str | None:
    """What is wrong with the last backup, or None."""
    restore(place, target, overwrite=True)
    if problems := verify(target):
        return problems[0]
    with Index.open(target) as index:
        found = {d.id: d["version"] for d in index.documents()}
        hits = {h.id: h["version"] for h in index.search("common", 1000, search_params="exact")}
        if found != hits:
            return f"{len(found)} documents are stored, {len(hits)} can be found"
        if found not in allowed:
            return f"{len(found)} documents were restored, which is none of the {len(allowed)} commits it may be"
        index.add([{"id": "new", "text": "common"}])
        index.commit()
        if len(index) != len(found) + 1:
            return "a document that was added after the restore is not there"
    return None


def run(times: int, seed: int, folder: Path, kind: str = "sparse") -> list[str]:
    """Back up and kill so many times; gives what was wrong."""
    rng = random.Random(seed)
    index, journal, place = folder / "i", folder / "journal", folder / "backups"
    model, vector_index = crash.MODELS[kind]
    Index.create(index, model, vector_index=vector_index).close()
    journal.touch()
    wrong = []
    progress = Progress()
    for n in range(times):
        progress.tell(f"{kind}: {n} of {times} backups")
        size = journal.stat().st_size
        arguments = [sys.executable, crash.__file__, "--child", str(folder), "--seed", str(seed + n), "--model", kind]
        writer = subprocess.Popen(arguments)
        while journal.stat().st_size == size and writer.poll() is None:
            time.sleep(0.005)
        if n % 2:
            killed = subprocess.Popen([sys.executable, "-c", BACK_UP, str(index), str(place)])
            time.sleep(rng.uniform(0.2, 0.8))
            killed.send_signal(signal.SIGKILL)
            killed.wait()
        else:
            time.sleep(rng.expovariate(1 / 0.15))
        before = states(journal)
        end = threading.Timer(rng.expovariate(1 / 0.1), writer.send_signal, [signal.SIGKILL])
        end.start()
        backup(index, place, keep=KEPT)
        allowed = possible(before, states(journal))
        end.join()
        if writer.wait() not in (0, -signal.SIGKILL):  # 0: it had just replaced the index
            wrong.append(f"backup {n + 1}: the writer ended by itself")
        problem = check(place, folder / "restored", allowed) or crash.check(index, journal)
        if problem is not None:
            wrong.append(f"backup {n + 1}: {problem}")
    if not min(times, KEPT) <= len(list_backups(place)) <= KEPT:  # one that was to be killed may have ended before
        wrong.append(f"{len(list_backups(place))} backups were kept")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=TIMES, help="less takes less time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", choices=crash.MODELS, default="sparse")
    options = parser.parse_args()
    minutes = max(options.times * SECONDS / 60, 1)
    print(f"{options.times:,} backups, about {minutes:.0f} minutes on an idle machine", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        wrong = run(options.times, options.seed, Path(folder), options.model)
    print("\n".join(wrong) or f"{options.times:,} backups beside a killed writer, and each was exactly a commit")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
