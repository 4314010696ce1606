"""The benchmark's findings: all figures as JSON, ratios as a table, and a picture."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

OURS = "vizsla"
APPROXIMATE = ("seismic",)
Result = dict[str, Any]

# What must be shown: a bar on our figure divided by the best exact peer's.
BARS = {
    ("words", "batch", 10, "milliseconds"): 0.5,
    ("words", "batch", 100, "milliseconds"): 0.5,
    ("words", "batch", 1000, "milliseconds"): 0.7,
    ("words", "single", 10, "p99"): 0.7,
    ("pieces", "batch", 10, "milliseconds"): 0.8,
    ("pieces", "batch", 1000, "milliseconds"): 0.8,
    ("text", "build", None, "seconds"): 1.0,
    ("text", "end to end", 10, "milliseconds"): 0.5,
    ("text", "end to end", 100, "milliseconds"): 0.5,
    ("text", "end to end", 1000, "milliseconds"): 0.8,
}


def write_report(folder: Path, results: list[Result], notes: list[str], machine: Result, options: Result) -> None:
    whole = {"machine": machine, "options": options, "notes": notes, "results": results}
    (folder / "results.json").write_text(json.dumps(whole, indent=1))
    tables = [*_tables(results), *_own_tables(results)]
    text = "\n\n".join(tables) + "\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"
    (folder / "results.md").write_text(text)
    (folder / "results.svg").write_text(picture(results))
    print(text)


def median(results: list[Result], measure: str) -> float:
    return float(np.median([r[measure] for r in results]))


def spread(results: list[Result], measure: str) -> str:
    values = [r[measure] for r in results]
    return f"{np.median(values):.3g} ({min(values):.3g}-{max(values):.3g})" if len(values) > 1 else f"{values[0]:.3g}"


def _grouped(results: list[Result], *keys: str) -> dict[tuple[Any, ...], list[Result]]:
    groups = defaultdict(list)
    for r in results:
        groups[tuple(r.get(key) for key in keys)].append(r)
    return dict(groups)


def _ratio(by_engine: dict[str, list[Result]], measure: str) -> tuple[float, str] | None:
    """Ours divided by the best exact peer's, and which peer that is."""
    peers = {e: median(rows, measure) for e, rows in by_engine.items() if e != OURS and e not in APPROXIMATE}
    if OURS not in by_engine or not peers:
        return None
    best = min(peers, key=peers.__getitem__)
    return median(by_engine[OURS], measure) / peers[best], best


def _tables(results: list[Result]) -> list[str]:
    """One table for each task and way of measuring, engines as columns."""
    out = []
    for (task, what), rows in _grouped(results, "task", "what").items():
        if what in ("search_many", "processes", "import numba", "vizsla search", "growth"):
            continue
        measures = [m for m in ("milliseconds", "p99", "seconds", "bytes") if any(m in r for r in rows)]
        engines = list(dict.fromkeys(r["engine"] for r in rows))
        lines = [f"**{task}, {what}**: median (least-most) of the rounds", ""]
        lines.append("| | " + " | ".join(engines) + " | ratio to the best exact peer | bar |")
        lines.append("|---" * (len(engines) + 3) + "|")
        for measure in measures:
            for (k,), some in _grouped([r for r in rows if measure in r], "k").items():
                by_engine = {e: found for (e,), found in _grouped(some, "engine").items()}
                cells = [spread(by_engine[e], measure) if e in by_engine else "-" for e in engines]
                ratio = _ratio(by_engine, measure)
                told = f"{ratio[0]:.2f} of {ratio[1]}" if ratio else "-"
                bar = BARS.get((task, what, k, measure))
                name = measure if k is None else f"{measure}, k = {k}"
                lines.append(f"| {name} | " + " | ".join(cells) + f" | {told} | {bar or ''} |")
        out.append("\n".join(lines))
    return out


def _own_tables(results: list[Result]) -> list[str]:
    """Threads and starting, which have no peers, and the size beside tantivy's."""
    lines = ["**Ours alone**", "", "| what | figure | bar |", "|---|---|---|"]

    def pick(test: Callable[[Result], bool], measure: str) -> float | None:
        rows = [r for r in results if test(r)]
        return median(rows, measure) if rows else None

    def add(what: str, a: float | None, b: float | None, bar: str) -> None:
        if a is not None and b:
            lines.append(f"| {what} | {a / b:.2f} | {bar} |")

    def is_build(engine: str) -> Callable[[Result], bool]:
        return lambda r: (r["task"], r["what"], r["engine"]) == ("text", "build", engine)

    many = [r for r in results if r["what"] == "search_many"]
    if many:
        pairs = [{r["threads"]: r["milliseconds"] for r in pair} for pair in _grouped(many, "round").values()]
        gain = float(np.median([pair[1] / pair[2] for pair in pairs]))
        both = [row for row in results if row["what"] == "processes"]
        if both:
            most = float(np.median([2 * row["alone"] / row["together"] for row in both]))
            lines.append(f"| two processes that share nothing over one: what the machine allows | {most:.2f} | |")
        what = f"search_many on two threads over one, median of {len(pairs)} pairs"
        lines.append(f"| {what} | {gain:.2f} | at least 1.8 |")
        more = [pair[1] / pair[4] for pair in pairs if 4 in pair]
        if more:
            lines.append(f"| search_many on four threads over one | {np.median(more):.2f} | |")
    started, bare = (pick(lambda r, w=w: r["what"] == w, "seconds") for w in ("vizsla search", "import numba"))
    add("vizsla search from the shell over import numba", started, bare, "at most 3")
    add(
        "index from text over tantivy's",
        pick(is_build(OURS), "bytes"),
        pick(is_build("tantivy"), "bytes"),
        "at most 1.7",
    )
    return ["\n".join(lines)] if len(lines) > 4 else []


COLOURS = {OURS: "#c05a1c", "bm25s": "#5b7aa5", "tantivy": "#7a8f63", "pisa": "#8a6d9c", "lucene": "#8a8a8a"}


def picture(results: list[Result]) -> str:
    """Bars of milliseconds a query, for the words task in batches."""
    rows = [r for r in results if (r["task"], r["what"]) == ("words", "batch")]
    groups = {k: {e: median(found, "milliseconds") for (e,), found in _grouped(some, "engine").items()}
              for (k,), some in _grouped(rows, "k").items()}  # fmt: skip
    top = max((v for group in groups.values() for v in group.values()), default=1.0)
    height, wide, gap, x = 220, 26, 30, 40
    parts = []
    for k, group in groups.items():
        start = x
        for engine, value in sorted(group.items(), key=lambda item: item[1]):
            tall = height * value / top
            parts.append(
                f'<rect x="{x}" y="{250 - tall:.1f}" width="{wide - 4}" height="{tall:.1f}" '
                f'fill="{COLOURS.get(engine, "#aaa")}"/>'
                f'<text x="{x + 11}" y="{245 - tall:.1f}" text-anchor="middle">{value:.2f}</text>'
            )
            x += wide
        parts.append(f'<text x="{(start + x) / 2:.0f}" y="270" text-anchor="middle">k = {k}</text>')
        x += gap
    for i, (engine, colour) in enumerate(COLOURS.items()):
        parts.append(f'<rect x="{x}" y="{40 + 20 * i}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="{50 + 20 * i}">{engine}</text>')
    title = '<text x="40" y="18">Milliseconds a query, one thread, exact top k</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{x + 100}" height="285" '
        'font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="white"/>{title}{"".join(parts)}</svg>\n'
    )
