"""Cross-encoders: rerankers that read a query and a document together; and the pairs they learn from."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vizsla.datasets import BeirDataset, Document
from vizsla.errors import InputError, VizslaError
from vizsla.index.storage.corpus_store import CorpusStore
from vizsla.models import BM25, QUERIES, Model, Reranker
from vizsla.models.reranker import reranker_folder
from vizsla.neural.checkpoints.checkpoint import find_checkpoint
from vizsla.neural.checkpoints.writing import save_reranker
from vizsla.neural.chunks import packed
from vizsla.neural.heads.cross import LEAST, Cross, head_arrays, joint_pairs, keep_layers
from vizsla.neural.lazy_torch import F, no_grad, torch
from vizsla.neural.network import ABOUT, Network
from vizsla.text import Analyzer
from vizsla.training.kind import TRAINED_KINDS, TrainedKind, TrainingData, TrainingInputs
from vizsla.training.loop.objectives import CONTRASTIVE, KL, MARGIN, TAUGHT, Objective, Step
from vizsla.training.networks import DEFAULT_ENCODER, Base, base_encoder, known_model, load_network
from vizsla.training.settings import TrainingSettings, require_at_least, require_one_of, require_positive, setting
from vizsla.training.sources.dev_set import Assemble, Encode, judgement_rows, numbered_folders
from vizsla.training.sources.generated import GeneratedSource, generated_queries
from vizsla.training.sources.judged import (
    NEGATIVES_DEPTH,
    NEGATIVES_HELP,
    AnsweredQueries,
    check_run_has_one_dataset,
    first_stage_rankings,
    positives_and_negatives,
)
from vizsla.training.sources.pairs import MinedPairs, ScoredPairs, TrainingBatch, open_pairs
from vizsla.training.sources.teacher import TeacherSettings, check_loss, open_teachers, scaled, taught_pairs
from vizsla.training.sources.token_corpus import FIELDS, TokenCorpus, packed_texts

if TYPE_CHECKING:
    from torch import Tensor


BINARY, MSE = "binary", "mse"
GROUP_TAUGHT = (MSE, *TAUGHT)
"""The losses of a cross-encoder that learn a teacher's scores."""


@dataclass(frozen=True)
class CrossEncoderNetwork:
    """The network of a cross-encoder."""

    base_model: str = setting(DEFAULT_ENCODER, "saved model, or transformers encoder or cross-encoder (folder or name)")
    layers: int = setting(0, "layers of the base model that are kept, evenly spaced, the last included; 0 for all")

    def __post_init__(self) -> None:
        require_at_least(self, "network", 0, "layers")


@dataclass(frozen=True)
class CrossEncoderDataSettings(TeacherSettings):
    """Which documents a query is trained with, whose scores are learnt, and what is reranked in dev sets."""

    max_queries: int = setting(0, "train queries of a data set; of more a random sample is taken; 0 for all")
    queries_per_document: int = setting(5, "generated queries of a document of --corpus that are learnt from")
    max_documents: int = setting(100_000, "documents of --corpus with queries; of more a random sample is taken")
    negatives_per_query: int = setting(7, "hard negatives drawn for a query in each step")
    negatives: str = setting("", NEGATIVES_HELP)
    negatives_depth: int = setting(1000, "documents of a ranking that hard negatives are drawn from")
    kept_negatives: int = setting(0, "hard negatives of a query that are kept, drawn at random once; 0 for all")
    candidates: str = setting("", "TREC run or model whose documents are reranked in dev sets; by default negatives")
    candidates_depth: int = setting(NEGATIVES_DEPTH, "candidates of a dev query")
    max_query_length: int = setting(64, "tokens of a query that are read, special ones included")
    max_length: int = setting(256, "tokens of query and document together, special ones included")
    seed: int = setting(0, "seed of the samples of queries, documents and negatives")

    def __post_init__(self) -> None:
        positive = "negatives_per_query", "negatives_depth", "candidates_depth", "queries_per_document", "max_documents"
        require_at_least(self, "data", 1, *positive)
        require_at_least(self, "data", 0, "max_queries", "kept_negatives")
        self.check_teacher(self.negatives_per_query)

    @property
    def dev_first_stage(self) -> str:
        """The first stage that ranks the candidates of dev queries."""
        return self.candidates or self.negatives or "bm25"

    @property
    def generated(self) -> GeneratedSource:
        """How generated queries are read, and which negatives they get."""
        return GeneratedSource(
            queries_per_document=self.queries_per_document, max_documents=self.max_documents,
            negatives_per_query=self.negatives_per_query, negatives=self.negatives or "bm25",
            negatives_depth=self.negatives_depth, seed=self.seed,
        )  # fmt: skip

    def open_teachers(self) -> list[Model | Reranker]:
        """The teachers; a cross-encoder reads no more of a pair than the one that learns from it."""
        return [self._as_short(one) if isinstance(one, Reranker) else one for one in open_teachers(self.teacher)]

    def _as_short(self, teacher: Reranker) -> Reranker:
        lengths = min(teacher.query_length, self.max_query_length), min(teacher.length, self.max_length)
        return replace(teacher, query_length=lengths[0], length=lengths[1])


