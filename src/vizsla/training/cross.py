"""Cross-encoders in training: groups of a query with a document that answers it and others that do not."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vizsla.errors import InputError, VizslaError
from vizsla.networks import Batch, packed
from vizsla.networks.joint import LEAST, joint_ids
from vizsla.training.batches import Sides
from vizsla.training.corpus import TokenCorpus
from vizsla.training.dev import Assemble, Encode
from vizsla.training.pairs import MinedPairs

if TYPE_CHECKING:
    from vizsla.training.loop import Trainer

DEPTH = 10  # of the figures
_TOKENS = 65_536  # of dev pairs that are encoded together
_BLOCK = 4096  # dev pairs that are prepared together
_TOKENIZER = "tokenizer.json"
_TEXTS = ("queries", "documents", "candidates")


@dataclass(frozen=True, eq=False)
class CrossPairs:
    """Mined pairs as a cross-encoder reads them: `group` texts a query, the one that answers it first.

    Each is a query, cut to `query_length`, and a document, cut so that the whole has `length` tokens at most.
    """

    mined: MinedPairs
    query_length: int = 64
    length: int = 256

    def __post_init__(self) -> None:
        if self.query_length < 3 or self.length < self.query_length + 2:
            raise VizslaError(
                f"of {self.length} tokens a query cannot have {self.query_length}; it needs 3, and a document 2 more"
            )

    def sides(self, size: int, seed: int, step: int, device: torch.device) -> Sides:
        """Ids and mask of `size * group` texts."""
        chosen, right, wrong = self.mined.drawn(size, seed, step)
        documents = np.concatenate([right[:, None], wrong.reshape(size, -1)], 1)
        queries = np.repeat(chosen, documents.shape[1])
        return Sides([self.texts(queries, documents.ravel(), device)], fixed=documents.shape[1])

    def texts(self, queries: np.ndarray, documents: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
        """Ids and mask of pairs, by the numbers of their queries and documents."""
        return joint(
            self.mined.queries, self.mined.documents, queries, documents, self.query_length, self.length, device
        )


def joint(
    queries: TokenCorpus,
    documents: TokenCorpus,
    which: np.ndarray,
    others: np.ndarray,
    query_length: int,
    length: int,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """Token ids and mask of queries with a document each."""
    rows = [
        joint_ids(queries[q].tolist(), documents[d][:length].tolist(), query_length, length)
        for q, d in zip(which.tolist(), others.tolist(), strict=True)
    ]
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max(initial=LEAST)) < lengths[:, None]
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = np.concatenate(rows)
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


def answered_first(
    trainer: Trainer, sides: list[Batch], made: tuple[list[Tensor], ...], drawn: Sides, seen: dict[str, Any]
) -> Tensor:
    """The loss of a cross-encoder: the document that answers must score higher than the others of its group.

    `contrast` is a softmax over the group, `margins` wants 1 between the scores, `binary` a yes or no for each.
    """
    scores = trainer.team.gathered(trainer.network.vectors(made[0], sides[0])).view(-1, drawn.fixed)
    with torch.no_grad():
        seen["accuracy"] = (scores[:, 0] > scores[:, 1:].amax(1)).float().mean()
    return group_loss(scores / trainer.settings.temperature, trainer.settings.loss)


def group_loss(scores: Tensor, loss: str = "contrast") -> Tensor:
    """How badly the first of each group is told from the others, given [groups, documents].

    >>> round(group_loss(torch.zeros(1, 4)).item(), 4), group_loss(torch.tensor([[2.0, 0.0]]), "margins").item()
    (1.3863, 0.0)
    """
    if loss == "binary":
        labels = torch.zeros_like(scores)
        labels[:, 0] = 1
        return F.binary_cross_entropy_with_logits(scores, labels)
    if loss == "margins":
        return (1 - scores[:, :1] + scores[:, 1:]).clamp(min=0).mean()
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device))


@dataclass(frozen=True, eq=False)
class CrossDev:
    """Judged queries with the candidates of a first stage, best first, that a cross-encoder ranks anew."""

    name: str
    queries: TokenCorpus
    documents: TokenCorpus
    candidates: TokenCorpus
    """For each query, the numbers of its documents."""
    grades: np.ndarray
    """How each candidate is judged, in their order; 0 where it is not."""
    ideal: np.ndarray
    """[queries] the highest DCG@10 there could be, of all that is judged."""
    query_length: int = 64
    length: int = 256

    @classmethod
    def of(
        cls, name: str, queries: TokenCorpus, documents: TokenCorpus, candidates: TokenCorpus, judgements: np.ndarray,
        **lengths: int,
    ) -> CrossDev:  # fmt: skip
        """From all documents, of which candidates are kept, and [judgements, 3] query, document and grade."""
        kept, numbers = np.unique(candidates.ids, return_inverse=True)
        known = {(q, d): grade for q, d, grade in judgements.tolist()}
        asked = np.repeat(np.arange(len(candidates)), np.diff(candidates.offsets)).tolist()
        grades = [max(known.get(pair, 0), 0) for pair in zip(asked, candidates.ids.tolist(), strict=True)]
        best = [np.sort(judgements[judgements[:, 0] == q, 2].clip(min=0))[::-1] for q in range(len(queries))]
        return cls(
            name, queries, TokenCorpus.of([np.asarray(documents[i]) for i in kept.tolist()]),
            TokenCorpus(numbers.astype(np.int64), candidates.offsets), np.array(grades, np.int64),
            np.array([_gain(grades) for grades in best]), **lengths,
        )  # fmt: skip

    def save(self, folder: str | Path) -> None:
        path = Path(folder)
        for part in _TEXTS:
            getattr(self, part).narrow().save(path / part)
        lengths = np.array([self.query_length, self.length])
        np.savez(path / "judged.npz", grades=self.grades, ideal=self.ideal, lengths=lengths, name=np.array(self.name))

    @classmethod
    def open(cls, folder: str | Path) -> CrossDev:
        path = Path(folder)
        try:
            with (path / "judged.npz").open("rb") as opened, np.load(opened, allow_pickle=False) as told:
                name, grades, ideal, lengths = (told[part] for part in ("name", "grades", "ideal", "lengths"))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            raise InputError("there are no packed candidates here (no judged.npz)", file=str(folder)) from None
        queries, documents, candidates = (TokenCorpus.open(path / part) for part in _TEXTS)
        return cls(str(name), queries, documents, candidates, grades, ideal, int(lengths[0]), int(lengths[1]))

    @torch.no_grad()
    def figures(self, encode: Encode, assemble: Assemble, device: torch.device) -> dict[str, float]:
        """nDCG@10 and MRR@10 of the candidates in the order of their scores."""
        asked = np.repeat(np.arange(len(self.candidates)), np.diff(self.candidates.offsets))
        scores = [np.zeros(0, np.float32)]
        for first in range(0, len(asked), _BLOCK):
            part = slice(first, first + _BLOCK)
            texts = joint(
                self.queries, self.documents, asked[part], np.asarray(self.candidates.ids[part]), self.query_length,
                self.length, device,
            )  # fmt: skip
            batch = packed(*texts, _TOKENS)
            scores.append(assemble([encode(chunk) for chunk in batch.chunks], batch).squeeze(1).float().cpu().numpy())
        return self.judged(np.concatenate(scores))

    def judged(self, scores: np.ndarray | None = None) -> dict[str, float]:
        """The figures of scores, one a candidate; without any, of the first stage's order."""
        gains, ranks = [], []
        for query in range(len(self.candidates)):
            a, z = self.candidates.offsets[query : query + 2].tolist()
            order = slice(None) if scores is None else np.argsort(-scores[a:z], kind="stable")
            grades = self.grades[a:z][order][:DEPTH]
            gains.append(_gain(grades) / self.ideal[query] if self.ideal[query] > 0 else 0.0)
            ranks.append(1 / (1 + int(np.argmax(grades > 0))) if (grades > 0).any() else 0.0)
        means = (float(np.mean(each)) if each else 0.0 for each in (gains, ranks))
        return dict(zip((f"{self.name} nDCG@{DEPTH}", f"{self.name} MRR@{DEPTH}"), means, strict=True))


