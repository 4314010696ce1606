"""Plugins: third-party files and packages that register models, fusions, locations, ..."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable
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
