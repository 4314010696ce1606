"""Several processes that train one network: each encodes its share of a batch, and all see all vectors."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Team:
    """The processes of a run, as `torchrun` starts them; alone, it does nothing.

    Every process computes the loss over all vectors, with gradients to those it made itself. Gradients of the
    parameters are then added up, so that any number of processes does what one does with the whole batch, regularisers
    included.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @classmethod
    def assembled(cls, device: str | None = None) -> Team:
        """This process and its fellows; a GPU where there is one, unless a device is named."""
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            from accelerate import PartialState

            state = PartialState(cpu=device == "cpu" or not torch.cuda.is_available())
            return cls(state.process_index, state.num_processes, state.device)
        return cls(device=torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")))

    @property
    def leads(self) -> bool:
        """Whether this process writes files and says what happens."""
        return self.rank == 0

    def wait(self) -> None:
        """Go on when all processes are here."""
        if self.size > 1:
            torch.distributed.barrier()

    def agree(self, network: nn.Module) -> None:
        """Give every process the parameters of the first."""
        if self.size > 1:
            for parameter in network.parameters():
                torch.distributed.broadcast(parameter.data, 0)

    def share(self, rows: Tensor) -> Tensor:
        """This process's part of the rows of a batch."""
        return torch.tensor_split(rows, self.size)[self.rank]

    def gathered(self, vectors: Tensor) -> Tensor:
        """The vectors of all processes; gradients flow to one's own."""
        if self.size == 1:
            return vectors
        counts: list[int | None] = [None] * self.size
        torch.distributed.all_gather_object(counts, len(vectors))
        parts = [vectors.new_empty(int(n or 0), vectors.shape[1]) for n in counts]
        most = max(map(len, parts))
        padded = [vectors.new_empty(most, vectors.shape[1]) for _ in parts]
        mine = vectors.detach()
        torch.distributed.all_gather(padded, torch.cat([mine, mine.new_zeros(most - len(mine), mine.shape[1])]))
        rows = [p[: len(part)] for p, part in zip(padded, parts, strict=True)]
        rows[self.rank] = vectors
        return torch.cat(rows)

    def add_up(self, parameters: Iterable[nn.Parameter]) -> None:
        """Give every process the sum of all gradients."""
        if self.size == 1:
            return
        for parameter in (p for p in parameters if p.requires_grad):
            if parameter.grad is None:  # no token of this share needed it
                parameter.grad = torch.zeros_like(parameter)
            torch.distributed.all_reduce(parameter.grad)
