"""The settings that all parts of one index share, and the shard that each part holds."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vizsla.datasets import Splitter
from vizsla.described import check_type, fields_from_data
from vizsla.errors import VizslaError
from vizsla.index.storage import arrays
from vizsla.index.storage.folder import model_files
from vizsla.models import Model

FORMAT = 1


@dataclass(frozen=True)
class Shard:
    """One of several shards, counted from 1.

    Documents are taken in batches in the order of the source. Batch 1 belongs to shard 1, batch 2 to shard 2, and
    after the last shard it begins again, so that each machine knows its batches without asking others.

    >>> shard = Shard.parse("3/20")
    >>> [batch for batch in range(100) if shard.has(batch)]
    [2, 22, 42, 62, 82]
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise VizslaError(f"a shard is a number from 1 to the number of shards, as in 3/20, not {self}")

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard in a text such as 3/20."""
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
        if match is None:
            raise VizslaError(f"{text!r} is not a shard; expected something like 3/20, the third of twenty")
        return cls(int(match[1]), int(match[2]))

    def has(self, batch: int) -> bool:
        """Whether a batch of the source, counted from 0, belongs to this shard."""
        return batch % self.count == self.number - 1


@dataclass(frozen=True)
class PartSettings:
    """What decides the bytes of a part, given the documents of the source."""

    model: str
    """The model as it was named."""
    digest: str
    """Of the model's description and its files."""
    shard: int
    shards: int
    batch: int
    """How many documents are encoded at once, at most: rounding depends on the texts of a call."""
    words: int = 0
    """Of a passage; 0 if documents are not cut."""
    overlap: int = 0

    @classmethod
    def of(cls, model: Model, name: str, shard: Shard, splitter: Splitter | None, batch: int | None) -> PartSettings:
        """The settings for a model under the name it was given by; its own batch size if `batch` is None."""
        if model.needs_corpus_statistics:
            raise VizslaError(
                f"{model.name} needs the statistics of all documents before it encodes the first, so it cannot be "
                "encoded by shards; build the whole index with vizsla index"
            )
        if batch is not None and batch < 1:
            raise VizslaError(f"a batch has 1 document or more, not {batch}")
        size = batch or min(part.component.batch_size for part in model.parts)
        cut = (0, 0) if splitter is None else (splitter.words, splitter.overlap)
        return cls(name, model_digest(model), shard.number, shard.count, size, *cut)

    @property
    def which(self) -> Shard:
        """The shard that the part holds."""
        return Shard(self.shard, self.shards)

    @property
    def splitter(self) -> Splitter | None:
        """Cuts documents into passages; None if they stay whole."""
        return Splitter(self.words, self.overlap) if self.words else None

    def difference(self, other: PartSettings) -> tuple[str, str] | None:
        """The first difference other than the shard number, described for this and for the other; None if equal."""
        if self.digest != other.digest:
            if self.model != other.model:
                return f"the model {self.model}", f"the model {other.model}"
            return f"a model {self.model}", "another one of that name"
        if self.shards != other.shards:
            return f"{self.shards} shards", f"{other.shards}"
        if (self.words, self.overlap) != (other.words, other.overlap):
            return self._passages, other._passages
        if self.batch != other.batch:
            return f"batches of {self.batch}", f"{other.batch} (--batch)"
        return None

    @property
    def _passages(self) -> str:
        if not self.words:
            return "whole documents"
        return f"passages of {self.words} words" + (f" that overlap by {self.overlap}" if self.overlap else "")

    def described(self) -> dict[str, Any]:
        """The settings as plain data."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: object) -> PartSettings:
        """The settings that plain data describe."""
        check_type("the settings", data, "dict")
        made = cls(**fields_from_data(cls, data))
        _ = made.which, made.splitter
        return made


def model_digest(model: Model) -> str:
    """A digest of what a model computes: its description without names, and its files."""
    with TemporaryDirectory(prefix="vizsla-") as folder:
        described = model.describe(Path(folder))
        parts = [{k: v for k, v in part.items() if k != "name"} for part in described.pop("parts")]
        described.pop("name")
        files = {name: arrays.hash_file(file) for name, file in model_files(Path(folder))}
    text = json.dumps([described, parts, files], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
