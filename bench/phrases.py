"""Phrase search beside tantivy's: the same passages, the same phrases, in turns in one run.

    python bench/phrases.py --corpus FILE --folder FOLDER --peers PYTHON

FILE: documents as JSON lines ("_id", "title", "text"). FOLDER keeps both indexes between runs. PYTHON: an interpreter
with tantivy (bench/peers/requirements.txt). Phrases of two to four words are drawn from the texts with a fixed seed.
Times are processor time of one phrase after another in one thread, from the text of the query to the ids of the best
ten documents; tantivy's do not include reading ids. The same phrases are also searched in an index without positions,
on a sample.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from vizsla import Index

HERE = Path(__file__).parent
WORD = re.compile(r"[A-Za-z]+")
ROUNDS = 5
K = 10


def draw_phrases(corpus: Path, count: int, seed: int = 1) -> list[str]:
    """Phrases of two to four words from documents all over the corpus; no two words of one are apart by more than a
    blank, and none begins or ends with a very short word.
    """
    rng = random.Random(seed)
    with corpus.open(encoding="utf-8") as lines:
        size = sum(1 for _ in lines)
    chosen = set(rng.sample(range(size), min(4 * count, size)))
    phrases: list[str] = []
    with corpus.open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for number, line in enumerate(lines) if number in chosen]
    rng.shuffle(texts)
    for text in texts:
        width = rng.choice((2, 3, 4))
        runs = [run.split() for run in re.findall(r"[A-Za-z]+(?: [A-Za-z]+)+", text)]
        starts = [(run, i) for run in runs for i in range(len(run) - width + 1)]
        starts = [(run, i) for run, i in starts if len(run[i]) > 3 and len(run[i + width - 1]) > 3]
        if starts:
            run, i = rng.choice(starts)
            phrases.append(f'"{" ".join(run[i : i + width])}"')
    return phrases[:count]


def open_vizsla(corpus: Path, folder: Path) -> Index:
    """An index with positions, in one segment like tantivy's; built if it does not exist."""
    if not folder.exists():
        command = [sys.executable, "-m", "vizsla", "index", str(corpus), "-o", str(folder), "--positions"]
        subprocess.run(command, check=True)
        with Index.open(folder) as index:
            index.compact()
    return Index.open(folder)


def open_without_positions(folder: Path, original: Path) -> Index:
    """A copy of an index, without positions."""
    if not folder.exists():
        shutil.copytree(original, folder)
        with Index.open(folder) as index:
            index.compact(positions=False)
    return Index.open(folder)


def ask_vizsla(index: Index, phrases: list[str]) -> list[tuple[float, list[str]]]:
    answers = []
    for phrase in phrases:
        started = time.thread_time()
        (hits,) = index.search_many([phrase], K, syntax="lucene", documents=False, threads=1)
        answers.append((time.thread_time() - started, [hit.id for hit in hits]))
    return answers


class TantivyProcess:
    """tantivy in a process of its own."""

    def __init__(self, python: str, corpus: Path, folder: Path) -> None:
        script = str(HERE / "peers" / "tantivy_phrases.py")
        self._process = subprocess.Popen(
            [python, script, str(corpus), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.facts = self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def ask(self, phrases: list[str]) -> list[tuple[float, list[str]]]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(phrases) + "\n")
        self._process.stdin.flush()
        return [(seconds, ids) for seconds, ids in self._read()]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _least(times: list[list[float]]) -> float:
    """The mean of the least time of each phrase over all rounds, which other work on the machine hardly disturbs."""
    return round(float(np.min(times, axis=0).mean()), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--peers", required=True)
    parser.add_argument("--phrases", type=int, default=1000)
    parser.add_argument("--texts", type=int, default=100, help="how many phrases to search without positions")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    phrases = draw_phrases(given.corpus, given.phrases)
    index = open_vizsla(given.corpus, given.folder / "pos.index")
    peer = TantivyProcess(given.peers, given.corpus, given.folder / "tantivy")
    ours, theirs, ratios = [], [], []
    own = other = ask_vizsla(index, phrases), peer.ask(phrases)  # what is read or compiled first is not timed
    for number in range(ROUNDS):
        order = (0, 1) if number % 2 else (1, 0)
        for turn in order:
            if turn:
                other = peer.ask(phrases)  # type: ignore[assignment]
            else:
                own = ask_vizsla(index, phrases)  # type: ignore[assignment]
        ours.append([1000 * seconds for seconds, _ in own])
        theirs.append([1000 * seconds for seconds, _ in other])
        ratios.append(np.mean(ours[-1]) / np.mean(theirs[-1]))
    alike = np.mean([len(set(a) & set(b)) / max(len(b), 1) for (_, a), (_, b) in zip(own, other, strict=True)])
    result = {
        "documents": len(index), "phrases": len(phrases), "k": K, "tantivy": peer.facts,
        "milliseconds": {"vizsla": round(float(np.mean(ours)), 3), "tantivy": round(float(np.mean(theirs)), 3)},
        "median": {"vizsla": round(float(np.median(ours)), 3), "tantivy": round(float(np.median(theirs)), 3)},
        "p99": {n: round(float(np.percentile(t, 99)), 3) for n, t in (("vizsla", ours), ("tantivy", theirs))},
        "ratio": round(float(np.median(ratios)), 3), "ratios": [round(float(r), 3) for r in ratios],
        "least_of_rounds": {n: _least(t) for n, t in (("vizsla", ours), ("tantivy", theirs))},
        "found_by_both": round(float(alike), 3),
    }  # fmt: skip
    peer.close()
    info = index.info()
    result["bytes"] = {"index": info["index_bytes"], "positions": info["position_bytes"]}
    if given.texts:
        plain = open_without_positions(given.folder / "texts.index", given.folder / "pos.index")
        some = phrases[: given.texts]
        ask_vizsla(plain, some[:5])
        seconds = [seconds for seconds, _ in ask_vizsla(plain, some)]
        same = [ids for _, ids in ask_vizsla(index, some)] == [ids for _, ids in ask_vizsla(plain, some)]
        result["without_positions"] = {"milliseconds": round(1000 * float(np.mean(seconds)), 3), "same_results": same}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
