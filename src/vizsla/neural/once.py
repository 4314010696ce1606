"""A property that is computed once, by one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):
    """A property that is computed once per object; `cached_property` may compute it once in every thread.

    >>> class Slow:
    ...     @once
    ...     def opened(self) -> object:
    ...         return object()
    >>> slow = Slow()
    >>> slow.opened is slow.opened
    True
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> once[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> once[T] | T:
        if instance is None:
            return self
        with self._lock:
            if self._name not in instance.__dict__:
                instance.__dict__[self._name] = self._make(instance)
        return instance.__dict__[self._name]  # type: ignore[no-any-return]
