"""vizsla run overlap: how similar rankings are, without judgements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console, options
from vizsla.cli.models import split_models
from vizsla.cli.options import open_index, open_retriever, read_named, searched_with
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.evaluation import QuestionSet
    from vizsla.runs import Run

_POOL_MRR = "pool MRR"


def overlap(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN...]", help="TREC runs: FILE, NAME=FILE or NAME@DATASET=FILE; first the reference."
        ),
    ] = None,
    index: Annotated[
        str | None, options.index_option("Instead of runs: search this index with several models.")
    ] = None,
    queries: Annotated[
        list[str] | None,
        typer.Option("--queries", metavar="FILE", help="With --index: a file of queries, or a data set. Repeat it."),
    ] = None,
    models: Annotated[
        list[str] | None, options.several_models("With --index: the models; the first is the reference.")
    ] = None,
    split: options.Split = None,
    p: Annotated[
        float, typer.Option("-p", metavar="P", help="Rank-biased overlap: the weight of deeper ranks, 0 to 1.")
    ] = 0.9,
    rbo_depth: Annotated[
        int, typer.Option("--rbo-depth", metavar="N", help="Rank-biased overlap: how many ranks it looks at.")
    ] = 100,
    truncated: Annotated[
        bool, typer.Option("--truncated", help="Rank-biased overlap: do not extrapolate beyond --rbo-depth.")
    ] = False,
    k: Annotated[int, options.top_k("The depth of overlap and consistency.")] = 10,
    pool_depth: options.PoolDepth = 1000,
    pool_mrr: Annotated[
        bool,
        typer.Option("--pool-mrr", help="With --index: also SPAR's validation MRR."),
    ] = False,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Measure how similar rankings are, without judgements.

    Rank-biased overlap (RBO), the share of documents in common, and RepBERT's consistency factor, each with the first
    run or model.
    """
    if k < 1 or rbo_depth < 1 or pool_depth < 1:
        raise VizslaError("-k, --rbo-depth and --pool-depth must be 1 or more")
    if not 0 < p < 1:
        raise VizslaError(f"-p, of rank-biased overlap, must be between 0 and 1, not {p:g}")
    if bool(runs) == (index is not None):
        raise VizslaError("give runs, or --index with --queries and --model")
    if index is None and (queries or models or pool_mrr):
        raise VizslaError("--queries, --model and --pool-mrr are for searching an index; name it with --index")
    if index is not None:
        deepest = max(pool_depth, rbo_depth, k)
        sets = _open_sets(queries or [], split_models(models or []), split, data)
        by_set = _search(index, sets, split_models(models or []), deepest)
    else:
        by_set = _reference_first(read_named(runs or []))
    how = {"p": p, "rbo_depth": rbo_depth, "truncated": truncated, "k": k, "pool_depth": pool_depth}
    results = [row for name, by_system in by_set.items() for row in _compare(name, by_system, how)]
    if index is not None and pool_mrr:
        _add_pool_mrr(results, index, sets)
    if as_json:
        console.print_json(results)
    elif len(by_set) > 1:
        for figure in [name for name in results[0]["figures"] if name.startswith("RBO") or name == _POOL_MRR]:
            _show_sets(results, list(by_set), figure)
        console.remark(f"RBO(p={p:g}), {'truncated' if truncated else 'extrapolated'} at depth {rbo_depth}")
    else:
        _show(results)


