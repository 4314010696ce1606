"""Which model to choose: what each gains over BM25, and what it costs, as a table and a picture.

    vizsla compare SET ... -m "bm25,bm51,vizsla-sparse,hybrid" --report quality.json
    python bench/choosing.py cost cost.json --corpus corpus.jsonl --queries questions.jsonl [--documents 300] MODEL ...
    python bench/choosing.py table cost.json quality.json ... [--seen SET ...] [--picture choosing.svg]

`cost` indexes the first documents of a collection with each model, and asks queries one at a time, from text to ids and
scores. All times are those of a processor, so other programs on the machine hardly change them. Documents a second are
those of `Index.add` and `commit`; a sum that fits its weights does so before, once, which has a column of its own. The
milliseconds of a query are the median. Models take turns, and the fastest round counts. Megabytes are those of the
weights, and of the postings and vectors that a thousand documents take. A name can be given to an expression:
`NAME=EXPRESSION`. A model that the file of costs has already keeps its row unless it is named again.

`table` reads the reports of `vizsla compare` whose baseline is bm25. `--seen`: data sets whose train queries a model of
the table was trained on. Means, the order of the rows and the picture are those of the other sets.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

BASELINE, MEASURE = "bm25", "nDCG@10"
WIDTH, HEIGHT, LEFT, BOTTOM, EDGE, LETTER = 720, 420, 64, 48, 24, 7
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2328}.axis{stroke:#8b949e}.grid{stroke:#8b949e;stroke-opacity:.25}"
    "circle{fill:#0969da}@media(prefers-color-scheme:dark){text{fill:#e6edf3}circle{fill:#58a6ff}}"
)


# --------------------------------------------------------------------------------------------------------------- cost
def cost(options: argparse.Namespace) -> None:
    with open(options.corpus, encoding="utf-8") as lines:
        documents = [json.loads(line) for line in islice(lines, options.documents)]
    with open(options.queries, encoding="utf-8") as lines:
        queries = [json.loads(line)["text"] for line in islice(lines, options.asked)]
    file, found = Path(options.file), dict[str, dict[str, Any]]()
    for _ in range(options.rounds):
        for given in options.models:
            name, _, expression = given.partition("=") if "=" in given.partition("(")[0] else (given, "", given)
            keep_fastest(found, name, measured(expression, documents, queries))
    found = {**(json.loads(file.read_text()) if file.exists() else {}), **found}
    file.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def keep_fastest(found: dict[str, dict[str, Any]], model: str, new: dict[str, Any]) -> None:
    """Keep the better of two rounds."""
    old = found.setdefault(model, new)
    old["documents_per_second"] = max(old["documents_per_second"], new["documents_per_second"])
    for name in ("milliseconds", "fit"):
        old[name] = min(old[name], new[name])


def measured(expression: str, documents: Sequence[dict[str, Any]], queries: Sequence[str]) -> dict[str, Any]:
    from vizsla.index import Index, bytes_of
    from vizsla.models import AutoWeightedSum, parse_model

    folder = Path(tempfile.mkdtemp(prefix="choosing-"))
    try:
        model, started = parse_model(expression), time.process_time()
        if isinstance(model, AutoWeightedSum):
            model = model.fit(documents)
        fit = time.process_time() - started
        with Index.create(folder / "index", model) as index:
            index.add(documents[:8])  # opens networks and compiles kernels
            index.rollback()
            started = time.process_time()
            index.add(documents)
            index.commit()
            seconds = time.process_time() - started
            view = index.with_model(threads=1)
            times = []
            for query in [*queries[:3], *queries]:
                started = time.process_time()
                view.search_many([query], 10, documents=False)
                times.append(time.process_time() - started)
            size = bytes_of(index, index.model)
    finally:
        shutil.rmtree(folder)
    times = sorted(times[3:])
    return {
        "documents_per_second": len(documents) / seconds,
        "fit": fit,
        "milliseconds": 1000 * times[len(times) // 2],
        "weights": sum(weights_of(part.component) for part in model.parts),
        "index": size / len(documents) * 1000,
        "needs": sorted(needs_of(expression)),
    }


def weights_of(component: Any) -> int:
    """Bytes of the networks that a part of a model reads."""
    networks = [getattr(component, name, None) for name in ("network", "query_network", "augmenter")]
    folders = {network.folder for network in networks if hasattr(network, "folder")}
    return sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())


def needs_of(expression: str) -> set[str]:
    """The packages that the models of an expression need, besides Vizsla's own."""
    from vizsla.models import MODELS, parse_model

    names = {part.component.name.partition("(")[0] for part in parse_model(expression).parts}
    names.add(expression.partition("(")[0].strip())
    return {need.partition("|")[0] for name in names if name in MODELS for need in MODELS[name].needs}


# -------------------------------------------------------------------------------------------------------------- table
def read_quality(files: Sequence[Path]) -> dict[str, dict[str, float]]:
    """For each system and data set the figure, from reports of `vizsla compare`."""
    figures: dict[str, dict[str, float]] = {}
    for file in files:
        for one in json.loads(file.read_text())["figures"]:
            if one["measure"] == MEASURE:
                figures.setdefault(one["system"], {})[one["dataset"]] = one["value"]
    if BASELINE not in figures:
        raise SystemExit(f"no report has the system {BASELINE}; name it first: vizsla compare SET -m bm25,...")
    return figures


