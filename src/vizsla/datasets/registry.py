"""The data sets the field speaks of: what each is, which split counts, where it comes from, and whether it is here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from vizsla.datasets.beir import BeirDataset, is_beir
from vizsla.errors import InputError, UnknownNameError

DATA_VARIABLE = "VIZSLA_DATA"


@dataclass(frozen=True)
class Download:
    """A file on the network."""

    url: str
    name: str
    md5: str | None


@dataclass(frozen=True)
class Entry:
    """A data set as it is known, on this machine or not.

    >>> known()["msmarco"].evaluated, len(known()["cqadupstack"].parts), known()["bioasq"].downloads
    ('dev', 12, ())
    """

    name: str
    title: str
    task: str
    domain: str
    splits: dict[str, int | None]
    """How many judged queries, or questions, each split has."""
    documents: int | None
    pairs: int | None
    per_query: float | None
    query_words: float | None
    document_words: float | None
    has_titles: bool
    grades: int
    """How many levels of relevance there are, "not" among them."""
    evaluated: str
    """The split that published figures are on."""
    answers: str
    """For questions: whether answers are `strings` or a `regex`."""
    licence: str
    note: str
    how: str
    """How to come by it where it cannot be fetched."""
    parts: tuple[str, ...]
    downloads: tuple[Download, ...]

    @property
    def is_questions(self) -> bool:
        return bool(self.answers)


def _entry(name: str, data: dict[str, Any]) -> Entry:
    words = data.get("words") or {}
    fetch = data.get("fetch") or {}
    sources = [fetch] if "url" in fetch else list(fetch.values())
    return Entry(
        name=name,
        title=data["title"],
        task=data.get("task") or "Open-domain questions",
        domain=data.get("domain") or "Wikipedia",
        splits=data.get("splits") or data.get("questions") or {},
        documents=data.get("documents"),
        pairs=data.get("pairs"),
        per_query=data.get("per_query"),
        query_words=words.get("query"),
        document_words=words.get("document"),
        has_titles=bool(data.get("title_field")),
        grades=data.get("grades") or 2,
        evaluated=data.get("evaluated") or "test",
        answers=data.get("answers") or "",
        licence=data.get("licence") or "not known",
        note=data.get("note") or "",
        how=data.get("how") or "",
        parts=tuple(data.get("parts") or ()),
        downloads=tuple(Download(s["url"], s["name"], s.get("md5")) for s in sources),
    )


@cache
def known() -> dict[str, Entry]:
    """All data sets by name."""
    import yaml

    source = resources.files("vizsla.datasets").joinpath("data/registry.yaml").read_text("utf-8")
    return {name: _entry(name, data) for name, data in yaml.safe_load(source).items()}


def find_entry(name: str) -> Entry:
    """A data set by its name."""
    if name not in known():
        raise UnknownNameError("data set", name, tuple(known()))
    return known()[name]


def data_folder(given: str | Path | None = None) -> Path:
    """Where data sets lie: the folder given, else $VIZSLA_DATA, else one in the user's home."""
    root = given or os.environ.get(DATA_VARIABLE)
    if root:
        if not Path(root).is_dir():
            raise InputError("there is no such folder", file=str(root))
        return Path(root)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "vizsla"


@dataclass(frozen=True)
class DatasetGroup:
    """A data set, or several whose mean is the figure, as with the forums of CQADupStack."""

    name: str
    members: tuple[BeirDataset, ...]

    @property
    def entry(self) -> Entry | None:
        return known().get(self.name)

    def split(self, asked: str | None) -> str:
        """The split asked for, else the one that published figures are on: for MS MARCO that is dev, not test."""
        return asked or (self.entry.evaluated if self.entry else "test")


def open_datasets(name: str | Path, data: str | Path | None = None) -> DatasetGroup:
    """A data set by its folder, or by its name under the data folder."""
    path = Path(name)
    if not path.is_dir():
        root = data_folder(data)
        if len(path.parts) != 1 or not (root / path).is_dir():
            raise _absent(str(path), root)
        path = root / path
    if is_beir(path) or any(path.glob("queries.jsonl*")):
        return DatasetGroup(path.resolve().name, (BeirDataset.open(path),))
    members = tuple(BeirDataset.open(p) for p in sorted(path.iterdir()) if p.is_dir() and is_beir(p))
    if not members:
        BeirDataset.open(path)  # says what is missing
    entry = known().get(path.resolve().name)
    parts = entry.parts if entry else ()
    lacking = [part for part in parts if part not in {m.name for m in members}]
    if lacking:
        raise InputError(f"of its {len(parts)} parts there is no {', '.join(lacking)}", file=str(path))
    return DatasetGroup(path.resolve().name, members)


def _absent(name: str, root: Path) -> InputError:
    if name not in known():
        here = [p.name for p in root.iterdir() if p.is_dir()] if root.is_dir() else []
        near = get_close_matches(name, [*known(), *here], 1)
        meant = f"; did you mean {near[0]!r}?" if near else "; 'vizsla datasets' lists those with a name"
        return InputError(f"there is no such folder, and no data set of this name under {root}{meant}", file=name)
    entry = known()[name]
    way = f"fetch it with 'vizsla datasets fetch {name}'" if entry.downloads else entry.how or "it has to be asked for"
    return InputError(f"the data set is not here (looked under {root}); {way}", file=name)