@dataclass(frozen=True)
class GroupLoss:
    """How a cross-encoder tells a query's document from its negatives.

    With a teacher, mse is the mean square of the network's score of a pair minus the teacher's; margin-mse and kl
    compare the documents of a query, as for `ContrastiveLoss`.
    """

    name: str = setting(
        CONTRASTIVE,
        "contrastive (softmax over a query's documents), margin (of 1) or binary (each), or mse, margin-mse or kl (of "
        "a teacher's scores)",
    )
    temperature: float = setting(1.0, "scores are divided by it")

    def __post_init__(self) -> None:
        require_one_of("loss", self.name, (CONTRASTIVE, MARGIN, BINARY, *GROUP_TAUGHT))
        require_positive(self, "loss", "temperature")


@dataclass(frozen=True)
class CrossEncoderSettings:
    """The settings of a cross-encoder."""

    network: CrossEncoderNetwork = field(default_factory=CrossEncoderNetwork)
    data: CrossEncoderDataSettings = field(default_factory=CrossEncoderDataSettings)
    loss: GroupLoss = field(default_factory=GroupLoss)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        check_loss(self.data, self.loss.name, GROUP_TAUGHT)


_DEPTH = 10  # of the measures
_TOKENS = 65_536  # of dev pairs, encoded at once
_BLOCK = 4096  # dev pairs, tokenized at once
_TOKENIZER = "tokenizer.json"
_TEXTS = ("queries", "documents", "candidates")


class Group(NamedTuple):
    """The texts of a query in a batch."""

    size: int
    """How many there are: the query with its positive, then with its negatives."""
    wanted: Tensor | None = None
    """[queries, size] a teacher's scores."""


