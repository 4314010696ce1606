"""DeepCT: a network learns how much each word of a document matters to the queries it answers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vizsla.datasets import BeirDataset
from vizsla.errors import InputError, VizslaError
from vizsla.index.storage.corpus_store import CorpusStore
from vizsla.models import DeepCT, field_text
from vizsla.models.counts import first_pieces
from vizsla.neural.checkpoints.writing import save_layout
from vizsla.neural.chunks import packed
from vizsla.neural.heads.deepct import TermRegression
from vizsla.neural.lazy_torch import F, no_grad, torch
from vizsla.npz import read_arrays, save_arrays
from vizsla.scratch import GrowingArray
from vizsla.text import Analyzer
from vizsla.training.kind import TRAINED_KINDS, TrainedKind, TrainingData, TrainingInputs
from vizsla.training.loop.objectives import Objective, Step
from vizsla.training.loop.products import csr
from vizsla.training.networks import (
    DEFAULT_ENCODER,
    SAMPLE,
    Base,
    base_encoder,
    known_model,
    load_network,
    write_network,
)
from vizsla.training.settings import TrainingSettings, require_at_least, require_one_of, require_positive, setting
from vizsla.training.sources.dev_set import Assemble, BestDocuments, Encode, found, judgement_rows, numbered_folders
from vizsla.training.sources.pairs import TrainingBatch, epoch_order
from vizsla.training.sources.token_corpus import FIELDS_SETTING, TokenCorpus, fields_of, sample_of, with_special_tokens

if TYPE_CHECKING:
    from torch import Tensor


SMOOTHINGS = ("none", "sqrt")


@dataclass(frozen=True)
class DeepCTNetwork:
    """The network of DeepCT."""

    base_model: str = setting(DEFAULT_ENCODER, "shipped network, saved model, or transformers encoder (folder or name)")


@dataclass(frozen=True)
class DeepCTData:
    """Which documents are learnt from, and how they are read."""

    max_length: int = setting(512, "tokens of a document that are read, special ones included")
    fields: str = setting(FIELDS_SETTING, "fields of documents that are read, separated by /")
    analyzer: str = setting("lucene-english", "how words become terms, to find those of queries and to search")

    def __post_init__(self) -> None:
        require_at_least(self, "data", 3, "max_length")
        fields_of(self.fields)


@dataclass(frozen=True)
class CountSettings:
    """How weights of words become counts, and how BM25 reads these."""

    scale: float = setting(100.0, "counts are this many times the weights, rounded")
    smoothing: str = setting("none", "none, or sqrt for the square root of weights")
    keep_all: bool = setting(True, "words with a count below 1 count 1, instead of being dropped")
    k1: float = setting(10.0, "BM25's saturation of counts")
    b: float = setting(0.4, "BM25's length normalisation, from 0 to 1")

    def __post_init__(self) -> None:
        require_positive(self, "counts", "scale")
        require_at_least(self, "counts", 0, "k1", "b")
        require_one_of("counts.smoothing", self.smoothing, SMOOTHINGS)


@dataclass(frozen=True)
class DeepCTSettings:
    """The settings of DeepCT."""

    network: DeepCTNetwork = field(default_factory=DeepCTNetwork)
    data: DeepCTData = field(default_factory=DeepCTData)
    counts: CountSettings = field(default_factory=CountSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)


def term_recall(queries: Sequence[Sequence[str]]) -> dict[str, float]:
    """The share of a document's relevant queries that contain each term, given the terms of each query.

    >>> term_recall([["dog", "bark"], ["dog"]])
    {'dog': 1.0, 'bark': 0.5}
    """
    counts = Counter(term for query in queries for term in dict.fromkeys(query))
    return {term: count / len(queries) for term, count in counts.items()}


def _aligned(text: str, pieces: Analyzer, words: Analyzer) -> tuple[list[str], list[tuple[str, int]]]:
    """The pieces of a text, and each of its terms with the place of its first piece."""
    own, found = pieces.tokens(text), words.tokens(text)
    places = zip(found, first_pieces(found, own), strict=True)
    return [piece.term for piece in own], [(word.term, place) for word, place in places if place >= 0]


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
        chosen = epoch_order(len(self.documents), seed, epoch)[place * size : (place + 1) * size]
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

    def save(self, folder: str | Path) -> None:
        """Write documents and targets into a folder."""
        self.documents.narrow().save(Path(folder) / "documents")
        save_arrays(Path(folder) / _ARRAYS, targets=self.targets.astype(np.float16))

    @classmethod
    def open(cls, folder: str | Path, max_length: int = 128) -> TermTargets:
        """Saved documents and targets."""
        (targets,) = read_arrays(Path(folder) / _ARRAYS, "targets")
        return cls(TokenCorpus.open(Path(folder) / "documents"), targets, max_length)


def term_targets(dataset: BeirDataset, pieces: Analyzer, words: Analyzer, fields: Sequence[str]) -> TermTargets:
    """The documents of a data set that answer a train query, with the targets of their words.

    `pieces` makes the tokens that the network reads, `words` the terms that are compared with those of queries.
    """
    qrels = dataset.qrels("train")
    terms = {query: words(text) for query, text in dataset.queries_of(qrels).items()}
    answered: dict[str, list[list[str]]] = defaultdict(list)
    for query, judgements in qrels.judgements.items():
        for answer, grade in judgements.items():
            if grade > 0 and query in terms:
                answered[answer].append(terms[query])
    numbers: dict[str, int] = pieces.tokenizer.numbers  # type: ignore[attr-defined]
    targets = GrowingArray(np.float16)

    def documents() -> Iterator[np.ndarray]:
        for document in dataset.documents():
            if document.id not in answered:
                continue
            text = field_text(document.content, fields)
            own, at = _aligned(text, pieces, words)
            recall = term_recall(answered[document.id])
            row = np.full(len(own), np.nan, np.float16)
            for term, place in at:
                row[place] = np.fmax(row[place], recall.get(term, 0.0))
            targets.append(row)
            yield np.array([numbers[piece] for piece in own], np.int64)

    packed: TokenCorpus = TokenCorpus.of(documents(), np.uint32)
    if not len(packed):
        raise InputError("none of the train queries has a relevant document here", file=str(dataset.folder))
    return TermTargets(packed, targets.array())


_TOKENS = 65_536  # of dev documents, encoded at once
_BLOCK = 4096  # dev documents, tokenized at once
_DEPTH = 10
_NO_WORD = -1


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


def term_dev(
    dataset: BeirDataset,
    pieces: Analyzer,
    words: Analyzer,
    fields: Sequence[str],
    settings: CountSettings,
    split: str = "dev",
) -> TermDev:
    """A data set's judged queries as terms, and its documents with the term of the word that begins at each token."""
    qrels = dataset.qrels(split)
    queries, documents = dataset.queries_of(qrels), CorpusStore.of(dataset.documents())
    numbers: dict[str, int] = pieces.tokenizer.numbers  # type: ignore[attr-defined]
    columns: dict[str, int] = {}
    terms = GrowingArray(np.int32)

    def ids() -> Iterator[np.ndarray]:
        for text in documents.texts(fields):
            own, at = _aligned(text, pieces, words)
            row = np.full(len(own), -1, np.int32)
            for term, place in at:
                row[place] = columns.setdefault(term, len(columns))
            terms.append(row)
            yield np.array([numbers[piece] for piece in own], np.int64)

    read: TokenCorpus = TokenCorpus.of(ids(), np.uint32)
    asked = [[columns[term] for term in words(text) if term in columns] for text in queries.values()]
    packed: TokenCorpus = TokenCorpus.of([np.array(row, np.int64) for row in asked])
    judged = judgement_rows(documents, queries, qrels)
    return TermDev(dataset.name, read, terms.array(), packed, judged, settings=settings)


