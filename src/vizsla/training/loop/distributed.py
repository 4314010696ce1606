"""Distributed training: each process encodes its share of a batch, and all processes see all vectors."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vizsla.errors import VizslaError
from vizsla.neural.device import torch_device
from vizsla.neural.heads.colbert import TokenTexts
from vizsla.neural.lazy_torch import nn, torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Distributed:
    """This process and the others of a run that `torchrun` started; a single process needs none of the methods.

    Every process computes the loss over all vectors, with gradients for those it encoded itself. Gradients of the
    parameters are then summed, so that any number of processes gives the result of one process with the whole batch,
    regularizers included.
    """

    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @classmethod
    def start(cls, device: str = "") -> Distributed:
        """Join the processes that `torchrun` started, if any; on a GPU if there is one, unless a device is named.

        Each of several processes takes a GPU of its own, so then no number can be named.
        """
        chosen = torch_device(device)
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            from accelerate import PartialState

            if chosen.index:
                raise VizslaError(f"each process of torchrun takes a GPU of its own; name cuda, not {chosen}")
            state = PartialState(cpu=chosen.type == "cpu")
            return cls(state.process_index, state.num_processes, state.device)
        return cls(device=chosen)

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and reports progress."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.world_size > 1:
            torch.distributed.barrier()

    def broadcast(self, network: nn.Module) -> None:
        """Give every process the parameters of the main one."""
        if self.world_size > 1:
            for parameter in network.parameters():
                torch.distributed.broadcast(parameter.data, 0)

    def share(self, rows: Tensor) -> Tensor:
        """The rows of a batch that this process encodes."""
        return torch.tensor_split(rows, self.world_size)[self.rank]

    def all_gather(self, vectors: Tensor) -> Tensor:
        """The vectors of all processes; gradients flow to those of this process."""
        if self.world_size == 1:
            return vectors
        counts: list[int | None] = [None] * self.world_size
        torch.distributed.all_gather_object(counts, len(vectors))
        sizes = [int(count or 0) for count in counts]
        padded = [vectors.new_empty(max(sizes), vectors.shape[1]) for _ in sizes]
        own = vectors.detach()
        torch.distributed.all_gather(padded, torch.cat([own, own.new_zeros(max(sizes) - len(own), own.shape[1])]))
        rows = [part[:size] for part, size in zip(padded, sizes, strict=True)]
        rows[self.rank] = vectors
        return torch.cat(rows)

    def all_gather_tokens(self, texts: TokenTexts) -> TokenTexts:
        """The token vectors of all processes; gradients flow to those of this process."""
        if self.world_size == 1:
            return texts
        lengths: list[int | None] = [None] * self.world_size
        torch.distributed.all_gather_object(lengths, texts.vectors.shape[1])
        padded = texts.padded(max(int(length or 0) for length in lengths))
        rows = self.all_gather(padded.vectors.flatten(1))
        compared = self.all_gather(padded.compared.to(rows.dtype)) > 0
        return TokenTexts(rows.view(*compared.shape, -1), compared)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Give every process the sum of all gradients."""
        if self.world_size == 1:
            return
        for parameter in (p for p in parameters if p.requires_grad):
            if parameter.grad is None:  # no token of this share used it
                parameter.grad = torch.zeros_like(parameter)
            torch.distributed.all_reduce(parameter.grad)
