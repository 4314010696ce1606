"""Time of a query and size of an index, for the ten systems of Table 3 of the BEIR paper.

Each system is indexed as any model is: its network reads every document, an index is written, and single questions
are asked. The networks have the shape of the systems' own, and random weights: they take the same time and make vectors
of the same size. What they find means nothing. The inverted indexes of SPARTA and DeepCT are those of random weights.

On a machine without a GPU the network of a document may be left out (`drawn=True`): numbers of the right shape are
drawn for each token or text that the network would have read. Questions are still encoded by the network.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from vizsla.errors import VizslaError
from vizsla.index import Index, bytes_of
from vizsla.models import BM25, ColBERT, Dense, LearnedSparse, Model, Network, Reranker
from vizsla.models.counts import DeepCT
from vizsla.models.reranker import BertPairs
from vizsla.neural.device import opening_on, place_of
from vizsla.retrievers import RerankedRetriever
from vizsla.text import Analyzer

Kind = Literal["bm25", "docT5query", "reranked", "dense", "colbert", "sparta", "deepct"]
QUERIES = "queries"
"""The field of a document that holds the queries generated for it."""
_DEPTH = 100  # documents of a query that are reranked
_FEW = 5  # queries that a reranker and ColBERT are asked
_VOCABULARY, _POSITIONS = 30_522, 512
_TERMS, _TOKEN_WIDTH = 2000, 128  # of SPARTA's documents, and of ColBERT's vectors
_SCALE = 0.02  # standard deviation of BERT's weights before training


class Shape(NamedTuple):
    """The shape of a BERT."""

    layers: int
    width: int
    heads: int

    @property
    def inner(self) -> int:
        return 4 * self.width


BERT, DISTILBERT, MINILM = Shape(12, 768, 12), Shape(6, 768, 12), Shape(6, 384, 12)


@dataclass(frozen=True)
class System:
    """A row of the table: what it is, the paper's figures, and the shape of its network.

    `gpu`, `cpu`: the paper's milliseconds for a query; `gigabytes`: its index of a million documents of DBPedia.
    `vector_index`: how its vectors are stored.
    """

    name: str
    kind: Kind
    dimensions: int | None
    gpu: float | None
    cpu: float | None
    gigabytes: float
    shape: Shape | None = None
    vector_index: str = "exact"


TABLE = (
    System("BM25+CE", "reranked", None, 450, 6100, 0.4, MINILM),
    System("ColBERT", "colbert", 128, 350, None, 20, BERT, "float16"),
    System("docT5query", "docT5query", None, None, 30, 0.4),
    System("BM25", "bm25", None, None, 20, 0.4),
    System("TAS-B", "dense", 768, 14, 125, 3, DISTILBERT),
    System("GenQ", "dense", 768, 14, 125, 3, DISTILBERT),
    System("ANCE", "dense", 768, 20, 275, 3, BERT),
    System("SPARTA", "sparta", 2000, None, 20, 12, BERT),
    System("DeepCT", "deepct", None, None, 25, 0.4, BERT),
    System("DPR", "dense", 768, 19, 230, 3, BERT),
)
"""The rows of the paper's table, best on BEIR first. The networks' shapes are those of the systems' own papers."""
COMPRESSED = replace(TABLE[1], name="ColBERT, compressed", vector_index="plaid")
"""ColBERT as our index compresses it; the paper's is in 16 bits."""


@dataclass(frozen=True)
class Measurement:
    """A measured row. `bytes`: of the index alone, without texts. `milliseconds`: the mean of `queries` questions.

    `device`: where the networks ran. `note`: what of it was not done as a user would do it; empty if nothing.
    """

    system: str
    documents: int
    bytes: int
    milliseconds: float
    queries: int
    device: str
    seconds: float
    note: str = ""


def measure(
    documents: Iterable[Mapping[str, Any]],
    queries: Sequence[str],
    folder: str | Path,
    systems: Iterable[System] = (*TABLE, COMPRESSED),
    *,
    drawn: bool = False,
    device: str = "",
    k: int = 100,
) -> Iterator[Measurement]:
    """Measure systems one after the other; each index is written below `folder` and removed again.

    `documents` are read once for each system, so give a sequence or a source, not a generator. `drawn`: see the module.
    `device`: where networks run. Time is that of one thread of the processor, or with a GPU that of the clock.
    """
    if iter(documents) is documents:
        raise VizslaError("documents are read once for each system; give a list or a source, not a generator")
    if not queries:
        raise VizslaError("there are no queries to measure with")
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    with opening_on(device):
        for system in systems:
            made = place / "measured"
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            try:
                yield _measured(system, documents, queries, made, drawn, k)
            finally:
                shutil.rmtree(made, ignore_errors=True)


