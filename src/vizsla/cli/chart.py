"""Curves in a terminal: a point for each value, a letter for each curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import TYPE_CHECKING

from vizsla.cli import console

if TYPE_CHECKING:
    from rich.text import Text

STYLES = ("bold cyan", "bold yellow", "bold magenta", "bold green", "bold blue", "bold red")
HEIGHT = 10


def show_curves(curves: Mapping[str, Sequence[float]], places: Sequence[object], title: str) -> None:
    """Print shares from 0 to 1 over places from left to right; each curve keeps to its own column of a place."""
    from rich.text import Text

    wide = max(len(curves) + 2, *(len(str(place)) + 2 for place in places))
    console.line(title, "dim")
    for line in chart_lines(list(curves.values()), len(places), wide):
        console.out.print(line)
    console.out.print(Text("     " + "".join(f"{place!s:>{wide}}" for place in places), style="dim"))
    names = Text("     ")
    for i, name in enumerate(curves):
        names.append(f"{'  ' if i else ''}{_letter(i)} ", style=STYLES[i % len(STYLES)]).append(console.safe(name))
    console.out.print(names)


def chart_lines(curves: Sequence[Sequence[float]], places: int, wide: int) -> list[Text]:
    """The rows of a chart, from 1 down to 0."""
    from rich.text import Text

    rows = []
    for level in range(HEIGHT, -1, -1):
        row = Text(f"{level / HEIGHT:.1f} ┤" if level % 2 == 0 else "    │", style="dim")
        for place in range(places):
            row.append(" " * (wide - len(curves)))
            for i, values in enumerate(curves):
                here = round(values[place] * HEIGHT) == level
                row.append(_letter(i) if here else " ", style=STYLES[i % len(STYLES)])
        rows.append(row)
    return rows


def _letter(i: int) -> str:
    return ascii_lowercase[i % len(ascii_lowercase)]