def rows(
    costs: dict[str, dict[str, Any]], quality: dict[str, dict[str, float]], seen: Sequence[str]
) -> list[dict[str, Any]]:
    """What is known of each model that has both a cost and figures on all data sets of the baseline."""
    base = quality[BASELINE]
    unseen = [name for name in base if name not in seen]
    table = []
    for name, figures in quality.items():
        if name not in costs or figures.keys() != base.keys():
            continue
        gains = {dataset: 100 * (figures[dataset] - base[dataset]) for dataset in base}
        worst = min(unseen, key=gains.__getitem__)
        known = [gains[dataset] for dataset in base if dataset in seen]
        table.append({
            "model": name, "mean": sum(figures[d] for d in unseen) / len(unseen),
            "gain": sum(gains[d] for d in unseen) / len(unseen), "worst": gains[worst], "worst_set": worst,
            "seen": sum(known) / len(known) if known else float("nan"), **costs[name],
        })  # fmt: skip
    return sorted(table, key=lambda row: float(row["mean"]))


def markdown(table: Sequence[dict[str, Any]], datasets: Sequence[str], seen: Sequence[str]) -> str:
    """The table for the docs."""
    unseen = len(datasets) - len(seen)
    head = f"| model | mean nDCG@10, {unseen} unseen sets | over BM25, points | worst set |"
    head += f" over BM25 on {len(seen)} seen sets |" if seen else ""
    head += " ms a query | documents a second | fit, s | weights, MB | index, MB for 1,000 documents | needs |"
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    for row in table:
        cells = [f"`{row['model']}`", f"{row['mean']:.4f}"]
        if row["model"] == BASELINE:
            cells += [""] * (3 if seen else 2)
        else:
            cells += [f"{row['gain']:+.1f}", f"{row['worst']:+.1f} ({row['worst_set']})"]
            cells += [f"{row['seen']:+.1f}"] if seen else []
        cells += [
            f"{row['milliseconds']:.2g}", f"{row['documents_per_second']:,.0f}", f"{row['fit']:.0f}",
            f"{row['weights'] / 1e6:.0f}", f"{row['index'] / 1e6:.2g}", ", ".join(row["needs"]),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def picture(table: Sequence[dict[str, Any]]) -> str:
    """The mean figure against the time of a query, as an SVG."""
    from math import ceil, floor, log10

    low, high = floor(min(log10(r["milliseconds"]) for r in table)), ceil(max(log10(r["milliseconds"]) for r in table))
    bottom, top = floor(min(r["mean"] for r in table) * 50) / 50, ceil(max(r["mean"] for r in table) * 50) / 50

    def across(milliseconds: float) -> float:
        return LEFT + (WIDTH - LEFT - 140) * (log10(milliseconds) - low) / max(high - low, 1)

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - EDGE) * (value - bottom) / (top - bottom)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><style>{STYLE}</style>'
    ]
    parts.append("<title>Mean nDCG@10 of the models on unseen sets against the milliseconds of a query</title>")
    for step in range(round((top - bottom) * 50) + 1):
        value = bottom + step / 50
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - EDGE}" y1="{up(value):.0f}" y2="{up(value):.0f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{up(value) + 4:.0f}" text-anchor="end">{value:.2f}</text>')
    parts += [
        f'<text x="{across(10.0**power):.0f}" y="{HEIGHT - 26}" text-anchor="middle">{10.0**power:g}</text>'
        for power in range(low, high + 1)
    ]
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - EDGE}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>')
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">milliseconds a query</text>')
    parts.append('<text x="4" y="14">nDCG@10</text>')
    places = [(across(row["milliseconds"]), up(row["mean"])) for row in table]
    for row, (x, y) in zip(table, places, strict=True):
        end = x + 9 + LETTER * len(row["model"])
        is_hidden = any(x < other < end + 5 and abs(height - y) < 14 for other, height in places)
        at = f'x="{x - 9:.0f}" text-anchor="end"' if is_hidden else f'x="{x + 9:.0f}"'
        parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="5"/>')
        parts.append(f'<text {at} y="{y + 4:.0f}">{escape(row["model"])}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    costs = verbs.add_parser("cost")
    costs.add_argument("file")
    costs.add_argument("models", nargs="+", metavar="MODEL")
    costs.add_argument("--corpus", required=True)
    costs.add_argument("--queries", required=True)
    costs.add_argument("--documents", type=int, default=300)
    costs.add_argument("--asked", type=int, default=50)
    costs.add_argument("--rounds", type=int, default=3)
    tables = verbs.add_parser("table")
    tables.add_argument("cost", type=Path)
    tables.add_argument("quality", type=Path, nargs="+")
    tables.add_argument("--seen", nargs="*", default=())
    tables.add_argument("--picture", type=Path)
    options = parser.parse_args()
    if options.verb == "cost":
        cost(options)
        return
    quality = read_quality(options.quality)
    table = rows(json.loads(options.cost.read_text()), quality, options.seen)
    print(markdown(table, list(quality[BASELINE]), options.seen))
    if options.picture:
        options.picture.write_text(picture(table))


if __name__ == "__main__":
    main()
