"""Plugins: third-party files and packages that register models, fusions, locations; and digests of their code.

What was computed with a plugin is out of date when the digest of its code changes.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module, util
from pathlib import Path
from typing import TYPE_CHECKING

from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

VARIABLE = "VIZSLA_PLUGINS"
GROUP = "vizsla.plugins"
_lock = threading.RLock()
_loaded: set[str] = set()
_points: list[EntryPoint] = []


def load_plugins() -> None:
    """Import what registers extensions, each once: the files and modules in VIZSLA_PLUGINS, and installed packages.

    VIZSLA_PLUGINS separates them like PATH does (a colon, on Windows a semicolon). A package declares an entry point
    in the group `vizsla.plugins`.
    """
    with _lock:
        for name in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
            _load_once(f"{name} in {VARIABLE}", partial(_load, name))
        if GROUP not in _loaded:
            from importlib.metadata import entry_points  # slow to import and to search

            _loaded.add(GROUP)
            _points.extend(entry_points(group=GROUP))
        for point in _points:
            _load_once(f"{point.name} of {point.value}", point.load)


def _load_once(plugin: str, load: Callable[[], object]) -> None:
    """Load a plugin that has not been loaded; one that fails is tried again the next time."""
    if plugin in _loaded:
        return
    _loaded.add(plugin)  # it may look something up while it is loaded
    try:
        load()
    except BaseException as e:
        _loaded.discard(plugin)
        if isinstance(e, VizslaError | KeyboardInterrupt):
            raise
        raise VizslaError(f"the plugin {plugin} cannot be loaded: {type(e).__name__}: {e}") from e


def _load(name: str) -> None:
    if name.endswith(".py"):
        _load_file(Path(name))
    else:
        import_module(name)


def _load_file(file: Path) -> None:
    if not file.is_file():
        raise VizslaError(f"{file}: this file does not exist; {VARIABLE} names it as a plugin")
    digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:8]
    module_name = f"vizsla_plugin_{file.stem}_{digest}"
    spec = util.spec_from_file_location(module_name, file)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise


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
