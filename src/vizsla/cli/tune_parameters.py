"""k1, b and the weights of fields and sums, tuned on the judgements of a data set: for `vizsla tune`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vizsla.cli import console
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vizsla.datasets import BeirDataset
    from vizsla.evaluation import Parameter
    from vizsla.index import Index
    from vizsla.models import Model
    from vizsla.runs import Measure, Qrels


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
    expression(model)  # a model that cannot be written down is refused before it is tuned
    varied = [Parameter.parse(s) for s in settings] if settings else tunable_parameters(model)
    if not varied:
        raise VizslaError(f"{name} has neither k1 and b nor weights; name an option to vary, as in --set option=1,2,3")
    for parameter in varied:
        with_parameter(model, parameter.name, parameter.values[-1])  # what cannot be varied is refused before indexing
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
    from vizsla.cli.sources import read_with_progress
    from vizsla.datasets import Source

    index.add(read_with_progress([Source.find(dataset.folder)], f"Indexing {dataset.name}"))
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
