"""Systems that search token vectors, for bench/late_interaction.py: ours, fast-plaid and WARP over the same vectors.

Each is built into a folder of its own by one process and opened from it by others, so that every one of them starts
with the number of threads it is measured with. `SYSTEMS[name]` builds and opens; `name` is what the command line says.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.engine import (
    Plaid,
    Query,
    ResidualCodec,
    ResidualRows,
    ScaledRows,
    Segment,
    TokenLists,
    TokenQuery,
    TokenRows,
    Weighting,
    Weightings,
    build_segment,
    build_token_index,
    convert_rows,
    exact_max_sims,
    learn_codec,
    processors,
    search_many,
)

NOTHING = np.zeros(0, np.int64)
WEIGHTINGS = Weightings.pack([Weighting()])
_BLOCK = 1 << 18  # vectors that are converted together
_SAMPLE = 1 << 15  # vectors that buckets of residuals are learnt from


@dataclass
class Vectors:
    """Token vectors of documents and queries; `rows` may be mapped from a file."""

    rows: np.ndarray
    lengths: np.ndarray
    queries: list[np.ndarray]

    @cached_property
    def starts(self) -> np.ndarray:
        return np.append(0, np.cumsum(self.lengths))

    @cached_property
    def plain(self) -> TokenRows:
        return TokenRows(self.rows, self.starts)

    @classmethod
    def open(cls, folder: Path) -> Vectors:
        """What `save` wrote."""
        rows = np.load(folder / "rows.npy", mmap_mode="r")
        lengths, ends = np.load(folder / "lengths.npy"), np.cumsum(np.load(folder / "query_lengths.npy"))
        queries = np.load(folder / "query_rows.npy")
        return cls(rows[: lengths.sum()], lengths, np.split(queries, ends[:-1]))

    def save(self, folder: Path) -> None:
        """As arrays that `open` maps; rows that are a file already are linked."""
        if isinstance(self.rows, np.memmap) and self.rows.filename is not None:
            (folder / "rows.npy").symlink_to(Path(self.rows.filename).resolve())
        else:
            np.save(folder / "rows.npy", self.rows)
        np.save(folder / "lengths.npy", self.lengths)
        np.save(folder / "query_rows.npy", np.concatenate(self.queries))
        np.save(folder / "query_lengths.npy", [len(query) for query in self.queries])


def segment_of(tokens: TokenRows) -> Segment:
    """Documents with token vectors and no terms."""
    n, counts = len(tokens), np.diff(tokens.starts)[None]
    rows = np.zeros(n + 1, np.int64), NOTHING, NOTHING.astype(np.uint32)
    return build_segment(np.arange(n), np.zeros((1, n), np.int64), counts, *rows, {}, {0: tokens})


def query_of(vectors: np.ndarray) -> Query:
    return Query(NOTHING, NOTHING, np.zeros(0), {}, {0: TokenQuery(vectors)})


def exact_top(vectors: Vectors, k: int) -> np.ndarray:
    """[queries, k] the exact best documents of MaxSim over all vectors; parts of the documents in as many threads."""
    queries = [query_of(query) for query in vectors.queries]
    ends = np.linspace(0, len(vectors.lengths), min(4 * processors(), len(vectors.lengths)) + 1).astype(int).tolist()

    def search(a: int, z: int) -> tuple[np.ndarray, np.ndarray]:
        own = vectors.rows[vectors.starts[a] : vectors.starts[z]]
        part = segment_of(TokenRows(own, vectors.starts[a : z + 1] - vectors.starts[a]))
        found = search_many([part], queries, WEIGHTINGS, min(k, z - a))
        return np.array([hits.numbers for hits in found]) + a, np.array([hits.scores for hits in found])

    with ThreadPoolExecutor(processors()) as threads:
        parts = list(threads.map(search, ends[:-1], ends[1:]))
    numbers, scores = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(numbers, order, axis=1)


class Searcher(ABC):
    """An index that is opened for searching."""

    @abstractmethod
    def one(self, query: np.ndarray, k: int, setting: str) -> np.ndarray:
        """The numbers of the best k documents."""

    def many(self, queries: Sequence[np.ndarray], k: int, setting: str, threads: int) -> list[np.ndarray]:
        """The same for many queries; each in one thread, several at a time."""
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(lambda query: self.one(query, k, setting), queries))


@dataclass(frozen=True)
class System(ABC):
    """Something that builds an index in a folder and opens it."""

    name: str
    bits: int
    rescored: bool = False
    """Whether what is found is scored again over 16-bit floats, so that the codes only choose candidates."""

    package: ClassVar[str] = ""
    """What must be installed."""

    @property
    def folder(self) -> str:
        """The index may be shared by systems that only search it in another way."""
        return self.name.removesuffix(" rescored").replace(" ", "-")

    @abstractmethod
    def settings(self) -> list[str]:
        """What to try, about from cheap to dear."""

    @abstractmethod
    def build(self, vectors: Vectors, folder: Path, device: str) -> dict[str, Any]:
        """Make the index; gives at least `seconds` and `device`."""

    @abstractmethod
    def open(self, vectors: Vectors, folder: Path) -> Searcher: ...

    def nbytes(self, vectors: Vectors, folder: Path) -> int:
        """What is read in a search, with the vectors where it scores again."""
        files = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        return files + (vectors.rows.nbytes if self.rescored else 0)


# ---------------------------------------------------------------------------------------------------------------- ours
@dataclass(frozen=True)
class Ours(System):
    """Centroids over 16-bit floats (16 bits), 8-bit vectors (8) or residual codes (4 and 2)."""

    def settings(self) -> list[str]:
        tried = [(8, 256, 50), (16, 512, 50), (16, 512, 100), (32, 512, 100), (32, 1024, 200), (64, 1024, 100)]
        tried += [(64, 1024, 200), (64, 2048, 200), (64, 2048, 500), (128, 2048, 200), (128, 2048, 500)]
        tried += [(128, 4096, 200), (128, 4096, 500), (128, 4096, 1000), (256, 4096, 500), (256, 4096, 1000)]
        tried += [(256, 8192, 1000), (512, 8192, 1000), (512, 16384, 2000), (1024, 32768, 4000)]
        return [f"nprobe={nprobe}, depth={depth}, scored={documents}" for nprobe, depth, documents in tried]

    def build(self, vectors: Vectors, folder: Path, device: str) -> dict[str, Any]:  # noqa: ARG002
        codec, learning = _shared_centroids(vectors, folder.parent)
        started = time.perf_counter()
        rows = vectors.plain
        if self.bits == 8:
            rows = TokenRows(_in_8_bits(vectors.rows), vectors.starts)
        elif self.bits < 8:
            sample = vectors.rows[:: max(len(vectors.rows) // _SAMPLE, 1)]
            codec = ResidualCodec.learn(codec.centroids, sample, self.bits)
        indexed = build_token_index(rows, codec)
        seconds = time.perf_counter() - started
        assert indexed.lists is not None
        stored, lists = indexed.vectors, indexed.lists
        arrays = {"centroids": lists.centroids, "assigned": lists.assigned, "lists": lists.starts}
        arrays |= {"documents": lists.documents, "starts": indexed.starts}
        if isinstance(stored, ResidualRows):
            arrays |= {"codes": stored.codes, "scales": stored.scales, "means": stored.codec.means}
        elif isinstance(stored, ScaledRows):
            arrays |= {"codes": stored.codes, "scales": stored.scales}
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        about = {"centroids": len(lists.centroids), "centroid_seconds": learning}
        return {"seconds": learning + seconds, "device": "cpu", **about}

    def open(self, vectors: Vectors, folder: Path) -> Searcher:
        arrays = {file.stem: np.load(file, mmap_mode="r") for file in folder.glob("*.npy")}
        lists = TokenLists(*(arrays[name] for name in ("centroids", "assigned", "lists", "documents")))
        stored: Any = vectors.rows
        if "means" in arrays:
            codec = ResidualCodec(arrays["centroids"], np.array(arrays["means"]))
            stored = ResidualRows(codec, arrays["assigned"], arrays["codes"], arrays["scales"])
        elif "codes" in arrays:
            stored = ScaledRows(arrays["codes"], arrays["scales"])
        return _OurSearcher(segment_of(TokenRows(stored, arrays["starts"], lists)))

    def nbytes(self, vectors: Vectors, folder: Path) -> int:
        return super().nbytes(vectors, folder) + (vectors.rows.nbytes if self.bits == 16 else 0)


class _OurSearcher(Searcher):
    def __init__(self, segment: Segment) -> None:
        self.segment = segment

    def one(self, query: np.ndarray, k: int, setting: str) -> np.ndarray:
        nprobe, depth, documents = _numbers(setting)
        params = Plaid(nprobe=nprobe, depth=depth, oversample=max(-(-documents // k), 1))
        return search_many([self.segment], [query_of(query)], WEIGHTINGS, k, search_params=params)[0].numbers


def _shared_centroids(vectors: Vectors, folder: Path) -> tuple[ResidualCodec, float]:
    """The centroids of all our variants, learnt once, and the seconds it took."""
    place = folder / "our-centroids.npz"
    if not place.exists():
        started = time.perf_counter()
        learnt = learn_codec([vectors.plain], Plaid().centroids(len(vectors.rows)), 0).centroids
        np.savez(place, centroids=learnt, seconds=time.perf_counter() - started)
    with np.load(place) as arrays:
        return ResidualCodec(arrays["centroids"], np.zeros(0, np.float32)), float(arrays["seconds"])


def _in_8_bits(rows: np.ndarray) -> ScaledRows:
    """Vectors in 8 bits, some at a time."""
    codes, scales = np.empty(rows.shape, np.int8), np.empty(len(rows), np.float32)

    def convert(a: int) -> None:
        some: Any = convert_rows(rows[a : a + _BLOCK], "sq8")
        codes[a : a + _BLOCK], scales[a : a + _BLOCK] = some.codes, some.scales

    with ThreadPoolExecutor(processors()) as pool:
        list(pool.map(convert, range(0, len(rows), _BLOCK)))
    return ScaledRows(codes, scales)


# --------------------------------------------------------------------------------------------------------------- peers
def _numbers(setting: str) -> list[int]:
    return [int(part.partition("=")[2]) for part in setting.split(", ")]


def _tensors(vectors: Vectors) -> list[Any]:
    """A tensor of 16-bit floats for each document."""
    import torch

    rows = torch.from_numpy(np.array(vectors.rows))
    return [rows[a:z] for a, z in pairwise(vectors.starts.tolist())]


class _Peer(Searcher):
    """Searches a peer's index from one thread, as WARP wants it, and rescores what is found where that is asked for."""

    def __init__(self, vectors: Vectors, rescored: bool) -> None:
        self.tokens = vectors.plain if rescored else None

    @abstractmethod
    def found(self, queries: Sequence[np.ndarray], k: int, setting: list[int], threads: int) -> list[Any]:
        """For each query the documents that the peer finds, with their scores."""

    def one(self, query: np.ndarray, k: int, setting: str) -> np.ndarray:
        return self.many([query], k, setting, 1)[0]

    def many(self, queries: Sequence[np.ndarray], k: int, setting: str, threads: int) -> list[np.ndarray]:
        *own, wanted = _numbers(setting) if self.tokens is not None else [*_numbers(setting), k]
        hits = self.found(queries, max(k, wanted), own, threads)
        found = [np.array([document for document, _ in some], np.int64) for some in hits]
        if self.tokens is None:
            return found
        rows = self.tokens

        def rescore(query: np.ndarray, numbers: np.ndarray) -> np.ndarray:
            numbers = np.sort(numbers)
            scores = exact_max_sims(rows, numbers, query, 1.001)[0]
            best: np.ndarray = numbers[np.argsort(-scores, kind="stable")[:k]]
            return best

        if threads == 1:
            return [rescore(*pair) for pair in zip(queries, found, strict=True)]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(rescore, queries, found))


