"""Search engines side by side: the same documents and queries, the same machine, alternating in one run.

    python bench/engines.py --corpus FILE --questions FILE --folder FOLDER --peers PYTHON

FILE: documents as JSON lines ("_id", "title", "text") and questions ("text"). FOLDER keeps data and indexes between
runs, and gets results.json, results.md and results.svg. PYTHON: interpreters of the peers' environments, separated by
commas (see the Makefile); each engine runs in the first that has it, in a process of its own that keeps its index open
(bench/peers/serve.py). Round after round each answers the same queries, in an order that turns around. What Vizsla
finds is compared with exhaustive scoring in every round. An engine that cannot do something is named with the reason.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
OURS = "vizsla"
BM25_ENGINES = (OURS, "bm25s", "tantivy", "pisa", "lucene", "bm25x", "bm25-turbo", "retrievalx")
SPARSE_ENGINES = (OURS, "pisa-sparse", "bmp", "seismic")
PAIRS = 15  # times the queries are searched with each number of threads, in turns
THREADS = (1, 2, 4)
Answer = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """Documents and queries of one kind, the engines that can search them, and at which depths."""

    name: str
    title: str
    prepare: tuple[str, ...]
    engines: tuple[str, ...]
    depths: tuple[int, ...]


TASKS = (
    Task("words", "BM25 on words, stop words removed", (), BM25_ENGINES, (10, 100, 1000)),
    Task("pieces", "BM25 on word pieces", ("--analyzer", "wordpiece"), (OURS, "pisa"), (10, 1000)),
    Task("vectors", "8-bit vectors (BM25's weights on word pieces)", ("--analyzer", "wordpiece", "--impacts"),
         SPARSE_ENGINES, (10, 1000)),
    Task("bm26", "8-bit vectors of BM26", ("--model", "bm26"), SPARSE_ENGINES, (10, 1000)),
    Task("bm26e", "8-bit vectors of BM26e", ("--model", "{bm26e}"), SPARSE_ENGINES, (10, 1000)),
    Task("vizsla-splade", "8-bit vectors of vizsla-splade", ("--model", "vizsla-splade"), SPARSE_ENGINES, (10, 1000)),
    Task("vizsla-sparse", "BM25 and vizsla-splade as one 8-bit vector", ("--model", "vizsla-sparse"),
         SPARSE_ENGINES, (10, 1000)),
)  # fmt: skip


class EngineProcess:
    """An engine in a process of its own, which takes commands and returns answers."""

    def __init__(self, name: str, python: str, log: Path) -> None:
        self.name = name
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable if name == OURS else python, str(HERE / "peers" / "serve.py"), name],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip

    def tell(self, **command: Any) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return {"ok": False, "reason": f"its process ended with {self._process.wait()}"}
        answer: Answer = json.loads(line)
        return answer

    def quit(self) -> None:
        self.tell(do="quit")
        self._process.wait()


@dataclass
class Bench:
    """What is measured, and what has been."""

    options: argparse.Namespace
    results: list[Answer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return Path(self.options.folder)

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def start(self, name: str) -> EngineProcess:
        """The engine in the first of the peers' environments that has it."""
        for python in self.options.peers.split(","):
            engine = EngineProcess(name, python, self.folder / "engines.log")
            if name == OURS or engine.tell(do="about")["ok"]:
                break
        return engine

    def add(self, **result: Any) -> None:
        self.results.append(result)
        self.say("  " + "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in result.items()))

    def cannot(self, engine: str, what: str, answer: Answer) -> None:
        self.notes.append(f"{engine}: {what} failed: {answer.get('reason')}")
        self.say("  " + self.notes[-1])

    def _asked(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not self.options.engines or name in self.options.engines.split(",")]

    # Searching analysed documents

    def run_task(self, task: Task) -> None:
        self.say(task.title)
        data = self.folder / task.name
        if not (data / "questions.json").exists():
            self._prepare(task, data)
        engines = {name: e for name in self._asked(task.engines) if (e := self._open(task, name, data)) is not None}
        for turn in range(self.options.rounds):
            for name in list(engines) if turn % 2 == 0 else reversed(list(engines)):
                for k in task.depths:
                    for mode in ("batch", "single"):
                        self._search(task, name, engines[name], data, k, mode, turn)
        for engine in engines.values():
            engine.quit()

    def _prepare(self, task: Task, data: Path) -> None:
        o = self.options
        chosen = [part.format(bm26e=o.bm26e) for part in task.prepare]
        extra = [*chosen, "--count", str(o.queries), *(["--documents", str(o.documents)] if o.documents else [])]
        command = [sys.executable, str(HERE / "prepare.py"), o.corpus, o.questions, str(data), *extra]
        subprocess.run(command, check=True)

    def _open(self, task: Task, name: str, data: Path) -> EngineProcess | None:
        folder, engine = self.folder / "indexes" / task.name / name, self.start(name)
        if not folder.exists():
            built = engine.tell(do="build", data=str(data), folder=str(folder))
            engine.quit()
            if not built["ok"]:
                shutil.rmtree(folder, ignore_errors=True)
                self.cannot(name, f"building {task.name}", built)
                return None
            self.add(
                task=task.name, what="build from terms", engine=name, seconds=built["seconds"], bytes=built["bytes"]
            )
            engine = self.start(name)
        opened, about = engine.tell(do="open", folder=str(folder)), engine.tell(do="about")
        if not opened["ok"]:
            self.cannot(name, f"opening {task.name}", opened)
            engine.quit()
            return None
        note = f"{name} {about['version']}: {about['notes']}"
        if note not in self.notes:
            self.notes.append(note)
        return engine

    def _search(self, task: Task, name: str, engine: EngineProcess, data: Path, k: int, mode: str, turn: int) -> None:
        saved = self.folder / "found.npz" if name == OURS else None
        answer = engine.tell(do="search", queries=str(data / "queries"), k=k, mode=mode, save=saved and str(saved))
        if not answer["ok"]:
            self.cannot(name, f"searching {task.name} at k = {k}", answer)
            return
        facts = {"milliseconds": 1000 * answer["seconds"] / answer["queries"]}
        if mode == "single":
            facts["p99"] = 1000 * float(np.percentile(answer["per_query"], 99))
        if saved:
            wrong = check(data, np.load(saved), k, self.options.checked, [turn, k, len(mode)])
            if wrong:
                raise SystemExit(f"{task.name}, k = {k}: {wrong} rankings are not those of exhaustive scoring")
        self.add(task=task.name, what=mode, engine=name, k=k, round=turn, **facts)

    # From text

    def run_text(self) -> None:
        self.say("From text")
        questions = self.folder / "words" / "questions.json"
        corpus = [self._corpus()]
        names = self._asked(BM25_ENGINES)
        for turn in range(self.options.builds):
            for name in names if turn % 2 == 0 else reversed(names):
                engine = self.start(name)
                folder = str(self.folder / "indexes" / "text" / name)
                built = engine.tell(do="build_text", files=corpus, folder=folder, threads=self.options.build_threads)
                engine.quit()
                if not built["ok"]:
                    self.cannot(name, "building from text", built)
                    continue
                facts = {
                    key: built[key]
                    for key in ("seconds", "processor", "bytes", "peak_mb", "child_peak_mb")
                    if key in built
                }
                self.add(task="text", what="build", engine=name, round=turn, **facts)
        engines = {name: self.start(name) for name in names}
        opened = {
            name: engine
            for name, engine in engines.items()
            if engine.tell(do="open", folder=str(self.folder / "indexes" / "text" / name))["ok"]
        }
        self._ask_in_turns(opened, questions)
        for engine in engines.values():
            engine.quit()

    def _ask_in_turns(self, engines: dict[str, EngineProcess], questions: Path) -> None:
        """The times of each round, and the least time of each question, which other work hardly disturbs."""
        least: dict[tuple[str, int], np.ndarray] = {}
        for turn in range(self.options.rounds):
            for k in (10, 100, 1000):
                for name in list(engines) if turn % 2 == 0 else reversed(list(engines)):
                    answer = engines[name].tell(do="search_text", queries=str(questions), k=k, limit=500)
                    if answer["ok"]:
                        times = 1000 * np.array(answer["per_query"])
                        least[name, k] = np.minimum(times, least.get((name, k), times))
                        self._add_times("end to end", name, k, turn, times)
                    else:
                        self.cannot(name, f"searching text at k = {k}", answer)
        for (name, k), times in least.items():
            self._add_times("end to end, least time of each question", name, k, 0, times)

    def _add_times(self, what: str, name: str, k: int, turn: int, times: np.ndarray) -> None:
        p99 = float(np.percentile(times, 99))
        self.add(task="text", what=what, engine=name, k=k, round=turn, milliseconds=float(times.mean()), p99=p99)

    def _corpus(self) -> str:
        if not self.options.documents:
            return str(self.options.corpus)
        part = self.folder / "corpus.jsonl"
        if not part.exists():
            with open(self.options.corpus, encoding="utf-8") as lines:
                part.write_text("".join(line for line, _ in zip(lines, range(self.options.documents), strict=False)))
        return str(part)

    # Our own: threads and starting cold

    def run_threads(self) -> None:
        from vizsla.index import Index

        self.say("Threads")
        questions = json.loads((self.folder / "words" / "questions.json").read_text())
        with Index.open(self.folder / "indexes" / "text" / OURS) as index:
            one = _told_shortly(index.search_many(questions, 10, threads=1, documents=False))
            for turn in range(PAIRS):
                for threads in THREADS if turn % 2 else reversed(THREADS):
                    started = time.perf_counter()
                    found = index.search_many(questions, 10, threads=threads, documents=False)
                    seconds = time.perf_counter() - started
                    if _told_shortly(found) != one:
                        raise SystemExit("what is found depends on the number of threads")
                    self.add(task="text", what="search_many", engine=OURS, k=10, threads=threads, round=turn,
                             milliseconds=1000 * seconds / len(questions))  # fmt: skip
        self._run_processes(str(self.folder / "indexes" / "text" / OURS), questions[::2])

    def _run_processes(self, index: str, questions: list[str]) -> None:
        """What the machine allows: one process alone, and two that share nothing at the same time."""
        start = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, start) as one, ProcessPoolExecutor(1, start) as two:
            for turn in range(-1, PAIRS):  # the first time warms up
                alone = one.submit(time_search, index, questions).result()
                together = [pool.submit(time_search, index, questions) for pool in (one, two)]
                if turn >= 0:
                    self.add(task="text", what="processes", engine=OURS, k=10, round=turn, alone=alone,
                             together=max(f.result() for f in together))  # fmt: skip
                else:
                    [f.result() for f in together]

    def run_cold(self) -> None:
        self.say("Starting")
        vizsla = str(Path(sys.executable).with_name("vizsla"))
        index = str(self.folder / "indexes" / "text" / OURS)
        commands = {
            "import numba": [sys.executable, "-c", "import numba"],
            "vizsla search": [vizsla, "search", index, "who founded the roman empire"],
        }
        for turn in range(-1, 2 * self.options.rounds):  # the first time warms the caches
            for name, command in commands.items():
                started = time.perf_counter()
                subprocess.run(command, check=True, capture_output=True)
                if turn >= 0:
                    self.add(task="start", what=name, engine=OURS, round=turn, seconds=time.perf_counter() - started)


