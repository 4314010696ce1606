"""Gradient caching: a contrastive loss over a batch far larger than what a card holds at once (Gao and others, 2021).

Pass 1 makes all vectors chunk by chunk without keeping anything to go back by. The loss over them gives what was made
of each chunk its gradient. Pass 2 makes each chunk again, under the random numbers it had, and goes back from the
gradients kept. The result is that of plain back-propagation; regularisers belong into the loss, over all vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vizsla.networks import Batch, Chunk


class _Dice:
    """The state of the random numbers, of the processor and of a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.state = torch.get_rng_state()
        self.on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        torch.set_rng_state(self.state)
        if self.on_device is not None:
            torch.cuda.set_rng_state(self.on_device, self.device)


def cached_backward(
    encode: Callable[[Chunk], Tensor],
    sides: Sequence[Batch],
    loss_of: Callable[..., Tensor],
    *,
    random: bool = True,
) -> Tensor:
    """Accumulate the gradients of a loss over all vectors of a batch; gives the loss.

    `loss_of` gets for each side what `encode` made of its chunks. `random`: whether encoding throws dice (dropout).
    """
    made: list[list[Tensor]] = []
    dice: list[_Dice] = []
    with torch.no_grad():
        for side in sides:
            outputs = []
            for chunk in side.chunks:
                if random:
                    dice.append(_Dice(chunk.ids.device))
                outputs.append(encode(chunk).detach().requires_grad_())
            made.append(outputs)
    loss = loss_of(*made)
    loss.backward()  # type: ignore[no-untyped-call]
    after = _Dice(loss.device) if random else None
    throws = iter(dice)
    for side, outputs in zip(sides, made, strict=True):
        for chunk, output in zip(side.chunks, outputs, strict=True):
            if random:
                next(throws).restore()
            torch.autograd.backward(encode(chunk), output.grad)
    if after is not None:
        after.restore()
    return loss.detach()
