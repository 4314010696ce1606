"""Gradient caching: a contrastive loss over a batch far larger than what a GPU holds at once (Gao and others, 2021).

The first pass encodes all texts chunk by chunk without keeping activations. The loss over all outputs gives each
output its gradient. The second pass encodes each chunk again, with the random numbers it had, and propagates its
gradient. The result is that of plain back-propagation. A regularizer belongs into the loss over all outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vizsla.neural.chunks import Batch, Chunk


class _RandomState:
    """The state of the random number generators of the CPU and of a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cpu = torch.get_rng_state()
        self.on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.on_device is not None:
            torch.cuda.set_rng_state(self.on_device, self.device)


def cached_backward(
    encode: Callable[[Chunk], Tensor],
    sides: Sequence[Batch],
    loss_of: Callable[..., Tensor],
    *,
    random: bool = True,
    kept_chunks: int = 0,
) -> Tensor:
    """Accumulate the gradients of a loss over all outputs of a batch; gives the loss.

    `loss_of` gets one argument per side: what `encode` made of each of its chunks. `random`: whether encoding is
    random (dropout). `kept_chunks`: this many chunks keep their activations and are not encoded a second time.
    """
    outputs: list[list[Tensor]] = []
    with_activations: list[Tensor | None] = []
    states: list[_RandomState | None] = []
    for side in sides:
        side_outputs = []
        for chunk in side.chunks:
            states.append(_RandomState(chunk.ids.device) if random else None)
            with torch.set_grad_enabled(len(with_activations) < kept_chunks):
                output = encode(chunk)
            with_activations.append(output if output.requires_grad else None)
            side_outputs.append(output.detach().requires_grad_())
        outputs.append(side_outputs)
    loss = loss_of(*outputs)
    loss.backward()  # type: ignore[no-untyped-call]
    after = _RandomState(loss.device) if random else None
    chunks = [chunk for side in sides for chunk in side.chunks]
    gradients = [output.grad for side_outputs in outputs for output in side_outputs]
    for i, (chunk, gradient, state) in enumerate(zip(chunks, gradients, states, strict=True)):
        first, with_activations[i] = with_activations[i], None  # so that its memory is freed after its backward pass
        if first is None and state is not None:
            state.restore()
        output = encode(chunk) if first is None else first
        if output.requires_grad:  # else no parameter made it, as with queries that are word pieces without weights
            torch.autograd.backward(output, gradient)
    if after is not None:
        after.restore()
    return loss.detach()