@dataclass(frozen=True)
class RegressionObjective:
    """The weight of each token that has a target must come close to it: the mean of squared differences."""

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step, and the mean of the targets and of the weights that they are compared with."""
        targets: Tensor = step.batch.extra
        own = step.network.vectors(step.outputs[0], step.packed[0])
        weights = step.distributed.all_gather(F.pad(own, (0, targets.shape[1] - own.shape[1])))
        known = ~targets.isnan()
        given, wanted = weights[known].float(), targets[known]
        metrics["mean_target"], metrics["mean_weight"] = wanted.mean(), given.detach().mean()
        return F.mse_loss(given, wanted)


_TARGETS = "targets"


@TRAINED_KINDS.register(
    "deepct", help="DeepCT: counts for the words of documents.", needs=("torch", "transformers", "onnx")
)
class DeepCTKind(TrainedKind[DeepCTSettings]):
    """Trains a network by regression: the target of a word is the share of its document's queries that have it."""

    settings_class = DeepCTSettings

    def load_base(self) -> Base:
        """The base model with DeepCT's head; its own if it has one."""
        name, seed = self.settings.network.base_model, self.settings.training.seed
        model = known_model(name)
        if isinstance(model, DeepCT):
            assert isinstance(model.pieces, Analyzer)
            return Base(load_network(model.network), model.pieces, new_head=False)
        encoder, analyzer, *_ = base_encoder(name, seed)
        return Base(TermRegression(encoder), analyzer)

    def prepare(self, inputs: TrainingInputs, base: Base, folder: Path) -> None:
        """Find the targets of words, and pack documents and dev sets."""
        words, fields = Analyzer.parse(self.settings.data.analyzer), fields_of(self.settings.data.fields)
        found = [term_targets(dataset, base.analyzer, words, fields) for dataset in inputs.datasets]
        TermTargets.concatenate(found).save(folder / _TARGETS)
        for number, dataset in enumerate(inputs.dev):
            dev = term_dev(dataset, base.analyzer, words, fields, self.settings.counts)
            dev.save(folder / f"dev-{number}")

    def open_data(self, folder: Path) -> TrainingData:
        """The documents with their targets, and the dev sets."""
        length, counts = self.settings.data.max_length, self.settings.counts
        dev = [TermDev.open(place, counts, length) for place in numbered_folders(folder, "dev")]
        return TrainingData(TermTargets.open(folder / _TARGETS, length), dev)

    def objective(self) -> Objective:
        """The squared error at the first pieces of words."""
        return RegressionObjective()

    def write(self, network: Any, base: Base, folder: Path, output: Path) -> None:
        """Write the model in 8 bits to index with, and in floats as other libraries open it."""
        network = network.cpu().eval()
        data, counts = self.settings.data, self.settings.counts
        positions = network.encoder.config.max_position_embeddings
        sample = sample_of(TokenCorpus.open(folder / _TARGETS / "documents"), SAMPLE, data.max_length)
        written = write_network(network, output, max_weight=1.0, length=positions, sample=sample)
        DeepCT(
            network=written,
            pieces=base.analyzer,
            analyzer=data.analyzer,
            k1=counts.k1,
            b=counts.b,
            scale=counts.scale,
            smoothing=counts.smoothing,
            keep_all=counts.keep_all,
            length=min(data.max_length, positions),
            fields=fields_of(data.fields),
            namespace=self.name,
            name=self.name,
        ).save(output)
        save_layout(network, base.analyzer.tokenizer.content, output)

    def usage(self, output: Path) -> str:
        """A command that indexes with the model."""
        return f'vizsla index SOURCE -o DIR --model {output}, or "deepct(network={output})"'
