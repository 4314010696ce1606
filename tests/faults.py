"""Let every file operation of adding and of a commit fail, and see whether what is said of it is true.

    python tests/faults.py --step 10

A library that is loaded before all others (Linux and a C compiler are needed) counts the writes, syncs, truncations,
renamings and removals below a folder, SQLite's included, and lets the one with a given number fail. For each number two
child processes change an index and commit: in one the operation fails alone, and the process is killed right after the
commit; in the other it fails with all that follow, as on a disk that stays full, and the process closes the index. Then
the index must show exactly the new state if the commit returned or said that it was made, exactly the old state if it
failed, and one of both if it said that this is not known, which it may say only if the disk stays full. `verify` must
find nothing wrong, and the next writer must be able to go on.

See MINUTES for how long all operations take; --step and --only take less.
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
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from traceback import walk_stack
from typing import Any

from progress import Progress

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

static char folder[PATH_MAX], counted[PATH_MAX];
static long at = 0;
static _Atomic long calls = 0;  // threads count, too
static int code = 0, onward = 0, armed = 0;

void faults_arm(const char *where, const char *what, long number, int error, int all_that_follow) {
    strncpy(folder, where, PATH_MAX - 1);
    strncpy(counted, what, PATH_MAX - 1);
    at = number; code = error; onward = all_that_follow; calls = 0; armed = 1;
}
long faults_calls(void) { return calls; }

static int begins(const char *path, const char *with) { return strncmp(path, with, strlen(with)) == 0; }

static int fails(const char *path) {
    if (!begins(path, folder)) return 0;
    int counts = begins(path, counted);
    long number = counts ? ++calls : calls;
    if ((counts && number == at) || (onward && at && number >= at)) { errno = code; return 1; }
    return 0;
}

static int fails_at(int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return fails(path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WATCH(result, name, arguments, given, failing) \
    result name arguments { if (armed && failing) return -1; return REAL(name) given; }

WATCH(ssize_t, write, (int fd, const void *data, size_t n), (fd, data, n), fails_at(fd))
WATCH(ssize_t, pwrite, (int fd, const void *data, size_t n, off_t o), (fd, data, n, o), fails_at(fd))
WATCH(ssize_t, pwrite64, (int fd, const void *data, size_t n, off64_t o), (fd, data, n, o), fails_at(fd))
WATCH(int, fsync, (int fd), (fd), fails_at(fd))
WATCH(int, fdatasync, (int fd), (fd), fails_at(fd))
WATCH(int, ftruncate, (int fd, off_t n), (fd, n), fails_at(fd))
WATCH(int, ftruncate64, (int fd, off64_t n), (fd, n), fails_at(fd))
WATCH(int, rename, (const char *a, const char *b), (a, b), fails(a))
WATCH(int, unlink, (const char *path), (path), fails(path))
WATCH(int, rmdir, (const char *path), (path), fails(path))
WATCH(int, mkdir, (const char *path, mode_t mode), (path, mode), fails(path))
"""

COMMITTED = "the changes are committed, but"
UNKNOWN = "it is not known whether the changes are committed"
MINUTES = 14
"""How long all operations take on an idle machine, from the processor time of some of them."""


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
    file: str = ""
    """Count operations of files only whose names begin so."""
    threads: int = 1
    """How many threads write, merge and pack terms, however little there is; their operations have no fixed order."""


def scenarios() -> list[Scenario]:
    from scattered import Scattered, ScatteredMatches, ScatteredTokens
    from vizsla import parse_model

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
        Scenario("threads", mixed, hnsw, lambda index: index.commit(), adding=True, threads=3),
        Scenario("threads, compacted", bm25, "exact", lambda index: index.compact(), threads=3),
    ]


def documents(ids: range, turn: int) -> list[dict[str, Any]]:
    return [{"id": str(i), "text": f"common w{i} t{turn}", "turn": turn} for i in ids]


def change(index: Any) -> None:
    """The change that is committed: documents that are new, that replace others, that go."""
    index.add(documents(range(30, 70), 1))
    index.delete([str(i) for i in range(5)])


def state(place: Path) -> dict[str, int]:
    """What an index holds, each of it findable."""
    from vizsla import Index

    with Index.open(place) as index:
        stored = {d.id: d["turn"] for d in index.documents()}
        found = {h.id: h["turn"] for h in index.search("common", 1000, search_params="exact")}
        assert found == stored, "what is stored and what can be found differ"
    return stored


def writing() -> list[str]:
    """The functions that read or write files of segments in other threads."""
    own = threading.get_ident()
    frames = [f for thread, first in sys._current_frames().items() if thread != own for f, _ in walk_stack(first)]
    return [f.f_code.co_name for f in frames if f.f_globals.get("__name__") == "vizsla.index.storage.arrays"]


