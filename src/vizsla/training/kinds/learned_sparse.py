"""Learned sparse models: BM26, uniCOIL, SPLADE and SPARTA, trained and written."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vizsla.errors import VizslaError
from vizsla.models import LearnedSparse
from vizsla.models.learned_sparse import QUERIES, SPARTA_LENGTH, SPARTA_TERMS
from vizsla.neural.checkpoints.writing import save_layout
from vizsla.neural.chunks import SPECIAL_TOKENS, packed
from vizsla.neural.encoder import PackedBert
from vizsla.neural.heads.sparta import Sparta
from vizsla.neural.heads.splade import Splade, SpladeDoc
from vizsla.neural.lazy_torch import F, torch
from vizsla.neural.query_tables import PieceVectors, TermWeights
from vizsla.text import Analyzer
from vizsla.training.kind import TRAINED_KINDS, TrainingData, TrainingInputs
from vizsla.training.loop.distributed import Distributed
from vizsla.training.loop.objectives import ContrastiveLoss, Objective, Step, contrast, quadratic_rise
from vizsla.training.loop.trainer import Report, adamw
from vizsla.training.networks import SAMPLE, SPARSE_HEADS, Base, base_sparse_network, write_network
from vizsla.training.settings import TrainingSettings, require_at_least, require_one_of, setting
from vizsla.training.sources.crops import CroppedPairs, Crops, CropSource, packed_documents
from vizsla.training.sources.dev_set import DevSet
from vizsla.training.sources.generated import GeneratedSource
from vizsla.training.sources.judged import JudgedSource
from vizsla.training.sources.source import PairKind
from vizsla.training.sources.teacher import check_loss
from vizsla.training.sources.token_corpus import MASK, TokenCorpus, sample_of, with_special_tokens

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SparseNetwork:
    """The network of a learned sparse model."""

    base_model: str = setting("bm26", "shipped network, saved model, or transformers encoder (folder or name)")
    head: str = setting(
        "unicoil",
        "unicoil weighs a text's own terms, splade also adds terms, splade-doc and sparta add them only to documents",
    )

    layers: str = setting("", "layers of the base model that are kept, by number, as in 0/1/2/3/5; all if empty")
    output_terms: int = setting(0, "terms that splade can give a weight: the most frequent of the corpus; 0 for all")
    query_table: bool = setting(
        False, "also train splade to read queries piece by piece, and write a table of the pieces"
    )

    def __post_init__(self) -> None:
        require_one_of("head", self.head, SPARSE_HEADS)
        require_at_least(self, "network", 0, "output_terms")
        if not re.fullmatch(r"(\d+(/\d+)*)?", self.layers):
            raise VizslaError(f"network.layers are numbers separated by /, as in 0/1/2/3/5, not {self.layers!r}")
        if (self.output_terms or self.query_table) and self.head != "splade":
            raise VizslaError(f"network.output_terms and network.query_table are for the head splade, not {self.head}")


@dataclass(frozen=True)
class MaskedLM:
    """A masked-language-model stage for a new head, before the training loop."""

    steps: int = setting(0, "optimizer steps of a new head; 0 leaves the stage out")
    batch_size: int = setting(512, "documents per step")
    tokens_per_chunk: int = setting(65_536, "tokens encoded at once")
    learning_rate: float = setting(5e-4, "highest learning rate")
    warmup_steps: int = setting(100, "steps over which the learning rate rises")
    final_learning_rate_ratio: float = setting(0.02, "learning rate at the last step, relative to the highest")
    weight_decay: float = setting(0.01, "AdamW's weight decay, of matrices only")
    max_grad_norm: float = setting(1.0, "gradients with a larger norm are clipped")
    precision: str = setting("bfloat16", "bfloat16 (only on devices that are fast with it) or float32")
    compile: bool = setting(False, "compile the encoder with torch.compile")
    seed: int = setting(0, "seed of batches and masks")
    active_terms: int = setting(100, "terms of a text with a weight above 0 when the stage is over")

    def __post_init__(self) -> None:
        require_at_least(self, "masked_lm", 0, "steps")
        require_at_least(self, "masked_lm", 1, "active_terms")
        if self.steps:
            self.training_settings()

    def training_settings(self) -> TrainingSettings:
        """The settings of the stage's loop."""
        return TrainingSettings(
            steps=self.steps, batch_size=self.batch_size, tokens_per_chunk=self.tokens_per_chunk,
            learning_rate=self.learning_rate, warmup_steps=self.warmup_steps,
            final_learning_rate_ratio=self.final_learning_rate_ratio, weight_decay=self.weight_decay,
            max_grad_norm=self.max_grad_norm, precision=self.precision, compile=self.compile, seed=self.seed,
        )  # fmt: skip


