"""faiss over the dense vectors of a segment: it proposes candidates, which are then scored exactly elsewhere.

faiss does not validate the files it reads. The hash of an ANN index detects damage but not malice, so faiss only opens
files that were built on this machine or that the user trusts. The hash is compared once, when the file is opened; after
that faiss uses the file in place, mapped into memory.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from vizsla.engine.vector_indexes.approximate import Approximate, Clustered
from vizsla.engine.vector_rows import VectorRows
from vizsla.errors import CollectionError, VizslaError

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
