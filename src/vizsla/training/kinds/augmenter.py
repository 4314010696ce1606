"""Augmenters: small encoders that expand BM25's queries, trained through BM25's own score."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.models import Augmenter, LearnedSparse
from vizsla.text import Analyzer
from vizsla.training.inputs import TrainingData, TrainingInputs
from vizsla.training.kind import TRAINED_KINDS, TrainedKind
from vizsla.training.prepare.augmenter import AugmenterDataSettings, TermVocabulary, augmenter_data
from vizsla.training.prepare.base_model import DEFAULT_ENCODER, Base, base_encoder
from vizsla.training.prepare.teacher import check_loss
from vizsla.training.prepare.writing import SAMPLE, write_network
from vizsla.training.schema import setting
from vizsla.training.settings import AugmenterLoss, TrainingSettings, require_at_least, require_one_of

if TYPE_CHECKING:
    from vizsla.neural.chunks import Batch
    from vizsla.training.arrays.augmenter import AugmenterData
    from vizsla.training.arrays.token_corpus import TokenCorpus
    from vizsla.training.loop.objectives import Objective

FREE, TIED, NARROW = "free", "tied", "narrow"
_NEVER = -1e4  # the bias of a term that no document contains
_INIT_QUERIES = 200  # that the head is initialized on
_CHUNK = 1 << 14  # tokens


@dataclass(frozen=True)
class AugmenterNetwork:
    """The network of an augmenter."""

    base_model: str = setting(DEFAULT_ENCODER, "transformers encoder (folder or name), or a model with a network")
    head: str = setting(FREE, "free: a matrix of its own, narrow: of low rank, tied: the input embeddings (for pieces)")
    rank: int = setting(128, "rank of a narrow head")
    weigh_query_terms: bool = setting(True, "also learn weights for the query's own terms")
    trust: float = setting(1.0, "how much of the learned weights is used, from 0 (BM25's) to 1")
    max_added_terms: int = setting(0, "terms that are added at most, the strongest; 0 for all")
    frozen_embeddings: str = setting("", "shipped network whose word embeddings are used and not trained")

    def __post_init__(self) -> None:
        require_one_of("network.head", self.head, (FREE, TIED, NARROW))
        require_at_least(self, "network", 1, "rank")
        require_at_least(self, "network", 0, "max_added_terms")
        if not 0 <= self.trust <= 1:
            raise VizslaError(f"network.trust must be between 0 and 1, not {self.trust:g}")
        if self.trust < 1 and not self.weigh_query_terms:
            raise VizslaError(
                "network.trust scales the weights of a query's own terms, which need network.weigh_query_terms=true"
            )
        if self.is_tied and self.frozen_embeddings:
            raise VizslaError("frozen embeddings cannot be the head, which is trained; set network.head=narrow")

    @property
    def is_tied(self) -> bool:
        """Whether the head is the input embeddings."""
        return self.head == TIED

    @property
    def head_rank(self) -> int:
        """The rank of the head; 0 for full rank."""
        return self.rank if self.head == NARROW else 0


@dataclass(frozen=True)
class AugmenterSettings:
    """The settings of an augmenter."""

    network: AugmenterNetwork = field(default_factory=AugmenterNetwork)
    vocabulary: TermVocabulary = field(default_factory=TermVocabulary)
    data: AugmenterDataSettings = field(default_factory=AugmenterDataSettings)
    loss: AugmenterLoss = field(default_factory=AugmenterLoss)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        if self.network.is_tied and not self.vocabulary.is_word_pieces:
            raise VizslaError(
                "only word pieces can be tied to the input embeddings; set network.head to free or narrow"
            )
        check_loss(self.data, self.loss.name)


@TRAINED_KINDS.register("augmenter", help="Expands the queries of BM25.", needs=("torch", "transformers", "onnx"))
class AugmenterKind(TrainedKind[AugmenterSettings]):
    """Trains a network that adds terms to queries and weighs them, on judged queries."""

    settings_class = AugmenterSettings
    wants_gpu = False

    def __init__(self, name: str, settings: AugmenterSettings) -> None:
        super().__init__(name, settings)
        self._data: dict[Path, AugmenterData] = {}

    @property
    def reads_datasets(self) -> bool:
        """It learns from judged queries."""
        return True

    @property
    def reads_corpus(self) -> bool:
        """It does not learn from documents by themselves."""
        return False

    def check_inputs(self, inputs: TrainingInputs) -> None:
        """Refuse data sets without the splits they are needed for, before anything is read."""
        super().check_inputs(inputs)
        for split, datasets in (("train", inputs.datasets), ("dev", inputs.dev)):
            for dataset in datasets:
                dataset.qrels(split)

    def load_base(self) -> Base:
        """The encoder, perhaps with frozen embeddings."""
        base = base_encoder(self.settings.network.base_model, self.settings.training.seed)
        if self.settings.network.frozen_embeddings:
            freeze_embeddings(base.network, self.settings.network.frozen_embeddings, base.analyzer)
        return base

    def prepare(self, inputs: TrainingInputs, base: Base, folder: Path) -> None:
        """Choose the terms, and pack queries and BM25's rows."""
        network = self.settings.network
        data = augmenter_data(
            inputs,
            self.settings.vocabulary,
            self.settings.data,
            base.analyzer,
            max_added_terms=network.max_added_terms,
            tied_head=network.is_tied,
            folder=folder,
        )
        embeddings, hidden = base.network.embeddings.word_embeddings.weight.shape
        if network.is_tied and len(data.terms) != embeddings:
            raise VizslaError(
                f"the encoder has {embeddings:,} embeddings for {len(data.terms):,} word pieces; set network.head=free"
            )
        if network.head_rank > min(hidden, len(data.terms)):
            raise VizslaError(f"network.rank can be {min(hidden, len(data.terms))} at most here, not {network.rank}")
        data.save(folder)

    def open_data(self, folder: Path) -> TrainingData:
        """The queries of all data sets, and the dev sets."""
        from vizsla.training.arrays.augmenter import MixedPairs

        data = self._open(folder)
        return TrainingData(MixedPairs(data.pairs), data.dev)

    def build_network(self, base: Base, folder: Path) -> Any:
        """The encoder with a head for the chosen terms."""
        return augmenter_network(base.network, self._open(folder), self.settings.network)

    def objective(self) -> Objective:
        """A contrastive loss over BM25 scores, plus the cost of added terms."""
        from vizsla.training.loop.objectives import AugmenterObjective

        return AugmenterObjective(self.settings.loss)

    def write(self, network: Any, base: Base, folder: Path, output: Path) -> None:
        """Write the augmenter in 8 bits."""
        import torch

        from vizsla.training.arrays.bm25_rows import MAX_QUERY_LENGTH
        from vizsla.training.arrays.special_tokens import sample_of

        data, bm25 = self._open(folder), self.settings.vocabulary.bm25
        network = network.cpu().eval()
        network.settle()
        shares = [pairs.collection.document_share[: len(data.terms)] for pairs in data.pairs]
        in_no_document = np.all([share == 0 for share in shares], axis=0)
        with torch.no_grad():
            network.add.out.bias[torch.from_numpy(in_no_document)] = _NEVER
        sample = sample_of(data.pairs[0].queries, SAMPLE, MAX_QUERY_LENGTH)
        written = write_network(network, output, max_weight=1.0, length=MAX_QUERY_LENGTH, sample=sample)
        most = self.settings.network.max_added_terms
        terms, analyzer = tuple(data.terms), bm25.text_analyzer
        Augmenter(written, terms, analyzer, base.analyzer, most, bm25.variant, self.name).save(output)

    def open_model(self, output: Path) -> Augmenter:
        """The written augmenter."""
        return Augmenter.load(output)

    def usage(self, output: Path) -> str:
        """A command that searches with the augmenter."""
        return f"vizsla search INDEX --expand {output}"

    def _open(self, folder: Path) -> AugmenterData:
        """The arrays of a run, read once."""
        from vizsla.training.arrays.augmenter import AugmenterData

        if folder not in self._data:
            self._data[folder] = AugmenterData.open(folder)
        return self._data[folder]


