"""vizsla answers: how many questions find a passage that holds an answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console
from vizsla.cli.compare import split_models
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.models import Model


def answers(
    index: Annotated[Path, typer.Argument(help="An index whose documents are stored.")],
    questions: Annotated[list[Path], typer.Argument(help="Files of questions with answers: .jsonl, or DPR's .csv.")],
    depths: Annotated[str, typer.Option("--depths", help="At which depths.")] = "5,20,100",
    regex: Annotated[bool, typer.Option("--regex", help="Answers are regular expressions, as in CuratedTREC.")] = False,
    models: Annotated[
        list[str] | None,
        typer.Option("--models", "--model", "-m", help="Models, separated by commas; else the index's own."),
    ] = None,
    run: Annotated[Path | None, typer.Option("--run", help="A TREC run instead of a search.")] = None,
    most: Annotated[int | None, typer.Option("--most", help="Only the first so many questions of each file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Answer accuracy: the share of questions with an answer in the first k documents, matched as DPR does."""
    from vizsla.datasets import read_questions
    from vizsla.evaluation import answer_accuracy
    from vizsla.index import Index
    from vizsla.models import parse_model
    from vizsla.runs import Run

    cuts = console.parse_depths(depths)
    if most is not None and most < 1:
        raise VizslaError(f"--most, the number of questions, must be 1 or more, not {most}")
    if run is not None and models:
        raise VizslaError("give --run or models to ask with, not both")
    given = Run.read(run) if run else None
    asked = {name: parse_model(name) for name in split_models(",".join(models or []))}
    results: list[dict[str, Any]] = []
    with Index.open(index) as opened:
        systems: dict[str, Model | None] = {**asked} or {run.name if run else opened.model.name: None}
        for file in questions:
            texts, wanted = read_questions(file)
            chosen = dict(list(texts.items())[:most])
            for name, model in systems.items():
                with console.progress(f"Matching {file.name}", len(chosen), "questions") as advance:
                    figures = answer_accuracy(
                        opened if model is None else opened.with_model(model),
                        chosen,
                        wanted,
                        cuts,
                        run=given,
                        regex=regex,
                        progress=advance,
                    )
                results.append({"file": file.name, "model": name, "questions": len(chosen), "accuracy": figures})
    if as_json:
        console.print_json({"index": str(index), "results": results})
        return
    names = [f"Acc@{k}" for k in cuts]
    rows = [
        (r["file"], *([r["model"]] if asked else []), f"{r['questions']:,}",
         *(f"{r['accuracy'][n]:.4f}" for n in names))
        for r in results
    ]  # fmt: skip
    console.show_table(
        ("questions", *(["model"] if asked else []), "count", *names), rows, right=("count", *names)
    )  # fmt: skip