@cache
def _opened(index: str) -> Any:
    from vizsla.index import Index

    return Index.open(index)


def time_search(index: str, questions: list[str]) -> float:
    """How long questions take in one thread of this process."""
    opened = _opened(index)
    started = time.perf_counter()
    opened.search_many(questions, 10, threads=1, documents=False)
    return time.perf_counter() - started


def _told_shortly(rankings: list[list[Any]]) -> int:
    """A number that tells rankings apart; to keep them all would give Python's garbage collector work."""
    return hash(tuple((hit.id, hit.score) for hits in rankings for hit in hits))


def check(data: Path, found: Any, k: int, count: int, seed: list[int]) -> int:
    """How many of some rankings differ from exhaustive scoring by the definition."""
    from exhaustive import Exhaustive

    truth = Exhaustive.load(data)
    queries = np.random.default_rng(seed).permutation(len(truth.queries))[:count]
    return sum(not truth.agrees(q, found["ids"][q], found["scores"][q], k) for q in queries.tolist())


APPROXIMATE = ("seismic",)
Result = dict[str, Any]

# What must be shown: a bar on our figure divided by the best exact peer's.
BARS = {
    ("words", "batch", 10, "milliseconds"): 0.5,
    ("words", "batch", 100, "milliseconds"): 0.5,
    ("words", "batch", 1000, "milliseconds"): 0.7,
    ("words", "single", 10, "p99"): 0.7,
    ("pieces", "batch", 10, "milliseconds"): 0.8,
    ("pieces", "batch", 1000, "milliseconds"): 0.8,
    ("text", "build", None, "seconds"): 1.0,
    ("text", "end to end", 10, "milliseconds"): 0.5,
    ("text", "end to end", 100, "milliseconds"): 0.5,
    ("text", "end to end", 1000, "milliseconds"): 0.8,
}


