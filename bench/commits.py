"""Many small commits, and a reader that follows them: what each takes, and what grows.

    python bench/commits.py corpus.jsonl FOLDER [--commits 2000] [--documents 50] [--replaced 0.2] [--deleted 0.1]
                            [--no-store] [--no-reader] [--out results.json]

Each commit adds documents: a share of them replaces documents that are there, drawn from all, and others are deleted.
A second `Index` of the same folder refreshes after each commit and answers a question. Then the bench reports the time
of a commit, and of a refresh with its question, in the first and the last tenth of the commits (after a warm-up of a
twentieth), those that merge segments apart; the largest number of segments; the longest log; and the bytes on disk
beside those of an index of the same documents that one commit has built. `--out` gets the figures of every commit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.datasets import Document, read_documents
from vizsla.index import Index, verify

FIXED = bytes(2_000_000)
"""What is hashed after each commit, to know how fast the machine is at this moment."""


class Collection:
    """Which documents of a corpus live in the index, and what the next commit changes."""

    def __init__(self, documents: Iterator[Document], replaced: float, deleted: float, seed: int = 0) -> None:
        self._source = documents
        self._replaced, self._deleted = replaced, deleted
        self._rng = random.Random(seed)
        self.living: list[Document] = []

    def next_changes(self, size: int) -> tuple[list[Document], list[str]]:
        """Documents to add, the replaced ones among them, and ids to delete; both are done then."""
        count = min(round(size * self._replaced), len(self.living))
        again = self._rng.sample(range(len(self.living)), count)
        for i in again:
            old = self.living[i]
            self.living[i] = Document(old.id, {**old.content, "revision": int(old.content.get("revision", 0)) + 1})
        updated = [self.living[i] for i in again]
        gone = []
        for _ in range(min(round(size * self._deleted), len(self.living) - len(again))):
            i = self._rng.randrange(len(self.living))
            if self.living[i].content.get("revision") and self.living[i] in updated:
                continue
            self.living[i], self.living[-1] = self.living[-1], self.living[i]
            gone.append(self.living.pop().id)
        new = list(islice(self._source, size - len(again)))
        self.living += new
        return updated + new, gone


def measure(o: argparse.Namespace) -> list[dict[str, Any]]:
    """One row of figures a commit."""
    collection = Collection(read_documents(o.corpus), o.replaced, o.deleted)
    rows: list[dict[str, Any]] = []
    folder = o.folder / "commits.index"
    with Index.create(folder, store=o.store, overwrite=True) as index:
        reader = Index.open(folder) if o.reader else None
        names: set[str] = set()
        for i in range(o.commits):
            added, gone = collection.next_changes(o.documents)
            if not added:
                print(f"the corpus ends after {i} commits", file=sys.stderr)
                break
            clock, own = [time.perf_counter()], time.process_time()
            index.add(added)
            index.delete(gone)
            clock.append(time.perf_counter())
            index.commit()
            clock.append(time.perf_counter())
            own = (time.process_time() - own) * 1000
            if reader is not None:
                reader.refresh()
                clock.append(time.perf_counter())
                reader.search(str(added[-1].content["text"])[:60])
            clock.append(time.perf_counter())
            before, names = names, {f.name for f in (folder / "segments").iterdir()}
            took = np.diff(clock) * 1000
            steps = ("add", "commit", "refresh", "search") if reader is not None else ("add", "commit", "rest")
            started = time.process_time()
            hashlib.sha256(FIXED).digest()
            pace = (time.process_time() - started) * 1000
            rows.append({
                **dict(zip(steps, map(float, took), strict=True)), "cores": own, "pace": pace,
                "merged": not before <= names,
                "segments": len(names), "log": log_bytes(folder), "disk": folder_bytes(folder),
                "documents": len(collection.living),
            })  # fmt: skip
            if (i + 1) % max(o.commits // 20, 1) == 0:
                print(describe(rows[-1], i + 1), file=sys.stderr, flush=True)
        if reader is not None:
            reader.close()
    problems = verify(folder)
    if problems:
        raise SystemExit(f"{folder}: {problems}")
    rows[-1]["fresh"] = fresh_bytes(collection.living, o)
    return rows


def fresh_bytes(documents: list[Document], o: argparse.Namespace) -> int:
    """What an index of the same documents takes on disk when one commit builds it."""
    folder = o.folder / "fresh.index"
    with Index.create(folder, store=o.store, overwrite=True) as index:
        index.add(documents)
        index.commit()
    size = folder_bytes(folder)
    shutil.rmtree(folder)
    return size


def log_bytes(folder: Path) -> int:
    """The length of the write-ahead log."""
    log = folder / "index.db-wal"
    return log.stat().st_size if log.exists() else 0


def folder_bytes(folder: Path) -> int:
    """What the files of a folder take on disk."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def describe(row: dict[str, Any], number: int) -> str:
    steps = ", ".join(f"{name} {row[name]:.1f}" for name in ("add", "commit", "refresh", "search") if name in row)
    sizes = f"log {row['log'] / 1e6:.1f} MB, disk {row['disk'] / 1e6:.0f} MB"
    return f"commit {number}: {steps} ms; {row['segments']} segments, {sizes}"


