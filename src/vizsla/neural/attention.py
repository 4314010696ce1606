"""Attention within short texts of different lengths: our own Triton kernel, as crops are shorter than the usual tiles.

One program attends in one head of one text, with everything in registers: three loads, four products at most, and
nothing of the size [length, length] is ever written to memory. For texts of up to 128 tokens; longer ones do not use
this kernel.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST = 128


@triton.jit  # type: ignore[untyped-decorator]
def _places(starts, STRIDE, D: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The offsets of this program's text and head in memory, and a mask of the rows that exist."""
    text, head = tl.program_id(0), tl.program_id(1)
    begin = tl.load(starts + text).to(tl.int64)
    rows = tl.arange(0, BLOCK)
    at = (begin + rows)[:, None] * STRIDE + head * D + tl.arange(0, D)[None, :]
    return at, (rows < tl.load(starts + text + 1) - begin)[:, None]


@triton.jit
def _shares(q, k, inside, scale):  # type: ignore[no-untyped-def]
    """The attention weights of each pair of tokens."""
    scores = tl.where(tl.trans(inside), tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    shares = tl.exp(scores - tl.max(scores, 1)[:, None])
    return shares / tl.sum(shares, 1)[:, None]


@triton.jit  # type: ignore[untyped-decorator]
def _forward(QKV, OUT, starts, scale, WIDTH, D: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at, inside = _places(starts, 3 * WIDTH, D, BLOCK)
    q = tl.load(QKV + at, mask=inside, other=0.0)
    k = tl.load(QKV + at + WIDTH, mask=inside, other=0.0)
    v = tl.load(QKV + at + 2 * WIDTH, mask=inside, other=0.0)
    shares = _shares(q, k, inside, scale)
    to, _ = _places(starts, WIDTH, D, BLOCK)
    tl.store(OUT + to, tl.dot(shares.to(v.dtype), v).to(v.dtype), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _backward(QKV, G, BACK, starts, scale, WIDTH, D: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at, inside = _places(starts, 3 * WIDTH, D, BLOCK)
    q = tl.load(QKV + at, mask=inside, other=0.0)
    k = tl.load(QKV + at + WIDTH, mask=inside, other=0.0)
    v = tl.load(QKV + at + 2 * WIDTH, mask=inside, other=0.0)
    to, _ = _places(starts, WIDTH, D, BLOCK)
    g = tl.load(G + to, mask=inside, other=0.0)
    shares = _shares(q, k, inside, scale)
    tl.store(BACK + at + 2 * WIDTH, tl.dot(tl.trans(shares.to(g.dtype)), g).to(v.dtype), mask=inside)
    flow = tl.dot(g, tl.trans(v))
    flow = (shares * (flow - tl.sum(shares * flow, 1)[:, None]) * scale).to(q.dtype)
    tl.store(BACK + at, tl.dot(flow, k).to(q.dtype), mask=inside)
    tl.store(BACK + at + WIDTH, tl.dot(tl.trans(flow), q).to(q.dtype), mask=inside)


def _block(longest: int) -> int:
    return max(16, triton.next_power_of_2(longest))  # type: ignore[no-any-return]


def _warps(block: int) -> int:
    return {16: 1, 32: 2, 64: 4}.get(block, 8)


@torch.library.custom_op("vizsla::short_attention", mutates_args=())
def short_attention(qkv: Tensor, starts: Tensor, longest: int) -> Tensor:
    """Attention within each text, from [tokens, 3, heads, size] to [tokens, heads, size].

    No text may have more than `longest` tokens.
    """
    qkv = qkv.contiguous()
    tokens, _, heads, size = qkv.shape
    out, block = qkv.new_empty(tokens, heads, size), _block(longest)
    _forward[len(starts) - 1, heads](
        qkv, out, starts, size**-0.5, heads * size, D=size, BLOCK=block, num_warps=_warps(block)
    )
    return out


@short_attention.register_fake
def _(qkv: Tensor, starts: Tensor, longest: int) -> Tensor:  # noqa: ARG001
    return qkv.new_empty(qkv.shape[0], *qkv.shape[2:])


@torch.library.custom_op("vizsla::short_attention_back", mutates_args=())
def _back(g: Tensor, qkv: Tensor, starts: Tensor, longest: int) -> Tensor:
    g, qkv = g.contiguous(), qkv.contiguous()
    back, block, (_, _, heads, size) = torch.empty_like(qkv), _block(longest), qkv.shape
    _backward[len(starts) - 1, heads](
        qkv, g, back, starts, size**-0.5, heads * size, D=size, BLOCK=block, num_warps=_warps(block)
    )
    return back


@_back.register_fake
def _(g: Tensor, qkv: Tensor, starts: Tensor, longest: int) -> Tensor:  # noqa: ARG001
    return torch.empty_like(qkv, memory_format=torch.contiguous_format)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    *tensors, longest = inputs
    ctx.save_for_backward(*tensors)
    ctx.longest = longest


def _go_back(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    qkv, starts = ctx.saved_tensors
    return _back(gradient, qkv, starts, ctx.longest), None, None


short_attention.register_autograd(_go_back, setup_context=_remember)