def write_report(folder: Path, results: list[Result], notes: list[str], machine: Result, options: Result) -> None:
    whole = {"machine": machine, "options": options, "notes": notes, "results": results}
    (folder / "results.json").write_text(json.dumps(whole, indent=1))
    tables = [*_tables(results), *_own_tables(results)]
    text = "\n\n".join(tables) + "\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"
    (folder / "results.md").write_text(text)
    (folder / "results.svg").write_text(picture(results))
    print(text)


def median(results: list[Result], measure: str) -> float:
    return float(np.median([r[measure] for r in results]))


def spread(results: list[Result], measure: str) -> str:
    values = [r[measure] for r in results]
    return f"{np.median(values):.3g} ({min(values):.3g}-{max(values):.3g})" if len(values) > 1 else f"{values[0]:.3g}"


def _grouped(results: list[Result], *keys: str) -> dict[tuple[Any, ...], list[Result]]:
    groups = defaultdict(list)
    for r in results:
        groups[tuple(r.get(key) for key in keys)].append(r)
    return dict(groups)


def _ratio(by_engine: dict[str, list[Result]], measure: str) -> tuple[float, str] | None:
    """Ours divided by the best exact peer's, and which peer that is."""
    peers = {e: median(rows, measure) for e, rows in by_engine.items() if e != OURS and e not in APPROXIMATE}
    if OURS not in by_engine or not peers:
        return None
    best = min(peers, key=peers.__getitem__)
    return median(by_engine[OURS], measure) / peers[best], best


