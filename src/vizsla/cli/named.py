"""Runs with names on the command line: FILE, NAME=FILE or NAME@DATASET=FILE."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.runs import Run


def named_file(text: str) -> tuple[str, str, Path]:
    """The system, the data set (or an empty text) and the file; without a name, the system is the stem of the file.

    >>> system, dataset, path = named_file("bm25@nq=a.trec")
    >>> system, dataset, path.name
    ('bm25', 'nq', 'a.trec')
    """
    name, equals, file = text.partition("=")
    if not equals or Path(text).is_file():
        path = Path(text)
        name = path.stem
    else:
        path = Path(file)
    system, _, dataset = name.partition("@")
    if not system or not path.name:
        raise VizslaError(f"{text!r} does not name a run; expected FILE or NAME=FILE")
    return system, dataset, path


def read_named(given: Sequence[str]) -> dict[str, dict[str, Run]]:
    """Runs by data set, then by system; runs without a data set are under the empty text."""
    from vizsla.runs import Run

    runs: dict[str, dict[str, Run]] = {}
    for text in given:
        system, dataset, path = named_file(text)
        by_system = runs.setdefault(dataset, {})
        if system in by_system:
            raise VizslaError(f"two runs are called {system!r}; write NAME=FILE")
        by_system[system] = Run.read(path)
    return runs