def _gain(grades: np.ndarray) -> float:
    """DCG of grades in the order of a ranking."""
    first = grades[:DEPTH]
    return float((first / np.log2(np.arange(2, len(first) + 2))).sum())


@dataclass(frozen=True, eq=False)
class CrossMaterial:
    """All that a cross-encoder is trained from, in a folder: made where the data sets are, read where the GPU is."""

    pairs: MinedPairs
    dev: Sequence[CrossDev]
    tokenizer: bytes
    """The tokenizer.json the word pieces are of."""

    def save(self, folder: str | Path) -> None:
        path = Path(folder)
        parts = ("queries", "documents", "positives", "negatives")
        replace(self.pairs, **{part: getattr(self.pairs, part).narrow() for part in parts}).save(path / "pairs")
        for number, dev in enumerate(self.dev):
            dev.save(path / f"dev-{number}")
        (path / _TOKENIZER).write_bytes(self.tokenizer)

    @classmethod
    def open(cls, folder: str | Path, group: int = 8) -> CrossMaterial:
        """What was saved; how many documents a query is learnt with is told again."""
        path = Path(folder)
        try:
            tokenizer = (path / _TOKENIZER).read_bytes()
        except OSError:
            raise InputError(f"there is nothing prepared here (no {_TOKENIZER})", file=str(folder)) from None
        devs = sorted(path.glob("dev-*"), key=lambda place: int(place.name.removeprefix("dev-")))
        return cls(MinedPairs.open(path / "pairs", group=group), [*map(CrossDev.open, devs)], tokenizer)
