"""Attention inside short texts of different lengths: a kernel of our own, as crops are far shorter than others' tiles.

One program attends in one head of one text, with everything in registers: three loads, four products at most, and
nothing of the size [length, length] ever goes to memory. Texts of up to 128 tokens; longer ones go another way.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST = 128


@triton.jit  # type: ignore[untyped-decorator]
def _places(starts, WIDTH, D: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where the numbers of this program's text and head lie, and which of its rows there are."""
    text, head = tl.program_id(0), tl.program_id(1)
    begin = tl.load(starts + text).to(tl.int64)
    rows = tl.arange(0, BLOCK)
    at = (begin + rows)[:, None] * WIDTH + head * D + tl.arange(0, D)[None, :]
    return at, rows < tl.load(starts + text + 1) - begin


@triton.jit
def _shares(q, k, there, scale):  # type: ignore[no-untyped-def]
    """How much each token looks at each other."""
    scores = tl.where(there[None, :], tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    shares = tl.exp(scores - tl.max(scores, 1)[:, None])
    return shares / tl.sum(shares, 1)[:, None]


@triton.jit  # type: ignore[untyped-decorator]
def _forward(Q, K, V, OUT, starts, scale, WIDTH, D: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at, there = _places(starts, WIDTH, D, BLOCK)
    q = tl.load(Q + at, mask=there[:, None], other=0.0)
    k = tl.load(K + at, mask=there[:, None], other=0.0)
    v = tl.load(V + at, mask=there[:, None], other=0.0)
    shares = _shares(q, k, there, scale)
    tl.store(OUT + at, tl.dot(shares.to(v.dtype), v).to(v.dtype), mask=there[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _backward(Q, K, V, G, DQ, DK, DV, starts, scale, WIDTH, D: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at, there = _places(starts, WIDTH, D, BLOCK)
    q = tl.load(Q + at, mask=there[:, None], other=0.0)
    k = tl.load(K + at, mask=there[:, None], other=0.0)
    v = tl.load(V + at, mask=there[:, None], other=0.0)
    g = tl.load(G + at, mask=there[:, None], other=0.0)
    shares = _shares(q, k, there, scale)
    tl.store(DV + at, tl.dot(tl.trans(shares.to(g.dtype)), g).to(v.dtype), mask=there[:, None])
    flow = tl.dot(g, tl.trans(v))
    flow = (shares * (flow - tl.sum(shares * flow, 1)[:, None]) * scale).to(q.dtype)
    tl.store(DQ + at, tl.dot(flow, k).to(q.dtype), mask=there[:, None])
    tl.store(DK + at, tl.dot(tl.trans(flow), q).to(q.dtype), mask=there[:, None])


def _block(longest: int) -> int:
    return max(16, triton.next_power_of_2(longest))  # type: ignore[no-any-return]


@torch.library.custom_op("vizsla::short_attention", mutates_args=())
def short_attention(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int) -> Tensor:
    """[tokens, heads, size] attended inside each text, none of which is longer than `longest`."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    out, (_, heads, size), block = torch.empty_like(q), q.shape, _block(longest)
    _forward[len(starts) - 1, heads](
        q, k, v, out, starts, size**-0.5, heads * size, D=size, BLOCK=block, num_warps=_warps(block)
    )
    return out


@short_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int) -> Tensor:  # noqa: ARG001
    return torch.empty_like(q, memory_format=torch.contiguous_format)


@torch.library.custom_op("vizsla::short_attention_back", mutates_args=())
def _back(g: Tensor, q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    g, q, k, v = g.contiguous(), q.contiguous(), k.contiguous(), v.contiguous()
    made, (_, heads, size), block = [torch.empty_like(q) for _ in range(3)], q.shape, _block(longest)
    _backward[len(starts) - 1, heads](
        q, k, v, g, *made, starts, size**-0.5, heads * size, D=size, BLOCK=block, num_warps=_warps(block)
    )
    return made[0], made[1], made[2]


@_back.register_fake
def _(g: Tensor, q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG001
    a, b, c = (torch.empty_like(q, memory_format=torch.contiguous_format) for _ in range(3))
    return a, b, c


def _warps(block: int) -> int:
    return {16: 1, 32: 2, 64: 4}.get(block, 8)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    *tensors, longest = inputs
    ctx.save_for_backward(*tensors)
    ctx.longest = longest


def _go_back(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    q, k, v, starts = ctx.saved_tensors
    return (*_back(gradient, q, k, v, starts, ctx.longest), None, None)


short_attention.register_autograd(_go_back, setup_context=_remember)
