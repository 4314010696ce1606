"""Files and packages of others that register something: models, fusions, locations, ..."""

from __future__ import annotations

import os
import sys
import threading
from importlib import import_module, util
from importlib.metadata import entry_points
from pathlib import Path

from vizsla.errors import VizslaError

VARIABLE = "VIZSLA_PLUGINS"
GROUP = "vizsla.plugins"
_lock = threading.RLock()
_loaded: set[str] = set()


def load_plugins() -> None:
    """Import what registers extensions, each once: the files and modules in VIZSLA_PLUGINS, and installed packages.

    VIZSLA_PLUGINS separates them like PATH does (a colon, on Windows a semicolon). A package declares an entry point
    in the group `vizsla.plugins`.
    """
    with _lock:
        for name in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
            if name not in _loaded:
                _loaded.add(name)
                _load(name)
        if GROUP not in _loaded:
            _loaded.add(GROUP)
            for point in entry_points(group=GROUP):
                point.load()


def _load(name: str) -> None:
    try:
        if name.endswith(".py"):
            _load_file(Path(name))
        else:
            import_module(name)
    except VizslaError:
        raise
    except Exception as e:
        raise VizslaError(f"the plugin {name} in {VARIABLE} cannot be loaded: {type(e).__name__}: {e}") from e


def _load_file(file: Path) -> None:
    if not file.is_file():
        raise VizslaError(f"{file}: this file does not exist, which {VARIABLE} names as a plugin")
    module_name = f"vizsla_plugin_{file.stem}"
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
