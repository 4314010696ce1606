"""vizsla fuse: several runs to one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vizsla.cli import console
from vizsla.cli.datasets import Data
from vizsla.errors import VizslaError


def fuse(
    runs: Annotated[list[Path], typer.Argument(help="TREC runs; in interleaving the order counts.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the fused run goes; - is standard output.")],
    how: Annotated[
        str,
        typer.Option("--how", help="rrf(k=60), linear(normalise=minmax, missing=zero), mnz(...) or interleave."),
    ] = "rrf",
    weights: Annotated[str | None, typer.Option("--weights", help="One for each run, as in 1,0.5.")] = None,
    tune: Annotated[
        str | None, typer.Option("--tune", help="A data set whose judgements choose the weights (linear, mnz, rrf).")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="With --tune: which judgements.")] = "dev",
    measure: Annotated[str, typer.Option("--measure", help="With --tune: what to make best.")] = "nDCG@10",
    data: Data = None,
    k: Annotated[int, typer.Option("-k", help="How deep the fused run is.")] = 1000,
) -> None:
    """Fuse runs by reciprocal ranks, by weighted sums of normalised scores, or by interleaving."""
    from vizsla.datasets import open_datasets
    from vizsla.evaluation import tune_fusion
    from vizsla.runs import Fusion, Measure, Run

    fusion = Fusion.parse(how)
    if len(runs) < 2:
        raise VizslaError("there must be two runs at least")
    if (weights or tune) and not fusion.takes_weights:
        raise VizslaError(f"{fusion.name} does not take weights")
    if weights and tune:
        raise VizslaError("give --weights or --tune, not both")
    console.check_output(output, *runs)
    if k < 1:
        raise VizslaError(f"-k, how deep the fused run is, must be 1 or more, not {k}")
    read = [Run.read(path) for path in runs]
    if not set(read[0]).intersection(*read[1:]):
        raise VizslaError("the runs have no query in common")
    given = _numbers(weights) if weights else None
    if tune:
        group = open_datasets(tune, data)
        if len(group.members) > 1:
            raise VizslaError(f"{group.name} is {len(group.members)} collections; tune on one of them")
        dataset = group.members[0]
        if not any(q in read[0] for q in dataset.qrels(split).judgements):
            raise VizslaError(
                f"the runs have none of the judged queries of {dataset.name} {split}; tune on their split"
            )
        given, value = tune_fusion(read, dataset.qrels(split), Measure.parse(measure), fusion)
        console.remark(f"Weights {', '.join(f'{w:g}' for w in given)}: {measure} {value:.4f} on {dataset.name} {split}")
    fused = fusion.fuse(read, given, k)
    with console.written(output) as file:
        fused.untied(by_id=False).write(file)
    console.remark(f"{console.count(len(fused), 'query')} fused by {fusion}: {console.place(output)}")


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise VizslaError(f"{text!r} are no weights; expected numbers separated by commas") from None