@dataclass(frozen=True, eq=False)
class CrossEncoderPairs:
    """Mined pairs as a cross-encoder reads them: for each query its positive, then its negatives.

    Each text is a query, cut to `max_query_length`, and a document, cut so that both together have at most
    `max_length` tokens.
    """

    source: MinedPairs | ScoredPairs
    max_query_length: int = 64
    max_length: int = 256

    def __post_init__(self) -> None:
        if self.max_query_length < 3 or self.max_length < self.max_query_length + 2:
            raise VizslaError(
                f"max_query_length {self.max_query_length} does not fit max_length {self.max_length}: a query needs 3 "
                "tokens or more, and a document 2 more than the query"
            )

    @property
    def mined(self) -> MinedPairs:
        """The pairs without a teacher's scores."""
        return self.source.pairs if isinstance(self.source, ScoredPairs) else self.source

    def __len__(self) -> int:
        """How many queries are drawn in an epoch."""
        return len(self.source)

    def batch(self, size: int, seed: int, step: int, device: torch.device) -> TrainingBatch:
        """`size * (1 + negatives_per_query)` texts; `extra` is a `Group`."""
        places = self.mined.draw_places(size, seed, step)
        queries, *sides = self.mined.numbers_at(*places)
        documents = _side_by_side(*sides)
        repeated = np.repeat(queries, documents.shape[1])
        wanted = None
        if isinstance(self.source, ScoredPairs):
            scores = _side_by_side(self.source.positive_scores[places[1]], self.source.negative_scores[places[2]])
            wanted = torch.from_numpy(scores.astype(np.float32)).to(device)
        group = Group(documents.shape[1], wanted)
        return TrainingBatch([self.texts(repeated, documents.ravel(), device)], extra=group)

    def texts(self, queries: np.ndarray, documents: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
        """Token ids and mask of pairs, given the numbers of their queries and documents."""
        lengths = self.max_query_length, self.max_length
        return _joint_texts(self.mined.queries, self.mined.documents, queries, documents, *lengths, device)


def _side_by_side(positives: np.ndarray, negatives: np.ndarray) -> np.ndarray:
    """[queries, 1 + negatives] the values of each query's positive, then those of its negatives."""
    return np.concatenate([positives[:, None], negatives.reshape(len(positives), -1)], 1)


def _joint_texts(
    queries: TokenCorpus, documents: TokenCorpus, query_numbers: np.ndarray, document_numbers: np.ndarray,
    max_query_length: int, max_length: int, device: torch.device,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Token ids and mask of queries with a document each."""
    texts = (queries.ids, queries.offsets), (documents.ids, documents.offsets)
    flat, starts = joint_pairs(*texts, query_numbers, document_numbers, max_query_length, max_length)
    lengths = np.diff(starts)
    mask = np.arange(lengths.max(initial=LEAST)) < lengths[:, None]
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = flat
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


@dataclass(frozen=True, eq=False)
class CrossEncoderDev:
    """Judged queries with the candidates of a first stage, best first, that a cross-encoder reranks."""

    name: str
    queries: TokenCorpus
    documents: TokenCorpus
    candidates: TokenCorpus
    """For each query, the numbers of its candidates."""
    grades: np.ndarray
    """The grade of each candidate, in their order; 0 without a judgement."""
    ideal: np.ndarray
    """[queries] the highest possible DCG@10, over all judged documents."""
    max_query_length: int = 64
    max_length: int = 256

    @classmethod
    def of(
        cls, name: str, queries: TokenCorpus, documents: TokenCorpus, candidates: TokenCorpus, judgements: np.ndarray,
        *, max_query_length: int, max_length: int,
    ) -> CrossEncoderDev:  # fmt: skip
        """From all documents, of which only candidates are kept, and [judgements, 3] query, document and grade."""
        used, numbers = np.unique(candidates.ids, return_inverse=True)
        grade_of = {(q, d): grade for q, d, grade in judgements.tolist()}
        query_numbers = np.repeat(np.arange(len(candidates)), np.diff(candidates.offsets)).tolist()
        grades = [max(grade_of.get(pair, 0), 0) for pair in zip(query_numbers, candidates.ids.tolist(), strict=True)]
        best = [np.sort(judgements[judgements[:, 0] == q, 2].clip(min=0))[::-1] for q in range(len(queries))]
        return cls(
            name, queries, documents.chosen(used),
            TokenCorpus(numbers.astype(np.int64), candidates.offsets), np.array(grades, np.int64),
            np.array([_dcg(grades) for grades in best]), max_query_length, max_length,
        )  # fmt: skip

    def save(self, folder: str | Path) -> None:
        """Write all arrays into a folder."""
        path = Path(folder)
        for part in _TEXTS:
            getattr(self, part).narrow().save(path / part)
        lengths = np.array([self.max_query_length, self.max_length])
        np.savez(path / "judged.npz", grades=self.grades, ideal=self.ideal, lengths=lengths, name=np.array(self.name))

    @classmethod
    def open(cls, folder: str | Path) -> CrossEncoderDev:
        """A saved dev set."""
        path = Path(folder)
        try:
            with (path / "judged.npz").open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
                name, grades, ideal, lengths = (arrays[part] for part in ("name", "grades", "ideal", "lengths"))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            raise InputError("there are no candidates to rerank here (no judged.npz)", file=str(folder)) from None
        queries, documents, candidates = (TokenCorpus.open(path / part) for part in _TEXTS)
        return cls(str(name), queries, documents, candidates, grades, ideal, int(lengths[0]), int(lengths[1]))

    @no_grad
    def figures(self, encode: Encode, assemble: Assemble, device: torch.device) -> dict[str, float]:
        """nDCG@10 and MRR@10 of the candidates in the order of the network's scores."""
        query_numbers = np.repeat(np.arange(len(self.candidates)), np.diff(self.candidates.offsets))
        scores = [np.zeros(0, np.float32)]
        for first in range(0, len(query_numbers), _BLOCK):
            part = slice(first, first + _BLOCK)
            texts = _joint_texts(
                self.queries, self.documents, query_numbers[part], np.asarray(self.candidates.ids[part]),
                self.max_query_length, self.max_length, device,
            )  # fmt: skip
            batch = packed(*texts, _TOKENS)
            scores.append(assemble([encode(chunk) for chunk in batch.chunks], batch).squeeze(1).float().cpu().numpy())
        return self.evaluate(np.concatenate(scores))

    def evaluate(self, scores: np.ndarray | None = None) -> dict[str, float]:
        """nDCG@10 and MRR@10 of scores, one per candidate; without scores, of the first stage's order."""
        ndcg, reciprocal_ranks = [], []
        for query in range(len(self.candidates)):
            begin, end = self.candidates.offsets[query : query + 2].tolist()
            order = slice(None) if scores is None else np.argsort(-scores[begin:end], kind="stable")
            grades = self.grades[begin:end][order][:_DEPTH]
            ndcg.append(_dcg(grades) / self.ideal[query] if self.ideal[query] > 0 else 0.0)
            reciprocal_ranks.append(1 / (1 + int(np.argmax(grades > 0))) if (grades > 0).any() else 0.0)
        means = (float(np.mean(each)) if each else 0.0 for each in (ndcg, reciprocal_ranks))
        return dict(zip((f"{self.name} nDCG@{_DEPTH}", f"{self.name} MRR@{_DEPTH}"), means, strict=True))


def _dcg(grades: np.ndarray) -> float:
    """DCG@10 of grades in the order of a ranking."""
    first = grades[:_DEPTH]
    return float((first / np.log2(np.arange(2, len(first) + 2))).sum())


@dataclass(frozen=True, eq=False)
class CrossEncoderData:
    """The complete training data of a cross-encoder, in a folder that can be copied to a machine with a GPU."""

    pairs: MinedPairs | ScoredPairs
    dev: Sequence[CrossEncoderDev]
    tokenizer: bytes
    """The tokenizer.json that made the token ids."""

    def save(self, folder: str | Path) -> None:
        """Write all arrays into a folder."""
        path = Path(folder)
        self.pairs.narrow().save(path / "pairs")
        for number, dev in enumerate(self.dev):
            dev.save(path / f"dev-{number}")
        (path / _TOKENIZER).write_bytes(self.tokenizer)

    @classmethod
    def open(cls, folder: str | Path, negatives_per_query: int = 7) -> CrossEncoderData:
        """Saved data."""
        path = Path(folder)
        try:
            tokenizer = (path / _TOKENIZER).read_bytes()
        except OSError:
            raise InputError(f"there is no training data here (no {_TOKENIZER})", file=str(folder)) from None
        pairs = open_pairs(path / "pairs", negatives_per_query=negatives_per_query)
        return cls(pairs, [*map(CrossEncoderDev.open, numbered_folders(path, "dev"))], tokenizer)


def cross_encoder_data(
    settings: CrossEncoderDataSettings, analyzer: Analyzer, inputs: TrainingInputs, folder: Path
) -> CrossEncoderData:
    """Train queries with hard negatives and a teacher's scores, and dev queries with candidates, as arrays.

    A teacher's scores are stored in the folder, so that an interrupted run continues from there.
    """
    check_run_has_one_dataset(settings.dev_first_stage, inputs.dev)
    pairs = cross_encoder_pairs(settings, analyzer, inputs, folder)
    dev = [cross_encoder_dev(dataset, analyzer, settings) for dataset in inputs.dev]
    return CrossEncoderData(pairs, dev, analyzer.tokenizer.content)  # type: ignore[attr-defined]


def cross_encoder_pairs(
    settings: CrossEncoderDataSettings, analyzer: Analyzer, inputs: TrainingInputs, folder: Path
) -> MinedPairs | ScoredPairs:
    """All train queries, judged and generated ones together."""
    collections = _collections(settings, inputs, folder)
    if not settings.teacher:
        return MinedPairs.concatenate([one.packed(analyzer) for one in collections])
    teachers = settings.open_teachers()
    taught = [
        taught_pairs(one.packed(analyzer), one.documents, one.queries, teachers, folder / f"teacher-{number}.scores")
        for number, one in enumerate(collections)
    ]
    return scaled(ScoredPairs.concatenate(taught), settings)


def _collections(settings: CrossEncoderDataSettings, inputs: TrainingInputs, folder: Path) -> Iterator[AnsweredQueries]:
    """The queries of each data set, then the generated ones."""
    check_run_has_one_dataset(settings.negatives, inputs.datasets)
    corpus = None if inputs.corpus is None else _expanded(inputs.corpus, settings)
    for dataset in inputs.datasets:
        rng = np.random.default_rng(settings.seed)
        yield _judged(dataset, settings, rng).thinned(settings.kept_negatives, rng)
    if corpus is not None:
        rng = np.random.default_rng(settings.seed)
        yield generated_queries(corpus, settings.generated, folder).thinned(settings.kept_negatives, rng)


def _expanded(corpus: Iterable[Document], settings: CrossEncoderDataSettings) -> CorpusStore:
    """The documents, which must have generated queries, and no run as their first stage."""
    documents = CorpusStore.of(corpus)
    if Path(settings.negatives).is_file():
        raise VizslaError(
            f"{settings.negatives}: a run does not have the generated queries of --corpus; name a model instead"
        )
    if not any(QUERIES in document.content for document in documents):
        raise VizslaError(
            f"the documents have no field {QUERIES!r} with generated queries; write it with vizsla queries generate or "
            "name judged queries with --dataset"
        )
    return documents


def _judged(dataset: BeirDataset, settings: CrossEncoderDataSettings, rng: np.random.Generator) -> AnsweredQueries:
    queries, documents = dataset.queries_of(dataset.qrels("train")), CorpusStore.of(dataset.documents())
    if settings.max_queries and len(queries) > settings.max_queries:
        names = list(queries)
        chosen = np.sort(rng.permutation(len(names))[: settings.max_queries])
        queries = {names[i]: queries[names[i]] for i in chosen.tolist()}
    bm25, depth = BM25(fields=FIELDS), settings.negatives_depth
    numbers = positives_and_negatives(documents, queries, dataset, "train", bm25, settings.negatives, depth)
    return AnsweredQueries(documents, list(queries.values()), *numbers)


def cross_encoder_dev(
    dataset: BeirDataset, analyzer: Analyzer, settings: CrossEncoderDataSettings, split: str = "dev"
) -> CrossEncoderDev:
    """A data set's judged queries with the candidates of a first stage."""
    qrels = dataset.qrels(split)
    queries, documents = dataset.queries_of(qrels), CorpusStore.of(dataset.documents())
    rankings = first_stage_rankings(settings.dev_first_stage, documents, queries, settings.candidates_depth)
    own = documents.numbers(list(queries))
    candidates = (ranked[ranked != own[i]] for i, ranked in enumerate(rankings[q] for q in range(len(rankings))))
    return CrossEncoderDev.of(
        dataset.name,
        packed_texts(list(queries.values()), analyzer),
        packed_texts(documents.texts(FIELDS), analyzer),
        TokenCorpus.of(candidates),
        judgement_rows(documents, queries, qrels),
        max_query_length=settings.max_query_length,
        max_length=settings.max_length,
    )


def group_loss(scores: Tensor, name: str = CONTRASTIVE) -> Tensor:
    """The loss that separates the first document of each group from the others, given [groups, documents] scores.

    >>> round(group_loss(torch.zeros(1, 4)).item(), 4), group_loss(torch.tensor([[2.0, 0.0]]), "margin").item()
    (1.3863, 0.0)
    """
    if name == BINARY:
        labels = torch.zeros_like(scores)
        labels[:, 0] = 1
        return F.binary_cross_entropy_with_logits(scores, labels)
    if name == MARGIN:
        return (1 - scores[:, :1] + scores[:, 1:]).clamp(min=0).mean()
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device))


