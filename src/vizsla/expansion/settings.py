"""The settings of an expansion, in a small file beside its output: what a run that goes on must have in common."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from vizsla.described import DescriptionError, check_type, fields_from_data
from vizsla.errors import InputError, VizslaError
from vizsla.models.generator import Sampling
from vizsla.plain_data import parse_settings

FORMAT = 2
ENDING = ".expansion"
_WORDS = {
    "texts": "queries", "top_k": "top-k", "top_p": "top-p", "temperature": "a temperature of",
    "max_tokens": "max-tokens", "seed": "the seed",
}  # fmt: skip


@dataclass(frozen=True)
class ExpansionSettings:
    """What decides which bytes an expansion writes for some documents."""

    generator: str
    digest: str
    """Of the generator's weights and settings."""
    sampling: Sampling
    fields: tuple[str, ...] = ("title", "text")
    """The fields that the generator reads."""
    block: int = 64
    """How many documents one call of the generator reads: rounding depends on the texts of a call."""

    def __post_init__(self) -> None:
        if self.block < 1:
            raise VizslaError(f"a batch has 1 document or more, not {self.block}")

    def difference(self, other: ExpansionSettings) -> tuple[str, str] | None:
        """The first difference, as (what this has, what the other has) in words; None if there is none."""
        if self.digest != other.digest:
            if self.generator != other.generator:
                return f"the generator {self.generator}", f"the generator {other.generator}"
            return f"a generator {self.generator}", "another one of that name"
        for field in fields(Sampling):
            mine, theirs = (getattr(s.sampling, field.name) for s in (self, other))
            if mine != theirs:
                word = _WORDS.get(field.name, field.name)
                return (f"{mine} queries", f"{theirs}") if field.name == "texts" else (f"{word} {mine}", f"{theirs}")
        if self.fields != other.fields:
            return f"the fields {'/'.join(self.fields)}", "/".join(other.fields)
        if self.block != other.block:
            return f"batches of {self.block}", f"{other.block}"
        return None

    def write(self, file: Path) -> None:
        """Write the settings, whole or not at all."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n"
        beside = file.with_name(file.name + ".new")
        with beside.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(file)

    @classmethod
    def read(cls, file: Path) -> ExpansionSettings | None:
        """The settings in a file; None if there is no such file."""
        try:
            data = parse_settings(file.read_text("utf-8"))
            check_type("the file", data, "dict")
            if data.pop("format", None) != FORMAT:
                raise InputError("another version of Vizsla wrote these settings; write to a new file", file=str(file))
            sampling = Sampling(**fields_from_data(Sampling, data.pop("sampling", None)))
            values: dict[str, Any] = fields_from_data(cls, {**data, "sampling": {}}, sampling="dict")
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, DescriptionError) as e:
            raise InputError(f"these are not the settings of an expansion ({e})", file=str(file)) from None
        return cls(**{**values, "sampling": sampling})


def settings_file(output: Path) -> Path:
    """The file of settings beside a file of expanded documents."""
    return output.with_name(output.name + ENDING)