def augmenter_network(encoder: Any, data: AugmenterData, settings: AugmenterNetwork) -> Any:
    """An augmenter that starts close to BM25, as some of the queries show.

    The row of a term starts as what the encoder makes of its word alone, so that words like the query's are added
    first.
    """
    from vizsla.neural.heads.augmenter import Adder
    from vizsla.neural.heads.augmenter import Augmenter as Network

    tied = encoder.embeddings.word_embeddings if data.words is None else None
    adder = Adder(len(data.terms), encoder.hidden, settings.head_rank, tied)
    network = Network(encoder, adder, settings.weigh_query_terms, settings.trust)
    if data.words is not None:
        network.add.start_from(network.first_states(_texts(data.words, len(data.words))))
    network.add.sparsify(network.first_states(_texts(data.pairs[0].queries, _INIT_QUERIES)))
    return network


def _texts(corpus: TokenCorpus, count: int) -> Batch:
    from vizsla.neural.chunks import packed
    from vizsla.training.arrays.bm25_rows import MAX_QUERY_LENGTH
    from vizsla.training.arrays.special_tokens import with_special_tokens

    chosen = range(min(len(corpus), count))
    return packed(*with_special_tokens(corpus, chosen, "cpu", max_length=MAX_QUERY_LENGTH), _CHUNK)


def freeze_embeddings(encoder: Any, name: str, pieces: Analyzer) -> None:
    """Give an encoder the word embeddings of a shipped network, and do not train them."""
    import torch

    from vizsla.neural.weights import read_weights

    try:
        model = LearnedSparse.shipped(name)
    except InputError:
        raise VizslaError(f"no network called {name!r} comes with Vizsla, whose embeddings could be used") from None
    table = encoder.embeddings.word_embeddings.weight
    shipped = read_weights(model.network.folder)["embeddings.word_embeddings.weight"]
    same_pieces = list(model.pieces.vocabulary) == list(pieces.tokenizer.vocabulary)  # type: ignore[attr-defined]
    if shipped.shape != tuple(table.shape) or not same_pieces:
        raise VizslaError(f"the word embeddings of {name} do not fit this encoder")
    with torch.no_grad():
        table.copy_(torch.from_numpy(shipped))
    table.requires_grad_(False)
