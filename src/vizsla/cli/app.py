"""The application: its verbs, and how errors reach the user."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from vizsla import __version__
from vizsla.cli import (
    add,
    agree,
    analyze,
    answers,
    compact,
    compare,
    datasets,
    delete,
    demo,
    evaluate,
    explain,
    export,
    fuse,
    index,
    info,
    interleave,
    judge,
    recall,
    recipes,
    rerank,
    search,
    shuffle,
    train,
    trust,
    tune,
    verify,
    weigh,
)
from vizsla.errors import VizslaError

WRONG_USE = 2
_HIDDEN = "scipy.linalg.cython_blas"
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


class _Interrupted(VizslaError):
    """Ctrl-C, as an error that typer lets through."""


def _interruptible(verb: Callable[..., None]) -> Callable[..., None]:
    @wraps(verb)
    def call(*arguments: Any, **options: Any) -> None:
        try:
            verb(*arguments, **options)
        except KeyboardInterrupt:
            raise _Interrupted("interrupted; nothing that was committed is lost") from None

    return call


_VERBS: dict[str, Callable[..., None]] = {
    "demo": demo.demo,
    "index": index.index,
    "add": add.add,
    "delete": delete.delete,
    "search": search.search,
    "explain": explain.explain,
    "info": info.info,
    "compact": compact.compact,
    "verify": verify.verify,
    "trust": trust.trust,
    "recall": recall.recall,
    "export": export.export,
    "analyze": analyze.analyze,
    "eval": evaluate.evaluate,
    "compare": compare.compare,
    "tune": tune.tune,
    "fuse": fuse.fuse,
    "weigh": weigh.weigh,
    "interleave": interleave.interleave,
    "rerank": rerank.rerank,
    "agree": agree.agree,
    "shuffle": shuffle.shuffle,
    "answers": answers.answers,
    "train": train.train,
}
for _name, _verb in _VERBS.items():
    app.command(_name)(_interruptible(_verb))
app.add_typer(judge.app, name="judge")
app.add_typer(datasets.app, name="datasets")
app.add_typer(recipes.app, name="recipes")


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2, never a traceback."""
    # Where scipy is installed numba imports its linear algebra at the first kernel, a tenth of a second for nothing.
    sys.modules.setdefault(_HIDDEN, None)  # type: ignore[arg-type]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what a terminal cannot show must not stop it
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
        sys.stdout.flush()
    except VizslaError as e:
        _say(str(e))
        sys.exit(INTERRUPTED if isinstance(e, _Interrupted) else WRONG_USE)
    except BrokenPipeError:  # the reader of our output has gone, as with | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as e:
        _say(f"{e.filename}: {e.strerror}" if e.filename else f"cannot write the output ({e.strerror})")
        sys.stdout = None  # what is left in its buffer has nowhere to go
        sys.exit(WRONG_USE)
    finally:
        if sys.modules.get(_HIDDEN, sys) is None:  # a program that calls this may want it later
            del sys.modules[_HIDDEN]


def _say(sentence: str) -> None:
    from vizsla.cli.console import safe

    print(f"vizsla: {safe(sentence, most=2000)}", file=sys.stderr)
