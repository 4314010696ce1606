"""The docstrings of Python's standard library: real text that every machine has.

The sources are parsed and never imported, so no code of them runs.
"""

from __future__ import annotations

import ast
import os
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from vizsla.errors import InputError
from vizsla.runs.documents import Document

_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "distutils", "__pycache__"}
_KINDS = {ast.Module: "module", ast.ClassDef: "class", ast.FunctionDef: "function", ast.AsyncFunctionDef: "function"}


def library_files() -> list[Path]:
    """The source files of the standard library, without its tests and private modules."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files: list[Path] = []
    for folder, folders, names in os.walk(root):
        folders[:] = (name for name in folders if not _is_left_out(name))  # installed packages are not walked through
        files += (Path(folder, name) for name in names if name.endswith(".py") and not _is_left_out(name))
    files.sort()
    if not files:
        raise InputError("this folder does not hold the sources of Python's standard library", file=str(root))
    return files


def _is_left_out(part: str) -> bool:
    return part in _LEFT_OUT or (part.startswith("_") and not part.startswith("__"))


def read_docstrings(file: Path) -> Iterator[Document]:
    """The documented, public modules, classes and functions of a source file of the standard library."""
    root = Path(sysconfig.get_paths()["stdlib"])
    module = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old escape sequences
            tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return
    seen: set[str] = set()
    for name, node in _walk(tree, module):
        text = ast.get_docstring(node)
        if not text:
            continue
        line = getattr(node, "lineno", 1)
        doc_id = f"{name}:{line}" if name in seen else name
        seen.add(name)
        kind = _KINDS[type(node)]
        place = f"{file.relative_to(root)}:{line}"
        yield Document(doc_id, {"title": name, "text": text, "kind": kind, "source": place})


_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _walk(node: ast.AST, name: str) -> Iterator[tuple[str, _Documented]]:
    if isinstance(node, _Documented):
        yield name, node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if not child.name.startswith("_") and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _walk(child, f"{name}.{child.name}")
        elif isinstance(child, ast.If | ast.Try):
            yield from ((n, c) for n, c in _walk(child, name))
