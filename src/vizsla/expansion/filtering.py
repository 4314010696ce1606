"""Generated queries filtered by how well they fit their documents, as in Doc2Query--, or cut to the first ones."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np

from vizsla.errors import VizslaError
from vizsla.expansion.records import whole_line
from vizsla.expansion.scoring import QueryScorer, batches
from vizsla.runs import Document

_CHUNK = 1 << 20  # scores that are read at once
_HALF = 16  # bits of a score that are counted at once

Read = Callable[[], Iterable[Document]]
"""Reads the documents from the beginning."""
Progress = Callable[[str, int], None]
"""Is called with what is done ("reading", "scoring", "writing") and for how many documents."""


@dataclass(frozen=True)
class QueryFilter:
    """Which queries stay: the best `share` of all, or those that score `min_score` or more; none: all of them.

    `first`: only the first so many of each document count at all.
    """

    scorer: QueryScorer | None = None
    share: float | None = None
    min_score: float | None = None
    first: int | None = None

    def __post_init__(self) -> None:
        if self.share is not None and not 0 < self.share <= 1:
            raise VizslaError(f"the share of queries to keep is above 0 and at most 1, not {self.share:g}")
        if self.first is not None and self.first < 1:
            raise VizslaError(f"the number of queries to keep of each document must be 1 or more, not {self.first}")
        if self.scorer is None and (self.share is not None or self.min_score is not None):
            raise VizslaError("a share or a score needs something that scores the queries; name a model or a reranker")
        if self.scorer is not None and (self.share is None) == (self.min_score is None):
            raise VizslaError("name either the share of queries to keep or the lowest score")
        if self.scorer is None and self.first is None:
            raise VizslaError("say what to keep: a share by a model's scores, or the first queries of each document")


@dataclass
class FilterReport:
    """What a filter has kept."""

    documents: int = 0
    queries: int = 0
    """Before filtering."""
    counted: int = 0
    """Those among the first ones of their documents, where only these count."""
    kept: int = 0
    without_queries: int = 0
    """Documents that have no query left."""
    threshold: float | None = None
    """The lowest score that is kept."""


def filter_queries(
    read: Read, output: Path, chosen: QueryFilter, *, with_scores: bool = False, progress: Progress | None = None
) -> FilterReport:
    """Write the documents that `read` gives with only the queries that a filter keeps, in their order.

    The documents are read two or three times: to count statistics if the scorer needs them, to score, and to write.
    Scores are held in a temporary file. Of queries with the score of the threshold those that come first are kept, so
    that the share is exact. The output appears when it is whole.
    """
    if with_scores and chosen.scorer is None:
        raise VizslaError("there are no scores to write without a model or a reranker that scores the queries")
    report = FilterReport()
    with tempfile.TemporaryFile(prefix="vizsla-") as scores:
        ties = None
        if chosen.scorer is not None:
            count = _score(read, chosen.scorer, chosen.first, scores, progress)
            if chosen.share is not None:
                report.threshold, ties = _threshold(scores, count, round(chosen.share * count))
            else:
                report.threshold = chosen.min_score
        scores.seek(0)
        beside = output.with_name(output.name + ".new")
        try:
            with beside.open("wb") as file:
                values = scores if chosen.scorer is not None else None
                _write(read, chosen.first, values, ties, file, report, with_scores, progress)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(output)
        except BaseException:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise
    return report


def _score(read: Read, scorer: QueryScorer, first: int | None, scores: IO[bytes], progress: Progress | None) -> int:
    """Write the scores of all queries to a file, as they come, and give their number."""
    if scorer.needs_fit:
        scorer.fit(_counted(read(), "reading", progress))
    count = done = 0
    for documents, queries in batches(read(), first):
        values = scorer.scores(documents, queries)
        if not np.isfinite(values).all():
            raise VizslaError(f"{scorer.name} gives a query a score that is not a finite number")
        scores.write(values.astype(np.float32).tobytes())
        count += len(values)
        done += len(documents)
        if progress is not None:
            progress("scoring", done)
    return count


def _write(
    read: Read, first: int | None, scores: IO[bytes] | None, ties: int | None, file: BinaryIO, report: FilterReport,
    with_scores: bool, progress: Progress | None,
) -> None:  # fmt: skip
    """Write the documents with the queries that are kept. `ties`: how many with exactly the threshold are."""
    left = ties
    for documents, queries in batches(read(), first):
        for document, some in zip(documents, queries, strict=True):
            values = None if scores is None else np.frombuffer(scores.read(4 * len(some)), np.float32)
            kept = list(range(len(some)))
            if values is not None:
                keep = values >= np.float32(report.threshold)
                if left is not None:
                    equal = np.flatnonzero(values == np.float32(report.threshold))
                    keep[equal[left:]] = False
                    left -= min(left, len(equal))
                kept = np.flatnonzero(keep).tolist()
            shown = [float(f"{values[i]:.6g}") for i in kept] if with_scores and values is not None else None
            file.write(whole_line(document, [some[i] for i in kept], shown))
            report.documents += 1
            report.queries += len(document["queries"])
            report.counted += len(some)
            report.kept += len(kept)
            report.without_queries += not kept
        if progress is not None:
            progress("writing", report.documents)


def _threshold(scores: IO[bytes], count: int, keep: int) -> tuple[float, int]:
    """The `keep`-th largest of the scores in a file, and how many that equal it are among the `keep` largest.

    Scores as whole numbers in the same order are counted by their upper and then by their lower half, so that memory
    does not grow with the file.
    """
    if keep < 1:
        return np.inf, 0
    upper, above = _place(_histogram(scores, count, None), keep)
    lower, more = _place(_histogram(scores, count, upper), keep - above)
    ordered = np.uint32((upper << _HALF) | lower)
    bits = ordered ^ np.uint32(0x80000000) if ordered >> np.uint32(31) else ~ordered
    return float(np.array([bits], np.uint32).view(np.float32)[0]), keep - above - more


def _place(histogram: np.ndarray, wanted: int) -> tuple[int, int]:
    """The bin that holds the `wanted`-th largest, and how many are in the bins above it."""
    from_above = np.cumsum(histogram[::-1])
    at = int(np.searchsorted(from_above, wanted))
    return len(histogram) - 1 - at, int(from_above[at] - histogram[::-1][at])


def _histogram(scores: IO[bytes], count: int, upper: int | None) -> np.ndarray:
    """How many scores have each upper half; or each lower half, of those with some upper half."""
    counted = np.zeros(1 << _HALF, np.int64)
    scores.seek(0)
    for values in _chunks(scores, count):
        bits = values.view(np.uint32)
        ordered = np.where(bits >> np.uint32(31), ~bits, bits | np.uint32(0x80000000))
        top = ordered >> np.uint32(_HALF)
        halves = top if upper is None else ordered[top == upper] & np.uint32((1 << _HALF) - 1)
        counted += np.bincount(halves, minlength=len(counted))
    return counted


def _chunks(scores: IO[bytes], count: int) -> Iterator[np.ndarray]:
    for _ in range(0, count, _CHUNK):
        values = np.frombuffer(scores.read(4 * _CHUNK), np.float32)
        yield values + np.float32(0)  # -0 becomes 0, which is equal to it


def _counted(documents: Iterable[Document], what: str, progress: Progress | None) -> Iterator[Document]:
    for number, document in enumerate(documents, 1):
        yield document
        if progress is not None and number % 500 == 0:
            progress(what, number)
