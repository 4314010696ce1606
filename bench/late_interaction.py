"""Search of token vectors beside fast-plaid and WARP: recall of the exact top 10, time, size and build time.

    python bench/late_interaction.py VECTORS -o FOLDER [--systems "ours 8" "fast-plaid 8" ...] [--queries 100]
        [--budget 400] [--peer-build cuda]
    python bench/late_interaction.py --make 20000 -o FOLDER

VECTORS is a .npz, or a folder with the same arrays as .npy files: `rows` [tokens, width], `lengths` [documents],
`queries` [queries, tokens, width], or `query_rows` and `query_lengths`. `--make N` makes N documents of random words.

Systems get the same vectors, one after the other. Each is built with all processors. A sweep of settings, from cheap
to dear, searches all queries with all processors: that gives recall and throughput. Of the settings that reach a
recall, the three fastest are then searched one query at a time on one processor, and the fastest of these is compared.
Recall is that of the exact top 10 of MaxSim over 16-bit floats, among the first 10 that are found, for k = 10 and 100.
`rescored` systems score what the peer found again over 16-bit floats, with our kernel.

FOLDER gets results.md and results.json, rewritten after every line of every step, so that a run that is stopped
tells what it has seen. After `--budget` seconds no step begins, and those that run are ended. Systems that are not
installed are left out, and the report says so. `--peer-build cuda` builds the peers' indexes on a GPU; all searches are
on the CPU. Indexes stay in FOLDER; a second run with the same FOLDER and vectors builds only what is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from late_interaction_systems import SYSTEMS, Vectors, exact_top
from vizsla.engine import processors

KS = (10, 100)
KEPT = 3  # settings that are measured one query at a time, for each recall
ENOUGH = 2  # settings above the highest recall, after which a sweep ends
LATENCY_SECONDS = 10.0  # for one setting; 10 queries at least
STALE = 5  # settings without a higher recall, after which a sweep ends
WORTH = 0.9  # recall at k = 10 from which on a setting is tried at k = 100
DEFAULT = ["ours 8", "fast-plaid 8", "fast-plaid 8 rescored", "warp 4 rescored", "ours 16", "ours 4", "warp 4"]
TARGETS = (0.95, 0.99)  # of recall
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


# ------------------------------------------------------------------------------------------------------------- vectors
def read(source: Path, count: int) -> Vectors:
    """Vectors of a .npz or of a folder with .npy files."""
    if source.is_dir():
        arrays = {file.stem: np.load(file, mmap_mode="r") for file in source.glob("*.npy")}
    else:
        arrays = dict(np.load(source))
    if "queries" in arrays:
        queries = list(arrays["queries"][:count])
    else:
        starts = np.append(0, np.cumsum(arrays["query_lengths"]))[: count + 1].tolist()
        queries = [arrays["query_rows"][a:z] for a, z in pairwise(starts)]
    rows = arrays["rows"] if arrays["rows"].dtype == np.float16 else arrays["rows"].astype(np.float16)
    return Vectors(rows, np.array(arrays["lengths"], np.int64), [np.array(q, np.float32) for q in queries])


def make(documents: int, count: int, width: int = 128) -> Vectors:
    """Documents of random words of their topic, each word with a vector that its document changes a little."""
    rng = np.random.default_rng(0)
    words, topics, own = 30_000, max(documents // 40, 1), 200
    vocabulary, themes = _unit(rng.normal(size=(words, width))), _unit(rng.normal(size=(topics, width)))
    common = 1 / np.arange(1, words + 1)
    lengths = np.clip(rng.normal(110, 35, documents), 10, 180).astype(np.int64)
    topic, document = rng.integers(0, topics, documents), np.repeat(np.arange(documents), lengths)
    chosen = rng.choice(words, len(document), p=common / common.sum())
    of_topic = rng.random(len(document)) < 0.5
    chosen[of_topic] = (topic[document[of_topic]] * 53 + rng.integers(0, own, of_topic.sum())) % words
    rows = np.empty((len(document), width), np.float16)
    for a in range(0, len(rows), 1 << 18):
        part = slice(a, a + (1 << 18))
        noise = 0.3 * _unit(rng.normal(size=(len(chosen[part]), width)))
        rows[part] = _unit(vocabulary[chosen[part]] + 0.3 * themes[topic[document[part]]] + noise)
    starts, queries = np.append(0, np.cumsum(lengths)), []
    for d in rng.integers(0, documents, count).tolist():
        tokens = rows[rng.integers(starts[d], starts[d + 1], 32)].astype(np.float32)
        queries.append(_unit(tokens + 0.3 * _unit(rng.normal(size=tokens.shape))))
    return Vectors(rows, lengths, queries)


def _unit(rows: np.ndarray) -> np.ndarray:
    unit: np.ndarray = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


# -------------------------------------------------------------------------- steps, each in a process of its own
def find_exactly(folder: Path) -> Iterator[dict[str, Any]]:
    """The exact top 100 of all queries, and how long an exact search takes in one thread."""
    started, vectors = time.perf_counter(), Vectors.open(folder)
    np.save(folder / "exact.npy", exact_top(vectors, max(KS)))
    yield {"seconds": time.perf_counter() - started}


def build(folder: Path, name: str, device: str) -> Iterator[dict[str, Any]]:
    system, vectors = SYSTEMS[name], Vectors.open(folder)
    place = folder / system.folder
    done = place.with_suffix(".json")
    if not done.exists():
        place.mkdir(exist_ok=True)
        done.write_text(json.dumps(system.build(vectors, place, device)))
    size = system.nbytes(vectors, place)
    yield json.loads(done.read_text()) | {"bytes": size, "bytes_per_token": size / len(vectors.rows)}


def sweep(folder: Path, name: str, seconds: float) -> Iterator[dict[str, Any]]:
    """Recall and throughput of settings, all queries with all processors, until enough settings find enough."""
    vectors, exact = Vectors.open(folder), np.load(folder / "exact.npy")
    searcher = SYSTEMS[name].open(vectors, folder / SYSTEMS[name].folder)
    settings, begun = SYSTEMS[name].settings(), time.perf_counter()
    searcher.many(vectors.queries[:4], 10, settings[0], processors())
    for share, k in enumerate(KS, 1):
        reached, best, stale, tried = 0, 0.0, 0, settings
        for setting in tried:
            if reached == ENOUGH or stale == STALE or time.perf_counter() - begun > seconds * share / len(KS):
                break
            started = time.perf_counter()
            found = searcher.many(vectors.queries, k, setting, processors())
            took = time.perf_counter() - started
            at_10, at_k = recall(found, exact, 10), recall(found, exact, k)
            reached += at_10 >= max(TARGETS)
            stale, best = 0 if at_10 > best else stale + 1, max(at_10, best)
            settings = settings if at_10 >= WORTH else [other for other in settings if other != setting]
            figures = {"recall": at_10, "recall_at_k": at_k, "queries_per_second": len(found) / took}
            yield {"k": k, "setting": setting, **figures}


def recall(found: Sequence[np.ndarray], exact: np.ndarray, depth: int) -> float:
    """The share of the exact first `depth` that are among the first `depth` found."""
    pairs = zip(found, exact[:, :depth], strict=True)
    return float(np.mean([len(np.intersect1d(hits[:depth], best)) / len(best) for hits, best in pairs]))


def latency(folder: Path, name: str, picked: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """One query at a time on one processor."""
    vectors, exact = Vectors.open(folder), np.load(folder / "exact.npy")
    searcher = SYSTEMS[name].open(vectors, folder / SYSTEMS[name].folder)
    for k, setting in picked:
        for query in vectors.queries[:2]:
            searcher.one(query, k, setting)
        times, found, begun = [], [], time.perf_counter()
        for query in vectors.queries:
            if len(times) >= 10 and time.perf_counter() - begun > LATENCY_SECONDS:
                break
            started = time.perf_counter()
            found.append(searcher.one(query, k, setting))
            times.append(1000 * (time.perf_counter() - started))
        figures = {"ms": float(np.median(times)), "p95": float(np.quantile(times, 0.95)), "queries": len(times)}
        yield {"k": k, "setting": setting, "recall": recall(found, exact[: len(found)], 10), **figures}


# ---------------------------------------------------------------------------------------------------------- the run
@dataclass
class Run:
    """What is known so far; `step` runs one in a process of its own and notes every line that it gives."""

    folder: Path
    deadline: float
    about: dict[str, Any]
    systems: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()

    def step(self, places: int, threads: int, name: str, *arguments: Any) -> Iterator[dict[str, Any]]:
        """Lines of a step on so many processors, with so many threads in every library; none where no time is left."""
        if self.left < 1:
            self.note(f"No time was left for {name} {arguments[0] if arguments else ''}".rstrip() + ".")
            return
        environment = os.environ | dict.fromkeys(VARIABLES, str(threads)) | {"RAYON_NUM_THREADS": str(places)}
        own = [sys.executable, __file__, "--step", json.dumps([name, str(self.folder), *arguments])]
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, sorted(allowed)[:places])  # the process inherits it
        process = subprocess.Popen(own, stdout=subprocess.PIPE, text=True, env=environment)
        os.sched_setaffinity(0, allowed)
        timer = threading.Timer(self.left, process.kill)
        timer.start()
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith('{"step"'):
                yield json.loads(line)["step"]
                self.write()
        timer.cancel()
        if process.wait():
            self.note(f"{name} {' '.join(map(str, arguments[:1]))} ended early (exit {process.returncode}).")

    def note(self, words: str) -> None:
        self.notes.append(words)
        print(words, file=sys.stderr, flush=True)
        self.write()

    def write(self) -> None:
        everything = {"about": self.about, "systems": self.systems, "notes": self.notes}
        (self.folder / "results.json").write_text(json.dumps(everything, indent=1))
        (self.folder / "results.md").write_text(markdown(everything))


def measure(run: Run, name: str, share: float, device: str) -> None:
    """Build, sweep and time a system."""
    places, begun = processors(), time.monotonic()
    entry: dict[str, Any] = {"sweep": [], "latency": []}
    for built in run.step(places, places, "build", name, device):
        run.systems[name] = entry | built
        print(
            f"{name}: {built['bytes'] / 1e6:,.0f} MB, built in {built['seconds']:,.0f} s", file=sys.stderr, flush=True
        )
    if name not in run.systems:
        return
    entry = run.systems[name]
    rest = max(share - (time.monotonic() - begun), share / 3)
    for line in run.step(places, 1, "sweep", name, rest / 2):  # queries are divided among threads
        entry["sweep"].append(line)
        shown = f"  k={line['k']}, {line['setting']}: recall {line['recall']:.3f}, {line['queries_per_second']:,.1f}/s"
        print(shown, file=sys.stderr, flush=True)
    picked = []
    for k in KS:
        for target in TARGETS:
            best = fastest(entry["sweep"], k, target)
            picked += [(k, row["setting"]) for row in best[:KEPT] if (k, row["setting"]) not in picked]
    for line in run.step(1, 1, "latency", name, picked):
        entry["latency"].append(line)
        shown = f"  k={line['k']}, {line['setting']}: recall {line['recall']:.3f}, {line['ms']:,.1f} ms"
        print(shown, file=sys.stderr, flush=True)


STEPS = {"exact": find_exactly, "build": build, "sweep": sweep, "latency": latency}


def versions() -> dict[str, str]:
    found = {}
    for package in ("numpy", "numba", "torch", "fast-plaid", "xtr-warp-rs"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=Path, nargs="?")
    parser.add_argument("-o", "--output", type=Path, help="where indexes and results go")
    parser.add_argument("--make", type=int, metavar="N", help="make N documents of random words")
    parser.add_argument("--documents", type=int, help="use only the first N documents")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=DEFAULT, metavar="SYSTEM")
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds")
    parser.add_argument("--peer-build", default="cpu", help="device that the peers build their indexes on: cpu or cuda")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.step and ((options.vectors is None) == (options.make is None) or options.output is None):
        parser.error("give a file or folder of vectors, or --make N; and a folder for the results by --output")
    return options


# ----------------------------------------------------------------------------------------------------------- the report
def fastest(rows: Sequence[dict[str, Any]], k: int, target: float) -> list[dict[str, Any]]:
    """The settings that reach a recall at k, those with the most queries a second first."""
    reached = [row for row in rows if row["k"] == k and row["recall"] >= target]
    return sorted(reached, key=lambda row: -row["queries_per_second"])


def best_at(system: dict[str, Any], k: int, target: float) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The setting with the lowest latency of those that reach a recall: its rows of the sweep and of the latencies."""
    reached = {row["setting"]: row for row in fastest(system["sweep"], k, target)}
    timed = [row for row in system["latency"] if row["k"] == k and row["setting"] in reached]
    if not timed:
        return None
    best = min(timed, key=lambda row: row["ms"])
    return reached[best["setting"]], best


