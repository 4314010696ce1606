"""Functions for kernels whose code is written for LLVM: what numba has no words for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any


class Intrinsic:
    """A function that kernels can call. It is defined when the first of them is compiled, so that numba is not imported
    before.

    `define` returns what `numba.extending.intrinsic` takes: a function of a typing context and the types of the
    arguments, which returns a signature and a generator of code.
    """

    def __init__(self, define: Callable[[], Callable[..., Any]]) -> None:
        self._define = define

    @cached_property
    def _numba_type_(self) -> Any:
        """What numba takes it for."""
        from numba.core.registry import cpu_target
        from numba.extending import intrinsic

        function = intrinsic(self._define())
        cpu_target.typing_context.refresh()  # it knows now of what was defined
        return cpu_target.typing_context.resolve_value_type(function)


def data_of(context: Any, builder: Any, signature: Any, arguments: Any, i: int) -> Any:
    """The address of the first item of the array that is the i-th argument, in the code that an intrinsic generates."""
    from numba.np.arrayobj import make_array

    return make_array(signature.args[i])(context, builder, arguments[i]).data  # type: ignore[no-untyped-call]
