"""Names of a package that are loaded when they are first used, so that importing the package is cheap."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # typing's own would have to be imported
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a package: `homes` says which of its modules has each name, or which of another package.

    >>> load = lazy_names("vizsla", {"BM25": "models"})
    >>> load("BM25").__name__
    'BM25'
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        value = getattr(import_module(home if home.startswith("vizsla.") else f"{package}.{home}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