def markdown(everything: dict[str, Any]) -> str:
    """All tables."""
    about, systems = everything["about"], everything["systems"]
    words = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    lines = [
        f"{about['documents']:,} documents, {about['tokens']:,} tokens of {about['width']} numbers.",
        f"{about['queries']} queries, {about['processors']} processors; {words}.",
        "",
        *everything["notes"],
        "",
        "| system | MB | bytes a token | build s | on |",
        "|---|---|---|---|---|",
    ]
    for name, system in systems.items():
        size = f"{system['bytes'] / 1e6:,.0f} | {system['bytes_per_token']:.0f}"
        lines.append(f"| {name} | {size} | {system['seconds']:,.1f} | {system['device']} |")
    for k in (10, 100):
        for target in TARGETS:
            lines += ["", *_compared(systems, k, target)]
    for name, system in systems.items():
        lines += ["", f"{name}, all settings, all processors:", ""]
        lines += ["| k | setting | recall of the top 10 | of the top k | queries/s |", "|---|---|---|---|---|"]
        for row in system["sweep"]:
            recalls = f"{row['recall']:.3f} | {row['recall_at_k']:.3f}"
            lines.append(f"| {row['k']} | {row['setting']} | {recalls} | {row['queries_per_second']:,.1f} |")
    return "\n".join(lines) + "\n"