def _measured(
    system: System, documents: Iterable[Mapping[str, Any]], queries: Sequence[str], folder: Path, drawn: bool, k: int
) -> Measurement:
    started = time.perf_counter()
    model = model_of(system, folder, drawn=drawn)
    read = documents
    if system.kind == "docT5query":
        read = [document for document in documents if document.get(QUERIES)]
        if not read:
            raise VizslaError("no document has generated queries; write them with: vizsla queries generate")
    with Index.create(
        folder / "index", model, vector_index=system.vector_index, store=system.kind == "reranked"
    ) as index:
        network = _network(index.model)
        if drawn and network is not None and system.kind != "reranked":
            network.__dict__["running"] = Drawn(system)
        index.add(read)
        if network is not None:
            network.__dict__.pop("running", None)
        index.commit()
        if drawn and (reopened := _network(index.model)) is not None:
            reopened.__dict__.pop("running", None)
        count, size = len(index), bytes_of(index, index.model)
        seconds = time.perf_counter() - started
        place = place_of() if system.shape is not None else None
        on_gpu = place is not None and place.device.is_gpu and system.kind not in ("sparta", "deepct")
        milliseconds, asked = _time(system, index, queries, folder, on_gpu, k)
    return Measurement(
        system.name, count, size, milliseconds, asked, str(place.device) if place and on_gpu else "cpu", seconds,
        _note(system, drawn),
    )  # fmt: skip


def _note(system: System, drawn: bool) -> str:
    if system.shape is None:
        return ""
    shape = f"random weights of {system.shape.layers} layers of {system.shape.width}"
    return f"{shape}; vectors of documents drawn" if drawn and system.kind != "reranked" else shape


def _time(
    system: System, index: Index, queries: Sequence[str], folder: Path, on_gpu: bool, k: int
) -> tuple[float, int]:
    """Milliseconds a query, the best of three rounds each, and how many were asked."""
    ask: Callable[[str], object]
    if system.kind == "reranked":
        assert system.shape is not None
        network = random_network(folder / "reranker", "cross", system.shape)
        reranker = Reranker(BertPairs(network, Analyzer.parse("wordpiece")))
        retriever = RerankedRetriever(index.with_model(index.model, threads=1), reranker, _DEPTH)

        def ask(query: str) -> object:
            return retriever.search_many([query], k)
    else:
        view = index.with_model(index.model, threads=1)

        def ask(query: str) -> object:
            return view.search_many([query], k, documents=False)

    slow = system.kind in ("reranked", "colbert")
    queries = queries[:_FEW] if slow else queries
    clock = time.perf_counter if on_gpu else time.process_time
    ask(queries[0])  # opens networks and fills caches
    best = np.full(len(queries), np.inf)
    for _ in range(1 if slow else 3):
        for i, query in enumerate(queries):
            started = clock()
            ask(query)
            best[i] = min(best[i], clock() - started)
    return float(1000 * best.mean()), len(queries)


def model_of(system: System, folder: Path, *, drawn: bool = False) -> Model:
    """A system's model with random weights, its network written below a folder.

    With `drawn`, a network that reads documents alone has one layer, as it never runs.
    """
    if system.kind in ("bm25", "reranked"):
        return BM25(k1=0.9, b=0.4)
    if system.kind == "docT5query":
        return BM25(k1=0.9, b=0.4, fields=("title", "text", QUERIES))
    assert system.shape is not None
    reads_queries = system.kind in ("dense", "colbert")
    shape = system.shape if reads_queries or not drawn else system.shape._replace(layers=1)
    network = random_network(folder / "network", system.kind, shape)
    if system.kind == "dense":
        return Dense(network, normalize=False)
    if system.kind == "colbert":
        return ColBERT(network)
    if system.kind == "deepct":
        return DeepCT(network=network)
    return LearnedSparse(network, max_weight=0.0, max_terms=_TERMS, name="sparta", namespace="sparta")