@dataclass(frozen=True)
class FastPlaidSystem(System):
    """PLAID in Rust over libtorch, PyLate's own index."""

    package: ClassVar[str] = "fast_plaid"

    def settings(self) -> list[str]:
        tried = [(2, 256), (4, 512), (4, 1024), (8, 1024), (8, 2048), (8, 4096), (16, 2048), (16, 4096), (32, 2048)]
        tried += [(32, 4096), (32, 8192), (64, 4096), (64, 8192), (64, 16384), (128, 16384), (128, 32768)]
        settings = [f"n_ivf_probe={probes}, n_full_scores={full}" for probes, full in tried]
        return [f"{one}, rescored={n}" for one in settings for n in (100, 300)] if self.rescored else settings

    def build(self, vectors: Vectors, folder: Path, device: str) -> dict[str, Any]:
        from fast_plaid.search import FastPlaid  # type: ignore[import-not-found]

        documents = _tensors(vectors)
        started = time.perf_counter()
        index = FastPlaid(index=str(folder), device=device)
        index.create(documents_embeddings=documents, nbits=self.bits, use_triton_kmeans=False)
        return {"seconds": time.perf_counter() - started, "device": device}

    def open(self, vectors: Vectors, folder: Path) -> Searcher:
        return _FastPlaidSearcher(vectors, folder, self.rescored)


