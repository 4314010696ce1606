"""vizsla demo: index and search something real on this machine, offline."""

from __future__ import annotations

import gc
import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from vizsla.cli import console, options

if TYPE_CHECKING:
    from vizsla.datasets import Document
    from vizsla.index import Index

QUERIES = (
    "run a command and capture its output",
    "cache the results of a function",
    "find the n largest elements",
)


def demo(
    output: Annotated[
        Path | None, options.output("Keep the index in this folder; default: in the user's cache.")
    ] = None,
) -> None:
    """Index and search Python's own documentation, offline."""
    from vizsla.index import Index

    console.check_folder(output, "an index")
    folder = output or _demo_folder()
    console.remark("Reading the documentation strings of Python's standard library (parsed, not run) ...")
    started = time.perf_counter()
    with Index.create(folder, "bm25", overwrite=output is None) as index:
        index.add(_docstrings())
        index.commit()
        seconds = time.perf_counter() - started
        console.remark(f"{console.count(len(index), 'document')} indexed in {seconds:.1f} s.")
        _run_queries(index)
        if sys.stdin.isatty() and sys.stdout.isatty():
            from vizsla.cli.search import prompt

            console.remark("\nYour turn.", lines=True)
            prompt(index, 5)
    _show_next_steps(folder)


def _demo_folder() -> Path:
    """A folder that remains after the demo, so that its index can be served; in the user's cache if possible."""
    from vizsla.cache import cache_folder

    folder = cache_folder("demo")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    return (folder if writable else Path(tempfile.mkdtemp(prefix="vizsla-demo-"))) / "python.index"


def _docstrings() -> Iterator[Document]:
    from vizsla.datasets.stdlib import library_files, read_docstrings

    files = library_files()
    done = 0
    gc.disable()  # searching syntax trees for reference cycles takes a quarter of the time, and there are none
    try:
        with console.progress("Indexing", len(files), "documents") as advance:
            for i, file in enumerate(files, 1):
                for document in read_docstrings(file):
                    yield document
                    done += 1
                advance(i, done)
    finally:
        gc.enable()


def _run_queries(index: Index) -> None:
    from vizsla.cli.results import show_explanation, show_results

    ids: list[str] = []
    for query in QUERIES:
        _show_command("search", repr(query))
        ids = show_results(index, query, 3)
    if ids:
        _show_command("explain", f"{QUERIES[-1]!r} {ids[0]}")
        show_explanation(index.explain(QUERIES[-1], ids[0]), ids[0])


def _show_command(verb: str, arguments: str) -> None:
    from rich.text import Text

    console.line()
    console.out.print(Text().append(f"vizsla {verb}", style="bold green").append(f" {arguments}"))


def _show_next_steps(folder: Path) -> None:
    """The commands to try next; in a folder with a subfolder `docs` they can be run unchanged."""
    command, pages = _command(), sorted(Path("docs").glob("*.md"))
    files, document = ("docs", pages[0].name) if pages else ("FILES", "ID")
    console.remark(
        "\nNow your own files: JSON lines, csv, tsv, Parquet, TREC SGML, or folders of text, Markdown and HTML.\n"
        f"  {command} index {files} -o my.index\n"
        f'  {command} search my.index "a query"\n'
        f'  {command} explain my.index "a query" {shlex.quote(document)}\n'
        "\nThe same index as a page in your browser, and an API:\n"
        f"  {command} serve {shlex.quote(_short(folder))}{_missing_server()}",
        lines=True,
    )


def _short(folder: Path) -> str:
    """A folder as a user would write it."""
    here = Path.cwd()
    folder = folder.absolute()
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)


def _missing_server() -> str:
    """A note on what to install first, if the server's packages are missing."""
    missing = importlib.util.find_spec("fastapi") is None
    return "      # first: pip install 'vizsla[server]'" if missing else ""


def _command() -> str:
    """How this program is called from the current folder."""
    program = Path(sys.argv[0])
    if program.name != "vizsla" or not program.exists():
        return f"{shlex.quote(sys.executable)} -m vizsla"
    found = shutil.which("vizsla")
    if found and os.path.samefile(found, program):
        return "vizsla"
    here = Path.cwd()
    program = program.absolute()
    return shlex.quote(str(program.relative_to(here) if program.is_relative_to(here) else program))
