"""The formats of a report, by the ending of the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from vizsla.errors import VizslaError

T = TypeVar("T")


@dataclass(frozen=True)
class Formats(Generic[T]):
    """The functions that write a value as text, by file ending.

    >>> Formats("a word", {".txt": str.lower}).check(Path("a.pdf"))
    Traceback (most recent call last):
    vizsla.errors.VizslaError: a word ends in .txt, not '.pdf'
    """

    what: str
    writers: Mapping[str, Callable[[T], str]]

    def check(self, path: Path) -> None:
        """Refuse a file with an unknown ending; call it before the work begins."""
        if path.suffix not in self.writers:
            raise VizslaError(f"{self.what} ends in {', '.join(self.writers)}, not {path.suffix or path.name!r}")

    def write(self, value: T, path: Path) -> None:
        """Write a value in the format of the file's ending."""
        self.check(path)
        path.write_text(self.writers[path.suffix](value), "utf-8")
