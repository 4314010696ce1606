"""Charts of curves in a terminal; a letter stands for each curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import TYPE_CHECKING

from vizsla.cli import console

if TYPE_CHECKING:
    from rich.text import Text

STYLES = ("bold cyan", "bold yellow", "bold magenta", "bold green", "bold blue", "bold red")
HEIGHT = 10


def show_curves(curves: Mapping[str, Sequence[float]], labels: Sequence[object], title: str) -> None:
    """Print curves with values from 0 to 1; the horizontal axis has a label for each value."""
    from rich.text import Text

    width = max(len(curves) + 2, *(len(str(label)) + 2 for label in labels))
    console.line(title, "dim")
    for line in chart_lines(list(curves.values()), len(labels), width):
        console.out.print(line)
    console.out.print(Text("     " + "".join(f"{label!s:>{width}}" for label in labels), style="dim"))
    names = Text("     ")
    for i, name in enumerate(curves):
        names.append(f"{'  ' if i else ''}{_letter(i)} ", style=STYLES[i % len(STYLES)]).append(console.safe(name))
    console.out.print(names)


def chart_lines(curves: Sequence[Sequence[float]], points: int, width: int) -> list[Text]:
    """The rows of a chart, from 1 down to 0. Each point is `width` columns wide, with one column for each curve."""
    from rich.text import Text

    rows = []
    for level in range(HEIGHT, -1, -1):
        row = Text(f"{level / HEIGHT:.1f} ┤" if level % 2 == 0 else "    │", style="dim")
        for point in range(points):
            row.append(" " * (width - len(curves)))
            for i, values in enumerate(curves):
                at_level = round(values[point] * HEIGHT) == level
                row.append(_letter(i) if at_level else " ", style=STYLES[i % len(STYLES)])
        rows.append(row)
    return rows


def _letter(i: int) -> str:
    return ascii_lowercase[i % len(ascii_lowercase)]
