"""vizsla tune: tune k1, b and weights on a dev split, or the weight of one model in a sum."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console, options
from vizsla.cli.options import open_index
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vizsla.datasets import BeirDataset
    from vizsla.evaluation import Parameter
    from vizsla.index import Index
    from vizsla.models import Model
    from vizsla.runs import Measure, Qrels


def tune(
    sets: options.QuestionSets,
    model: Annotated[str | None, options.model("The model to tune; default: bm25, or that of --index.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUES", help="What to vary: k1=0.6:1.8:0.2, b=0.3,0.5 or title.weight=0.5,1,2."
        ),
    ] = None,
    split: Annotated[str, options.split("The judgements to tune on.")] = "dev",
    test_split: Annotated[
        str | None, typer.Option("--test-split", metavar="SPLIT", help="Evaluate on this split afterwards, once.")
    ] = None,
    measure: Annotated[
        str | None, options.measure("The measure to maximise; default: nDCG@10, for answers Success@100.")
    ] = None,
    index: Annotated[
        str | None, options.index_option("Tune the weight of the second model of a sum, in this index.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights", metavar="N,...", help="With --index: weights to try; default: the 19 of SPAR's paper."
        ),
    ] = None,
    depth: Annotated[int, options.depth("With --index: how many documents of each model are scored.")] = 100,
    regex: options.Regex = False,
    limit: options.Limit = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Tune k1, b and the weights of a model on a dev split.

    On a data set: k1, b and the weights of fields and sums; documents are indexed once. With --index: the weight of
    the second of two models, on data sets or questions with answers, by rescoring the documents that either retrieves.
    """

    if index is not None:
        if settings or test_split:
            raise VizslaError("--set and --test-split are for tuning without --index")
        tune_weight(index, sets, model, measure, weights, depth, regex, split, limit, data, as_json)
        return
    if weights is not None or regex or limit is not None:
        raise VizslaError("--weights, --regex and --limit need an index that holds both models; name it with --index")
    if len(sets) > 1:
        raise VizslaError("tune on one data set, not on several; with --index you can give several")
    tune_parameters(sets[0], model or "bm25", settings, split, test_split, measure or "nDCG@10", data, as_json)


