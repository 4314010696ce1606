"""What training COIL minimizes."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from vizsla.neural.heads.coil import CoilVectors
from vizsla.training.arrays.token_matches import coil_scores
from vizsla.training.loop.objectives import Step, loss_of
from vizsla.training.settings import ContrastiveLoss


@dataclass(frozen=True)
class CoilObjective:
    """As `ContrastiveObjective`, with COIL's scores."""

    loss: ContrastiveLoss = field(default_factory=ContrastiveLoss)

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step; logs the share of queries whose own document has the highest score."""
        queries, *documents = (_vectors(step, side) for side in range(len(step.outputs)))
        scores = torch.cat([coil_scores(queries, some) for some in documents], 1)
        return loss_of(self.loss, scores / self.loss.temperature, step, metrics)


def _vectors(step: Step, side: int) -> CoilVectors:
    """What the network made of the texts of one side, of all processes."""
    own: CoilVectors = step.network.vectors(step.outputs[side], step.packed[side])
    gather = step.distributed.all_gather
    numbers = step.distributed.share(torch.arange(len(step.batch.texts[side][0]), device=own.texts.device))
    ids, texts = gather(torch.stack([own.ids, numbers[own.texts]], 1)).T.contiguous()
    return CoilVectors(gather(own.tokens), ids, texts, gather(own.cls))
