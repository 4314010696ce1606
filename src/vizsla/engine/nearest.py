"""faiss over the dense vectors of a segment: which documents may be among the nearest, to be scored elsewhere.

faiss reads a structure without looking whether it is sound. A hash beside it tells damage, not malice, so only what
was built on this machine, or is trusted by name, is given to faiss. Its hash is compared first, once for each opening;
after that it is used where it lies, mapped into memory.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from vizsla.engine.kinds import VectorIndex
from vizsla.engine.rows import Rows
from vizsla.errors import CollectionError, VizslaError

_PIECE = 1 << 16  # vectors that are added together
_MOST_SEEN = 1 << 18  # vectors that are learned from, and for each centre
_SEEN_PER_CENTRE = 64
_ROUNDS = 10
_FEW = 2000  # allowed documents up to which all of them are candidates
_MOST_ON_GPU = 2048  # candidates a GPU can find


def faiss_for(kind: str) -> Any:
    """faiss, or a word on how to get it."""
    try:
        import faiss
    except ImportError:
        raise VizslaError(
            f"dense search by {kind} needs faiss, which is not installed; get it with: pip install 'vizsla[faiss]'"
        ) from None
    return faiss


def build_structure(kind: VectorIndex, structure: str, rows: Rows, put: Callable[[bytes], object]) -> None:
    """Build a structure over vectors and hand its bytes to `put`, piece by piece.

    faiss does not look whether the last bytes of a file could be written, so files are written elsewhere.
    """
    faiss = faiss_for(kind.name)
    factory, _, building = structure.partition(" ")
    index = faiss.index_factory(rows.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
    if building:
        index.hnsw.efConstruction = int(building)
    else:
        index.cp.niter, index.cp.max_points_per_centroid = _ROUNDS, _SEEN_PER_CENTRE
    if kind.product_codes:
        index.do_polysemous_training = False  # for a search that is not done here, and most of the time
        index.pq.cp.niter, index.pq.cp.max_points_per_centroid = _ROUNDS, _SEEN_PER_CENTRE
    index.train(_sample(rows))
    for a in range(0, len(rows), _PIECE):
        index.add(_plain(rows[a : a + _PIECE]))
    failed: list[BaseException] = []

    def hand_over(data: bytes) -> None:
        try:
            put(data)
        except BaseException as e:
            failed.append(e)
            raise

    try:
        faiss.write_index(index, faiss.PyCallbackIOWriter(hand_over))
    except RuntimeError:  # faiss's word for what went wrong in `put`
        raise failed[0] if failed else VizslaError("faiss cannot write what it has built") from None


def _sample(rows: Rows) -> np.ndarray:
    """Vectors to learn from, always the same ones."""
    if len(rows) <= _MOST_SEEN:
        return _plain(rows[:])
    return _plain(rows[np.sort(np.random.default_rng(0).choice(len(rows), _MOST_SEEN, replace=False))])


def _plain(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows, np.float32)


class Structure:
    """A structure in a file that is mapped already; faiss opens it when it is first asked."""

    def __init__(self, data: np.ndarray, sha256: str, built: str, name: str, is_trusted: Callable[[str], bool]) -> None:
        """`is_trusted`: whether bytes with a hash may be given to faiss."""
        self.built = built
        self.bytes = len(data)
        self._data = data
        self.sha256 = sha256
        self._name = name
        self._is_trusted = is_trusted
        self._lock = threading.Lock()
        self._open: dict[str, Any] = {}
        self._resources: Any = None

    @property
    def trusted(self) -> bool:
        """Whether faiss may be given it."""
        return self._is_trusted(self.sha256)

    def opened(self, kind: VectorIndex) -> Any:
        """faiss's own object, on the device of a kind."""
        with self._lock:
            if kind.device not in self._open:
                faiss = faiss_for(kind.name)
                if kind.device == "gpu":
                    check_gpu(faiss)
                index = self._open.get("cpu") or self._read(faiss)
                self._open.setdefault("cpu", index)
                if kind.device == "gpu":
                    self._resources = faiss.StandardGpuResources()  # held as long as what lies there
                    self._open["gpu"] = faiss.index_cpu_to_gpu(self._resources, 0, index)
            return self._open[kind.device]

    def _read(self, faiss: Any) -> Any:
        damaged = CollectionError(
            f"{self._name} is damaged: its content is not what was written; search with --dense exact, or build it "
            "again with 'vizsla compact DIR --dense ...'"
        )
        if not self.trusted:
            raise CollectionError(
                f"{self._name} was not built on this machine, and faiss could be made to do harm by it; search with "
                "--dense exact, build it again with 'vizsla compact DIR --dense ...', or run 'vizsla trust DIR' if you "
                "know where the index comes from"
            )
        if hashlib.sha256(self._data.data).hexdigest() != self.sha256:
            raise damaged
        try:
            return faiss.read_index(faiss.ZeroCopyIOReader(faiss.swig_ptr(self._data), self._data.size))
        except RuntimeError:
            raise damaged from None

    def candidates(
        self, asked: np.ndarray, count: int, allowed: np.ndarray | None, kind: VectorIndex
    ) -> list[np.ndarray]:
        """For each question the places of some documents that may be found, none twice."""
        index = self.opened(kind)
        if allowed is not None and np.count_nonzero(allowed) <= max(_FEW, count):
            return [np.flatnonzero(allowed)] * len(asked)
        most = min(count, index.ntotal)
        if kind.device == "gpu":
            found = self._on_gpu(index, asked, most, allowed, kind)
        else:
            _, found = index.search(asked, most, params=self._effort(faiss_for(kind.name), most, allowed, kind))
        return [row[row >= 0] for row in found]

    def _effort(self, faiss: Any, count: int, allowed: np.ndarray | None, kind: VectorIndex) -> Any:
        options: dict[str, Any] = {}
        if allowed is not None:
            options["sel"] = faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
        if kind.name == "hnsw":
            return faiss.SearchParametersHNSW(efSearch=max(kind.ef, count), **options)
        return faiss.SearchParametersIVF(nprobe=kind.probes, **options)

    def _on_gpu(
        self, index: Any, asked: np.ndarray, count: int, allowed: np.ndarray | None, kind: VectorIndex
    ) -> np.ndarray:
        """A GPU knows no masks: more are asked for, and those that may not be found fall out."""
        if count > _MOST_ON_GPU:
            raise VizslaError(f"on a GPU {_MOST_ON_GPU:,} candidates can be found, not {count:,}; leave out device=gpu")
        index.nprobe = kind.probes
        if allowed is None:
            _, found = index.search(asked, count)
        else:
            more = min(int(np.ceil(count * len(allowed) / np.count_nonzero(allowed))), _MOST_ON_GPU, len(allowed))
            _, found = index.search(asked, more)
            found = np.where((found >= 0) & allowed[found], found, -1)
        return np.asarray(found)


def check_gpu(faiss: Any) -> None:
    """Refuse the GPU where faiss has none."""
    if not hasattr(faiss, "StandardGpuResources") or faiss.get_num_gpus() == 0:
        raise VizslaError("device=gpu needs a GPU and a faiss that is built for it (faiss-gpu); leave it out to go on")
