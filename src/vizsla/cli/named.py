"""Runs by name on the command line: FILE, NAME=FILE or NAME@SET=FILE."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.runs import Run


def named_file(text: str) -> tuple[str, str, Path]:
    """A system, a set of questions (or nothing) and a file; a file without a name is called by its stem."""
    name, equals, file = text.partition("=")
    if not equals or Path(text).is_file():
        path = Path(text)
        name = path.stem
    else:
        path = Path(file)
    system, _, asked = name.partition("@")
    if not system or not path.name:
        raise VizslaError(f"{text!r} names no run; expected FILE or NAME=FILE")
    return system, asked, path


def read_named(given: Sequence[str]) -> dict[str, dict[str, Run]]:
    """Runs by the questions they are on, then by system; where none are named, all are on the same."""
    from vizsla.runs import Run

    runs: dict[str, dict[str, Run]] = {}
    for text in given:
        system, asked, path = named_file(text)
        by_system = runs.setdefault(asked, {})
        if system in by_system:
            raise VizslaError(f"two runs are called {system!r}; write NAME=FILE")
        by_system[system] = Run.read(path)
    return runs
