"""The report of bench/late_interaction.py, from what has been measured so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

TARGETS = (0.95, 0.99)


def fastest(rows: Sequence[dict[str, Any]], k: int, target: float) -> list[dict[str, Any]]:
    """The settings that reach a recall at k, those with the most queries a second first."""
    reached = [row for row in rows if row["k"] == k and row["recall"] >= target]
    return sorted(reached, key=lambda row: -row["queries_per_second"])


def best_at(system: dict[str, Any], k: int, target: float) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The setting with the lowest latency of those that reach a recall: its rows of the sweep and of the latencies."""
    reached = {row["setting"]: row for row in fastest(system["sweep"], k, target)}
    timed = [row for row in system["latency"] if row["k"] == k and row["setting"] in reached]
    if not timed:
        return None
    best = min(timed, key=lambda row: row["ms"])
    return reached[best["setting"]], best


def markdown(everything: dict[str, Any]) -> str:
    """All tables."""
    about, systems = everything["about"], everything["systems"]
    words = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    lines = [
        f"{about['documents']:,} documents, {about['tokens']:,} tokens of {about['width']} numbers.",
        f"{about['queries']} queries, {about['processors']} processors; {words}.",
        "",
        *everything["notes"],
        "",
        "| system | MB | bytes a token | build s | on |",
        "|---|---|---|---|---|",
    ]
    for name, system in systems.items():
        size = f"{system['bytes'] / 1e6:,.0f} | {system['bytes_per_token']:.0f}"
        lines.append(f"| {name} | {size} | {system['seconds']:,.1f} | {system['device']} |")
    for k in (10, 100):
        for target in TARGETS:
            lines += ["", *_compared(systems, k, target)]
    for name, system in systems.items():
        lines += ["", f"{name}, all settings, all processors:", ""]
        lines += ["| k | setting | recall of the top 10 | of the top k | queries/s |", "|---|---|---|---|---|"]
        for row in system["sweep"]:
            recalls = f"{row['recall']:.3f} | {row['recall_at_k']:.3f}"
            lines.append(f"| {row['k']} | {row['setting']} | {recalls} | {row['queries_per_second']:,.1f} |")
    return "\n".join(lines) + "\n"


def _compared(systems: dict[str, dict[str, Any]], k: int, target: float) -> list[str]:
    """The fastest setting of each system that reaches a recall, beside the fastest peer's."""
    found = {name: best_at(system, k, target) for name, system in systems.items()}
    peers = [rows for name, rows in found.items() if rows is not None and not name.startswith("ours")]
    ms = min((timed["ms"] for _, timed in peers), default=None)
    most = max((swept["queries_per_second"] for swept, _ in peers), default=None)
    columns = (
        "setting | recall | median ms, one processor | p95 | of the fastest peer's | queries/s, all | times the peer's"
    )
    lines = [f"k = {k}, recall of the exact top 10 of at least {target:.2f}:", ""]
    lines += [f"| system | {columns} |", "|---|---|---|---|---|---|---|---|"]
    for name, rows in found.items():
        if rows is None:
            lines.append(f"| {name} | not reached by a setting that was measured |" + " |" * 6)
            continue
        swept, timed = rows
        ratio = "" if ms is None else f"{timed['ms'] / ms:.2f}"
        speed = "" if most is None else f"{swept['queries_per_second'] / most:.2f}"
        figures = f"{swept['recall']:.3f} | {timed['ms']:.1f} | {timed['p95']:.1f} | {ratio}"
        lines.append(f"| {name} | {swept['setting']} | {figures} | {swept['queries_per_second']:,.1f} | {speed} |")
    return lines
