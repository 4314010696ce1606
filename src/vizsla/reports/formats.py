"""What is written by the ending of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from vizsla.errors import VizslaError

T = TypeVar("T")


@dataclass(frozen=True)
class Formats(Generic[T]):
    """The ways something is written.

    >>> Formats("a word", {".txt": str.lower}).check(Path("a.pdf"))
    Traceback (most recent call last):
    vizsla.errors.VizslaError: a word ends in .txt, not '.pdf'
    """

    what: str
    ways: Mapping[str, Callable[[T], str]]

    def check(self, path: Path) -> None:
        """Refuse a file whose ending says nothing, before the work is done."""
        if path.suffix not in self.ways:
            raise VizslaError(f"{self.what} ends in {', '.join(self.ways)}, not {path.suffix or path.name!r}")

    def write(self, found: T, path: Path) -> None:
        self.check(path)
        path.write_text(self.ways[path.suffix](found), "utf-8")
