"""Let every file operation of adding and of a commit fail once, and see whether what is said of it is true.

    python tests/faults.py

A library that is loaded before all others (Linux and a C compiler are needed) counts the writes, syncs, truncations,
renamings and removals below a folder, SQLite's included, and lets the one with a given number fail, alone or with all
that follow. For each number a child process changes an index and commits; then the index must show exactly the new
state if the commit returned or said that it was made, and exactly the old state if it failed. `verify` must find
nothing wrong, and the next writer must be able to go on.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long at = 0, calls = 0;
static int code = 0, onward = 0, armed = 0;

void faults_arm(const char *where, long number, int error, int all_that_follow) {
    strncpy(folder, where, PATH_MAX - 1);
    at = number; code = error; onward = all_that_follow; calls = 0; armed = 1;
}
long faults_disarm(void) { armed = 0; return calls; }

static int below(const char *path) { return strncmp(path, folder, strlen(folder)) == 0; }

static int below_descriptor(int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return below(path);
}

static int fails(int is_below) {
    if (!armed || !is_below) return 0;
    calls++;
    if (calls == at || (onward && at && calls > at)) { errno = code; return 1; }
    return 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WATCH(result, name, arguments, given, place) \
    result name arguments { if (armed && fails(place)) return -1; return REAL(name) given; }

WATCH(ssize_t, write, (int fd, const void *data, size_t n), (fd, data, n), below_descriptor(fd))
WATCH(ssize_t, pwrite, (int fd, const void *data, size_t n, off_t o), (fd, data, n, o), below_descriptor(fd))
WATCH(ssize_t, pwrite64, (int fd, const void *data, size_t n, off64_t o), (fd, data, n, o), below_descriptor(fd))
WATCH(int, fsync, (int fd), (fd), below_descriptor(fd))
WATCH(int, fdatasync, (int fd), (fd), below_descriptor(fd))
WATCH(int, ftruncate, (int fd, off_t n), (fd, n), below_descriptor(fd))
WATCH(int, ftruncate64, (int fd, off64_t n), (fd, n), below_descriptor(fd))
WATCH(int, rename, (const char *a, const char *b), (a, b), below(a))
WATCH(int, unlink, (const char *path), (path), below(path))
WATCH(int, rmdir, (const char *path), (path), below(path))
WATCH(int, mkdir, (const char *path, mode_t mode), (path, mode), below(path))
"""

COMMITTED = "the changes are committed"