class _FastPlaidSearcher(_Peer):
    def __init__(self, vectors: Vectors, folder: Path, rescored: bool) -> None:
        from fast_plaid.search import FastPlaid

        super().__init__(vectors, rescored)
        self.index: Any = FastPlaid(index=str(folder), device="cpu")

    def found(self, queries: Sequence[np.ndarray], k: int, setting: list[int], threads: int) -> list[Any]:
        import torch

        probes, full = setting
        options = {"top_k": k, "n_ivf_probe": probes, "n_full_scores": full, "show_progress": False}
        tensors = [torch.from_numpy(query) for query in queries]
        found: list[Any] = self.index.search(tensors, n_processes=min(threads, len(queries)), **options)
        return found


@dataclass(frozen=True)
class WarpSystem(System):
    """WARP in Rust over libtorch; a token that no probed centroid is near has an estimated product."""

    package: ClassVar[str] = "xtr_warp"

    def settings(self) -> list[str]:
        tried = [(4, 5_000), (8, 10_000), (16, 20_000), (32, 20_000), (32, 100_000), (64, 20_000), (64, 200_000)]
        tried += [(128, 50_000), (128, 400_000), (256, 100_000), (256, 1_000_000), (512, 1_000_000)]
        settings = [f"nprobe={nprobe}, t_prime={t_prime}" for nprobe, t_prime in tried]
        return [f"{one}, rescored={n}" for one in settings for n in (100, 300, 1000)] if self.rescored else settings

    def build(self, vectors: Vectors, folder: Path, device: str) -> dict[str, Any]:
        from xtr_warp.search import XTRWarp  # type: ignore[import-not-found]

        documents = _tensors(vectors)
        started = time.perf_counter()
        options = {"show_progress": False, "kmeans_sample_max_bytes": None, "use_triton_kmeans": False}
        XTRWarp(str(folder)).create(documents, device=device, nbits=self.bits, **options)
        return {"seconds": time.perf_counter() - started, "device": device}

    def open(self, vectors: Vectors, folder: Path) -> Searcher:
        return _WarpSearcher(vectors, folder, self.rescored)