def random_network(folder: Path, kind: str, shape: Shape, seed: int = 0) -> Network:
    """A BERT of a shape with random weights and a head, in 32-bit floats."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {}

    def linear(name: str, rows: int, columns: int) -> None:
        arrays[f"{name}.weight"] = rng.standard_normal((rows, columns), np.float32) * np.float32(_SCALE)
        arrays[f"{name}.bias"] = np.zeros(rows, np.float32)

    def norm(name: str) -> None:
        arrays[f"{name}.weight"], arrays[f"{name}.bias"] = np.ones(width, np.float32), np.zeros(width, np.float32)

    layers, width, heads = shape
    for name, rows in (("word", _VOCABULARY), ("position", _POSITIONS), ("token_type", 2)):
        linear(f"embeddings.{name}_embeddings", rows, width)
        del arrays[f"embeddings.{name}_embeddings.bias"]
    norm("embeddings.LayerNorm")
    for layer in range(layers):
        at = f"encoder.layer.{layer}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            linear(f"{at}.attention.{name}", width, width)
        norm(f"{at}.attention.output.LayerNorm")
        linear(f"{at}.intermediate.dense", shape.inner, width)
        linear(f"{at}.output.dense", width, shape.inner)
        norm(f"{at}.output.LayerNorm")
    if kind == "colbert":
        linear("linear", _TOKEN_WIDTH, width)
        del arrays["linear.bias"]
    elif kind == "deepct":
        linear("weigh", 1, width)
    elif kind == "sparta":
        arrays["shift"] = np.zeros(1, np.float32)
    elif kind == "cross":
        linear("pooler.dense", width, width)
        linear("classifier", 1, width)
    return Network.write(
        folder, arrays, kind=kind, heads=heads, max_weight=1.0, length=_POSITIONS, precision="float32",
        pooling="cls" if kind == "dense" else "",
    )  # fmt: skip


def _network(model: Model) -> Network | None:
    network = getattr(model.parts[0].component, "network", None)
    return network if isinstance(network, Network) else None


class Drawn:
    """In place of an open network: numbers of the shape that it would give, drawn at random."""

    def __init__(self, system: System, seed: int = 0) -> None:
        self._width = system.dimensions or 1
        self._rng = np.random.default_rng(seed)

    def embeddings(self, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:  # noqa: ARG002 (as a network)
        """[texts, width]"""
        return self._rng.standard_normal((len(offsets) - 1, self._width), np.float32)

    def token_vectors(self, ids: np.ndarray, offsets: np.ndarray, attended: np.ndarray | None = None) -> np.ndarray:  # noqa: ARG002
        """[tokens, width]"""
        return self._rng.standard_normal((len(ids), self._width), np.float32)

    def weights(self, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """[tokens] between 0 and 1; most are small, as DeepCT's are."""
        return self._rng.random(len(ids), np.float32) ** 4

    def vectors(self, ids: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # noqa: ARG002
        """As many terms for each text as SPARTA keeps."""
        texts, kept = len(offsets) - 1, self._width
        steps = self._rng.integers(1, 2 * (_VOCABULARY // kept), (texts, kept))  # sums of gaps are sorted and differ
        terms = np.minimum(np.cumsum(steps, axis=1), _VOCABULARY - kept + np.arange(kept))
        values = self._rng.random(texts * kept, np.float32) + np.float32(0.01)
        return terms.ravel(), values, np.arange(texts + 1) * kept


def markdown(measured: Iterable[Measurement]) -> str:
    """The table, with the paper's figures beside ours."""
    published = {system.name: system for system in (*TABLE, COMPRESSED)}
    columns = ("system", "dim.", "documents", "index, MB", "GB for 1 M", "paper, GB", "ms a query", "on")
    head = (*columns, "paper, ms: CPU", "GPU", "")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for one in measured:
        system = published[one.system]
        million = one.bytes / max(one.documents, 1) / 1000
        row = (
            one.system, system.dimensions or "", f"{one.documents:,}", f"{one.bytes / 1e6:.1f}", f"{million:.2f}",
            f"{system.gigabytes:g}", f"{one.milliseconds:.1f}", one.device,
            "" if system.cpu is None else f"{system.cpu:,}", system.gpu or "", one.note,
        )  # fmt: skip
        lines.append("| " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines)


def first(documents: Iterable[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    """The first documents of a source; 0 for all."""
    return list(islice(documents, count or None))
