"""The design holds: packages import downwards only, importing is cheap, examples in docstrings are true."""

from __future__ import annotations

import ast
import doctest
import functools
import gc
import importlib
import importlib.util
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Container, Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest

import vizsla
from waiting import unless_it_never_ends

ROOT = Path(vizsla.__file__).parent
LAYERS = [
    {"kernels"},
    {"spec"},
    {"text", "vectors"},
    {"runs"},
    {"engine"},
    {"neural"},
    {"models", "datasets"},
    {"index"},
    {"retrievers"},
    {"expansion"},
    {"evaluation", "backends"},
    {"training"},
    {"recipes", "reports"},
    {"server", "adapters"},
    {"cli"},
]
DEPTH = {package: depth for depth, packages in enumerate(LAYERS) for package in packages}


@functools.cache
def parsed(file: Path) -> ast.Module:
    """The syntax tree of a file; three tests look at all of them."""
    return ast.parse(file.read_text())


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node; no import is in an expression, which most nodes of a tree belong to."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, name, ()):
            yield inner
            yield from statements(inner)


def imported(file: Path) -> list[str]:
    names = []
    for node in statements(parsed(file)):
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
    return names


def test_packages_import_downwards_only() -> None:
    wrong = []
    for file in sorted(ROOT.rglob("*.py")):
        package, *inner = file.relative_to(ROOT).parts
        for name in imported(file) if inner else ():
            other = name.split(".")[1] if name.startswith("vizsla.") else None
            if other in DEPTH and other != package and DEPTH[other] >= DEPTH[package]:
                wrong.append(f"{file.relative_to(ROOT)} imports {name}")
    assert wrong == []


@functools.cache
def modules() -> dict[str, Path]:
    """All modules of the package by name."""
    files = sorted(ROOT.rglob("*.py"))
    parts = {file: ("vizsla", *file.relative_to(ROOT).with_suffix("").parts) for file in files}
    return {".".join(p[:-1] if p[-1] == "__init__" else p): file for file, p in parts.items()}


@functools.cache
def homes_of(module: str) -> dict[str, str]:
    """Of a package that loads its names when they are used: the module that has each."""
    for node in parsed(modules()[module]).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES":
            homes = {name: home for name, home in ast.literal_eval(node.value).items() if isinstance(home, str)}
            return {name: home if home.startswith("vizsla.") else f"{module}.{home}" for name, home in homes.items()}
    return {}


