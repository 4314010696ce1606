"""The design holds: rooms import downwards only, importing is cheap, examples in docstrings are true."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import pkgutil
import subprocess
import sys
import time
from pathlib import Path

import vizsla

ROOT = Path(vizsla.__file__).parent
LAYERS = [
    {"spec"},
    {"networks"},
    {"text", "vectors"},
    {"runs"},
    {"engine"},
    {"encoders"},
    {"models", "datasets"},
    {"index"},
    {"retrievers"},
    {"evaluation", "backends"},
    {"training"},
    {"recipes", "reports"},
    {"cli"},
]
DEPTH = {room: depth for depth, rooms in enumerate(LAYERS) for room in rooms}


def imported(file: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(file.read_text())):
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
    return names


def test_rooms_import_downwards_only() -> None:
    wrong = []
    for file in sorted(ROOT.rglob("*.py")):
        room, *inner = file.relative_to(ROOT).parts
        for name in imported(file) if inner else ():
            other = name.split(".")[1] if name.startswith("vizsla.") else None
            if other in DEPTH and other != room and DEPTH[other] >= DEPTH[room]:
                wrong.append(f"{file.relative_to(ROOT)} imports {name}")
    assert wrong == []


def best_time(code: str) -> float:
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return min(times)


def test_importing_is_cheap() -> None:
    numpy = best_time("import numpy")
    assert best_time("import vizsla") < 2 * numpy
    run_help = "import sys; sys.argv = ['vizsla', '--help']; from vizsla.cli import main; main()"
    assert best_time(run_help) < 3 * numpy


def test_vectors_and_runs_need_no_numba() -> None:
    code = "import sys; sys.modules['numba'] = None; import vizsla.vectors, vizsla.runs"
    subprocess.run([sys.executable, "-c", code], check=True)


MODULES = [m.name for m in pkgutil.walk_packages(vizsla.__path__, "vizsla.") if not m.name.endswith("__main__")]


def test_examples_in_docstrings_are_true() -> None:
    without_triton = {"vizsla.networks.attention"} if importlib.util.find_spec("triton") is None else set()
    failed = [n for n in MODULES if n not in without_triton and doctest.testmod(importlib.import_module(n)).failed]
    assert failed == []


def test_every_public_name_is_there() -> None:
    for name in vizsla.__all__:
        assert getattr(vizsla, name) is not None
    assert set(vizsla.__all__) == set(vizsla._HOMES)
