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
    kept: int = 0,
) -> Tensor:
    """Accumulate the gradients of a loss over all vectors of a batch; gives the loss.

    `loss_of` gets for each side what `encode` made of its chunks. `random`: whether encoding throws dice (dropout).
    `kept`: so many chunks are not made twice but keep what the way back needs, as far as there is memory for it.
    """
    made: list[list[Tensor]] = []
    whole: list[Tensor | None] = []
    dice: list[_Dice | None] = []
    for side in sides:
        outputs = []
        for chunk in side.chunks:
            dice.append(_Dice(chunk.ids.device) if random else None)
            with torch.set_grad_enabled(len(whole) < kept):
                output = encode(chunk)
            whole.append(output if output.requires_grad else None)
            outputs.append(output.detach().requires_grad_())
        made.append(outputs)
    loss = loss_of(*made)
    loss.backward()  # type: ignore[no-untyped-call]
    after = _Dice(loss.device) if random else None
    chunks = [chunk for side in sides for chunk in side.chunks]
    gradients = [output.grad for outputs in made for output in outputs]
    for i, (chunk, gradient, throw) in enumerate(zip(chunks, gradients, dice, strict=True)):
        there, whole[i] = whole[i], None  # so that its memory is free after the way back
        if there is None and throw is not None:
            throw.restore()
        torch.autograd.backward(encode(chunk) if there is None else there, gradient)
    if after is not None:
        after.restore()
    return loss.detach()