def imports_of(tree: ast.Module, known: Container[str]) -> Iterator[str]:
    """The modules that a file imports, inside of functions and for type checkers, too."""
    for node in statements(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            homes = homes_of(node.module) if node.module in known else {}
            lazy = [homes[alias.name] for alias in node.names if alias.name in homes]
            yield from [name for name in (*inner, *lazy) if name in known] or [node.module]
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_circle_of_imports() -> None:
    known = dict(modules())
    del known["vizsla"]  # it loads names when they are used
    remaining = {name: set(imports_of(parsed(file), known)) & known.keys() - {name} for name, file in known.items()}
    while free := {name for name, others in remaining.items() if not others & remaining.keys()}:
        remaining = {name: others for name, others in remaining.items() if name not in free}
    # What is left is in a circle, or imports one; take away what nothing in a circle imports.
    while ends := remaining.keys() - set().union(*remaining.values()):
        remaining = {name: others for name, others in remaining.items() if name not in ends}
    assert sorted(remaining) == []


def test_adapters_are_small() -> None:
    """An adapter that reads is one file that a reader takes in at a glance; one that also writes is a few screens."""
    for name in FRAMEWORKS:
        if name.startswith("vizsla.adapters."):
            text = modules()[name].read_text()
            assert text.count("\n") <= (250 if "Store" in text else 60), name


def loaded(code: str) -> set[str]:
    """The modules that some code loads, beyond those of a bare interpreter."""
    code = f"import sys; bare = set(sys.modules)\n{code}\nprint(*(set(sys.modules) - bare), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stderr.split())


def test_importing_is_cheap() -> None:
    """The package loads next to nothing, and help loads less than twice what numpy does, and not numpy itself."""
    numpy = loaded("import numpy")
    assert len(loaded("import vizsla")) < 15
    run_help = "sys.argv = ['vizsla', '--help']\nfrom vizsla.cli import main\ntry: main()\nexcept SystemExit: pass"
    found = loaded(run_help)
    assert len(found) < 2 * len(numpy)
    assert {name.partition(".")[0] for name in found} & {"numpy", "numba", "torch", "pydantic", "sqlite3"} == set()


CLOCKS = ("perf_counter", "process_time", "monotonic", "time.time(", "thread_time", "timeit")


def test_no_test_looks_at_a_clock() -> None:
    """Tests count steps, or wait for a state (`waiting.py`): how long something takes depends on the machine."""
    found = {
        f"{file.name}: {clock}"
        for file in Path(__file__).parent.glob("test_*.py")
        for clock in CLOCKS
        if clock in file.read_text() and file.name != "test_design.py"
    }
    # Clocks that a test sets itself.
    assert found == {
        "test_cli.py: perf_counter",
        "test_hostile_documents.py: monotonic",
        "test_replacing.py: monotonic",
    }


def test_what_never_ends_is_stopped() -> None:
    def squares() -> None:
        while True:
            re.search("(a|b|ab)*c", "ab" * 10)

    with pytest.raises(AssertionError, match=r"did not end within 0\.2 seconds"), unless_it_never_ends(0.2):
        squares()


MODULES = [
    m.name for m in pkgutil.walk_packages(vizsla.__path__, "vizsla.") if not m.name.endswith(("__main__", "_native"))
]
FRAMEWORKS = {
    "vizsla.neural.attention": "triton",
    "vizsla.adapters.beir": "beir",
    "vizsla.adapters.haystack": "haystack",
    "vizsla.adapters.langchain": "langchain_core",
    "vizsla.adapters.llama_index": "llama_index",
    "vizsla.adapters.mteb": "mteb",
    "vizsla.adapters.pyterrier": "pyterrier",
}
"""Modules that cannot be imported without a package, which not everybody has."""


def test_examples_in_docstrings_are_true() -> None:
    absent = {module for module, package in FRAMEWORKS.items() if importlib.util.find_spec(package) is None}
    with_examples = [name for name in MODULES if name not in absent and ">>> " in modules()[name].read_text()]
    results = {name: doctest.testmod(importlib.import_module(name)) for name in with_examples}
    assert [name for name, result in results.items() if result.failed] == []
    assert sum(result.attempted for result in results.values()) > 400


def test_every_public_name_is_there() -> None:
    for name in vizsla.__all__:
        assert getattr(vizsla, name) is not None
    assert set(vizsla.__all__) == set(vizsla._HOMES)


class Walk(NamedTuple):
    """What a reader has to follow: calls, changes from file to file, and how deep calls go."""

    calls: int
    changes: int
    depth: int


def walk_of(action: Callable[[], object]) -> Walk:
    """Every frame of our own code counts: lambdas, comprehensions, and each step of a generator, too."""
    root, wrapper = str(ROOT), str(ROOT / "kernels" / "recording.py")  # which notes calls of kernels in tests
    frames: list[tuple[str, int]] = []

    def is_ours(frame: FrameType) -> bool:
        file = frame.f_code.co_filename
        return file.startswith(root) and file != wrapper

    def record(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and is_ours(frame):
            depth, caller = 0, frame
            while caller is not None:
                depth += is_ours(caller)
                caller = caller.f_back
            frames.append((frame.f_code.co_filename, depth))

    gc.disable()  # what it finds is closed by calls, too
    sys.setprofile(record)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    changes = sum(a != b for (a, _), (b, _) in pairwise(frames))
    return Walk(len(frames), changes, max(depth for _, depth in frames))


def test_searching_and_writing_are_short_walks(tmp_path: Path) -> None:
    """A reader can follow them. The limits are what was measured last: they may fall, not grow."""
    from vizsla import Index

    with Index.create(tmp_path / "i") as index:
        index.add([{"id": str(i), "text": f"dogs bark at cat {i}"} for i in range(2000)])
        index.commit()
        rounds = []
        for new in ("a", "b", "c"):  # the first time more is done than later
            index.search("barking dogs")
            search = walk_of(lambda: index.search("barking dogs"))
            add = walk_of(lambda: index.add([{"id": new, "text": "dogs bark at a tree"}]))  # noqa: B023
            rounds.append({"search": search, "add": add, "commit": walk_of(index.commit)})
    walks = {name: Walk(*map(min, zip(*(walks[name] for walks in rounds), strict=True))) for name in rounds[0]}
    limits = {"search": Walk(50, 26, 11), "add": Walk(363, 159, 20), "commit": Walk(1010, 310, 17)}
    longer = [name for name, walk in walks.items() if any(n > most for n, most in zip(walk, limits[name], strict=True))]
    assert not longer, walks
