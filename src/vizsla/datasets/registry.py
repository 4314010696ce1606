"""Known data sets: what each one is, which split is evaluated, where it is downloaded from; data sets by name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from vizsla.datasets.beir import BeirDataset, is_beir
from vizsla.datasets.irds import beir_folder
from vizsla.errors import InputError, UnknownNameError
from vizsla.plain_data import parse_yaml

DATA_VARIABLE = "VIZSLA_DATA"


@dataclass(frozen=True)
class Download:
    """A file on the network."""

    url: str
    name: str
    md5: str | None


@dataclass(frozen=True)
class DatasetEntry:
    """What is known about a data set, on this machine or not.

    >>> entry = dataset_entry("msmarco")
    >>> entry.title, entry.evaluated
    ('MS MARCO passage ranking', 'dev')
    """

    name: str
    title: str
    task: str
    domain: str
    splits: dict[str, int | None]
    """The number of judged queries, or of questions, of each split."""
    documents: int | None
    pairs: int | None
    per_query: float | None
    query_words: float | None
    document_words: float | None
    has_titles: bool
    grades: int
    """The number of levels of relevance, including "not relevant"."""
    evaluated: str
    """The split that published figures are measured on."""
    answers: str
    """For questions: whether answers are `strings` or a `regex`."""
    licence: str
    note: str
    how: str
    """How to get the data set if it cannot be downloaded."""
    parts: tuple[str, ...]
    downloads: tuple[Download, ...]


def _entry_from_data(name: str, data: dict[str, Any]) -> DatasetEntry:
    words = data.get("words") or {}
    fetch = data.get("fetch") or {}
    sources = [fetch] if "url" in fetch else list(fetch.values())
    return DatasetEntry(
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
def known_datasets() -> dict[str, DatasetEntry]:
    """All known data sets by name."""

    source = resources.files("vizsla.datasets").joinpath("data/registry.yaml").read_text("utf-8")
    return {name: _entry_from_data(name, data) for name, data in parse_yaml(source, "registry.yaml").items()}


def dataset_entry(name: str) -> DatasetEntry:
    """What is known about a data set, by its name."""
    if name not in known_datasets():
        raise UnknownNameError("data set", name, tuple(known_datasets()))
    return known_datasets()[name]


def data_folder(folder: str | Path | None = None) -> Path:
    """The folder of data sets: `folder`, else $VIZSLA_DATA, else a folder in the user's home."""
    root = folder or os.environ.get(DATA_VARIABLE)
    if root:
        if not Path(root).is_dir():
            raise InputError("this folder does not exist", file=str(root))
        return Path(root)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "vizsla"


@dataclass(frozen=True)
class DatasetGroup:
    """A data set, or several whose figures are averaged, such as the forums of CQADupStack."""

    name: str
    members: tuple[BeirDataset, ...]

    @property
    def entry(self) -> DatasetEntry | None:
        """What is known about the data set; None if it is unknown."""
        return known_datasets().get(self.name)

    def split(self, chosen: str | None) -> str:
        """The chosen split, else the one that published figures are measured on, such as dev for MS MARCO.

        Of an unknown data set it is `test`, or the only split there is.
        """
        if chosen or self.entry:
            return chosen or (self.entry.evaluated if self.entry else "")
        splits = {split for member in self.members for split in member.splits}
        return splits.pop() if len(splits) == 1 else "test"


def open_datasets(name: str | Path, data: str | Path | None = None) -> DatasetGroup:
    """Open a data set by its folder, by its name in the data folder, or as `irds:NAME` of the package ir_datasets."""
    path = beir_folder(name)
    if not path.is_dir():
        root = data_folder(data)
        if len(path.parts) != 1 or not (root / path).is_dir():
            raise _not_found(str(path), root)
        path = root / path
    if is_beir(path) or any(path.glob("queries.jsonl*")):
        return DatasetGroup(path.resolve().name, (BeirDataset.open(path),))
    members = tuple(BeirDataset.open(p) for p in sorted(path.iterdir()) if p.is_dir() and is_beir(p))
    if not members:
        BeirDataset.open(path)  # raises the error that names the missing file
    entry = known_datasets().get(path.resolve().name)
    parts = entry.parts if entry else ()
    missing = [part for part in parts if part not in {m.name for m in members}]
    if missing:
        raise InputError(f"parts of this data set are missing: {', '.join(missing)}", file=str(path))
    return DatasetGroup(path.resolve().name, members)


def _not_found(name: str, root: Path) -> InputError:
    if name not in known_datasets():
        folders = [p.name for p in root.iterdir() if p.is_dir()] if root.is_dir() else []
        close = get_close_matches(name, [*known_datasets(), *folders], 1)
        hint = f"did you mean {close[0]!r}?" if close else "'vizsla datasets' lists the known data sets"
        message = f"this folder does not exist, nor does a data set of this name in {root}; {hint}"
        return InputError(message, file=name)
    entry = known_datasets()[name]
    advice = entry.how or f"'vizsla datasets show {name}' says where to get it"
    if entry.downloads:
        advice = f"fetch it with 'vizsla datasets fetch {name}'"
    return InputError(f"the data set is not on this machine (searched in {root}); {advice}", file=name)