class _WarpSearcher(_Peer):
    def __init__(self, vectors: Vectors, folder: Path, rescored: bool) -> None:
        from xtr_warp.search import XTRWarp

        super().__init__(vectors, rescored)
        self.index: Any = XTRWarp(str(folder)).load(device="cpu")

    def found(self, queries: Sequence[np.ndarray], k: int, setting: list[int], threads: int) -> list[Any]:
        import torch

        nprobe, t_prime = setting
        options = {"nprobe": nprobe, "bound": max(8 * nprobe, 1024), "t_prime": t_prime, "max_candidates": 1 << 30}
        options |= {"num_threads": threads, "centroid_score_threshold": 0.0, "show_progress": False}
        found: list[Any] = self.index.search([torch.from_numpy(query) for query in queries], k, **options)
        return found


def systems() -> Iterator[System]:
    """All that can be compared."""
    yield from (Ours("ours 8", 8), Ours("ours 16", 16), Ours("ours 4", 4), Ours("ours 2", 2))
    for bits in (8, 4, 2):
        yield FastPlaidSystem(f"fast-plaid {bits}", bits)
        yield FastPlaidSystem(f"fast-plaid {bits} rescored", bits, rescored=True)
    for bits in (4, 2):
        yield WarpSystem(f"warp {bits}", bits)
        yield WarpSystem(f"warp {bits} rescored", bits, rescored=True)


SYSTEMS = {system.name: system for system in systems()}
