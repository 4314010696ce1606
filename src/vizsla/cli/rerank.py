"""vizsla run rerank: the best documents of a run reranked by a cross-encoder, to one depth or to several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console, options
from vizsla.cli.options import open_retriever
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.models import Reranker
    from vizsla.retrievers import PairScores
    from vizsla.runs import Qrels, Run

PRECISIONS = ("int8", "float32")


def rerank(
    index: Annotated[str, options.location("The index with the texts of the documents.")],
    runs: Annotated[list[Path], options.run("The TREC run to rerank; with --depths repeat it for several.")],
    reranker: Annotated[
        str | None,
        typer.Option(
            "--reranker",
            metavar="MODEL",
            help="A cross-encoder: its folder or its name; default: ms-marco-MiniLM-L-12-v2.",
        ),
    ] = None,
    queries: options.QueriesOrNone = None,
    depth: Annotated[int, options.depth("How many documents of a query are reranked.")] = 100,
    output: Annotated[Path | None, options.output("The TREC run to write; - is standard output.")] = None,
    depths: Annotated[
        str | None,
        typer.Option("--depths", metavar="N,...", help="With --dataset: evaluate at several depths: 5,10,50,100."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", metavar="DATASET", help="Take judgements, and queries, from this data set."),
    ] = None,
    split: options.Split = None,
    measures: Annotated[str, options.measures()] = "nDCG@10 RR@10",
    convention: options.Convention = "anserini",
    precision: options.Precision = None,
    report: Annotated[list[Path] | None, options.report(".html with a chart, .md, .csv or .json")] = None,
    as_json: options.Json = False,
    data: options.Data = None,
) -> None:
    """Rerank the top documents of a run with a cross-encoder.

    -o writes the reranked run. --depths with --dataset evaluates reranking to each of these depths. The texts of the
    documents come from the index.
    """
    from vizsla.models.reranker import Reranker, default_reranker

    reports = report or []
    _check(queries, dataset, depths, output, runs, as_json=as_json, reports=reports)
    _check_names(precision, convention, measures)
    cutoffs = _depths(depths, depth)
    texts, qrels = _queries(queries, dataset, split, data)
    read = _read_runs(runs)
    if depths is not None and qrels is not None and output is None:
        read = {name: run.only(qrels.judgements) for name, run in read.items()}
        if not all(read.values()):
            raise VizslaError("a run has none of the judged queries; is it a run of this data set and split?")
    cross_encoder = Reranker.open(reranker or default_reranker(), precision)  # type: ignore[arg-type]
    scores = _score(index, read, texts, cross_encoder, cutoffs[-1])
    if output is not None:
        _write(next(iter(read.values())), scores, cutoffs[-1], output, tag=cross_encoder.name)
    if depths is not None and qrels is not None:
        _evaluate(read, scores, qrels, measures, cutoffs, convention, reports, as_json)


def _check(
    queries: Path | None, dataset: str | None, depths: str | None, output: Path | None, runs: list[Path],
    *, as_json: bool, reports: list[Path],
) -> None:  # fmt: skip
    """Refuse options that do not go together, before anything long begins."""
    from vizsla.reports.rerank_depths import DEPTH_FORMATS

    if queries is None and dataset is None:
        raise VizslaError("the queries' texts are needed; give --queries FILE or --dataset NAME")
    if depths is not None and dataset is None:
        raise VizslaError("evaluation needs judgements; give --dataset NAME with --depths")
    if depths is None and (output is None or reports or as_json):
        raise VizslaError("name the run to write with -o FILE, or evaluate with --depths 5,10,50,100")
    if depths is not None:
        console.check_apart(output, "-o")
    if output is not None and len(runs) > 1:
        raise VizslaError("one run can be written with -o, not several; give one --run")
    for path in reports:
        DEPTH_FORMATS.check(path)
    for file in (output, *reports):
        console.check_output(file, *runs)


def _check_names(precision: str | None, convention: str, measures: str) -> None:
    from vizsla.evaluation import CONVENTIONS
    from vizsla.runs import parse_measures

    if precision is not None:
        console.check_name("precision", precision, PRECISIONS)
    console.check_name("convention", convention, CONVENTIONS)
    parse_measures(measures)


def _depths(depths: str | None, depth: int) -> list[int]:
    from vizsla.evaluation.retrieval import parse_depths

    return parse_depths(depths) if depths is not None else [depth]


def _read_runs(paths: list[Path]) -> dict[str, Run]:
    """Runs by the names of their files, or by their whole paths where two files have the same name."""
    from vizsla.runs import Run

    names = [path.stem for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    return {name: Run.read(path) for name, path in zip(names, paths, strict=True)}


def _queries(
    queries: Path | None, dataset: str | None, split: str | None, data: Path | None
) -> tuple[dict[str, str], Qrels | None]:
    """The texts of queries, and the judgements of the data set if one is named."""
    from vizsla.datasets import open_datasets, read_queries

    if dataset is None:
        assert queries is not None
        return read_queries(queries), None
    group = open_datasets(dataset, data)
    if len(group.members) > 1:
        raise VizslaError(f"{group.name} is {len(group.members)} collections; a run belongs to one of them")
    member = group.members[0]
    return read_queries(queries) if queries else member.queries(), member.qrels(group.split(split))


def _score(
    location: str, runs: Mapping[str, Run], texts: Mapping[str, str], reranker: Reranker, depth: int
) -> PairScores:
    from vizsla.retrievers import pair_scores

    count = len({query for run in runs.values() for query in run})
    with open_retriever(location) as retriever, console.progress("Reranking", count, "pairs") as advance:
        return pair_scores(retriever, list(runs.values()), texts, reranker, depth, advance)


def _write(run: Run, scores: PairScores, depth: int, output: Path, tag: str) -> None:
    from vizsla.retrievers import rerank_by_scores

    with console.output_file(output) as file:
        rerank_by_scores(run, scores.scores, depth).untied(by_id=False).write(file, tag=tag)
    pairs = console.count(scores.pairs, "pair")
    console.remark(f"{pairs} in {scores.seconds:.1f} s, written to {console.output_name(output)}")


def _evaluate(
    runs: Mapping[str, Run], scores: PairScores, qrels: Qrels, measures: str, depths: list[int], convention: str,
    reports: list[Path], as_json: bool,
) -> None:  # fmt: skip
    """Print, and write to reports, the figures at each depth."""
    from vizsla.evaluation import evaluate_at_depths
    from vizsla.reports.rerank_depths import DEPTH_FORMATS, depth_tables

    figures = evaluate_at_depths(runs, scores, qrels, measures, depths, convention)
    if as_json:
        facts: dict[str, Any] = {"pairs": scores.pairs, "seconds": round(scores.seconds, 3), "convention": convention}
        console.print_json({**facts, "figures": [asdict(figure) for figure in figures]})
    else:
        for head, rows in depth_tables(figures).values():
            console.show_table(head, rows, right=head[1:])
            console.line()
        rate = scores.pairs / scores.seconds if scores.seconds else 0.0
        console.remark(f"{console.count(scores.pairs, 'pair')}, {rate:,.0f} a second; convention {convention}")
    for path in reports:
        DEPTH_FORMATS.write(figures, path)
        console.remark(f"Written: {path}")
