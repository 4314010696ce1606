"""The application: its verbs, and how errors reach the user."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from vizsla import __version__
from vizsla.cli import analyze, demo, evaluate, explain, index, info, recipes, search
from vizsla.errors import VizslaError

WRONG_USE = 2
INTERRUPTED = 130

app = typer.Typer(
    name="vizsla",
    help="Search documents with BM25 and what comes after it, without Java. Start with: vizsla demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"vizsla {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    del version


app.command("demo")(demo.demo)
app.command("index")(index.index)
app.command("search")(search.search)
app.command("explain")(explain.explain)
app.command("info")(info.info)
app.command("analyze")(analyze.analyze)
app.command("eval")(evaluate.evaluate)
app.add_typer(recipes.app, name="recipes")


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2, never a traceback."""
    try:
        app()
    except VizslaError as e:
        print(f"vizsla: {e}", file=sys.stderr)
        sys.exit(WRONG_USE)
    except KeyboardInterrupt:
        print("\nvizsla: interrupted; nothing that was committed is lost", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has gone, as with | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