def group_distillation_loss(name: str, scores: Tensor, wanted: Tensor) -> Tensor:
    """The loss that learns a teacher's scores `wanted`, [groups, documents]; the first document is the positive.

    >>> scores, wanted = torch.tensor([[1.0, 0.0, 2.0]]), torch.tensor([[4.0, 0.0, 2.0]])
    >>> [group_distillation_loss(name, scores, wanted).item() for name in ("mse", "margin-mse")]
    [3.0, 9.0]
    """
    given, wanted = scores, wanted.to(scores.dtype)
    if name == MSE:
        return F.mse_loss(given, wanted)
    if name == KL:
        return F.kl_div(given.log_softmax(1), wanted.log_softmax(1), reduction="batchmean", log_target=True)
    own, others = (one[:, :1] - one[:, 1:] for one in (given, wanted))
    return F.mse_loss(own, others)


@dataclass(frozen=True)
class GroupObjective:
    """A cross-encoder must score a query's document higher than its negatives, or match a teacher's scores."""

    loss: GroupLoss = field(default_factory=GroupLoss)

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step, and the share of queries whose own document has the highest score."""
        group: Group = step.batch.extra
        scores = step.vectors(0).view(-1, group.size)
        with torch.no_grad():
            metrics["accuracy"] = (scores[:, 0] > scores[:, 1:].amax(1)).float().mean()
        scaled = scores / self.loss.temperature
        if group.wanted is None:
            return group_loss(scaled, self.loss.name)
        return group_distillation_loss(self.loss.name, scaled, group.wanted)


@TRAINED_KINDS.register(
    "cross-encoder", help="A reranker that reads query and document together.", needs=("torch", "transformers")
)
class CrossEncoderKind(TrainedKind[CrossEncoderSettings]):
    """Trains a cross-encoder on judged and generated queries with hard negatives of a first stage."""

    settings_class = CrossEncoderSettings

    @property
    def reads_corpus(self) -> bool:
        """It also learns from documents with a field of generated queries."""
        return True

    def check_inputs(self, inputs: TrainingInputs) -> None:
        """Refuse inputs without judged and without generated queries."""
        self.check_queries(inputs)

    def load_base(self) -> Base:
        """A cross-encoder; the head is the base model's if it has one."""
        chosen = self.settings.network
        base = cross_encoder_network(chosen.base_model, self.settings.training.seed, chosen.layers)
        data, positions = self.settings.data, base.network.encoder.config.max_position_embeddings
        if not data.max_query_length + 2 <= data.max_length <= positions or data.max_query_length < 3:
            raise VizslaError(
                f"data.max_query_length {data.max_query_length} and data.max_length {data.max_length} do not fit: this "
                f"encoder reads {positions} tokens at most, a query needs 3 or more, and a document 2 more than the "
                "query"
            )
        return base

    def prepare(self, inputs: TrainingInputs, base: Base, folder: Path) -> None:
        """Pack queries with hard negatives and a teacher's scores, and dev queries with candidates."""
        cross_encoder_data(self.settings.data, base.analyzer, inputs, folder).save(folder)

    def open_data(self, folder: Path) -> TrainingData:
        """The pairs and the dev sets."""
        settings = self.settings.data
        data = CrossEncoderData.open(folder, settings.negatives_per_query)
        return TrainingData(CrossEncoderPairs(data.pairs, settings.max_query_length, settings.max_length), data.dev)

    def objective(self) -> Objective:
        """A loss over the documents of each query, or one that learns a teacher's scores."""
        return GroupObjective(self.settings.loss)

    def write(self, network: Any, base: Base, folder: Path, output: Path) -> None:  # noqa: ARG002
        """Write the reranker as transformers opens it."""
        data = self.settings.data
        save_reranker(
            network.cpu().eval(),
            CrossEncoderData.open(folder).tokenizer,
            output,
            name=self.name,
            query_length=data.max_query_length,
            length=data.max_length,
        )

    def open_model(self, output: Path) -> Reranker:
        """The written reranker."""
        return Reranker.open(output)

    def usage(self, output: Path) -> str:
        """A command that reranks with the model."""
        return f"vizsla run rerank DIR --run RUN --queries QUERIES --reranker {output} -o OUT"


def cross_encoder_network(base_model: str, seed: int = 0, layers: int = 0) -> Base:
    """A cross-encoder to train and the analyzer that makes its word pieces.

    `layers`: how many of the encoder's layers are kept; 0 for all.
    """
    exported = Path(reranker_folder(base_model))
    if (exported / ABOUT).is_file() and Network.open(exported).kind == "cross":
        torch.manual_seed(seed)
        network = load_network(Network.open(exported))
        return Base(keep_layers(network, layers), Analyzer.parse(f"wordpiece:{exported}"), new_head=False)
    if known_model(base_model) is not None:
        encoder, analyzer, *_ = base_encoder(base_model, seed)
        return Base(keep_layers(Cross(encoder), layers), analyzer)
    folder = find_checkpoint(base_model)
    encoder, analyzer, *_ = base_encoder(str(folder), seed)
    network = keep_layers(Cross(encoder), layers)
    head = head_arrays(folder)
    if "pre_classifier.weight" not in head:  # DistilBERT's head is of another shape
        network.take_head(head)
    return Base(network, analyzer)
