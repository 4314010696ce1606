"""Published checkpoints that papers compare with: where they are, and how they read texts where their files do not say.

The list is `vizsla/neural/data/published.json`; docs/checkpoints.md shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import PurePosixPath
from typing import Any

from vizsla.neural.checkpoints.packages import HUB
from vizsla.plain_data import parse_settings


@dataclass(frozen=True)
class Published:
    """A checkpoint, or two with different encoders for documents and for queries.

    `kind`: what reads it, such as dense, unicoil or generator. `documents`, `queries`, `also`: names on the model hub;
    `also` are others that are read in the same way. `files`: where it can be downloaded elsewhere. `settings`: what
    its own files leave open. `millions`: of parameters, in one encoder.
    """

    name: str
    about: str
    kind: str
    licence: str
    documents: str = ""
    queries: str = ""
    also: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    two_encoders: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    millions: int = 0

    @property
    def bytes(self) -> int:
        """About how much it takes on disk: four bytes a parameter."""
        return self.millions * 4_000_000 * (2 if self.queries or self.two_encoders else 1)

    def has(self, which: str) -> bool:
        """Whether this is its name on the model hub, or the name of a file that it can be downloaded as."""
        if which in (self.documents, self.queries, *self.also):
            return True
        return PurePosixPath(which).name in (file.rpartition("/")[2] for file in self.files if _is_its_own(file))


def _is_its_own(file: str) -> bool:
    """Whether a file's name tells it from other checkpoints; DPR's are all called hf_bert_base.cp."""
    return file.endswith(".ckpt")


@cache
def published() -> Mapping[str, Published]:
    """All of them by name.

    >>> published()["spar-marco-unicoil"].documents
    'facebook/spar-marco-unicoil-lexmodel-context-encoder'
    """
    content = parse_settings(resources.files("vizsla.neural").joinpath("data/published.json").read_text("utf-8"))
    return {name: _published(name, entry) for name, entry in content.items()}


def _published(name: str, entry: dict[str, Any]) -> Published:
    lists = {key: tuple(entry.get(key, ())) for key in ("also", "files")}
    return Published(**{**entry, **lists, "name": name})


def find_published(which: str, *kinds: str) -> Published | None:
    """The published checkpoint of a name on the model hub, with or without `hf:`, or of a file; None for any other.

    >>> find_published("hf:castorini/unicoil-msmarco-passage").name
    'unicoil'
    """
    name = str(which).removeprefix(HUB)
    found = (entry for entry in published().values() if not kinds or entry.kind in kinds)
    return next((entry for entry in found if name and entry.has(name)), None)
