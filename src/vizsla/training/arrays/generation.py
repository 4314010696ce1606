"""Training data of generators: inputs and target texts as token ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vizsla.errors import VizslaError
from vizsla.neural.chunks import packed
from vizsla.neural.generation import TARGET
from vizsla.neural.lazy_torch import no_grad, torch
from vizsla.training.sources.dev_set import Assemble, Encode
from vizsla.training.sources.pairs import TrainingBatch
from vizsla.training.sources.token_corpus import TokenCorpus

_TOKENS = 32_768  # of a dev set, read at once
_INPUTS, _TARGETS, _ROWS, _NAME = "inputs", "targets", "rows.npy", "name.txt"


@dataclass(frozen=True, eq=False)
class GenerationPairs:
    """Texts to write, each with the number of its input. An epoch goes through all of them in a random order."""

    inputs: TokenCorpus
    targets: TokenCorpus
    rows: np.ndarray
    """[targets] which input each target belongs to."""
    name: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, count: int | None) -> GenerationPairs:
        """The first pairs, or all of them."""
        rows = self.rows[:count]
        inputs = self.inputs.chosen(np.arange(int(rows.max(initial=-1)) + 1))
        return GenerationPairs(inputs, self.targets.chosen(np.arange(len(rows))), rows, self.name)

    def batch(self, size: int, seed: int, step: int, device: torch.device) -> TrainingBatch:
        """`size` inputs, each followed by its target."""
        if size > len(self):
            raise VizslaError(
                f"a batch of {size:,} needs as many pairs, and there are {len(self):,}; use a smaller batch, as in "
                "--set training.batch_size=16"
            )
        epoch, place = divmod(step, len(self) // size)
        order = np.random.default_rng((seed, epoch)).permutation(len(self))
        return TrainingBatch([self.texts(order[place * size : (place + 1) * size], device)])

    def texts(self, chosen: np.ndarray, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets in one row each, targets marked; and the mask."""
        rows = [
            np.concatenate([self.inputs[self.rows[i]].astype(np.int64), self.targets[i].astype(np.int64) + TARGET])
            for i in chosen
        ]
        lengths = torch.tensor([len(row) for row in rows])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        flat = torch.from_numpy(np.concatenate(rows))
        return flat.new_zeros(mask.shape).masked_scatter_(mask, flat).to(device), mask.to(device)

    def save(self, folder: str | Path) -> None:
        """Write all arrays into a folder."""
        path = Path(folder)
        self.inputs.save(path / _INPUTS)
        self.targets.save(path / _TARGETS)
        np.save(path / _ROWS, self.rows, allow_pickle=False)
        (path / _NAME).write_text(self.name, "utf-8")

    @classmethod
    def open(cls, folder: str | Path) -> GenerationPairs:
        """Saved pairs, mapped into memory."""
        path = Path(folder)
        rows = np.load(path / _ROWS, allow_pickle=False)
        name = (path / _NAME).read_text("utf-8")
        return cls(TokenCorpus.open(path / _INPUTS), TokenCorpus.open(path / _TARGETS), rows, name)


@dataclass(frozen=True, eq=False)
class GenerationDev:
    """Pairs whose likelihood is measured during training."""

    pairs: GenerationPairs

    @property
    def name(self) -> str:
        """The data set's name."""
        return self.pairs.name

    @no_grad
    def figures(self, encode: Encode, assemble: Assemble, device: torch.device) -> dict[str, float]:
        """The probability of a token of the targets, as the geometric mean over all of them."""
        batch = packed(*self.pairs.texts(np.arange(len(self.pairs)), device), _TOKENS)
        loss, tokens, _ = assemble([encode(chunk) for chunk in batch.chunks], batch).sum(0).tolist()
        return {f"{self.name} likelihood": float(np.exp(-loss / tokens))}