def _compared(systems: dict[str, dict[str, Any]], k: int, target: float) -> list[str]:
    """The fastest setting of each system that reaches a recall, beside the fastest peer's."""
    found = {name: best_at(system, k, target) for name, system in systems.items()}
    peers = [rows for name, rows in found.items() if rows is not None and not name.startswith("ours")]
    ms = min((timed["ms"] for _, timed in peers), default=None)
    most = max((swept["queries_per_second"] for swept, _ in peers), default=None)
    columns = (
        "setting | recall | median ms, one processor | p95 | of the fastest peer's | queries/s, all | times the peer's"
    )
    lines = [f"k = {k}, recall of the exact top 10 of at least {target:.2f}:", ""]
    lines += [f"| system | {columns} |", "|---|---|---|---|---|---|---|---|"]
    for name, rows in found.items():
        if rows is None:
            lines.append(f"| {name} | not reached by a setting that was measured |" + " |" * 6)
            continue
        swept, timed = rows
        ratio = "" if ms is None else f"{timed['ms'] / ms:.2f}"
        speed = "" if most is None else f"{swept['queries_per_second'] / most:.2f}"
        figures = f"{swept['recall']:.3f} | {timed['ms']:.1f} | {timed['p95']:.1f} | {ratio}"
        lines.append(f"| {name} | {swept['setting']} | {figures} | {swept['queries_per_second']:,.1f} | {speed} |")
    return lines


