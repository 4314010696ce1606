"""torch, loaded when it is first used: a file imports without torch, and holds a head's torch side and its ONNX side.

from vizsla.neural.lazy_torch import Module, nn, torch

class Projection(Module):  # an instance is a torch.nn.Module
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(768, 128)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

__all__ = ["F", "Function", "Module", "inference_mode", "nn", "no_grad", "torch"]

P = ParamSpec("P")
T = TypeVar("T")

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.autograd import Function
    from torch.nn import Module
else:

    class _Lazy:
        """A module that is imported when one of its names is used."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            value = getattr(import_module(self._name), name)
            setattr(self, name, value)
            return value

    torch, nn, F = _Lazy("torch"), _Lazy("torch.nn"), _Lazy("torch.nn.functional")

    @functools.cache
    def _with_torch(cls: type) -> type:
        """The class with torch.nn.Module as its last base."""
        return type(cls.__name__, (cls, nn.Module), {"__module__": cls.__module__, "__qualname__": cls.__qualname__})

    class _ModuleType(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return type.__call__(cls if issubclass(cls, nn.Module) else _with_torch(cls), *args, **kwargs)

    class Module(metaclass=_ModuleType):
        """A torch.nn.Module whose class can be defined before torch is loaded."""

    @functools.cache
    def _differentiable(cls: type) -> type:
        """The torch.autograd.Function with the `forward` and `backward` of a class."""
        return type(
            cls.__name__, (torch.autograd.Function,), {name: vars(cls)[name] for name in ("forward", "backward")}
        )

    class Function:
        """A torch.autograd.Function whose class can be defined before torch is loaded."""

        @classmethod
        def apply(cls, *args: Any) -> Any:
            return _differentiable(cls).apply(*args)


def no_grad(function: Callable[P, T]) -> Callable[P, T]:
    """`torch.no_grad()` as a decorator."""
    return _within(lambda: torch.no_grad(), function)


def inference_mode(function: Callable[P, T]) -> Callable[P, T]:
    """`torch.inference_mode()` as a decorator."""
    return _within(lambda: torch.inference_mode(), function)


def _within(mode: Callable[[], Any], function: Callable[P, T]) -> Callable[P, T]:
    """The function under torch's own decorator, which is applied when the function is first called."""

    @functools.cache
    def decorated() -> Callable[P, T]:
        within: Callable[P, T] = mode()(function)
        return within

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return decorated()(*args, **kwargs)

    return run