def summary(rows: list[dict[str, Any]]) -> str:
    """The first tenth against the last, as a table in Markdown."""
    warm = rows[len(rows) // 20 :]
    share = max(len(rows) // 10, 1)
    lines = ["| | first tenth | last tenth | ratio |", "|---|---|---|---|"]

    def line(name: str, first: list[float], last: list[float], what: str = "ms, mean") -> None:
        if first and last:
            a, z = float(np.mean(first)), float(np.mean(last))
            lines.append(f"| {name}, {what} | {a:.1f} | {z:.1f} | {z / a:.2f} |")

    for name, merged in (("add and commit, no merge", False), ("add and commit with a merge", True)):
        both = [
            [r["add"] + r["commit"] for r in part if r["merged"] == merged] for part in (warm[:share], warm[-share:])
        ]
        line(name, *both)
        line(name, *([float(np.median(part))] if part else [] for part in both), "ms, median")
    for name in ("add", "commit", "refresh", "search"):
        if name in warm[0]:
            first, last = ([r[name] for r in part if not r["merged"]] for part in (warm[:share], warm[-share:]))
            line(f"{name}, no merge", [float(np.median(first))], [float(np.median(last))], "ms, median")
    line("processors, all commits", *([r["cores"] for r in part] for part in (warm[:share], warm[-share:])))
    cores = (
        [float(np.median([r["cores"] for r in part if not r["merged"]]))] for part in (warm[:share], warm[-share:])
    )
    line("processors, no merge", *cores, "ms, median")
    paced = ([r["cores"] / r["pace"] for r in part if not r["merged"]] for part in (warm[:share], warm[-share:]))
    line("processors, no merge", *([float(np.median(part))] for part in paced), "times a fixed task, median")
    line("all commits together", *([r["add"] + r["commit"] for r in part] for part in (warm[:share], warm[-share:])))
    first, last = warm[:share], warm[-share:]
    lines.append(f"| segments, most | {max(r['segments'] for r in first)} | {max(r['segments'] for r in last)} | |")
    logs = [max(r["log"] for r in part) / 1e6 for part in (first, last)]
    lines.append(f"| log, MB, longest | {logs[0]:.1f} | {logs[1]:.1f} | |")
    disk, fresh = rows[-1]["disk"] / 1e6, rows[-1]["fresh"] / 1e6
    lines.append(
        f"| disk, MB, beside one commit of the same documents | {disk:.0f} | {fresh:.0f} | {disk / fresh:.2f} |"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("folder", type=Path, help="where the indexes are built; they are replaced")
    parser.add_argument("--commits", type=int, default=2000)
    parser.add_argument("--documents", type=int, default=50, help="how many documents each commit adds")
    parser.add_argument("--replaced", type=float, default=0.2, help="the share of them that replace others")
    parser.add_argument("--deleted", type=float, default=0.1, help="documents to delete, as a share of those added")
    parser.add_argument("--no-store", dest="store", action="store_false")
    parser.add_argument("--no-reader", dest="reader", action="store_false")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures of every commit")
    o = parser.parse_args()
    o.folder.mkdir(parents=True, exist_ok=True)
    rows = measure(o)
    print(summary(rows))
    if o.out:
        o.out.write_text(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main()
