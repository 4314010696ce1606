"""Queries learnt through BM25's score: documents are never encoded, their rows come as they are in the index."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vizsla.errors import InputError, VizslaError
from vizsla.networks import AugmentedQueries, Batch, packed
from vizsla.training.batches import Sides
from vizsla.training.corpus import TokenCorpus
from vizsla.training.dev import Encode, Rows, framed, mean_ndcg
from vizsla.training.losses import contrast, quadratic_rise

if TYPE_CHECKING:
    from vizsla.training.loop import Trainer

_TOKENS = 16_384  # of dev queries that are encoded together
_BLOCK = 256  # dev queries that are scored together
LONGEST = 64
"""Tokens of a query that are read, special ones included."""


@dataclass(frozen=True, eq=False)
class Collection:
    """Documents as BM25 sees them: the first columns are the terms that can be added, the others occur in queries."""

    rows: Rows
    factors: np.ndarray
    """[columns] what a query's term is multiplied by: idf."""
    shares: np.ndarray
    """[columns] in what share of the documents a term is."""

    def arrays(self) -> dict[str, np.ndarray]:
        """What `read` makes it from again."""
        rows = {f"rows_{name}": array for name, array in self.rows._asdict().items()}
        return {**rows, "factors": self.factors, "shares": self.shares}

    @classmethod
    def read(cls, file: str | Path) -> Collection:
        """From a file that has them."""
        *rows, factors, shares = read_arrays(file, *(f"rows_{name}" for name in Rows._fields), "factors", "shares")
        return cls(Rows(*rows), factors, shares)

    def only(self, documents: np.ndarray) -> Collection:
        """Some documents of it; how rare terms are stays as it was."""
        begins = self.rows.pointers[documents].astype(np.int64)
        ends = np.cumsum(self.rows.pointers[documents + 1].astype(np.int64) - begins)
        pointers = np.concatenate([[0], ends])
        at = np.repeat(begins - pointers[:-1], np.diff(pointers)) + np.arange(pointers[-1])
        return replace(self, rows=Rows(pointers, self.rows.terms[at], self.rows.weights[at]))

    def matrix(self, device: torch.device) -> Matrix:
        """The documents as the rows of a sparse matrix."""
        pointers, terms, weights = self.rows
        rows = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
        return Matrix.of(rows, terms, weights, (len(pointers) - 1, len(self.factors)), device)