def attempt(place: Path, scenario: Scenario, faults: Any, number: int, code: int, onward: bool) -> dict[str, Any]:
    """In a child process: change, arm, commit; gives what came of it.

    With `onward` the index is closed while operations fail; otherwise the process ends without closing anything.
    """
    from vizsla import Index, VizslaError

    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        with open(reader) as answers:
            text = answers.read()
        os.waitpid(pid, 0)
        answer: dict[str, Any] = json.loads(text) if text else {"outcome": "raw", "said": "the process died"}
        return answer
    outcome, said, left = "fine", "", []
    try:
        if scenario.threads > 1:
            from many_threads import use_threads

            use_threads(scenario.threads)
        index = Index.open(place, memory=1 if scenario.adding else 1 << 20)
        if not scenario.adding:
            change(index)
        faults.faults_arm(str(place).encode(), str(place / scenario.file).encode(), number, code, onward)
        try:
            if scenario.adding:
                change(index)
            scenario.finish(index)
        except VizslaError as e:
            outcome, said = "told", str(e)
            left = writing()
        calls = faults.faults_calls()
        if onward:
            index.close()
    except BaseException as e:
        calls = faults.faults_calls()
        outcome, said = "raw", f"{type(e).__name__}: {e}"
    os.write(writer, json.dumps({"outcome": outcome, "said": said, "calls": calls, "left": left}).encode())
    os._exit(0)


def wrong_about(
    place: Path, answer: dict[str, Any], onward: bool, old: dict[str, int], new: dict[str, int]
) -> str | None:
    """What is not true of what was said, or not whole in what is left."""
    from vizsla import Index
    from vizsla.index import verify

    problems = verify(place)
    if problems:
        return f"verify: {problems[0]}"
    found = state(place)
    outcome, said = answer["outcome"], answer["said"]
    if outcome == "raw":
        return f"a raw error: {said}"
    if answer["left"]:
        return f"after {said!r} a thread goes on: {', '.join(answer['left'])}"
    if "\n" in said:
        return f"more than a sentence: {said!r}"
    expected = {"new": new, "old": old}
    if outcome == "fine" or COMMITTED in said:
        del expected["old"]
    elif not (onward and UNKNOWN in said):
        del expected["new"]
    if found not in expected.values():
        return f"{' or '.join(expected)} was expected after {said!r}, and something else is there"
    with Index.open(place) as index:
        index.add(documents(range(900, 903), 9))
        index.commit()
    return None if state(place).keys() == found.keys() | {"900", "901", "902"} else "the next writer cannot go on"


def sweep(folder: Path, faults: Any, chosen: list[Scenario], step: int) -> Iterator[tuple[str, int, str | None]]:
    """Scenario, number of the operation, and what was wrong, for every step-th operation, alone and with the rest."""
    from vizsla import Index

    progress = Progress()
    for scenario in chosen:
        print(f"{scenario.name}: building the index", flush=True)
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
        for number in range(calls, 0, -step):  # the last one is the sync that ends a commit
            progress.tell(f"{scenario.name}: {calls - number} of {calls} operations done")
            for code, onward in ((errno.EIO, False), (errno.ENOSPC, True)):
                fresh()
                answer = attempt(work, scenario, faults, number, code, onward)
                yield scenario.name, number, wrong_about(work, answer, onward, old, new)


def loaded() -> Any:
    """The library, which must have been loaded before all others."""
    faults = ctypes.CDLL(os.environ["LD_PRELOAD"])
    faults.faults_arm.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
    faults.faults_calls.restype = ctypes.c_long
    return faults


def run(folder: Path, step: int, only: str | None = None, file: str = "") -> tuple[int, list[str]]:
    """How many faults there were, and what was wrong."""
    faults = loaded()
    chosen = [replace(s, file=file) for s in scenarios() if only in (None, s.name)]
    if not chosen:
        sys.exit(f"--only {only}: there is no such scenario; known: {', '.join(s.name for s in scenarios())}")
    share = len(chosen) / len(scenarios()) / step
    print(f"{len(chosen)} scenarios, about {max(MINUTES * share, 1):.0f} minutes on an idle machine", flush=True)
    outcomes = list(sweep(folder, faults, chosen, step))
    return len(outcomes), [f"{name}, operation {number}: {wrong}" for name, number, wrong in outcomes if wrong]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=int, default=1, help="try every so many-th operation")
    parser.add_argument("--only", help="one scenario")
    parser.add_argument("--file", default="", help="begin with operations of this file, as in index.db-wal")
    options = parser.parse_args()
    memory = "/dev/shm"  # operations fail there as they do on a disk, and the others take a third of the time
    inside = "VIZSLA_FAULTS" in os.environ and os.access(memory, os.W_OK)
    with tempfile.TemporaryDirectory(dir=memory if inside else None) as name:
        folder = Path(name)
        if "VIZSLA_FAULTS" not in os.environ:
            made = library(folder)
            if made is None:
                sys.exit("this needs Linux and a C compiler")
            command = [sys.executable, *sys.argv]
            sys.exit(
                subprocess.run(command, env={**os.environ, "LD_PRELOAD": str(made), "VIZSLA_FAULTS": "1"}).returncode
            )
        count, wrong = run(folder, options.step, options.only, options.file)
    print("\n".join(wrong) or f"{count} operations failed, and each time what was said was true and the rest whole")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
