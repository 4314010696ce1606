"""Output: results to standard output, progress and remarks to standard error."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from vizsla.errors import InputError, UnknownNameError, VizslaError
from vizsla.harmless import harmless, harmless_json

if TYPE_CHECKING:
    from rich.text import Text

    from vizsla.runs import Measure


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise an error that `run` turns into a quiet exit; the reader of the output has ended, as with `| head`."""
        raise BrokenPipeError


out = _Console(highlight=False, soft_wrap=True)
err = _Console(stderr=True, highlight=False, soft_wrap=True)


_WIDE = 1000  # columns of an output that is not a terminal
MAX_BYTES = 1 << 62
_MAX_CELL = 1000  # characters of a cell of a table


def read_input() -> str:
    """All of standard input."""
    try:
        text = sys.stdin.read()
        text.encode()  # in some locales bytes that are not UTF-8 come in as surrogates
    except UnicodeError:
        raise InputError("this is not UTF-8 text", file="standard input") from None
    return text


def remark(text: str, *, lines: bool = False) -> None:
    """Print a message to standard error; `lines`: it has several lines."""
    err.print(harmless(text, lines=lines), markup=False)


def line(text: str = "", style: str = "") -> None:
    """Print a line of results."""
    from rich.text import Text

    out.print(Text(harmless(text), style=style))


def safe(text: str, max_length: int = 200) -> str:
    """An untrusted text for one line of output: control characters are escaped, and a long text is cut."""
    return harmless(text[:max_length]) + ("…" if len(text) > max_length else "")


def print_indented(text: Text, by: int) -> None:
    """Print a paragraph with an indent: wrapped in a terminal, on one line elsewhere."""
    from rich.padding import Padding
    from rich.text import Text

    if out.is_terminal:
        out.print(Padding(text, (0, 0, 0, by)), soft_wrap=False)
    else:
        out.print(Text(" " * by).append_text(text))


def print_json(value: Any) -> None:
    """Print a value as JSON; if the output is not UTF-8, other characters than ASCII are escaped."""
    is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    text = json.dumps(value, ensure_ascii=not is_utf8, indent=2)
    sys.stdout.write(harmless_json(text) + "\n")


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Collection[str] = ()) -> None:
    """Print a table, without a heading if `columns` is empty; `right`: the columns that are aligned to the right.

    Long cells are folded in a narrow terminal.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=bool(columns), header_style="bold")
    for column in columns:
        name = Text(safe(column, _MAX_CELL), style="bold")
        table.add_column(name, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(safe(str(cell), _MAX_CELL)) for cell in row))
    (out if out.is_terminal else _Console(highlight=False, width=_WIDE)).print(table)


STANDARD_OUTPUT = Path("-")


def check_output(path: Path | None, *inputs: Path) -> None:
    """Refuse an output file that cannot be written or is one of the inputs, before the work begins."""
    if path is None or path == STANDARD_OUTPUT:
        return
    if path.is_dir():
        raise VizslaError(f"{path}: this is a folder; name a file to write")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise VizslaError(f"{path}: its folder does not exist")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise VizslaError(f"{path}: this cannot be written (permission denied)")
    if any(path.exists() and source.exists() and path.samefile(source) for source in inputs):
        raise VizslaError(f"{path}: this file is also an input; write to another file")


def output_name(path: Path) -> str:
    """The name of an output file in messages."""
    return "standard output" if path == STANDARD_OUTPUT else str(path)


def check_folder(path: Path | None, output: str) -> None:
    """Refuse - (standard output) for an output that is a folder; `output` names it in the message."""
    if path == STANDARD_OUTPUT:
        raise VizslaError(f"- is standard output, and {output} is a folder; name one")


def check_apart(path: Path | None, option: str) -> None:
    """Refuse - (standard output) for a file if the command prints figures there."""
    if path == STANDARD_OUTPUT:
        raise VizslaError(f"figures go to standard output; name a file with {option} instead of -")


@contextmanager
def output_file(path: Path) -> Iterator[Path]:
    """A context with the file to write; for - a temporary file, which is copied to standard output at the end."""
    if path != STANDARD_OUTPUT:
        yield path
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="vizsla-") as folder:
        file = Path(folder) / "output"
        yield file
        in_terminal = sys.stdout.isatty()
        with file.open(encoding="utf-8", newline="") as content:
            for text in content:
                sys.stdout.write(harmless(text, lines=True) if in_terminal else text)


def check_depth(k: int, measures: Iterable[Measure]) -> None:
    """Refuse measures whose cutoff is larger than `k`, the number of retrieved documents."""
    if k < 1:
        raise VizslaError(f"-k, the number of documents to retrieve, must be 1 or more, not {k}")
    deeper = next((m for m in measures if m.cutoff and m.cutoff > k), None)
    if deeper is not None:
        raise VizslaError(f"{deeper} needs more than the {k} documents that are retrieved; give a larger -k")


def parse_depths(text: str) -> list[int]:
    """The depths in a text such as 5,20,100, sorted and without duplicates."""
    try:
        depths = sorted({int(part) for part in text.split(",")})
    except ValueError:
        depths = [0]
    if depths[0] < 1:
        raise VizslaError(f"{text!r} are not depths; expected something like 5,20,100")
    return depths


def need(package: str, extra: str) -> None:
    """Raise an error that says how to install an optional package, if it is missing."""
    if importlib.util.find_spec(package) is None:
        raise VizslaError(f"this needs {package}, which is not installed; get it with: pip install 'vizsla[{extra}]'")


def check_name(kind: str, name: str, names: Iterable[str]) -> None:
    """Refuse a name that is not one of `names`, before the work begins; `kind`: the word for it in the message."""
    if name not in (known := tuple(names)):
        raise UnknownNameError(kind, name, known)


def count(number: int, noun: str) -> str:
    """A number and its noun: '1 document', '5,183 documents', '2 queries'."""
    several = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else several}"


def size(byte_count: int) -> str:
    """A number of bytes in words: '8.2 MB'."""
    value = float(byte_count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError


def parse_size(text: str) -> int:
    """The number of bytes in a size such as 512MB or 2GB."""
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([kMGT]?)i?B?\s*", text, re.IGNORECASE | re.ASCII)
    byte_count = int(float(match[1]) * 1000 ** " KMGT".index(match[2].upper() or " ")) if match else 0
    if not 0 < byte_count < MAX_BYTES:
        raise VizslaError(f"{safe(text)!r} is not a size; expected something like 512MB or 2GB")
    return byte_count


@contextmanager
def progress(title: str, total: int, unit: str) -> Iterator[Callable[..., None]]:
    """A context with a progress bar on standard error, which shows the rate and the remaining time.

    Call it with the position and the number of units done, and with the total if that was not known before.
    """
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            done = int(task.fields["units"])
            rate = done / task.elapsed if task.elapsed else 0.0
            return Text(f"{done:,} {unit}, {rate:,.0f}/s")

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(safe(title), total=total, units=0)

        def advance(position: int, units: int, new_total: int | None = None) -> None:
            bar.update(task, completed=position, units=units, total=new_total or total or None)

        yield advance