def _tables(results: list[Result]) -> list[str]:
    """One table for each task and way of measuring, engines as columns."""
    out = []
    for (task, what), rows in _grouped(results, "task", "what").items():
        if what in ("search_many", "processes", "import numba", "vizsla search", "growth"):
            continue
        measures = [m for m in ("milliseconds", "p99", "seconds", "bytes") if any(m in r for r in rows)]
        engines = list(dict.fromkeys(r["engine"] for r in rows))
        lines = [f"**{task}, {what}**: median (least-most) of the rounds", ""]
        lines.append("| | " + " | ".join(engines) + " | ratio to the best exact peer | bar |")
        lines.append("|---" * (len(engines) + 3) + "|")
        for measure in measures:
            for (k,), some in _grouped([r for r in rows if measure in r], "k").items():
                by_engine = {e: found for (e,), found in _grouped(some, "engine").items()}
                cells = [spread(by_engine[e], measure) if e in by_engine else "-" for e in engines]
                ratio = _ratio(by_engine, measure)
                told = f"{ratio[0]:.2f} of {ratio[1]}" if ratio else "-"
                bar = BARS.get((task, what, k, measure))
                name = measure if k is None else f"{measure}, k = {k}"
                lines.append(f"| {name} | " + " | ".join(cells) + f" | {told} | {bar or ''} |")
        out.append("\n".join(lines))
    return out


