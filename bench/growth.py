"""How the cost of a search grows with the collection: from ten thousand passages to ten million.

    python bench/growth.py DATA [--index LARGE.index ...] [--queries 500] [--out results.json] [--picture growth.svg]
    python bench/growth.py --picture growth.svg --from results.json

DATA: a folder made by bench/prepare.py, with real passages. LARGE.index: an index of more passages, as bench/large.py
builds it from those of bench/passages.py; its first segment is measured, its first two, four and so on, and all. One
thread; processor time, the least of five rounds, in which all sizes take turns, since others may work on the machine.
Rankings are compared with exhaustive scoring. A line is fitted through time and postings of a query at all
sizes but the largest, and compared with the largest.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from vizsla import Index
from vizsla.engine import Query, Segment, Weightings, build_segment, search_many
from vizsla.models import BM25, CountedStatistics, SparseComponent
from vizsla.reports.charts import Axis, number

sys.path.insert(0, str(Path(__file__).parent / "peers"))
sys.path.insert(0, str(Path(__file__).parent))
from protocol import Rows, counted
from vizsla_ import distinct_terms

SIZES = (10_000, 30_000, 100_000, 300_000)
DEPTHS = (10, 100, 1000)


class Collection:
    """Segments, their statistics, and queries."""

    def __init__(self, segments: list[Segment], sizes: np.ndarray, asked: list[dict[int, int]]) -> None:
        self.segments = segments
        self.documents = len(sizes)
        self.model = BM25()
        statistics = CountedStatistics(int(np.count_nonzero(sizes)), int(sizes.sum()), int(sizes.max()), {})
        self.weighting = self.model.weighting(statistics)
        self.weightings = Weightings.pack([self.weighting])
        self.queries = [self._query(counts, statistics.documents) for counts in asked]

    def _query(self, counts: dict[int, int], documents: int) -> Query:
        terms = np.array([*counts], np.int64)
        df = np.sum([s.frequencies(terms) for s in self.segments], axis=0)
        idf = np.log1p((documents - df + 0.5) / (df + 0.5))
        return Query(terms, np.zeros(len(terms), np.int64), np.array([*counts.values()]) * idf)

    def measure(self, k: int) -> float:
        """Milliseconds of the processor a query."""
        started = time.process_time()
        search_many(self.segments, self.queries, self.weightings, k)
        return 1000 * (time.process_time() - started) / len(self.queries)

    def check(self, k: int) -> None:
        """Compare some rankings with exhaustive scoring; this also reads everything from the disk."""
        found = search_many(self.segments, self.queries, self.weightings, k)
        for i in range(0, len(self.queries), max(len(self.queries) // 10, 1)):
            self._check(self.queries[i], found[i].numbers, found[i].scores, k)

    def _check(self, query: Query, numbers: np.ndarray, scores: np.ndarray, k: int) -> None:
        size = int(self.segments[-1].numbers[-1]) + 1
        sums, touched = np.zeros(size), np.zeros(size, np.bool_)
        for term, weight in zip(query.terms.tolist(), query.weights.tolist(), strict=True):
            for segment in self.segments:
                documents, values = segment.list_of(term)
                at = segment.numbers[documents]
                sums[at] += weight * self.weighting.weigh(values, segment.lengths[0, documents])
                touched[at] = True
        hits = np.flatnonzero(touched)
        rounded = sums[hits].astype(np.float32)
        best = np.lexsort((hits, -rounded))[:k]
        if not (np.array_equal(hits[best], numbers) and np.array_equal(rounded[best], scores)):
            raise SystemExit("a ranking is not that of exhaustive scoring")

    def postings(self) -> float:
        """How many postings the lists of a query have together, on average."""
        lists = [sum(int(s.frequencies(q.terms).sum()) for s in self.segments) for q in self.queries]
        return float(np.mean(lists))


def real(data: Path, count: int, queries: int) -> Collection:
    documents = Rows.load(data / "documents", count)
    sizes = np.diff(documents.pointers)
    codes = BM25().length_codes(sizes)
    segment = build_segment(np.arange(len(sizes)), codes[None], sizes[None], *distinct_terms(documents))
    asked = Rows.load(data / "queries", queries)
    return Collection([segment], sizes, [c for q in range(len(asked)) if (c := counted(asked.row(q)))])


def prefixes(index: Index, texts: list[str]) -> Iterator[Collection]:
    """The first segments of an index, twice as many each time, with statistics of their own."""
    snapshot = index._searcher.snapshot
    model = snapshot.model.parts[0].component
    assert isinstance(model, SparseComponent)
    asked = [dict(counts) for counts in model.query_terms(texts, index._searcher.context(None)) if counts]
    numbers = [snapshot.terms.lookup(0, list(counts))[0].tolist() for counts in asked]
    queries = [
        {number: int(count) for number, count in zip(found, counts.values(), strict=True) if number >= 0}
        for found, counts in zip(numbers, asked, strict=True)
    ]
    segments, count = list(snapshot.segments), 1
    while True:
        some = segments[:count]
        yield Collection(some, np.concatenate([s.sizes[0] for s in some]), [query for query in queries if query])
        if count >= len(segments):
            return
        count = min(2 * count, len(segments))


def model_of(rows: list[dict[str, Any]]) -> list[str]:
    """Milliseconds as a line over postings, fitted to all sizes but the largest, in Markdown."""
    largest = max(rows, key=lambda row: (row["postings"], row["documents"]))
    known = [row for row in rows if row["documents"] < largest["documents"]]
    lines = ["| | fixed, ms | ms for a million postings | model at the largest | measured | error |", "|" + "---|" * 6]
    for k in DEPTHS:
        x, y = (np.array([row[key] for row in known]) for key in ("postings", str(k)))
        scale = 1 / y  # relative errors count alike at all sizes
        (fixed, slope), *_ = np.linalg.lstsq(np.column_stack([scale, x * scale]), y * scale, rcond=None)
        said, seen = fixed + slope * largest["postings"], largest[str(k)]
        lines.append(
            f"| k = {k} | {fixed:.3f} | {slope * 1e6:.2f} | {said:.2f} ms | {seen:.2f} ms | {said / seen - 1:+.0%} |"
        )
    return lines


WIDTH, HEIGHT = 640, 380
LEFT, RIGHT, TOP, BOTTOM = 70, 90, 20, 50
COLOURS = {"10": "#1f6feb", "100": "#d97706", "1000": "#8b3fd9"}
_STYLE = (
    "text{font:12px sans-serif;fill:#444}"
    ".grid{stroke:#e3e3e3}.axis{stroke:#888}polyline{fill:none;stroke-width:2}.rule{stroke-dasharray:4 4;stroke:#bbb}"
)


def picture(rows: list[dict[str, Any]]) -> str:
    """An SVG with a curve for each k. Where one size was measured twice, the one in fewer segments counts."""
    by_size: dict[int, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: -row["segments"]):
        by_size[row["documents"]] = row
    points = [by_size[size] for size in sorted(by_size)]
    x = Axis.fitted([p["documents"] for p in points], LEFT, WIDTH - RIGHT, log=True)
    y = Axis.fitted([p[k] for p in points for k in COLOURS], HEIGHT - BOTTOM, TOP, log=True)
    parts = [*_grid(x, y), *_proportional(points, x, y)]
    for k, colour in COLOURS.items():
        places = [(x.at(p["documents"]), y.at(p[k])) for p in points]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        parts.append(f'<polyline points="{line}" stroke="{colour}"/>')
        for (a, b), p in zip(places, points, strict=True):
            title = f"{p['documents']:,} {p['kind']} passages, k = {k}: {p[k]:.2f} ms"
            fill = colour if p["kind"] == "real" else "white"
            shape = f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{fill}" stroke="{colour}" stroke-width="2">'
            parts.append(f"{shape}<title>{title}</title></circle>")
        end = places[-1]
        parts.append(f'<text x="{end[0] + 10:.1f}" y="{end[1] + 4:.1f}" style="fill:{colour}">k = {k}</text>')
    label = "milliseconds a query by the number of passages"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _grid(x: Axis, y: Axis) -> list[str]:
    parts = []
    for tick in x.ticks():
        at = f"{x.at(tick):.1f}"
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{at}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{number(tick)}</text>')
    for tick in y.ticks():
        at = f"{y.at(tick):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y.at(tick) + 4:.1f}" text-anchor="end">{number(tick)} ms</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    words = "passages; filled dots: real ones, empty dots: made of them"
    parts.append(f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">{words}</text>')
    return parts


def _proportional(points: list[dict[str, Any]], x: Axis, y: Axis) -> list[str]:
    """What time proportional to the number of passages would look like."""
    first, last = points[0], points[-1]
    high = min(first["10"] * last["documents"] / first["documents"], y.high)
    end = first["documents"] * high / first["10"]
    start = f'x1="{x.at(first["documents"]):.1f}" y1="{y.at(first["10"]):.1f}"'
    ends = f'{start} x2="{x.at(end):.1f}" y2="{y.at(high):.1f}"'
    text = f'<text x="{x.at(end) - 8:.1f}" y="{y.at(high) + 12:.1f}" text-anchor="end">proportional</text>'
    return [f'<line class="rule" {ends}/>', text]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--index", type=Path, action="append", default=[])
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--from", dest="results", type=Path, help="results of an earlier run, instead of measuring")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--picture", type=Path)
    o = parser.parse_args()
    if o.results is None and o.data is None:
        parser.error("give a folder of bench/prepare.py, or --from")
    rows = json.loads(o.results.read_text()) if o.results else measure(o)
    print("\n".join(["", *model_of(rows)]))
    if o.out:
        o.out.write_text(json.dumps(rows, indent=1) + "\n")
    if o.picture:
        o.picture.write_text(picture(rows))


def measure(o: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each size."""
    whole = len(np.load(o.data / "documents" / "pointers.npy", mmap_mode="r")) - 1
    texts = json.loads((o.data / "questions.json").read_text())[: o.queries]
    rows: list[dict[str, Any]] = []
    print("| documents | segments | postings a query | k = 10 | k = 100 | k = 1000 |\n|---|---|---|---|---|---|")
    collections = [("real", real(o.data, size, o.queries)) for size in (*SIZES, whole) if size <= whole]
    with ExitStack() as stack:
        for folder in o.index:
            index = stack.enter_context(Index.open(folder))
            collections += [("made", collection) for collection in prefixes(index, texts)]
        times = np.full((len(collections), len(DEPTHS)), np.inf)
        for turn in range(o.rounds + 1):  # all take turns, so that what disturbs the machine disturbs all alike
            for i, (_, collection) in enumerate(collections):
                for j, k in enumerate(DEPTHS):
                    if turn == 0:
                        collection.check(k)
                    else:
                        times[i, j] = min(times[i, j], collection.measure(k))
        for (kind, collection), row in zip(collections, times.tolist(), strict=True):
            figures = dict(zip(map(str, DEPTHS), row, strict=True))
            postings, segments, size = collection.postings(), len(collection.segments), collection.documents
            rows.append({"kind": kind, "documents": size, "segments": segments, "postings": postings, **figures})
            cells = " | ".join(f"{f:.3f} ms" for f in figures.values())
            print(f"| {size:,} {kind} | {segments} | {postings:,.0f} | {cells} |", flush=True)
    return rows


if __name__ == "__main__":
    main()