@dataclass(frozen=True)
class SparseLoss(ContrastiveLoss):
    """A contrastive loss with SPLADE's FLOPS regularizer."""

    flops_queries: float = setting(0.0, "weight of the FLOPS regularizer of query vectors")
    flops_documents: float = setting(0.0, "weight of the FLOPS regularizer of document vectors")
    flops_warmup_steps: int = setting(0, "steps over which the regularizer rises, quadratically")


@dataclass(frozen=True)
class LearnedSparseSettings:
    """The settings of a learned sparse model."""

    network: SparseNetwork = field(default_factory=SparseNetwork)
    data: CropSource | JudgedSource | GeneratedSource = field(default_factory=CropSource)
    masked_lm: MaskedLM = field(default_factory=MaskedLM)
    loss: SparseLoss = field(default_factory=SparseLoss)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        check_loss(self.data, self.loss.name)


SHARE = 0.15  # of tokens are predicted; of these 80% are masked, 10% replaced by a random token, 10% left unchanged
_WHOLE_WINDOWS = Crops(min_fraction=1.0, max_fraction=1.0, deletion_rate=0.0)


def train_masked_lm(
    network: Splade | Sparta,
    corpus: TokenCorpus,
    settings: TrainingSettings,
    *,
    distributed: Distributed | None = None,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> float:
    """Train an encoder and its head to predict masked tokens; returns the last loss.

    Every process trains on whole batches by itself. Dev sets and checkpoints are not used.
    """
    distributed = distributed or Distributed.start()
    device = distributed.device
    network.to(device).train()
    if settings.compile:
        network.encoder.compile(dynamic=True)
    pairs = CroppedPairs(corpus, _WHOLE_WINDOWS)
    optimizer = adamw(network, settings, device)
    loss = float("nan")
    for step in range(settings.steps):
        started = time.perf_counter()
        learning_rate = settings.learning_rate_at(step)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        ((ids, mask), _) = pairs.batch(settings.batch_size, settings.seed, step, device).texts
        loss = _accumulate_gradients(network, ids, mask, step, settings)
        torch.nn.utils.clip_grad_norm_(network.parameters(), settings.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if report is not None and distributed.is_main:
            speed = int(mask.sum()) / (time.perf_counter() - started)
            report({"step": step + 1, "masked_loss": loss, "learning_rate": learning_rate, "tokens_per_second": speed})
    network.eval()
    return loss


def _accumulate_gradients(
    network: Splade | Sparta, ids: Tensor, mask: Tensor, step: int, settings: TrainingSettings
) -> float:
    """Add the gradients of one batch, chunk by chunk; returns its loss."""
    device, tokens = ids.device, settings.tokens_per_chunk
    rng = torch.Generator(device).manual_seed(settings.seed * 1_000_003 + step)
    predicted = mask & (ids != _WHOLE_WINDOWS.cls_id) & (ids != (_WHOLE_WINDOWS.sep_id or 0))
    predicted &= torch.rand(ids.shape, generator=rng, device=device) < SHARE
    inputs = masked_inputs(ids, predicted, network.vocabulary, rng)
    chunks = (packed(rows, mask, tokens).chunks for rows in (inputs, ids, predicted.long()))
    count, total = int(predicted.sum()), torch.zeros((), device=device)
    for chunk, labels, places in zip(*chunks, strict=True):
        with torch.autocast(device.type, torch.bfloat16, enabled=settings.uses_bfloat16(device)):
            chosen = places.ids.bool()
            logits = network.head(network.encoder(chunk)[chosen])
        part = F.cross_entropy(logits.float(), labels.ids[chosen], reduction="sum") / max(count, 1)
        part.backward()  # type: ignore[no-untyped-call]
        total += part.detach()
    return float(total)


def masked_inputs(ids: Tensor, predicted: Tensor, vocabulary: int, rng: torch.Generator) -> Tensor:
    """The input tokens: those to predict are mostly masked or replaced."""
    chance = torch.rand(ids.shape, generator=rng, device=ids.device)
    random_tokens = torch.randint(0, vocabulary, ids.shape, generator=rng, device=ids.device)
    inputs = torch.where(predicted & (chance < 0.8), MASK, ids)
    return torch.where(predicted & (chance >= 0.9), random_tokens, inputs)


def flops(vectors: Tensor) -> Tensor:
    """SPLADE's FLOPS regularizer: the sum over the vocabulary of squared mean weights.

    >>> flops(torch.tensor([[1.0, 0.0], [3.0, 0.0]])).item()
    4.0
    """
    return (vectors.abs().mean(0, dtype=torch.promote_types(vectors.dtype, torch.float32)) ** 2).sum()


@dataclass(frozen=True)
class SparseObjective:
    """Like `ContrastiveObjective`, with SPLADE's FLOPS regularizer."""

    loss: SparseLoss = field(default_factory=SparseLoss)

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step; also logs how many terms vectors have."""
        settings = self.loss
        loss, _, queries, documents = contrast(settings, step, metrics)
        with torch.no_grad():
            metrics["query_terms"] = (queries > 0).sum(1).float().mean()
            metrics["document_terms"] = (documents[0] > 0).sum(1).float().mean()
        if not settings.flops_queries and not settings.flops_documents:
            return loss
        share = quadratic_rise(step.number, settings.flops_warmup_steps)
        cost = settings.flops_queries * flops(queries) + settings.flops_documents * flops(torch.cat(documents))
        metrics["flops"] = (share * cost).detach()
        return loss + share * cost


_CHUNK = 1 << 14  # tokens
_MASKED_LM_CORPUS = "corpus"
_SPARSIFY_TEXTS, _SPARSIFY_LENGTH = 256, 128


@TRAINED_KINDS.register(
    "learned-sparse", help="BM26, uniCOIL, SPLADE or SPARTA.", needs=("torch", "transformers", "onnx")
)
class LearnedSparseKind(PairKind[LearnedSparseSettings]):
    """Trains a network that weighs terms, from crops of documents, or from judged or generated queries."""

    settings_class = LearnedSparseSettings

    @property
    def reads_corpus(self) -> bool:
        """Whether it learns from documents by themselves: from crops, or in a masked-language-model stage."""
        return not self.reads_datasets or self.settings.masked_lm.steps > 0

    def load_base(self) -> Base:
        """The base model with the head of the settings."""
        network = self.settings.network
        base = base_sparse_network(network.base_model, network.head, self.settings.training.seed)
        if network.layers:
            if not isinstance(base.network.encoder, PackedBert):
                raise VizslaError(f"network.layers leaves out layers of a BERT, and {network.base_model} is another")
            base.network.encoder.keep_layers([int(number) for number in network.layers.split("/")])
        if network.query_table:
            base.network.by_pieces = True
        return base

    def prepare(self, inputs: TrainingInputs, base: Base, folder: Path) -> None:
        """Pack pairs, dev sets and the corpus of the masked-language-model stage."""
        super().prepare(inputs, base, folder)
        if self.reads_datasets and self.reads_corpus:
            packed_documents(inputs.documents(), base.analyzer).save(folder / _MASKED_LM_CORPUS)

    def open_data(self, folder: Path) -> TrainingData:
        """The pairs, and the dev sets with the document length of the written model."""
        used = {"max_length": SPARTA_LENGTH, "document_terms": SPARTA_TERMS}
        dev = DevSet.open_all(folder, sparse=True, **(used if self.settings.network.head == "sparta" else {}))
        data = self.settings.data
        refresh = data.open_refresh(folder, sparse=True) if isinstance(data, JudgedSource) else None
        return TrainingData(data.open_pairs(folder), dev, refresh)

    def pretrain(self, network: Any, base: Base, folder: Path, distributed: Distributed, report: Report | None) -> None:
        """The masked-language-model stage, and the choice of the terms that can get a weight.

        A masked-language head of the base model is not trained in this stage; only its logits are shifted and scaled.
        """
        stage = self.settings.masked_lm
        if report is not None and distributed.is_main and (note := self._head_note(base)):
            report({"note": note})
        if base.new_head and stage.steps:
            settings = stage.training_settings()
            train_masked_lm(network, self._documents(folder), settings, distributed=distributed, report=report)
        if (base.new_head or base.masked_language) and stage.steps:
            self._sparsify(network.to(distributed.device).eval(), self._documents(folder))
        if self.settings.network.output_terms:
            network.keep_terms(_most_frequent(self._documents(folder), self.settings.network.output_terms))

    def _head_note(self, base: Base) -> str:
        """Where the head of a SPLADE comes from, as a sentence; empty for other heads and for Vizsla's models."""
        name, steps = self.settings.network.base_model, self.settings.masked_lm.steps
        if base.masked_language:
            return f"{name}: its masked-language head is kept{', so the stage masked_lm trains none' if steps else ''}"
        if not base.new_head or self.settings.network.head not in ("splade", "splade-doc"):
            return ""
        how = "is trained on masked words first" if steps else "starts untrained, since masked_lm.steps is 0"
        return f"{name}: there is no masked-language head, so a new one {how}"

    def _sparsify(self, network: Any, corpus: TokenCorpus) -> None:
        """Leave a text with few active terms."""
        first = range(min(len(corpus), _SPARSIFY_TEXTS))
        device = next(network.parameters()).device
        texts = with_special_tokens(corpus, first, device, max_length=_SPARSIFY_LENGTH)
        network.sparsify(packed(*texts, _CHUNK, side=1).chunks, self.settings.masked_lm.active_terms)

    def objective(self) -> Objective:
        """A contrastive loss with the FLOPS regularizer."""
        return SparseObjective(self.settings.loss)

    def write(self, network: Any, base: Base, folder: Path, output: Path) -> None:
        """Write the model in 8 bits to search with, and in floats as other libraries open it."""
        write_sparse_model(
            network, base.analyzer, self._documents(folder), output, name=self.name,
            fields=self.settings.data.document_fields, query_table=self.settings.network.query_table,
        )  # fmt: skip

    def usage(self, output: Path) -> str:
        """A command that indexes with the model."""
        head = self.settings.network.head
        other = {"sparta": f"sparta(network={output})", "splade-doc": f"auto(bm25, {output})"}
        return f'vizsla index SOURCE -o DIR --model {output}, or "{other.get(head, f"bm51(network={output})")}"'

    def _documents(self, folder: Path) -> TokenCorpus:
        if self.reads_datasets and self.reads_corpus:
            return TokenCorpus.open(folder / _MASKED_LM_CORPUS)
        return self.settings.data.open_documents(folder)


def _most_frequent(corpus: TokenCorpus, count: int) -> Any:
    """The numbers of the word pieces that occur most often."""
    return torch.from_numpy(np.argsort(-np.bincount(corpus.ids), kind="stable")[:count])


_HEADROOM = 1.1  # of the stored range of weights, above the highest weight seen
_TABLE_TERMS = 16  # of a piece in a table for queries


def write_sparse_model(
    network: Any,
    analyzer: Analyzer,
    corpus: TokenCorpus,
    output: Path,
    *,
    name: str,
    fields: Sequence[str],
    query_table: bool,
) -> None:
    """Write a network of `SPARSE_HEADS` as a model in 8 bits, and in floats as other libraries open it.

    `corpus`: documents to calibrate the quantisation with. `query_table`: also write a table with the network's vector
    of each word piece by itself (`PieceVectors`).
    """
    pieces = network.eval().piece_vectors(_TABLE_TERMS) if query_table else None  # before it leaves a GPU
    network = network.cpu()
    length = network.encoder.config.max_position_embeddings
    highest = _highest_weight(network, corpus, length)
    if not highest > 0:
        raise VizslaError(
            "all weights of the network have become 0; train with a lower learning rate, as in "
            "--set training.learning_rate=1e-5"
        )
    sample = sample_of(corpus, SAMPLE, length)
    reads, table = (network.documents, network.query_weights) if isinstance(network, SpladeDoc) else (network, None)
    written = write_network(reads, output, max_weight=_HEADROOM * highest, length=length, sample=sample)
    model = LearnedSparse(written, analyzer, fields=tuple(fields), namespace=name, name=name)
    weights = None
    if table is not None:
        weights = table.detach().float().numpy()
        model = replace(model, query_table=TermWeights.write(output / QUERIES, weights), inference_free=True)
    elif network.kind == "sparta":
        model = replace(model, length=min(SPARTA_LENGTH, written.length), max_terms=SPARTA_TERMS)
    elif pieces is not None:
        model = replace(model, query_table=_write_query_table(pieces, output / QUERIES))
    model.save(output)
    shutil.rmtree(output / QUERIES, ignore_errors=True)  # there is a copy that is named by its hash
    save_layout(reads, analyzer.tokenizer.content, output, weights)  # type: ignore[attr-defined]


def _write_query_table(pieces: tuple[Tensor, Tensor], folder: Path) -> PieceVectors:
    """The terms and weights of each word piece by itself, as a table; special tokens have none."""
    terms, weights = (values.cpu().numpy().copy() for values in pieces)
    weights[list(SPECIAL_TOKENS)] = 0
    return PieceVectors.write(folder, terms, weights)


def _highest_weight(network: Any, corpus: TokenCorpus, length: int) -> float:
    """The highest weight that a network gives a term in a sample of documents."""
    chosen = np.linspace(0, len(corpus) - 1, min(len(corpus), SAMPLE)).astype(int)
    with torch.inference_mode():
        batch = packed(*with_special_tokens(corpus, chosen, "cpu", max_length=length), _CHUNK, side=1)
        return max(float(network(chunk).max()) for chunk in batch.chunks)
