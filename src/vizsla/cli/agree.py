"""vizsla agree: how alike rankings are, without judgements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vizsla.cli import console
from vizsla.errors import VizslaError


def agree(
    runs: Annotated[list[Path], typer.Argument(help="TREC runs; the others are compared with the first.")],
    p: Annotated[float, typer.Option("-p", help="How fast rank-biased overlap forgets deeper ranks.")] = 0.9,
    depth: Annotated[int, typer.Option("--depth", help="How deep rank-biased overlap looks.")] = 100,
    truncated: Annotated[bool, typer.Option("--truncated", help="Count nothing beyond the depth.")] = False,
    k: Annotated[int, typer.Option("-k", help="How many documents overlap and consistency are measured on.")] = 10,
    pool: Annotated[int, typer.Option("--pool", help="Consistency: how much of the first run is its pool.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Compare rankings without judgements: rank-biased overlap, shared documents, RepBERT's consistency factor."""
    from vizsla.evaluation import consistency_factor, overlap, rank_biased_overlap
    from vizsla.runs import Run

    if len(runs) < 2:
        raise VizslaError("there must be two runs at least")
    if k < 1 or depth < 1 or pool < 1:
        raise VizslaError("depths must be 1 or more")
    first, *others = (Run.read(path) for path in runs)
    results: list[dict[str, Any]] = []
    for path, run in zip(runs[1:], others, strict=True):
        both = [q for q in run if q in first]
        if not both:
            raise VizslaError(f"{runs[0]} and {path} have no query in common")
        biased = rank_biased_overlap(first, run, p, depth, extrapolated=not truncated)
        shared = overlap(first, run, k)
        figures = {
            f"RBO(p={p:g})": sum(biased.values()) / len(biased),
            f"overlap@{k}": sum(shared.values()) / len(shared),
            f"consistency@{k}": consistency_factor(run, first, k, pool),
        }
        results.append({"run": path.name, "with": runs[0].name, "queries": len(both), "figures": figures})
    if as_json:
        console.print_json(results)
        return
    names = list(results[0]["figures"])
    rows = [(r["run"], f"{r['queries']:,}", *(f"{r['figures'][n]:.4f}" for n in names)) for r in results]
    console.show_table((f"with {runs[0].name}", "queries", *names), rows, right=("queries", *names))
