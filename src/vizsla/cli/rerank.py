"""vizsla rerank: the best of a run ranked anew by a cross-encoder, at one depth or at several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console
from vizsla.cli.compare import Convention
from vizsla.cli.datasets import Data
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.models import Reranker
    from vizsla.retrievers import PairScores
    from vizsla.runs import Qrels, Run


def rerank(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the index, for the texts.")],
    runs: Annotated[list[Path], typer.Option("--run", help="The TREC run of a first stage; with --depths several.")],
    reranker: Annotated[str, typer.Option("--reranker", help="A cross-encoder, by its folder or its name.")],
    queries: Annotated[
        Path | None, typer.Option("--queries", help="A file of queries: JSON lines {_id, text} or id TAB text.")
    ] = None,
    depth: Annotated[int, typer.Option("--depth", help="How many documents of a query are ranked anew.")] = 100,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The TREC run to write; - is standard output.")
    ] = None,
    depths: Annotated[
        str | None, typer.Option("--depths", help="With --dataset: figures at several depths, as in 5,10,50,100.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="Where judgements, and else queries, come from.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Which judgements; test unless told.")] = None,
    measures: Annotated[str, typer.Option("--measures", help="In ir_measures' notation.")] = "nDCG@10 RR@10",
    convention: Convention = "anserini",
    precision: Annotated[
        str | None, typer.Option("--precision", help="int8 or float32; int8 where no GPU runs it.")
    ] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option("--report", help="With --depths: write the figures, .html with a chart, .md, .csv, .json."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --depths: JSON instead of tables.")] = False,
    data: Data = None,
) -> None:
    """Rank the best documents of a run anew with a cross-encoder, or tell what that gains at several depths."""
    from vizsla.evaluation import CONVENTIONS
    from vizsla.models import Reranker
    from vizsla.reports.rerank_depths import DEPTH_FORMATS
    from vizsla.retrievers import rerank_by_scores
    from vizsla.runs import Run, parse_measures

    if queries is None and dataset is None:
        raise VizslaError("the queries' texts are needed; give --queries FILE or --dataset NAME")
    if depths is not None and dataset is None:
        raise VizslaError("figures need judgements; give --dataset NAME with --depths")
    if depths is None and (output is None or report or as_json):
        raise VizslaError("name the run to write with -o FILE, or ask for figures with --depths 5,10,50,100")
    if depths is not None:
        console.check_apart(output, "-o")
    if output is not None and len(runs) > 1:
        raise VizslaError("one run can be written with -o, not several; give one --run")
    if precision is not None:
        console.one_of("precision", precision, ("int8", "float32"))
    console.one_of("convention", convention, CONVENTIONS)
    parse_measures(measures)
    for path in report or []:
        DEPTH_FORMATS.check(path)
    for file in (output, *(report or [])):
        console.check_output(file, *runs)
    cuts = _depths(depths, depth)
    names = [path.stem for path in runs]
    if len(set(names)) < len(names):
        names = [str(path) for path in runs]
    texts, qrels = _asked(queries, dataset, split, data)
    read = {name: Run.read(path) for name, path in zip(names, runs, strict=True)}
    if depths is not None and qrels is not None and output is None:
        read = {name: run.only(qrels.judgements) for name, run in read.items()}
        if not all(read.values()):
            raise VizslaError("a run has none of the judged queries; is it a run of this data set and split?")
    second = Reranker.open(reranker, precision)  # type: ignore[arg-type]
    scores = _scores(folder, read, texts, second, cuts[-1])
    if output is not None:
        run = rerank_by_scores(next(iter(read.values())), scores.scores, cuts[-1] if depths is not None else depth)
        with console.written(output) as file:
            run.untied(by_id=False).write(file, tag=second.name)
        pairs = console.count(scores.pairs, "pair")
        console.remark(f"{pairs} in {scores.seconds:.1f} s, written to {console.place(output)}")
    if depths is not None and qrels is not None:
        _figures(read, scores, qrels, measures, cuts, convention, report or [], as_json)


def _depths(depths: str | None, depth: int) -> list[int]:
    from vizsla.evaluation.rerank_depths import parse_depths

    return parse_depths(depths) if depths is not None else [depth]


def _asked(
    queries: Path | None, dataset: str | None, split: str | None, data: Path | None
) -> tuple[dict[str, str], Qrels | None]:
    """The texts of queries, and judgements where there are any."""
    from vizsla.datasets import open_datasets, read_queries

    if dataset is None:
        assert queries is not None
        return read_queries(queries), None
    group = open_datasets(dataset, data)
    if len(group.members) > 1:
        raise VizslaError(f"{group.name} is {len(group.members)} collections; a run belongs to one of them")
    member = group.members[0]
    return read_queries(queries) if queries else member.queries(), member.qrels(group.split(split))


def _scores(
    folder: Path, runs: Mapping[str, Run], texts: Mapping[str, str], reranker: Reranker, depth: int
) -> PairScores:
    from vizsla.index import Index
    from vizsla.retrievers import pair_scores

    asked = len({query for run in runs.values() for query in run})
    with Index.open(folder) as index, console.progress("Reranking", asked, "pairs") as advance:
        return pair_scores(index, list(runs.values()), texts, reranker, depth, advance)


def _figures(
    runs: Mapping[str, Run], scores: PairScores, qrels: Qrels, measures: str, depths: list[int], convention: str,
    report: list[Path], as_json: bool,
) -> None:  # fmt: skip
    from vizsla.evaluation.rerank_depths import evaluate_at_depths
    from vizsla.reports.rerank_depths import DEPTH_FORMATS, depth_tables

    found = evaluate_at_depths(runs, scores, qrels, measures, depths, convention)
    if as_json:
        told: dict[str, Any] = {"pairs": scores.pairs, "seconds": round(scores.seconds, 3), "convention": convention}
        console.print_json({**told, "figures": [asdict(one) for one in found]})
    else:
        for head, rows in depth_tables(found).values():
            console.show_table(head, rows, right=head[1:])
            console.line()
        rate = scores.pairs / scores.seconds if scores.seconds else 0.0
        console.remark(f"{console.count(scores.pairs, 'pair')}, {rate:,.0f} a second; convention {convention}")
    for path in report:
        DEPTH_FORMATS.write(found, path)
        console.remark(f"Written: {path}")
