"""Gradient caching: a contrastive loss over a batch far larger than what a card holds at once (Gao and others, 2021).

Pass 1 makes all vectors chunk by chunk without keeping anything to go back by. The loss over them gives each vector its
gradient. Pass 2 makes each chunk again, under the random numbers it had, and goes back from the gradients kept. The
result is that of plain back-propagation; regularisers belong into the loss, over all vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Chunk(NamedTuple):
    """Some rows of a batch: token ids and which of them are there."""

    ids: Tensor
    mask: Tensor


class _Dice:
    """The state of the random numbers, of the processor and the device of a tensor."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.state = torch.get_rng_state()
        self.on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        torch.set_rng_state(self.state)
        if self.on_device is not None:
            torch.cuda.set_rng_state(self.on_device, self.device)


def cached_backward(
    encode: Callable[[Tensor, Tensor], Tensor],
    sides: Sequence[tuple[Sequence[Chunk], Tensor]],
    loss_of: Callable[..., Tensor],
) -> Tensor:
    """Accumulate the gradients of a loss over all vectors of a batch; gives the loss.

    `sides`: for each argument of `loss_of` the chunks of its rows, and the order that puts the rows back (`chunked`).
    """
    vectors, dice = [], []
    with torch.no_grad():
        for chunks, back in sides:
            thrown = []
            rows = []
            for chunk in chunks:
                thrown.append(_Dice(chunk.ids.device))
                rows.append(encode(*chunk))
            vectors.append(torch.cat(rows)[back].requires_grad_())
            dice.append(thrown)
    loss = loss_of(*vectors)
    loss.backward()  # type: ignore[no-untyped-call]
    after = _Dice(loss.device)
    for (chunks, back), made, thrown in zip(sides, vectors, dice, strict=True):
        assert made.grad is not None
        gradients = torch.split(made.grad[torch.argsort(back)], [len(chunk.ids) for chunk in chunks])
        for chunk, gradient, throw in zip(chunks, gradients, thrown, strict=True):
            throw.restore()
            torch.autograd.backward(encode(*chunk), gradient)
    after.restore()
    return loss.detach()
