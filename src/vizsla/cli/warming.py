"""Compile the common kernels at once: at the first command that needs one, or when `vizsla warm-up` says so.

Numba compiles one kernel at a time in a process, so two processes share the work. Each does what commands do, with a
small index, and stores the compiled kernels. A command that waits goes on when the kernel that it needs is stored.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vizsla import compiling
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from collections.abc import Iterator


def warm_up_verb() -> None:
    """Compile the common kernels for this machine now.

    These are the kernels of indexing, updating and searching; others, as those of phrases and of dense vectors, are
    compiled at their first use. Run it where a machine or an image is set up; a second time it does nothing. Kernels
    go beside the package, or to the user's cache if that cannot be written; NUMBA_CACHE_DIR names another folder.
    """
    from vizsla.cli import console
    from vizsla.kernels import store

    folder = store.folder()
    if folder is None:
        raise VizslaError(
            "no folder for compiled kernels can be written, neither beside the package nor in the user's cache; "
            "set NUMBA_CACHE_DIR to one"
        )
    started = time.perf_counter()
    done = "Compiled" if _warm_up(check=True) else "Compiled before"
    took = f"{time.perf_counter() - started:.1f} s"
    console.remark(f"{done}: common kernels in {folder} ({took}). Others are compiled at their first use.")


def warm_up() -> bool:
    """Compile common kernels to disk; returns False if they were compiled before, or if that failed."""
    return _warm_up(check=False)


def start() -> Callable[[], bool] | None:
    """Have all kernels compiled by other processes, which end with this one; returns what tells whether they run.

    None if the kernels were compiled before, or cannot be stored.
    """
    marker = _marker()
    if marker is None or marker.exists():
        return None
    compiling.announce()
    thread = threading.Thread(target=warm_up, daemon=True)
    thread.start()
    return thread.is_alive


def _warm_up(*, check: bool) -> bool:
    marker = _marker()
    if marker is None or marker.exists():
        return False
    compiling.announce()
    with _locked(marker.with_suffix(".lock")):
        if not marker.exists():  # another process may have compiled them in the meantime
            if not _compile_all(check=check):
                return False
            with suppress(OSError):
                marker.touch()
    return True


def _marker() -> Path | None:
    """The file that exists if all kernels are compiled for these sources, this version of numba and this processor."""
    from vizsla.kernels import store

    folder = store.folder()
    return None if folder is None else folder / "warm"


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


def _compile_all(*, check: bool = False) -> bool:
    """Share the parts among processes, one for each core; returns False if one failed, or says why with `check`."""
    package = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths}
    workers: list[subprocess.Popen[bytes]] = []
    try:
        with tempfile.TemporaryFile() as messages:
            for share in _shares(os.cpu_count() or 1):
                command = [sys.executable, "-P", "-c", f"from vizsla.cli.warming import work; work(*{share!r})"]
                pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": messages}
                workers.append(subprocess.Popen(command, env=environment, **pipes))  # type: ignore[call-overload]
            codes = [worker.wait() for worker in workers]
            if not any(codes):
                return True
            messages.seek(0)
            message = messages.read().decode(errors="replace").strip().splitlines()[-1:]
    except OSError as e:  # processes cannot be started; kernels are then compiled when they are needed
        message = [str(e)]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    if check:
        raise VizslaError(f"the kernels could not be compiled: {' '.join(message) or 'a process was stopped'}")
    return False


def _shares(cores: int) -> list[list[str]]:
    """Which parts each process does: one of them the search, which takes as long as all others together.

    >>> _shares(2)
    [['search'], ['text', 'write', 'update']]
    """
    first, *others = PARTS
    return [[first, *others]] if cores == 1 else [[first], others]


def work(*parts: str) -> None:
    """Do some parts of the work; exit when the parent process ends, which closes standard input."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    gc.disable()  # nearly all that numba makes stays: looking for what does not takes a tenth of the time
    with tempfile.TemporaryDirectory(prefix="vizsla-") as folder:
        for part in parts:
            PARTS[part](Path(folder) / part)


def _text(folder: Path) -> None:
    """Analyse a text alone, and many at once; read ids as a search does."""
    import numpy as np

    from vizsla.text import Analyzer
    from vizsla.text.stored_ids import StoredIds
    from vizsla.text.stored_texts import StoredTexts

    del folder
    analyzer = Analyzer.parse("lucene-english")
    analyzer.tokens("dogs")
    analyzer("dogs")
    numbers = range(40_000)  # more words than at first fit, and as many longer ones
    analyzer.lexicon().encode(
        ["A dog barks at cats.", " ".join(map(str, numbers)), " ".join(f"{n:08}" for n in numbers)]
    )
    StoredIds(StoredTexts.of(["d1"]), np.array([0, 2], np.uint32)).at(np.arange(2))


def _write(folder: Path) -> None:
    """Analyse, index, look at an index and explain."""
    from vizsla.datasets import Source
    from vizsla.index import Index, term_statistics

    lines = folder.with_name("lines.jsonl")
    lines.write_text('{"id": "9", "title": "Dogs", "text": "A dog barks at cats."}\n')
    with Index.create(folder, "bm25") as index:
        index.add([{"id": str(i), "title": "Dogs", "text": "A dog barks at cats."} for i in range(8)])
        index.add(Source.find(lines).raw_lines() or ())
        index.commit()
        index.explain("dogs", "1")
    with Index.open(folder) as index:
        term_statistics(index, "dogs")
        index.explain("dogs", "1")


def _update(folder: Path) -> None:
    """Replace, delete and merge; open the index for each step, as commands do."""
    from vizsla.index import Index
    from vizsla.text.stored_ids import SHORT  # more ids are stored in another way

    with Index.create(folder, "bm25") as index:
        index.add([{"id": str(i), "title": "Dogs", "text": "A dog barks at cats."} for i in range(SHORT + 8)])
        index.commit()
    with Index.open(folder) as index:
        index.add([{"id": "9", "text": "Birds sing, dogs bark."}])
        index.commit()
    with Index.open(folder) as index:
        index.delete(["2"])
        index.commit()
    with Index.open(folder) as index:
        index.search("dogs")
        index.delete([str(i) for i in range(100, 200)])  # too many to list them
        index.commit()
    with Index.open(folder) as index:
        index.compact()


def _search(folder: Path) -> None:
    """Search for one query and for many, in several segments, with a filter, with precomputed vectors."""
    from vizsla.engine.segment_search import search_segment
    from vizsla.index import Index

    search_segment.compile(SEARCH)  # first, while another process compiles what an index is built with
    with Index.create(folder, "vectors") as index:
        for i in range(2):
            index.add([{"id": f"{i}{j}", "vector": {"a": 1 + j, "b": 2}, "n": j} for j in range(20)])
            index.commit()
        index.search("a b")
        index.search("a b", 10, "n > 1")
        index.search_many(["a", "b"], 10)
        index.explain("a b", "00")
        index.run({"1": "a b", "2": "b"}, 1000)
    with Index.open(folder) as index:
        index.search("a b")


SEARCH = (
    "int64[2]", "uint8[2]r", "uint8[1]r", "int64[1]", "int64[1]", "int64[1]", "int64[1]", "float64[1]", "float64",
    "int64[2]", "float32[2]", "int64[2]", "int64[1]", "uint8[1]",
)  # fmt: skip
"""The types that `search_segment` is called with."""
PARTS: dict[str, Callable[[Path], None]] = {"search": _search, "text": _text, "write": _write, "update": _update}
"""What needs longest comes first, then what a first command needs."""