class Matrix(NamedTuple):
    """A sparse matrix and its transpose, both by rows: products both ways are fast, and so is the way back."""

    straight: Tensor
    turned: Tensor

    @classmethod
    def of(
        cls, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int], device: torch.device
    ) -> Matrix:
        """From the place and value of each number, in order of rows."""
        order = np.argsort(columns, kind="stable")
        parts = (rows, columns, shape), (columns[order], rows[order], shape[::-1])
        made = []
        for (r, c, size), v in zip(parts, (values, values[order]), strict=True):
            pointers = np.concatenate([[0], np.cumsum(np.bincount(r.astype(np.int64), minlength=size[0]))])
            starts, places, numbers = map(torch.from_numpy, (pointers, c.astype(np.int64), v.astype(np.float32)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that sparse matrices by rows are new, once a process
                made.append(torch.sparse_csr_tensor(starts, places, numbers, size=size, device=device))
        return cls(*made)


class _Product(torch.autograd.Function):
    """[rows, queries] a sparse matrix times dense columns, which gradients flow to."""

    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: Matrix) -> Tensor:
        ctx.turned = matrix.turned.to(dense.dtype)
        made: Tensor = matrix.straight.to(dense.dtype) @ dense
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.turned @ gradients[0].contiguous(), None


UNREAD = -2  # the place of a word beyond what is read: it weighs 1


class Own(NamedTuple):
    """The terms of queries themselves: which tokens speak for which column, [queries, most, 2], -1 where none."""

    pairs: np.ndarray

    @classmethod
    def of(cls, pairs: Sequence[Sequence[tuple[int, int]]]) -> Own:
        """From each query's pairs of a token's place, special ones counted, and a column."""
        made = np.full((len(pairs), max(1, *map(len, pairs), 1), 2), -1, np.int32)
        for row, those in zip(made, pairs, strict=True):
            if those:
                row[: len(those)] = those
        return cls(made)


class Fixed(NamedTuple):
    """What the loss of a batch of queries needs beside what the network makes of them."""

    own: Tensor
    documents: Matrix
    factors: Tensor
    shares: Tensor


@dataclass(frozen=True, eq=False)
class AskedPairs:
    """Judged queries of one collection: a document that answers each, and documents BM25 confuses with it.

    The others of the batch count as well, except where they answer the query.
    """

    collection: Collection
    queries: TokenCorpus
    own: Own
    positives: TokenCorpus
    negatives: TokenCorpus
    group: int = 2
    """A document that answers the query and so many less one that do not."""

    def save(self, file: str | Path) -> None:
        """Write all of it to one file, to be trained with later or elsewhere."""
        texts = {name: getattr(self, name) for name in ("queries", "positives", "negatives")}
        parts = {f"{name}_{part}": getattr(c, part) for name, c in texts.items() for part in ("ids", "offsets")}
        _save(file, **self.collection.arrays(), **parts, own=self.own.pairs, group=np.array(self.group))

    @classmethod
    def open(cls, file: str | Path) -> AskedPairs:
        """What was saved."""
        queries, positives, negatives = (
            TokenCorpus(*read_arrays(file, f"{name}_ids", f"{name}_offsets"))
            for name in ("queries", "positives", "negatives")
        )
        own, group = read_arrays(file, "own", "group")
        return cls(Collection.read(file), queries, Own(own), positives, negatives, int(group))

    def sides(self, size: int, seed: int, step: int, device: torch.device) -> Sides:
        """Ids and mask of queries; the documents as rows of BM25."""
        if size > len(self.usable):
            raise VizslaError(
                f"a batch of {size:,} needs as many queries with an answer among the documents, and there are "
                f"{len(self.usable):,}; ask for a smaller batch, as in --set batch=32"
            )
        epoch, place = divmod(step, len(self.usable) // size)
        dice = np.random.default_rng((seed, epoch))
        chosen = self.usable[dice.permutation(len(self.usable))[place * size : (place + 1) * size]]
        drawn = np.random.default_rng((seed, epoch, place))
        right = np.array([self.positives[q][drawn.integers(len(self.positives[q]))] for q in chosen], np.int64)
        wrong = [self.negatives[q] for q in chosen]
        others = np.concatenate(
            [w[drawn.integers(len(w), size=self.group - 1)] for w in wrong if len(w)] or [np.zeros(0, np.int64)]
        ).astype(np.int64)
        documents = np.concatenate([right, others])
        fixed = Fixed(
            torch.from_numpy(self.own.pairs[chosen]).to(device),
            self.collection.only(documents).matrix(device),
            *(
                torch.from_numpy(x.astype(np.float32)).to(device)
                for x in (self.collection.factors, self.collection.shares)
            ),
        )
        texts = [framed(self.queries, chosen, device, longest=LONGEST)]
        return Sides(texts, self._forbidden(chosen, documents).to(device), fixed)

    @cached_property
    def usable(self) -> np.ndarray:
        """Queries that have an answer."""
        return np.flatnonzero(np.diff(self.positives.offsets) > 0)

    def _forbidden(self, queries: np.ndarray, documents: np.ndarray) -> Tensor:
        """[queries, documents] where a document answers a query and is not the one it is asked for."""
        answers = [set(self.positives[q].tolist()) for q in queries]
        found = np.array([[d in those for d in documents.tolist()] for those in answers], bool)
        found[np.arange(len(queries)), np.arange(len(queries))] = False
        return torch.from_numpy(found)


@dataclass(frozen=True, eq=False)
class MixedPairs:
    """Batches of several collections in turn, each with its own rarity of words; a larger one comes more often."""

    several: Sequence[AskedPairs]
    even: float = 0.5
    """1 for as many batches as there are queries, 0 for the same of each; a set of few queries has smaller batches."""

    def sides(self, size: int, seed: int, step: int, device: torch.device) -> Sides:
        if len(self.several) == 1:
            return self.several[0].sides(size, seed, step, device)
        counts = np.array([len(pairs.usable) for pairs in self.several], float) ** self.even
        if not counts.all():
            raise VizslaError("one of the data sets has no query with an answer among its documents")
        draws = np.random.default_rng((seed, 7)).choice(len(counts), step + 1, p=counts / counts.sum())
        pairs = self.several[int(draws[step])]
        before = int((draws[:step] == draws[step]).sum())  # so that each goes through all its queries
        return pairs.sides(min(size, len(pairs.usable)), seed, before, device)


def query_vectors(asked: AugmentedQueries, own: Tensor, columns: int) -> Tensor:
    """[queries, columns] what is asked for: w * (1 + a) for a query's own terms, a for others, rarity not yet in it.

    A term that several tokens speak for has the highest of their weights.
    """
    added, weights = asked
    queries = torch.nn.functional.pad(added, (0, columns - added.shape[1])).flatten()
    there = own[..., 1] >= 0
    row = torch.arange(len(own), device=own.device)[:, None].expand_as(there)[there]
    place, column = own[..., 0][there].long(), own[..., 1][there].long()
    keys, repeats = torch.unique(row * columns + column, return_inverse=True)
    spoken = torch.where(place == UNREAD, 1.0, weights[row, place.clamp(min=0)])
    highest = weights.new_zeros(len(keys)).scatter_reduce(0, repeats, spoken, "amax")
    return queries.index_copy(0, keys, highest * (1 + queries[keys])).view(len(own), columns)


def strongest(added: Tensor, own: Tensor, most: int) -> Tensor:
    """What is left of what is added when so many terms are the most, the query's own not counted; 0 for all."""
    if not 0 < most < added.shape[1]:
        return added
    columns = own[..., 1].long()
    mine = torch.zeros(len(added), added.shape[1] + 1, dtype=torch.bool, device=added.device)
    mine.scatter_(1, torch.where((columns >= 0) & (columns < added.shape[1]), columns, added.shape[1]), True)
    kept = mine[:, :-1].scatter(1, added.masked_fill(mine[:, :-1], 0).topk(most, 1).indices, True)
    return added * kept


def asked_well(
    trainer: Trainer, sides: list[Batch], made: tuple[list[Tensor], ...], drawn: Sides, seen: dict[str, Any]
) -> Tensor:
    """The loss of an augmenter: its queries must find their documents by BM25's score, and what it adds costs.

    A term costs the root of the share of documents it is in, so that common ones are dear; with `uniform_cost` all
    cost the same. One that no document has is not added.
    """
    settings, fixed = trainer.settings, drawn.fixed
    added, weights = trainer.network.augmented(made[0], sides[0])
    shares = fixed.shares[: added.shape[1]]
    own = trainer.team.share(fixed.own)
    added = added.to(torch.promote_types(added.dtype, torch.float32)) * (shares > 0)
    queries = query_vectors(AugmentedQueries(added, weights.to(added.dtype)), own, len(fixed.factors))
    queries, added = trainer.team.gathered(queries), trainer.team.gathered(added)
    scores: Tensor = _Product.apply((queries * fixed.factors).T.contiguous(), fixed.documents).T  # type: ignore[no-untyped-call]
    loss = contrast(scores / settings.temperature, symmetric=False, forbidden=drawn.forbidden)
    prices = (shares > 0).to(added.dtype) if settings.uniform_cost else shares.sqrt().to(added.dtype)
    cost = settings.added_cost * quadratic_rise(trainer.outcome.step + 1, settings.flops_rise) * (added @ prices).mean()
    with torch.no_grad():
        masked = scores if drawn.forbidden is None else scores.masked_fill(drawn.forbidden, -torch.inf)
        seen["accuracy"] = (masked.argmax(1) == torch.arange(len(scores), device=scores.device)).float().mean()
        seen["query_terms"] = (queries > 0).sum(1).float().mean()
        seen["added_terms"] = (added > 0).sum(1).float().mean()
        seen["cost"] = cost.detach()
    total: Tensor = loss + cost
    return total


@dataclass(frozen=True, eq=False)
class AskedDev:
    """Judged queries of a collection that an augmenter is judged by, beside BM25 itself."""

    name: str
    collection: Collection
    queries: TokenCorpus
    own: Own
    judgements: np.ndarray
    most: int = 0
    """At most so many terms are added, the strongest; 0 for all."""

    def save(self, file: str | Path) -> None:
        """Write all of it to one file."""
        parts = {
            "queries_ids": self.queries.ids,
            "queries_offsets": self.queries.offsets,
            "judgements": self.judgements,
            "most": np.array(self.most),
        }
        _save(file, **self.collection.arrays(), **parts, own=self.own.pairs, name=np.array(self.name))

    @classmethod
    def open(cls, file: str | Path) -> AskedDev:
        """What was saved."""
        queries = TokenCorpus(*read_arrays(file, "queries_ids", "queries_offsets"))
        name, own, judgements, most = read_arrays(file, "name", "own", "judgements", "most")
        return cls(str(name), Collection.read(file), queries, Own(own), judgements, int(most))

    @torch.no_grad()
    def figures(self, encode: Encode, assemble: Any, device: torch.device) -> dict[str, float]:
        """nDCG@10 with what the network makes of the queries."""
        documents = self._documents(device)
        factors, shares = (
            torch.from_numpy(x.astype(np.float32)).to(device) for x in (self.collection.factors, self.collection.shares)
        )
        figures = []
        for first in range(0, len(self.queries), _BLOCK):
            chosen = np.arange(first, min(first + _BLOCK, len(self.queries)))
            batch = packed(*framed(self.queries, chosen, device, longest=LONGEST), _TOKENS)
            added, weights = assemble([encode(chunk) for chunk in batch.chunks], batch)
            own = torch.from_numpy(self.own.pairs[chosen]).to(device)
            added = strongest(added.float() * (shares[: added.shape[1]] > 0), own, self.most)
            queries = query_vectors(AugmentedQueries(added, weights.float()), own, len(factors)) * factors
            here = (self.judgements[:, 0] >= first) & (self.judgements[:, 0] < first + len(chosen))
            judged = self.judgements[here] - np.array([first, 0, 0])
            if len(judged):
                scores = (documents @ queries.T.contiguous()).T
                figures.append((mean_ndcg(scores, judged), len(np.unique(judged[:, 0]))))
        total = sum(count for _, count in figures)
        return {f"{self.name} nDCG@10": sum(mean * count for mean, count in figures) / max(total, 1)}

    def _documents(self, device: torch.device) -> Tensor:
        kept: dict[torch.device, Tensor] = self.__dict__.setdefault("_kept", {})
        if device not in kept:
            kept[device] = self.collection.matrix(device).straight
        return kept[device]


def _save(file: str | Path, **arrays: np.ndarray) -> None:
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, **arrays)  # type: ignore[arg-type]


def read_arrays(file: str | Path, *names: str) -> list[np.ndarray]:
    """Some arrays of a file, in this order."""
    try:
        with Path(file).open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            return [arrays[name] for name in names]
    except FileNotFoundError:
        raise InputError("there are no packed queries here", file=str(file)) from None
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as e:
        raise InputError(f"these are no packed queries, or of another version ({e})", file=str(file)) from None
