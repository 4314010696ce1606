"""The vector indexes that faiss builds and searches, `hnsw`, `ivf` and `pq`, and faiss over the vectors of a segment.

faiss proposes candidates, which are then scored exactly elsewhere.

faiss does not validate the files it reads. The hash of an ANN index detects damage but not malice, so faiss only opens
files that were built on this machine or that the user trusts. The hash is compared once, when the file is opened; after
that faiss uses the file in place, mapped into memory.
"""

from __future__ import annotations

import hashlib
import math
import threading
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vizsla.engine.vector_indexes.base import (
    DEVICES,
    MIN_DOCUMENTS_HELP,
    STORE_HELP,
    VECTOR_INDEXES,
    VectorIndex,
    check_choice,
    check_ranges,
)
from vizsla.engine.vector_rows import VectorRows
from vizsla.errors import CollectionError, VizslaError
from vizsla.spec import options_of

CODES = {"float32": "Flat", "float16": "SQfp16", "sq8": "SQ8"}
"""How faiss names the types it keeps vectors in."""
POINTS_PER_CENTROID = 39  # vectors that faiss wants to see for each centroid it learns
CODES_HELP = "type faiss keeps vectors in"
SHARED_HELP = {
    "store": STORE_HELP,
    "oversample": "faiss gives this many times k candidates, which are scored exactly; 0 decides by itself",
    "min_documents": MIN_DOCUMENTS_HELP,
}
DEVICE_HELP = "where faiss searches: cpu or gpu"
M_HELP = "number of sub-quantizers; 0 for one for every eight numbers"
NBITS_HELP = "bits of a sub-quantizer's code"


@dataclass(frozen=True, kw_only=True)
class Approximate(VectorIndex):
    """A vector index of faiss in each segment of at least `min_documents` documents.

    faiss gives `oversample` times k candidates, which are scored exactly from the stored vectors. An `oversample` of 0
    stands for 8 with product quantization and for 2 without.
    """

    oversample: int = 0
    min_documents: int = 10_000

    search_options: ClassVar[tuple[str, ...]] = ("oversample",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, oversample=(0, 1000), min_documents=(1, 1 << 40))

    @property
    def is_approximate(self) -> bool:
        return True

    @property
    def has_product_quantizer(self) -> bool:
        """Whether faiss keeps product quantization codes."""
        return False

    def candidates(self, k: int) -> int:
        """How many candidates faiss gives for the best k."""
        return k * (self.oversample or (8 if self.has_product_quantizer else 2))

    def factory(self, documents: int, width: int) -> str | None:
        return None if documents < self.min_documents else self.faiss_factory(documents, width)

    @abstractmethod
    def faiss_factory(self, documents: int, width: int) -> str | None:
        """What faiss builds where there are enough documents by `min_documents`."""

    @abstractmethod
    def parameters(self, faiss: Any, count: int, **options: Any) -> Any:
        """faiss's parameters of one search for so many candidates."""


