"""Training data of DeepCT: documents with a target for each of their words; and dev sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vizsla.errors import VizslaError
from vizsla.lazy import cached_property
from vizsla.neural.chunks import packed
from vizsla.neural.lazy_torch import no_grad, torch
from vizsla.npz import read_arrays, save_arrays
from vizsla.scratch import GrowingArray
from vizsla.training.loop.products import csr
from vizsla.training.settings import CountSettings
from vizsla.training.sources.dev_set import Assemble, BestDocuments, Encode, found
from vizsla.training.sources.pairs import TrainingBatch
from vizsla.training.sources.token_corpus import TokenCorpus, with_special_tokens

if TYPE_CHECKING:
    from torch import Tensor

_TOKENS = 65_536  # of dev documents, encoded at once
_BLOCK = 4096  # dev documents, tokenized at once
_DEPTH = 10
_NO_WORD = -1
_ARRAYS = "targets.npz"


@dataclass(frozen=True, eq=False)
class TermTargets:
    """Documents as token ids, each token with the target of the word that begins there, or NaN.

    Every epoch goes through the documents in another order. `max_length` counts special tokens.
    """

    documents: TokenCorpus
    targets: np.ndarray
    max_length: int = 128

    @classmethod
    def concatenate(cls, several: Sequence[TermTargets]) -> TermTargets:
        """The documents of several data sets as those of one."""
        documents = TokenCorpus.concatenate([one.documents for one in several])
        return cls(documents, np.concatenate([one.targets for one in several]), several[0].max_length)

    def __len__(self) -> int:
        return len(self.documents)

    def batch(self, size: int, seed: int, step: int, device: torch.device) -> TrainingBatch:
        """`size` documents; `extra` is [documents, length] their targets, with the special tokens."""
        steps = self.steps_per_epoch(size)
        epoch, place = divmod(step, steps)
        if (seed, epoch) not in self._orders:  # only the order of one epoch is cached
            self._orders.clear()
            self._orders[seed, epoch] = np.random.default_rng((seed, epoch)).permutation(len(self.documents))
        chosen = self._orders[seed, epoch][place * size : (place + 1) * size]
        ids, mask = with_special_tokens(self.documents, chosen, device, max_length=self.max_length)
        targets = np.full(tuple(ids.shape), np.nan, np.float32)
        for row, document in zip(targets, chosen.tolist(), strict=True):
            begin, end = self.documents.offsets[document : document + 2].tolist()
            known = self.targets[begin:end][: self.max_length - 2]
            row[1 : 1 + len(known)] = known
        return TrainingBatch([(ids, mask)], extra=torch.from_numpy(targets).to(device))

    def steps_per_epoch(self, size: int) -> int:
        """How many batches of this size one pass over the documents has."""
        if size > len(self.documents):
            raise VizslaError(
                f"a batch of {size:,} needs as many documents with a relevant query, and there are "
                f"{len(self.documents):,}; use a smaller batch, as in --set training.batch_size=16"
            )
        return len(self.documents) // size

    @cached_property
    def _orders(self) -> dict[tuple[int, int], np.ndarray]:
        """The order of the documents by seed and epoch."""
        return {}

    def save(self, folder: str | Path) -> None:
        """Write documents and targets into a folder."""
        self.documents.narrow().save(Path(folder) / "documents")
        save_arrays(Path(folder) / _ARRAYS, targets=self.targets.astype(np.float16))

    @classmethod
    def open(cls, folder: str | Path, max_length: int = 128) -> TermTargets:
        """Saved documents and targets."""
        (targets,) = read_arrays(Path(folder) / _ARRAYS, "targets")
        return cls(TokenCorpus.open(Path(folder) / "documents"), targets, max_length)


@dataclass(frozen=True, eq=False)
class TermDev:
    """Judged queries, and documents for whose words the network predicts the counts that BM25 searches with."""

    name: str
    documents: TokenCorpus
    terms: np.ndarray
    """The number of the term whose word begins at each token, -1 if none does."""
    queries: TokenCorpus
    """The numbers of each query's terms."""
    judgements: np.ndarray
    """[judgements, 3] query, document and grade."""
    max_length: int = 128
    settings: CountSettings = field(default_factory=CountSettings)

    @no_grad
    def figures(self, encode: Encode, assemble: Assemble, device: torch.device) -> dict[str, float]:
        """nDCG@10 of BM25 over the counts."""
        columns = 1 + max(int(self.terms.max(initial=0)), int(self.queries.ids.max(initial=0)))
        queried = np.unique(self.queries.ids)
        place_of = np.full(columns, -1, np.int32)
        place_of[queried] = np.arange(len(queried))
        entries, lengths = GrowingArray(np.int32), np.zeros(len(self.documents), np.int64)
        for first in self._blocks:
            documents, terms, counts = self._block(first, columns, encode, assemble, device).cpu().numpy().T
            lengths += np.bincount(documents, counts, minlength=len(lengths)).astype(np.int64)
            rows = np.stack([documents, place_of[terms], counts], 1)
            entries.append(rows[rows[:, 1] >= 0].ravel())  # no other term has a score
        best = BestDocuments(_DEPTH)
        for first, scores in self._scores(entries.array().reshape(-1, 3), lengths, queried, device):
            best.add(found(scores), first)
        return {f"{self.name} nDCG@10": best.ndcg(self.judgements)}

    @property
    def _blocks(self) -> range:
        return range(0, len(self.documents), _BLOCK)

    def _block(self, first: int, columns: int, encode: Encode, assemble: Assemble, device: torch.device) -> Tensor:
        """[entries, 3] document, term and count of some documents."""
        chosen = np.arange(first, min(first + _BLOCK, len(self.documents)))
        texts = with_special_tokens(self.documents, chosen, device, max_length=self.max_length)
        batch = packed(*texts, _TOKENS, side=1)
        weights = assemble([encode(chunk) for chunk in batch.chunks], batch).float()
        terms = np.full(tuple(weights.shape), _NO_WORD, np.int64)
        for row, document in zip(terms, chosen.tolist(), strict=True):
            begin, end = self.documents.offsets[document : document + 2].tolist()
            known = self.terms[begin:end][: self.max_length - 2]
            row[1 : 1 + len(known)] = known
        at = torch.from_numpy(terms).to(device)
        texts_at, places = (at != _NO_WORD).nonzero(as_tuple=True)
        cut = weights[texts_at, places].clamp(min=0)
        rounded = (self.settings.scale * (cut.sqrt() if self.settings.smoothing == "sqrt" else cut)).round()
        rounded = rounded.clamp(min=1) if self.settings.keep_all else rounded
        keys, repeats = torch.unique((texts_at + first) * columns + at[texts_at, places], return_inverse=True)
        highest = rounded.new_zeros(len(keys)).scatter_reduce(0, repeats, rounded, "amax")
        entries = torch.stack([keys // columns, keys % columns, highest.long()], 1)
        return entries[highest > 0]

    def _scores(
        self, entries: np.ndarray, lengths: np.ndarray, queried: np.ndarray, device: torch.device
    ) -> Iterator[tuple[int, Tensor]]:
        """The first of some documents, and [queries, documents] BM25's scores of them, for all documents in turn.

        `queried`: the terms of queries, in order; an entry has the place of one among them.
        """
        columns = len(queried)
        frequencies = np.bincount(entries[:, 1], minlength=columns)
        alive = max(int(np.count_nonzero(lengths)), 1)
        average = max(lengths.sum() / alive, 1e-9)
        idf = np.log1p((alive - frequencies + 0.5) / (frequencies + 0.5))
        norms = self.settings.k1 * (1 - self.settings.b + self.settings.b * lengths / average)
        queries = torch.zeros(columns, len(self.queries), device=device)
        for number in range(len(self.queries)):
            at = torch.from_numpy(np.searchsorted(queried, self.queries[number])).to(device)
            queries[:, number].index_add_(0, at, torch.ones(len(at), device=device))
        bounds = np.searchsorted(entries[:, 0], np.arange(0, len(self.documents) + _BLOCK, _BLOCK))
        for first, begin, end in zip(self._blocks, bounds[:-1], bounds[1:], strict=True):
            documents, terms, counts = entries[begin:end].T
            values = idf[terms] * counts / (counts + norms[documents])
            shape = min(_BLOCK, len(self.documents) - first), columns
            yield first, (csr(documents - first, terms, values, shape, device) @ queries).T

    def save(self, folder: str | Path) -> None:
        """Write all arrays into a folder."""
        path = Path(folder)
        self.documents.narrow().save(path / "documents")
        self.queries.save(path / "queries")
        own = {"terms": self.terms.astype(np.int32), "judgements": self.judgements, "name": np.array(self.name)}
        save_arrays(path / _ARRAYS, **own)

    @classmethod
    def open(cls, folder: str | Path, settings: CountSettings, max_length: int = 128) -> TermDev:
        """A saved dev set."""
        path = Path(folder)
        terms, judgements, name = read_arrays(path / _ARRAYS, "terms", "judgements", "name")
        documents, queries = TokenCorpus.open(path / "documents"), TokenCorpus.open(path / "queries")
        return cls(str(name), documents, terms, queries, judgements, max_length, settings)