def main() -> None:
    options = arguments()
    if options.step:
        name, folder, *rest = json.loads(options.step)
        for line in STEPS[name](Path(folder), *rest):
            print(json.dumps({"step": line}), flush=True)
        return
    deadline, folder = time.monotonic() + options.budget, options.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "query_lengths.npy").exists():
        vectors = make(options.make, options.queries) if options.make else read(options.vectors, options.queries)
        if options.documents is not None:
            vectors.lengths = vectors.lengths[: options.documents]
        vectors.save(folder)
    vectors = Vectors.open(folder)
    about = {"documents": len(vectors.lengths), "tokens": len(vectors.rows), "width": vectors.rows.shape[1]}
    about |= {"queries": len(vectors.queries), "processors": processors(), "versions": versions()}
    run = Run(folder, deadline, about)
    run.write()
    for line in run.step(processors(), 1, "exact"):
        about["exact_seconds"] = line["seconds"]
    wanted = [name for name in options.systems if not SYSTEMS[name].package or find_spec(SYSTEMS[name].package)]
    for name in options.systems:
        if name not in wanted:
            run.note(f"{name}: {SYSTEMS[name].package} is not installed, and left out.")
    for i, name in enumerate(wanted):
        measure(run, name, run.left / (len(wanted) - i), options.peer_build)
    print((folder / "results.md").read_text())


if __name__ == "__main__":
    main()
