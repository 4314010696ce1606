"""vizsla run fuse: several runs to one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vizsla.cli import console, options
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.runs import Fusion, Run


def fuse(
    runs: options.Runs,
    output: Annotated[Path, options.output("The fused TREC run; - is standard output.")],
    combine: Annotated[
        str,
        typer.Option(
            "--combine",
            metavar="METHOD",
            help="rrf(k=60), linear(normalise=minmax, missing=zero), mnz(...) or interleave.",
        ),
    ] = "rrf",
    weights: Annotated[
        str | None, typer.Option("--weights", metavar="N,...", help="A weight for each run, as in 1,0.5.")
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option("--tune", metavar="DATASET", help="Choose the weights on the judgements of this data set."),
    ] = None,
    split: Annotated[str, options.split("With --tune: which judgements of the data set.")] = "dev",
    measure: Annotated[str, options.measure("With --tune: the measure to maximise.")] = "nDCG@10",
    data: options.Data = None,
    k: Annotated[int, options.top_k("How many documents per query the fused run has.")] = 1000,
) -> None:
    """Combine runs: reciprocal ranks, weighted scores, interleaving."""
    from vizsla.runs import Fusion, Run

    fusion = Fusion.parse(combine)
    if len(runs) < 2:
        raise VizslaError("fusion needs at least two runs")
    if (weights or tune) and not fusion.takes_weights:
        raise VizslaError(f"{fusion.name} takes no weights")
    if weights and tune:
        raise VizslaError("give --weights or --tune, not both")
    console.check_output(output, *runs)
    if k < 1:
        raise VizslaError(f"-k, the depth of the fused run, must be 1 or more, not {k}")
    read = [Run.read(path) for path in runs]
    if not set(read[0]).intersection(*read[1:]):
        raise VizslaError("the runs have no query in common")
    chosen = parse_weights(weights) if weights else None
    if tune:
        chosen = _tuned_weights(read, fusion, tune, split, measure, data)
    fused = fusion.fuse(read, chosen, k)
    with console.output_file(output) as file:
        fused.untied(by_id=False).write(file)
    console.remark(f"{console.count(len(fused), 'query')} fused by {fusion}: {console.output_name(output)}")


def _tuned_weights(
    runs: list[Run], fusion: Fusion, dataset: str, split: str, measure: str, data: Path | None
) -> tuple[float, ...]:
    """The weights that are best on the judgements of a data set."""
    from vizsla.datasets import open_datasets
    from vizsla.evaluation import tune_fusion
    from vizsla.runs import Measure

    group = open_datasets(dataset, data)
    if len(group.members) > 1:
        raise VizslaError(f"{group.name} is {len(group.members)} collections; tune on one of them")
    member = group.members[0]
    if not any(q in runs[0] for q in member.qrels(split).judgements):
        raise VizslaError(f"the runs have none of the judged queries of {member.name} {split}; tune on their split")
    weights, value = tune_fusion(runs, member.qrels(split), Measure.parse(measure), fusion)
    console.remark(f"Weights {', '.join(f'{w:g}' for w in weights)}: {measure} {value:.4f} on {member.name} {split}")
    return weights


def parse_weights(text: str) -> tuple[float, ...]:
    """Numbers separated by commas."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise VizslaError(f"{text!r} are not weights; expected numbers separated by commas") from None
