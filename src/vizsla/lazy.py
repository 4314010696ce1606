"""What is made when it is first used: names of a package, so that importing it is cheap, and attributes of objects."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # typing's own would have to be imported
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from functools import cached_property as cached_property
    from typing import Any
else:

    class cached_property:
        """An attribute that a method computes when it is first read, without a lock.

        That of functools holds a lock in Python 3.11. A process that is forked while another thread computes an
        attribute would wait for this lock for ever. Two threads may compute a value twice; one of them is kept.
        """

        def __init__(self, function):
            self.function, self.name, self.__doc__ = function, function.__name__, function.__doc__

        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            return instance.__dict__.setdefault(self.name, self.function(instance))


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