def _own_tables(results: list[Result]) -> list[str]:
    """Threads and starting, which have no peers, and the size beside tantivy's."""
    lines = ["**Ours alone**", "", "| what | figure | bar |", "|---|---|---|"]

    def pick(test: Callable[[Result], bool], measure: str) -> float | None:
        rows = [r for r in results if test(r)]
        return median(rows, measure) if rows else None

    def add(what: str, a: float | None, b: float | None, bar: str) -> None:
        if a is not None and b:
            lines.append(f"| {what} | {a / b:.2f} | {bar} |")

    def is_build(engine: str) -> Callable[[Result], bool]:
        return lambda r: (r["task"], r["what"], r["engine"]) == ("text", "build", engine)

    many = [r for r in results if r["what"] == "search_many"]
    if many:
        pairs = [{r["threads"]: r["milliseconds"] for r in pair} for pair in _grouped(many, "round").values()]
        gain = float(np.median([pair[1] / pair[2] for pair in pairs]))
        both = [row for row in results if row["what"] == "processes"]
        if both:
            most = float(np.median([2 * row["alone"] / row["together"] for row in both]))
            lines.append(f"| two processes that share nothing over one: what the machine allows | {most:.2f} | |")
        what = f"search_many on two threads over one, median of {len(pairs)} pairs"
        lines.append(f"| {what} | {gain:.2f} | at least 1.8 |")
        more = [pair[1] / pair[4] for pair in pairs if 4 in pair]
        if more:
            lines.append(f"| search_many on four threads over one | {np.median(more):.2f} | |")
    started, bare = (pick(lambda r, w=w: r["what"] == w, "seconds") for w in ("vizsla search", "import numba"))
    add("vizsla search from the shell over import numba", started, bare, "at most 3")
    add(
        "index from text over tantivy's",
        pick(is_build(OURS), "bytes"),
        pick(is_build("tantivy"), "bytes"),
        "at most 1.7",
    )
    return ["\n".join(lines)] if len(lines) > 4 else []


COLOURS = {OURS: "#c05a1c", "bm25s": "#5b7aa5", "tantivy": "#7a8f63", "pisa": "#8a6d9c", "lucene": "#8a8a8a"}


def picture(results: list[Result]) -> str:
    """Bars of milliseconds a query, for the words task in batches."""
    rows = [r for r in results if (r["task"], r["what"]) == ("words", "batch")]
    groups = {k: {e: median(found, "milliseconds") for (e,), found in _grouped(some, "engine").items()}
              for (k,), some in _grouped(rows, "k").items()}  # fmt: skip
    top = max((v for group in groups.values() for v in group.values()), default=1.0)
    height, wide, gap, x = 220, 26, 30, 40
    parts = []
    for k, group in groups.items():
        start = x
        for engine, value in sorted(group.items(), key=lambda item: item[1]):
            tall = height * value / top
            parts.append(
                f'<rect x="{x}" y="{250 - tall:.1f}" width="{wide - 4}" height="{tall:.1f}" '
                f'fill="{COLOURS.get(engine, "#aaa")}"/>'
                f'<text x="{x + 11}" y="{245 - tall:.1f}" text-anchor="middle">{value:.2f}</text>'
            )
            x += wide
        parts.append(f'<text x="{(start + x) / 2:.0f}" y="270" text-anchor="middle">k = {k}</text>')
        x += gap
    for i, (engine, colour) in enumerate(COLOURS.items()):
        parts.append(f'<rect x="{x}" y="{40 + 20 * i}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="{50 + 20 * i}">{engine}</text>')
    title = '<text x="40" y="18">Milliseconds a query, one thread, exact top k</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{x + 100}" height="285" '
        'font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="white"/>{title}{"".join(parts)}</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--questions", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--peers", required=True)
    parser.add_argument("--documents", type=int, help="only the first so many")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--builds", type=int, default=2)
    parser.add_argument(
        "--build-threads", type=int, default=os.cpu_count(), help="of engines that build from text in threads"
    )
    parser.add_argument("--checked", type=int, default=20, help="rankings compared with exhaustive scoring each time")
    parser.add_argument("--engines", help="only these, as in vizsla,tantivy")
    parser.add_argument("--bm26e", help="the folder of a BM26e, for the part of that name")
    parser.add_argument("--only", default="words,pieces,vectors,text,threads,start")
    options = parser.parse_args()
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    bench = Bench(options)
    parts = options.only.split(",")
    for task in TASKS:
        if task.name in parts:
            bench.run_task(task)
    for name, run in (("text", bench.run_text), ("threads", bench.run_threads), ("start", bench.run_cold)):
        if name in parts:
            run()
    machine = {"system": platform.platform(), "processors": os.cpu_count(), "python": platform.python_version()}
    write_report(bench.folder, bench.results, bench.notes, machine, vars(options))


if __name__ == "__main__":
    main()
