"""Compile all kernels at the first command that needs one, so that later commands do not wait.

Numba compiles one kernel at a time in a process, so two processes share the work: one writes a small index, the other
searches one. Both write the compiled kernels to the cache on disk.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vizsla import compiling

if TYPE_CHECKING:
    from collections.abc import Iterator


def warm_up() -> bool:
    """Compile all kernels to disk; returns False if they were compiled before, or if that failed."""
    marker = _marker()
    if marker is None or marker.exists():
        return False
    compiling.announce()
    with _locked(marker.with_suffix(".lock")):
        if not marker.exists():  # another process may have compiled them in the meantime
            if not _compile_all():
                return False
            with suppress(OSError):
                marker.touch()
    return True


def _marker() -> Path | None:
    """The file that exists if all kernels are compiled for these sources, this version of numba and this processor."""
    import numba
    from llvmlite import binding  # type: ignore[import-untyped]

    from vizsla.kernels import cache_folder, stamp

    folder = cache_folder()
    if folder is None:
        return None
    facts = (stamp(), numba.__version__, sys.version, binding.get_host_cpu_name())
    return folder / f"warm-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    """Let one process compile at a time; others wait."""
    try:
        import fcntl

        file = lock.open("w")
    except (ImportError, OSError):
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile_all() -> bool:
    """Run each part of the work in its own process; returns False if one of them failed."""
    package = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths}
    workers: list[subprocess.Popen[bytes]] = []
    try:
        for part in PARTS:
            command = [sys.executable, "-P", "-c", f"from vizsla.cli.warming import work; work({part!r})"]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            workers.append(subprocess.Popen(command, env=environment, **pipes))  # type: ignore[call-overload]
        codes = [worker.wait() for worker in workers]
        return not any(codes)
    except OSError:  # processes cannot be started; kernels are then compiled when they are needed
        return False
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def work(part: str) -> None:
    """Do a part of the work; exit when the parent process ends, which closes standard input."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="vizsla-") as folder:
        PARTS[part](Path(folder) / "index")


def _write(folder: Path) -> None:
    """Analyse, index, replace, delete and merge; open the index for each step, as commands do."""
    from vizsla.index import Index, term_statistics
    from vizsla.text import Analyzer

    Analyzer.parse("lucene-english").tokens("dogs")
    with Index.create(folder, "bm25") as index:
        index.add([{"id": str(i), "title": "Dogs", "text": "A dog barks at cats."} for i in range(8)])
        index.commit()
    with Index.open(folder) as index:
        term_statistics(index, "dogs")
        index.explain("dogs", "1")
        index.add([{"id": "9", "text": "Birds sing, dogs bark."}])
        index.commit()
    with Index.open(folder) as index:
        index.delete(["2"])
        index.commit()
    with Index.open(folder) as index:
        index.compact()


def _search(folder: Path) -> None:
    """Search for one query and for many, in several segments, with a filter, with precomputed vectors."""
    from vizsla.index import Index

    with Index.create(folder, "vectors") as index:
        for i in range(2):
            index.add([{"id": f"{i}{j}", "vector": {"a": 1 + j, "b": 2}, "n": j} for j in range(4)])
            index.commit()
        index.search("a b")
        index.search("a b", 10, "n > 1")
        index.search_many(["a", "b"], 10)
        index.explain("a b", "00")
        index.run({"1": "a b", "2": "b"}, 1000)
    with Index.open(folder) as index:
        index.search("a b")


PARTS: dict[str, Callable[[Path], None]] = {"search": _search, "write": _write}
