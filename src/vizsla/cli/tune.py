"""vizsla tune: k1, b and weights chosen on a dev split."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from vizsla.cli import console
from vizsla.cli.datasets import Data
from vizsla.errors import VizslaError


def tune(
    dataset: Annotated[str, typer.Argument(help="A folder in BEIR's layout, or the name of a data set.")],
    model: Annotated[str, typer.Option("--model", "-m", help="The model to tune.")] = "bm25",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="What to vary: k1=0.6:1.8:0.2, b=0.3,0.5, title.weight=0.5,1,2; may be repeated."),
    ] = None,
    split: Annotated[str, typer.Option("--split", help="The judgements to tune on.")] = "dev",
    then: Annotated[str | None, typer.Option("--then", help="The split to evaluate on afterwards, once.")] = None,
    measure: Annotated[str, typer.Option("--measure", help="What to make best.")] = "nDCG@10",
    data: Data = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of words.")] = False,
) -> None:
    """Choose k1, b and the weights of fields and sums on a dev split; documents are indexed once."""
    from vizsla.cli.index import watched
    from vizsla.datasets import Source, open_datasets
    from vizsla.evaluation import Parameter, evaluate, retrieve, tunable_parameters, tune
    from vizsla.index import Index
    from vizsla.models import expression, parse_model
    from vizsla.runs import parse_measures

    chosen, *others = parse_measures(measure)
    if others:
        raise VizslaError("one measure can be made best, not several")
    group = open_datasets(dataset, data)
    if len(group.members) > 1:
        raise VizslaError(f"{group.name} is {len(group.members)} collections; tune on one of them")
    folder = group.members[0]
    qrels, judged = folder.qrels(split), folder.qrels(then) if then else None
    if then == split:
        console.remark(f"Figures on {then!r} after tuning on it say nothing about other queries")
    base = parse_model(model)
    expression(base)  # what cannot be written down need not be tuned
    wanted = [Parameter.parse(s) for s in settings] if settings else tunable_parameters(base)
    with (
        tempfile.TemporaryDirectory(prefix="vizsla-") as room,
        Index.create(Path(room) / "index", base, store=False) as index,
    ):
        index.add(watched([Source.find(folder.folder)], f"Indexing {folder.name}"))
        index.commit()
        with console.progress("Tuning", 0, "settings") as advance:
            found = tune(index, base, folder.queries_of(qrels), qrels, chosen, wanted, lambda n: advance(n, n))
        result: dict[str, Any] = {
            "model": expression(found.model), "dataset": folder.name, "split": split, "measure": str(chosen),
            "settings": found.parameters, "before": found.before, "after": found.value, "tried": len(found.tried),
        }  # fmt: skip
        if judged is not None:
            queries = folder.queries_of(judged)
            tuned = (("before", base), ("after", found.model))
            runs = {name: retrieve(index.with_model(m), queries) for name, m in tuned}
            result["then"] = {"split": then} | {
                name: evaluate(run, judged, [chosen]).measures[str(chosen)] for name, run in runs.items()
            }
    if as_json:
        console.print_json(result)
        return
    rows = [(f"{folder.name} {split}", f"{found.before:.4f}", f"{found.value:.4f}")]
    if judged is not None:
        rows.append((f"{folder.name} {then}", f"{result['then']['before']:.4f}", f"{result['then']['after']:.4f}"))
    console.show_table((str(chosen), model, "tuned"), rows, right=(model, "tuned"))
    console.line(result["model"])
    console.remark(f"{console.count(len(found.tried), 'setting')} tried on {split}")
    ends = {s.name: (min(s.values), max(s.values)) for s in wanted if len(s.values) > 1}
    for name, value in found.parameters.items():
        if value in ends.get(name, ()):
            console.remark(f"{name} = {value:g} is at the edge of what was tried; more may be gained beyond")