@dataclass(frozen=True, kw_only=True)
class Clustered(Approximate):
    """Vectors in lists around centroids, as faiss's IVF indexes have them; `m` and `nbits` for product quantization."""

    m: int = 0
    nbits: int = 8
    device: str = "cpu"

    search_options: ClassVar[tuple[str, ...]] = ("nprobe", "oversample", "device")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("device", self.device, DEVICES)
        check_ranges(self, m=(0, 4096), nbits=(4, 8))

    @property
    @abstractmethod
    def probes(self) -> int:
        """How many lists are searched."""

    def parameters(self, faiss: Any, count: int, **options: Any) -> Any:  # noqa: ARG002
        return faiss.SearchParametersIVF(nprobe=self.probes, **options)

    def check_width(self, width: int) -> None:
        """Refuse to cut vectors into sub-vectors that are not equal."""
        if self.has_product_quantizer and width % self._sub_quantizers(width):
            raise VizslaError(f"vectors of {width} numbers cannot be cut into {self.m} equal parts for {self.name}")

    def ivf_factory(self, documents: int, width: int, nlist: int, codes: str) -> str | None:
        """The faiss factory string of an IVF index; None if there are too few documents to train the centroids."""
        centroids = max(nlist, 1 << self.nbits if self.has_product_quantizer else 1)
        if documents < POINTS_PER_CENTROID * centroids:
            return None
        if self.has_product_quantizer:
            return f"IVF{nlist},PQ{self._sub_quantizers(width)}x{self.nbits}"
        return f"IVF{nlist},{CODES[codes]}"

    def _sub_quantizers(self, width: int) -> int:
        """`m`, or one for every eight numbers, or the next lower number that divides the width."""
        return self.m or max(m for m in range(1, max(width // 8, 1) + 1) if width % m == 0)


@dataclass(frozen=True, kw_only=True)
class HNSW(Approximate):
    """A graph in which each node has `M` links.

    The graph is built with a beam of `ef_construction` nodes and searched with one of `ef_search` nodes.
    """

    M: int = 32
    ef_construction: int = 100
    ef_search: int = 64
    codes: str = "sq8"

    name: ClassVar[str] = "hnsw"
    search_options: ClassVar[tuple[str, ...]] = ("ef_search", "oversample")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("codes", self.codes, tuple(CODES))
        check_ranges(self, M=(2, 256), ef_construction=(4, 10_000), ef_search=(1, 100_000))

    def faiss_factory(self, documents: int, width: int) -> str | None:  # noqa: ARG002
        codes = ",Flat" if self.codes == "float32" else f"_{CODES[self.codes]}"
        return f"HNSW{self.M}{codes} {self.ef_construction}"

    def parameters(self, faiss: Any, count: int, **options: Any) -> Any:
        return faiss.SearchParametersHNSW(efSearch=max(self.ef_search, count), **options)


VECTOR_INDEXES.register(
    HNSW.name,
    help="A graph of near neighbours: fast, and large.",
    options=options_of(
        HNSW,
        M="links of a node of the graph",
        ef_construction="size of the beam when the graph is built",
        ef_search="size of the beam when the graph is searched",
        codes=CODES_HELP,
        **SHARED_HELP,
    ),
    needs=("faiss",),
)(HNSW)


@dataclass(frozen=True, kw_only=True)
class IVF(Clustered):
    """Vectors in `nlist` lists, of which the nearest `nprobe` are searched.

    An `nlist` of 0 stands for four times the square root of the number of documents.
    """

    nlist: int = 0
    nprobe: int = 16
    codes: str = "sq8"

    name: ClassVar[str] = "ivf"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("codes", self.codes, (*CODES, "pq"))
        check_ranges(self, nlist=(0, 1 << 20), nprobe=(1, 1 << 20))

    @property
    def has_product_quantizer(self) -> bool:
        return self.codes == "pq"

    def faiss_factory(self, documents: int, width: int) -> str | None:
        nlist = self.nlist or max(min(int(4 * math.sqrt(documents)), documents // POINTS_PER_CENTROID), 1)
        return self.ivf_factory(documents, width, nlist, self.codes)

    @property
    def probes(self) -> int:
        return self.nprobe


VECTOR_INDEXES.register(
    IVF.name,
    help="Lists of near vectors, of which a few are searched.",
    options=options_of(
        IVF,
        nlist="number of lists; 0 for four times the square root of the number of documents",
        nprobe="lists that are searched",
        codes=f"{CODES_HELP}, or pq",
        m=M_HELP,
        nbits=NBITS_HELP,
        device=DEVICE_HELP,
        **SHARED_HELP,
    ),
    needs=("faiss",),
)(IVF)


@dataclass(frozen=True, kw_only=True)
class PQ(Clustered):
    """A vector as `m` codes of `nbits` bits each. All codes are searched: an IVF index with one list."""

    name: ClassVar[str] = "pq"
    search_options: ClassVar[tuple[str, ...]] = ("oversample", "device")

    @property
    def has_product_quantizer(self) -> bool:
        return True

    def faiss_factory(self, documents: int, width: int) -> str | None:
        return self.ivf_factory(documents, width, 1, "pq")

    @property
    def probes(self) -> int:
        return 1


VECTOR_INDEXES.register(
    PQ.name,
    help="Product quantization: a few bytes a vector.",
    options=options_of(PQ, m=M_HELP, nbits=NBITS_HELP, device=DEVICE_HELP, **SHARED_HELP),
    needs=("faiss",),
)(PQ)


# Building and searching with faiss

_BATCH = 1 << 16  # vectors that are added together
_MAX_TRAINED = 1 << 18  # vectors that centroids are learned from
_TRAINED_PER_CENTROID = 64
_ITERATIONS = 10
_FEW = 2000  # allowed documents up to which all of them are candidates
_MAX_ON_GPU = 2048  # candidates a GPU can find


def faiss_for(name: str) -> Any:
    """The module faiss; where it is not installed, an error that says how to install it."""
    try:
        import faiss
    except ImportError:
        raise VizslaError(
            f"dense search by {name} needs faiss, which is not installed; get it with: pip install 'vizsla[faiss]'"
        ) from None
    return faiss


def build_ann_index(factory: str, rows: VectorRows, write: Callable[[bytes], object]) -> None:
    """Build an ANN index over vectors and pass its bytes to `write`, piece by piece.

    `factory`: what to build, from `VectorIndex.factory`. faiss does not check whether a file was written to its end,
    so it does not write files here.
    """
    faiss = faiss_for("an approximate vector index")
    description, _, ef_construction = factory.partition(" ")
    index = faiss.index_factory(rows.shape[1], description, faiss.METRIC_INNER_PRODUCT)
    if ef_construction:
        index.hnsw.efConstruction = int(ef_construction)
    elif hasattr(index, "cp"):
        index.cp.niter, index.cp.max_points_per_centroid = _ITERATIONS, _TRAINED_PER_CENTROID
    if ",PQ" in description:
        index.do_polysemous_training = False  # takes most of the time, for a kind of search that is not used here
        index.pq.cp.niter, index.pq.cp.max_points_per_centroid = _ITERATIONS, _TRAINED_PER_CENTROID
    index.train(_training_sample(rows))
    for start in range(0, len(rows), _BATCH):
        index.add(_as_float32(rows[start : start + _BATCH]))
    errors: list[BaseException] = []

    def pass_on(data: bytes) -> None:
        try:
            write(data)
        except BaseException as e:
            errors.append(e)
            raise

    try:
        faiss.write_index(index, faiss.PyCallbackIOWriter(pass_on))
    except RuntimeError:  # faiss raises this instead of the error of `write`
        raise errors[0] if errors else VizslaError("faiss cannot write the index it has built") from None


def _training_sample(rows: VectorRows) -> np.ndarray:
    """Vectors to train on, the same ones every time."""
    if len(rows) <= _MAX_TRAINED:
        return _as_float32(rows[:])
    return _as_float32(rows[np.sort(np.random.default_rng(0).choice(len(rows), _MAX_TRAINED, replace=False))])


def _as_float32(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows, np.float32)


class AnnIndex:
    """An ANN index in a file that is mapped into memory; faiss opens it at the first search."""

    def __init__(
        self, data: np.ndarray, sha256: str, factory: str, name: str, is_trusted: Callable[[str], bool]
    ) -> None:
        """`name`: the file, for messages. `is_trusted`: whether faiss may open bytes with a hash."""
        self.factory = factory
        self.bytes = len(data)
        self.sha256 = sha256
        self._data = data
        self._name = name
        self._is_trusted = is_trusted
        self._lock = threading.Lock()
        self._gpu_lock = threading.Lock()
        self._open: dict[str, Any] = {}
        self._resources: Any = None

    @property
    def trusted(self) -> bool:
        """Whether faiss may open it."""
        return self._is_trusted(self.sha256)

    def open(self, device: str = "cpu") -> Any:
        """faiss's own object on a device, `cpu` or `gpu`."""
        with self._lock:
            if device not in self._open:
                faiss = faiss_for("an approximate vector index")
                if device == "gpu":
                    check_gpu(faiss)
                index = self._open.get("cpu") or self._read(faiss)
                self._open.setdefault("cpu", index)
                if device == "gpu":
                    self._resources = faiss.StandardGpuResources()  # must live as long as the index on the GPU
                    self._open["gpu"] = faiss.index_cpu_to_gpu(self._resources, 0, index)
            return self._open[device]

    def _read(self, faiss: Any) -> Any:
        damaged = CollectionError(
            f"{self._name} is damaged: its content is not what was written; search with --search-params exact (in "
            "Python search_params='exact'), or build it again with 'vizsla compact INDEX --vector-index ...'"
        )
        if not self.trusted:
            raise CollectionError(
                f"{self._name} was not built on this machine, and faiss cannot read foreign files safely; search with "
                "--search-params exact (in Python search_params='exact'), build it again with 'vizsla compact INDEX "
                "--vector-index ...', or run 'vizsla vectors trust INDEX' if you know where the index comes from"
            )
        if hashlib.sha256(self._data.data).hexdigest() != self.sha256:
            raise damaged
        try:
            return faiss.read_index(faiss.ZeroCopyIOReader(faiss.swig_ptr(self._data), self._data.size))
        except RuntimeError:
            raise damaged from None

    def candidates(
        self, queries: np.ndarray, k: int, allowed: np.ndarray | None, search_params: Approximate
    ) -> list[np.ndarray]:
        """For each query the places of the candidates for its top k, without duplicates.

        `queries`: [queries, width] vectors. `allowed`: [documents] a mask of those that may be found; None for all.
        """
        index = self.open(search_params.device)
        count = search_params.candidates(k)
        if allowed is not None and np.count_nonzero(allowed) <= max(_FEW, count):
            return [np.flatnonzero(allowed)] * len(queries)
        count = min(count, index.ntotal)
        if isinstance(search_params, Clustered) and search_params.device == "gpu":
            places = self._search_gpu(index, queries, count, allowed, search_params)
        else:
            faiss, options = faiss_for(search_params.name), {}
            if allowed is not None:
                options["sel"] = faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
            _, places = index.search(queries, count, params=search_params.parameters(faiss, count, **options))
        return [row[row >= 0] for row in places]

    def _search_gpu(
        self, index: Any, queries: np.ndarray, count: int, allowed: np.ndarray | None, search_params: Clustered
    ) -> np.ndarray:
        """Search on the GPU, which has no masks: it finds more, and documents that are not allowed are dropped.

        `nprobe` is a setting of the index that all threads share, so one search runs at a time.
        """
        if count > _MAX_ON_GPU:
            raise VizslaError(f"a GPU finds at most {_MAX_ON_GPU:,} candidates, not {count:,}; leave out device=gpu")
        wanted = count
        if allowed is not None:
            wanted = min(int(np.ceil(count * len(allowed) / np.count_nonzero(allowed))), _MAX_ON_GPU, len(allowed))
        with self._gpu_lock:
            index.nprobe = search_params.probes
            _, places = index.search(queries, wanted)
        if allowed is not None:
            places = np.where((places >= 0) & allowed[places], places, -1)
        return np.asarray(places)


def check_gpu(faiss: Any) -> None:
    """Refuse the GPU where faiss cannot use one."""
    if not hasattr(faiss, "StandardGpuResources") or faiss.get_num_gpus() == 0:
        raise VizslaError("device=gpu needs a GPU and a GPU build of faiss (faiss-gpu); leave it out to use the CPU")
