"""Runs one peer engine: reads one JSON command per line, and writes one JSON answer per line.

    python bench/peers/serve.py PEER      PEER: a name of PEERS, such as bm25s

Commands (fields in brackets may be left out):
    {"do": "about"}
    {"do": "build", "data": FOLDER, "folder": FOLDER, ["threads": 1]}
    {"do": "build_text", "files": [FILE, ...], "folder": FOLDER, ["threads": 1]}
    {"do": "open", "folder": FOLDER}
    {"do": "search", "queries": FOLDER, "k": 10, ["mode": "batch" | "single", "limit": N, "warm": N, "save": FILE]}
    {"do": "search_text", "queries": FILE, "k": 10, ["limit": N, "warm": N, "save": FILE]}
    {"do": "quit"}
build and search also take "options", a dictionary of settings of the peer (see "settings" in the answer to about);
they stay as set.

Every answer has "ok"; if false, "reason". "seconds" is what was timed, "processor" the processor time of a build from
text, "per_query" the seconds of each query, "bytes" the size of the index on disk, "peak_mb" the most memory the
process had during this command, "resident_mb" what it has now, "child_peak_mb" what the largest child process had,
where a peer builds in one. A folder to build into is emptied first. Queries are prepared, and a number of searches is
run, before timing starts; Python's garbage collector is off while timing. Whatever libraries print goes to standard
error.
"""

from __future__ import annotations

import os