def _compare(name: str, by_system: dict[str, Run], how: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs on one set of queries, each compared with the first."""
    (reference, first), *others = by_system.items()
    results: list[dict[str, Any]] = []
    for system, run in others:
        common = sum(q in first for q in run)
        if not common:
            on = f" on {name}" if name else ""
            raise VizslaError(f"{reference} and {system} have no query in common{on}")
        on_set = {"query_set": name} if name else {}
        figures = _figures(first, run, **how)
        results.append({"run": system, "reference": reference, **on_set, "queries": common, "figures": figures})
    return results


def _figures(
    reference: Run, run: Run, *, p: float, rbo_depth: int, truncated: bool, k: int, pool_depth: int
) -> dict[str, float]:
    """How similar a run is to the reference, by three measures, each the mean over queries."""
    from vizsla.evaluation import consistency_factor, overlap, rank_biased_overlap

    rbo = rank_biased_overlap(reference, run, p, rbo_depth, extrapolated=not truncated)
    shared = overlap(reference, run, k)
    return {
        f"RBO(p={p:g})": sum(rbo.values()) / len(rbo),
        f"overlap@{k}": sum(shared.values()) / len(shared),
        f"consistency@{k}": consistency_factor(run, reference, k, pool_depth),
    }


def _open_sets(sources: list[str], models: list[str], split: str | None, data: Path | None) -> list[QuestionSet]:
    """Sets of queries with distinct names."""
    from vizsla.evaluation import QuestionSet

    if not sources:
        raise VizslaError("name the queries with --queries, a file or a data set")
    if len(models) < 2:
        raise VizslaError("give at least two models, as in -m bm25,minilm; the first is the reference")
    sets = [QuestionSet.open(source, data, split) for source in sources]
    if len({queries.name for queries in sets}) < len(sets):
        raise VizslaError("two sets of queries have the same name; give each its own, since results are listed by name")
    return sets


def _search(location: str, sets: list[QuestionSet], models: list[str], depth: int) -> dict[str, dict[str, Run]]:
    """The runs of several models in an index, for several sets of queries."""
    from vizsla.evaluation import retrieve

    with open_retriever(location) as opened:
        systems = {name: searched_with(opened, model=name) for name in models}
        return {
            queries.name: {name: _non_empty(retrieve(r, queries.texts, depth)) for name, r in systems.items()}
            for queries in sets
        }


def _add_pool_mrr(results: list[dict[str, Any]], location: str, sets: list[QuestionSet]) -> None:
    """Add each model's MRR of the reference's first documents."""
    from vizsla.evaluation import ImitationPool

    with open_index(location) as index:
        pools = {queries.name: ImitationPool.search(index, results[0]["reference"], queries.texts) for queries in sets}
        for result in results:
            result["figures"][_POOL_MRR] = pools[result.get("query_set", "")].mrr(index, result["run"])


def _non_empty(run: Run) -> Run:
    """A run without the queries that found nothing, like a run from a file."""
    return run.only({q for q, ranking in run.items() if len(ranking)})


def _reference_first(by_set: dict[str, dict[str, Run]]) -> dict[str, dict[str, Run]]:
    """The runs on each data set, with the reference, the first of all runs, first."""
    reference = next(iter(next(iter(by_set.values()))))
    ordered = {}
    for name, by_system in by_set.items():
        on = f" on {name}" if name else ""
        if len(by_system) < 2:
            raise VizslaError(f"give at least two runs{on}")
        if reference not in by_system:
            raise VizslaError(f"there is no run of {reference}{on} to compare the others with")
        ordered[name] = {reference: by_system[reference], **by_system}
    return ordered


def _show(results: list[dict[str, Any]]) -> None:
    names = list(results[0]["figures"])
    rows = [(r["run"], f"{r['queries']:,}", *(f"{r['figures'][n]:.4f}" for n in names)) for r in results]
    on = f" on {results[0]['query_set']}" if "query_set" in results[0] else ""
    console.show_table((f"with {results[0]['reference']}{on}", "queries", *names), rows, right=("queries", *names))


def _show_sets(results: list[dict[str, Any]], sets: list[str], figure: str) -> None:
    """A table of one figure, with a row for each system and a column for each set of queries."""
    values = {(r["run"], r.get("query_set", "")): r["figures"][figure] for r in results}
    heads = [name or "(no name)" for name in sets]
    rows = []
    for system in dict.fromkeys(r["run"] for r in results):
        cells = (f"{values[system, name]:.4f}" if (system, name) in values else "-" for name in sets)
        rows.append((system, *cells))
    what = "RBO" if figure.startswith("RBO") else figure
    console.show_table((f"{what} with {results[0]['reference']}", *heads), rows, right=heads)
