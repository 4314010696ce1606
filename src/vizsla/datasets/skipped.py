"""What was left out because it could not be read: how much, and the first of it with file, line and reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vizsla.errors import InputError, VizslaError

LISTED = 100
"""How many of the things that were left out are kept with their reasons; the others are only counted."""
_MAX_REASONS = 1000


@dataclass
class Skipped:
    """Documents and files that were left out.

    >>> skipped = Skipped()
    >>> skipped.add(InputError("this is not JSON", file="dogs.jsonl", line=3))
    >>> skipped.count, [str(error) for error in skipped.errors]
    (1, ['dogs.jsonl:3: this is not JSON'])
    """

    count: int = 0
    errors: list[InputError] = field(default_factory=list)
    """The first of them, at most a hundred."""
    reasons: Counter[str] = field(default_factory=Counter)
    """How often there was each reason."""

    def add(self, error: VizslaError) -> None:
        """Note what was left out."""
        known = error if isinstance(error, InputError) else InputError(str(error))
        self.count += 1
        if len(self.errors) < LISTED:
            self.errors.append(known)
        if known.problem in self.reasons or len(self.reasons) < _MAX_REASONS:
            self.reasons[known.problem] += 1

    def merge(self, other: Skipped) -> None:
        """Add what another part of the work has left out."""
        self.count += other.count
        self.errors += other.errors[: LISTED - len(self.errors)]
        for reason, count in other.reasons.items():
            if reason in self.reasons or len(self.reasons) < _MAX_REASONS:
                self.reasons[reason] += count

    def clear(self) -> None:
        """Forget everything: the same is read again."""
        self.count = 0
        self.errors.clear()
        self.reasons.clear()

    def as_json(self) -> dict[str, Any]:
        """The count and the list as plain JSON."""
        first = [{"file": e.file, "line": e.line, "reason": e.problem} for e in self.errors]
        return {"count": self.count, "first": [{k: v for k, v in e.items() if v is not None} for e in first]}

    @classmethod
    def from_json(cls, value: object) -> Skipped:
        """The same from what `as_json` gave; what is not of this form counts nothing."""
        found = cls()
        if isinstance(value, Mapping) and isinstance(value.get("count"), int):
            entries: Iterable[Any] = value.get("first") or ()
            for entry in entries:
                if isinstance(entry, Mapping):
                    found.add(InputError(str(entry.get("reason")), file=entry.get("file"), line=entry.get("line")))
            found.count = value["count"]
        return found