# Before anything is imported: searching has one thread.
for _name in ("OMP", "OPENBLAS", "MKL", "NUMBA", "RAYON"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"
os.environ.setdefault("DISABLE_TQDM", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import contextlib  # noqa: E402
import gc  # noqa: E402
import importlib  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
import shutil  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from protocol import Peer, Rows, read_questions, table  # noqa: E402

PEERS = {
    "vizsla": ("vizsla_", "PEER"),
    "bm25s": ("bm25s_", "PEER"),
    "bm25x": ("bm25x_", "PEER"),
    "bm25-turbo": ("bm25_turbo_", "PEER"),
    "retrievalx": ("retrievalx_", "PEER"),
    "tantivy": ("tantivy_", "PEER"),
    "pisa": ("pisa", "PEER"),
    "lucene": ("lucene", "PEER"),
    "pisa-sparse": ("pisa", "SPARSE"),
    "bmp": ("bmp_", "PEER"),
    "seismic": ("seismic_", "PEER"),
}
Answer = dict[str, Any]
WARM_SECONDS = 20.0  # warming up ends after this


class Server:
    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.folder: Path | None = None
        self.prepared: tuple[Any, list[Any]] = (None, [])
        self.warmed: set[tuple[str, int]] = set()

    def about(self, _: Answer) -> Answer:
        peer = self.peer
        about = {"name": peer.name, "version": peer.version(), "kind": peer.kind, "notes": peer.notes}
        return {**about, "settings": peer.settings}

    def build(self, command: Answer) -> Answer:
        folder, threads = _emptied(command["folder"]), int(command.get("threads", 1))
        started = time.perf_counter()
        extra = self.peer.build(Path(command["data"]), folder, threads)
        return {"seconds": time.perf_counter() - started, "bytes": size_of(folder), **extra}

    def build_text(self, command: Answer) -> Answer:
        folder, threads = _emptied(command["folder"]), int(command.get("threads", 1))
        files = [Path(file) for file in command["files"]]
        started, worked = time.perf_counter(), processor_seconds()
        extra = self.peer.build_from_text(files, folder, threads)
        seconds, processor = time.perf_counter() - started, processor_seconds() - worked
        return {"seconds": seconds, "processor": processor, "bytes": size_of(folder), **extra}

    def open(self, command: Answer) -> Answer:
        self.folder = Path(command["folder"])
        self.prepared, self.warmed = (None, []), set()
        started = time.perf_counter()
        self.peer.open(self.folder)
        return {"seconds": time.perf_counter() - started, "bytes": size_of(self.folder)}

    def search(self, command: Answer) -> Answer:
        k, mode = int(command["k"]), command.get("mode", "batch")
        queries = self._prepare(command["queries"], command.get("limit"))
        run = self.peer.batch if mode == "batch" else self.peer.single
        self._warm(mode, k, command.get("warm"), queries)
        with no_garbage_collection():
            started = time.perf_counter()
            results = run(queries, k)
            seconds = time.perf_counter() - started
        answer: Answer = {"seconds": seconds, "queries": len(queries), "mode": mode, "k": k}
        if mode == "single":
            answer["per_query"], results = results
            answer["seconds"] = sum(answer["per_query"])
        if command.get("save"):
            save(command["save"], *table(self.peer.hits(results), k))
        return answer

    def search_text(self, command: Answer) -> Answer:
        k, peer = int(command["k"]), self.peer
        questions = read_questions(Path(command["queries"]))[: command.get("limit")]
        self._warm("text", k, command.get("warm"), questions)
        seconds, results = [], []
        with no_garbage_collection():
            for question in questions:
                started = time.perf_counter()
                found = peer.ask(question, k)
                seconds.append(time.perf_counter() - started)
                results.append(found)
        if command.get("save"):
            save(command["save"], *table(results, k))
        return {"seconds": sum(seconds), "per_query": seconds, "queries": len(questions), "k": k}

    def _prepare(self, folder: str, limit: int | None) -> list[Any]:
        """Query objects, made once as long as the same queries are asked for."""
        if self.prepared[0] != (folder, limit):
            self.prepared = ((folder, limit), self.peer.prepare(Rows.load(Path(folder), limit)))
        return self.prepared[1]

    def _warm(self, mode: str, k: int, count: int | None, queries: list[Any]) -> None:
        if (mode, k) in self.warmed or not queries:
            return
        self.warmed.add((mode, k))
        left = self.peer.warm if count is None else count
        run = {"batch": self.peer.batch, "single": self.peer.single, "text": self._ask_all}[mode]
        started = time.perf_counter()
        while left > 0 and time.perf_counter() - started < WARM_SECONDS:
            part = queries[: min(left, 500)]
            run(part, k)
            left -= len(part)

    def _ask_all(self, questions: list[str], k: int) -> None:
        for question in questions:
            self.peer.ask(question, k)


def _emptied(name: str) -> Path:
    folder = Path(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def processor_seconds() -> float:
    """Of all threads of this process, and of child processes that have ended."""
    return sum(os.times()[:4])


def save(name: str, ids: np.ndarray, scores: np.ndarray) -> None:
    np.savez(name, ids=ids, scores=scores)


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def forget_peak() -> None:
    """Let the kernel count this process's peak of memory from here."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def memory(building: bool) -> Answer:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = int(fields["VmHWM"].split()[0])
    found = {"peak_mb": round(peak / 1024, 1), "resident_mb": round(int(fields["VmRSS"].split()[0]) / 1024, 1)}
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {**found, "child_peak_mb": round(child / 1024, 1)} if building and child else found


def load(name: str) -> Peer:
    if name not in PEERS:
        raise ImportError(f"no such peer: {name}; there are {', '.join(PEERS)}")
    module, attribute = PEERS[name]
    return getattr(importlib.import_module(module), attribute)()


def answer(server: Server, command: Answer) -> Answer:
    what = command.get("do")
    if what not in ("about", "build", "build_text", "open", "search", "search_text"):
        return {"ok": False, "reason": f"no such command: {what}"}
    server.peer.set(command.get("options", {}))
    forget_peak()
    result = getattr(server, what)(command)
    return {"ok": True, **result, **memory(what.startswith("build"))}


def reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def main() -> None:
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever libraries print goes to standard error
    sys.stdout = sys.stderr
    server, failed = None, ""
    try:
        server = Server(load(sys.argv[1] if len(sys.argv) > 1 else ""))
    except Exception as error:
        failed = reason(error)
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            command = json.loads(line)
            if command.get("do") == "quit":
                out.write(json.dumps({"ok": True}) + "\n")
                break
            reply = {"ok": False, "reason": failed} if server is None else answer(server, command)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic in Rust is no Exception
            reply = {"ok": False, "reason": reason(error)}
        out.write(json.dumps(reply) + "\n")
    out.flush()
    os._exit(0)  # no JVM or thread pool shall hold it up


if __name__ == "__main__":
    main()