def library(folder: Path) -> Path | None:
    """The library, compiled; None where it cannot be."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    source, made = folder / "faults.c", folder / "faults.so"
    source.write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, source, "-ldl"], check=True)
    return made


@dataclass(frozen=True)
class Scenario:
    """An index, a change to it, and how the change is made durable."""

    name: str
    model: Callable[[], Any]
    dense: str
    finish: Callable[[Any], None]
    adding: bool = False
    """Whether operations of adding fail, too, segments being written all the time."""


def scenarios() -> list[Scenario]:
    from scattered import Scattered, ScatteredMatches, ScatteredTokens
    from vizsla.models import parse_model

    def bm25() -> Any:
        return parse_model("bm25")

    def mixed() -> Any:
        return parse_model("bm25") + Scattered()

    hnsw = "hnsw(min_documents=20)"
    return [
        Scenario("sparse", bm25, "exact", lambda index: index.commit()),
        Scenario("sparse, compacted", bm25, "exact", lambda index: index.compact()),
        Scenario("dense", Scattered, hnsw, lambda index: index.commit()),
        Scenario("dense, compacted", Scattered, hnsw, lambda index: index.compact()),
        Scenario("mixed", mixed, hnsw, lambda index: index.commit()),
        Scenario("tokens", ScatteredTokens, "exact", lambda index: index.commit()),
        Scenario("tokens, compacted", ScatteredTokens, "sq8", lambda index: index.compact()),
        Scenario("plaid", ScatteredTokens, "plaid(min_documents=20, nlist=8)", lambda index: index.commit()),
        Scenario("plaid, compacted", ScatteredTokens, "plaid(min_documents=20)", lambda index: index.compact()),
        Scenario("coil", ScatteredMatches, "sq8", lambda index: index.commit()),
        Scenario("coil, compacted", ScatteredMatches, "exact", lambda index: index.compact()),
        Scenario("adding", bm25, "exact", lambda index: index.commit(), adding=True),
    ]


def documents(ids: range, turn: int) -> list[dict[str, Any]]:
    return [{"id": str(i), "text": f"common w{i} t{turn}", "turn": turn} for i in ids]


def change(index: Any) -> None:
    """The change that is committed: documents that are new, that replace others, that go."""
    index.add(documents(range(30, 70), 1))
    index.delete([str(i) for i in range(5)])


def state(place: Path) -> dict[str, int]:
    """What an index holds, each of it findable."""
    from vizsla.index import Index

    with Index.open(place) as index:
        stored = {d.id: d["turn"] for d in index.documents()}
        found = {h.id: h["turn"] for h in index.search("common", 1000, search_params="exact")}
        assert found == stored, "what is stored and what can be found differ"
    return stored


def attempt(place: Path, scenario: Scenario, faults: Any, number: int, code: int, onward: bool) -> dict[str, Any]:
    """In a child process: change, arm, commit, disarm; gives what came of it."""
    from vizsla.errors import VizslaError
    from vizsla.index import Index

    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        with open(reader) as answers:
            text = answers.read()
        os.waitpid(pid, 0)
        answer: dict[str, Any] = json.loads(text) if text else {"outcome": "raw", "said": "the process died"}
        return answer
    outcome, said = "fine", ""
    try:
        index = Index.open(place, memory=1 if scenario.adding else 1 << 20)
        if not scenario.adding:
            change(index)
        faults.faults_arm(str(place).encode(), number, code, onward)
        try:
            if scenario.adding:
                change(index)
            scenario.finish(index)
        except VizslaError as e:
            outcome, said = "told", str(e)
        calls = faults.faults_disarm()
        index.close()
    except BaseException as e:
        calls = faults.faults_disarm()
        outcome, said = "raw", f"{type(e).__name__}: {e}"
    os.write(writer, json.dumps({"outcome": outcome, "said": said, "calls": calls}).encode())
    os._exit(0)


def wrong_about(place: Path, answer: dict[str, Any], old: dict[str, int], new: dict[str, int]) -> str | None:
    """What is not true of what was said, or not whole in what is left."""
    from vizsla.index import Index
    from vizsla.index.storage.verify import verify

    problems = verify(place)
    if problems:
        return f"verify: {problems[0]}"
    found = state(place)
    made = answer["outcome"] == "fine" or (answer["outcome"] == "told" and COMMITTED in answer["said"])
    if answer["outcome"] == "raw":
        return f"a raw error: {answer['said']}"
    if found != (new if made else old):
        return f"{'new' if made else 'old'} was expected after {answer['said']!r}, and something else is there"
    with Index.open(place) as index:
        index.add(documents(range(900, 903), 9))
        index.commit()
    return None if state(place).keys() == found.keys() | {"900", "901", "902"} else "the next writer cannot go on"


def sweep(folder: Path, faults: Any, chosen: list[Scenario], step: int) -> Iterator[tuple[str, int, str | None]]:
    """Scenario, number of the operation, and what was wrong, for every step-th operation, alone and with the rest."""
    from vizsla.index import Index

    for scenario in chosen:
        start, work = folder / "start", folder / "work" / "i"
        shutil.rmtree(start, ignore_errors=True)
        with Index.create(start, scenario.model(), vector_index=scenario.dense) as index:
            index.add(documents(range(40), 0))
            index.commit()
        old = state(start)

        def fresh(start: Path = start, work: Path = work) -> None:
            shutil.rmtree(work.parent, ignore_errors=True)
            shutil.copytree(start, work)

        fresh()
        calls = attempt(work, scenario, faults, 0, 0, False)["calls"]
        new = state(work)
        assert new != old, scenario.name
        for number in range(1, calls + 1, step):
            for code, onward in ((errno.EIO, False), (errno.ENOSPC, True)):
                fresh()
                answer = attempt(work, scenario, faults, number, code, onward)
                yield scenario.name, number, wrong_about(work, answer, old, new)


def run(folder: Path, step: int, only: str | None = None) -> tuple[int, list[str]]:
    """How many faults there were, and what was wrong. The library must have been loaded before all others."""
    faults = ctypes.CDLL(os.environ["LD_PRELOAD"])
    faults.faults_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
    faults.faults_disarm.restype = ctypes.c_long
    chosen = [s for s in scenarios() if only in (None, s.name)]
    outcomes = list(sweep(folder, faults, chosen, step))
    return len(outcomes), [f"{name}, operation {number}: {wrong}" for name, number, wrong in outcomes if wrong]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=int, default=1, help="try every so many-th operation")
    parser.add_argument("--only", help="one scenario")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "VIZSLA_FAULTS" not in os.environ:
            made = library(folder)
            if made is None:
                sys.exit("this needs Linux and a C compiler")
            command = [sys.executable, *sys.argv]
            sys.exit(
                subprocess.run(command, env={**os.environ, "LD_PRELOAD": str(made), "VIZSLA_FAULTS": "1"}).returncode
            )
        count, wrong = run(folder, options.step, options.only)
    print("\n".join(wrong) or f"{count} operations failed, and each time what was said was true and the rest whole")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
