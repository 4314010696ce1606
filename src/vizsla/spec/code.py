"""The code of plugins as a digest: what was computed with it is out of date when the digest changes."""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

_OWN = __name__.partition(".")[0]
_noted: dict[str, str | None] = {}


def is_plugin(module: str) -> bool:
    """Whether a module belongs neither to Vizsla nor to Python itself.

    >>> is_plugin("vizsla.models"), is_plugin("abc"), is_plugin("ngrams")
    (False, False, True)
    """
    top = module.partition(".")[0]
    return top != _OWN and top not in sys.stdlib_module_names


def note_code(module: str) -> None:
    """Remember the code of a plugin while it is loaded, since its files may change before it is used."""
    _noted[module] = _digest_of(module)


def code_digest(module: str) -> str | None:
    """A digest of the files of a plugin; None if there are no files, as for what was typed into a shell.

    Of a package: all its Python files. Of a single file: that file and what it imports from its own folder.
    """
    if module not in _noted:
        note_code(module)
    return _noted[module]


def _digest_of(module: str) -> str | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    folders = list(map(Path, getattr(sys.modules.get(module.partition(".")[0]), "__path__", ())))
    if folders:
        files = {path: path.relative_to(folder) for folder in folders for path in folder.rglob("*.py")}
    elif file and Path(file).is_file():
        files = {path: path.relative_to(Path(file).parent) for path in _with_neighbours(Path(file))}
    else:
        return None
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{files[path].as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _with_neighbours(file: Path) -> set[Path]:
    """A file and the files that it imports from its folder, directly or through each other."""
    if str(file.resolve().parent) in {sysconfig.get_path(name) for name in ("purelib", "platlib")}:
        return {file}  # its folder holds all installed packages
    found, waiting = {file}, [file]
    while waiting:
        for name in _imported(waiting.pop()):
            package = file.parent / name
            near = {package.with_name(f"{name}.py"), *package.rglob("*.py")}
            new = {path for path in near if path.is_file()} - found
            found |= new
            waiting += new
    return found


def _imported(file: Path) -> Iterator[str]:
    """The top-level name of each module that a file imports, except those of Python and Vizsla."""
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError):  # not valid Python
        return
    for node in nodes:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        yield from (name.partition(".")[0] for name in names if is_plugin(name))