def tune_parameters(
    dataset: str, name: str, settings: list[str] | None, split: str, test_split: str | None, measure: str,
    data: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Index a data set, try settings on one of its splits, and print the best model."""
    from vizsla.evaluation import Parameter, tunable_parameters, tune
    from vizsla.evaluation.tuning import with_parameter
    from vizsla.index import Index
    from vizsla.models import expression, parse_model

    maximised = one_measure(measure)
    member = _one_dataset(dataset, data)
    qrels, test_qrels = member.qrels(split), member.qrels(test_split) if test_split else None
    if test_split == split:
        console.remark(f"Figures on {test_split!r} after tuning on it say nothing about other queries")
    model = parse_model(name)
    expression(model)  # an error now, before tuning, if the model cannot be written as an expression
    varied = [Parameter.parse(s) for s in settings] if settings else tunable_parameters(model)
    if not varied:
        raise VizslaError(f"{name} has neither k1 and b nor weights; name an option to vary, as in --set option=1,2,3")
    for parameter in varied:
        with_parameter(model, parameter.name, parameter.values[-1])  # an error now, before indexing, if it has none
    with (
        tempfile.TemporaryDirectory(prefix="vizsla-") as folder,
        Index.create(Path(folder) / "index", model, store=model.needs_texts) as index,
    ):
        _add_documents(index, member)
        with console.progress("Tuning", 0, "settings") as advance:
            queries = member.queries_of(qrels)
            tuned = tune(index, model, queries, qrels, maximised, varied, lambda n: advance(n, n))
        result: dict[str, Any] = {
            "model": expression(tuned.model), "dataset": member.name, "split": split, "measure": str(maximised),
            "settings": tuned.parameters, "before": tuned.before, "after": tuned.value, "tried": len(tuned.tried),
        }  # fmt: skip
        if test_qrels is not None:
            result["test"] = {"split": test_split, **_test(index, member, test_qrels, maximised, model, tuned.model)}
    if as_json:
        console.print_json(result)
    else:
        _show(result, name, varied)


def one_measure(text: str) -> Measure:
    """The measure to maximise."""
    from vizsla.runs import parse_measures

    measure, *others = parse_measures(text)
    if others:
        raise VizslaError("give one measure to maximise, not several")
    return measure


def _one_dataset(name: str, data: Path | None) -> BeirDataset:
    from vizsla.datasets import open_datasets

    group = open_datasets(name, data)
    if len(group.members) > 1:
        raise VizslaError(f"{group.name} is {len(group.members)} collections; tune on one of them")
    return group.members[0]


def _add_documents(index: Index, dataset: BeirDataset) -> None:
    index.add(options.dataset_documents(dataset.reading(index.model.fields)))
    index.commit()


def _test(
    index: Index, dataset: BeirDataset, qrels: Qrels, measure: Measure, before: Model, after: Model
) -> dict[str, float]:
    """The figures of the model before and after tuning, on queries it was not tuned on."""
    from vizsla.evaluation import evaluate, retrieve

    queries = dataset.queries_of(qrels)
    runs = {
        name: retrieve(index.with_model(model), queries, 1000) for name, model in (("before", before), ("after", after))
    }
    return {name: evaluate(run, qrels, [measure]).measures[str(measure)] for name, run in runs.items()}


def _show(result: dict[str, Any], model: str, varied: Sequence[Parameter]) -> None:
    rows = [(f"{result['dataset']} {result['split']}", f"{result['before']:.4f}", f"{result['after']:.4f}")]
    if "test" in result:
        test = result["test"]
        rows.append((f"{result['dataset']} {test['split']}", f"{test['before']:.4f}", f"{test['after']:.4f}"))
    console.show_table((result["measure"], model, "tuned"), rows, right=(model, "tuned"))
    console.line(result["model"])
    console.remark(f"{console.count(result['tried'], 'setting')} tried on {result['split']}")
    ends = {s.name: (min(s.values), max(s.values)) for s in varied if len(s.values) > 1}
    for name, value in result["settings"].items():
        if value in ends.get(name, ()):
            console.remark(f"{name} = {value:g} is at the edge of what was tried; a wider range may be better")


def tune_weight(
    location: str, sources: list[str], model: str | None, measure: str | None, weights: str | None, depth: int,
    regex: bool, split: str, limit: int | None, data: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Try weights for the second model of a sum, and print the gain of each and the best."""
    from vizsla.evaluation import QuestionSet, choose_weight
    from vizsla.models import parse_model

    if depth < 1:
        raise VizslaError(f"--depth, how many documents are scored, must be 1 or more, not {depth}")
    sets = [QuestionSet.open(source, data, split).first(limit) for source in sources]
    usual = "nDCG@10" if all(questions.qrels is not None for questions in sets) else "Success@100"
    maximised = one_measure(measure or usual)
    grid = _parse_grid(weights) if weights else None
    with open_index(location) as index:
        both = index.model if model is None else parse_model(model)
        best = choose_weight(index, both, sets, maximised, depth=depth, grid=grid, regex=regex)
    first, second = (part.component.name for part in both.parts)
    if as_json:
        tried = [{"weight": w, str(maximised): value} for w, value in best.tried.items()]
        console.print_json({"models": [first, second], "weight": best.weight, "value": best.value, "tried": tried})
        return
    rows = [(f"{w:g}", f"{value:.4f}", "<" if w == best.weight else "") for w, value in best.tried.items()]
    columns = (f"weight of {second}", str(maximised))
    console.show_table((*columns, ""), rows, right=columns)
    console.line(f"{first} + {best.weight:g} * {second}")
    if best.weight in (min(best.tried), max(best.tried)):
        console.remark("This is at the edge of what was tried; a wider range may be better")


def _parse_grid(text: str) -> tuple[float, ...]:
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        weights = ()
    if not weights or not all(0 < w < float("inf") for w in weights):
        raise VizslaError(f"{text!r} are not weights; expected numbers above 0, as in 0.1,0.5,1")
    return weights
