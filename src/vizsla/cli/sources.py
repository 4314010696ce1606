"""Documents to index, from files and folders: found, described to the user, and read behind a progress bar."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vizsla.cli import console
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.datasets import Document, RawLines, Source
    from vizsla.models import Model


def source_options(
    id_field: str | None, text_field: str | None, title_field: str | None,
    delimiter: str | None, types: str | None, max_document: str, allow_empty: bool,
) -> dict[str, Any]:  # fmt: skip
    """The options of the command line as `Source.find` takes them."""
    from vizsla.datasets import FieldNames, parse_types

    return {
        "names": FieldNames(id_field, text_field, title_field),
        "delimiter": "\t" if delimiter == "\\t" else delimiter,
        "types": parse_types(types) if types is not None else {},
        "max_document": console.parse_size(max_document),
        "allow_empty": allow_empty,
    }


def find_sources(paths: list[str], format: str | None, **options: Any) -> list[Source]:
    """The sources at these paths; a remark says what was guessed, inferred or skipped."""
    from vizsla.datasets import Source

    sources = [Source.find(path, format, **options) for path in paths]
    for source in sources:
        for remark in source.remarks():
            console.remark(f"{console.safe(source.name)}: {console.safe(remark, max_length=2000)}")
    return sources


def check_outside(output: Path, sources: list[Source]) -> None:
    """Refuse an output that is a file of a source, or would be one in the next run."""
    for source in sources:
        folder = Path(source.name)
        console.check_output(output, *(part.file.path for part in source.parts))
        only_corpus = len(source.parts) == 1 and source.parts[0].file.path.name.startswith("corpus.jsonl")
        if folder.is_dir() and not only_corpus and output.resolve().is_relative_to(folder.resolve()):
            raise VizslaError(f"{output}: this file is inside of the source {folder}; write it elsewhere")


def passes_lines(model: Model, workers: int | None) -> bool:
    """Whether JSON lines are passed on unread, because several workers read them, or a kernel does."""
    return model.counts_words or (workers or 1) > 1


def read_with_progress(sources: list[Source], title: str, *, raw: bool = False) -> Iterator[Document | RawLines]:
    """The documents of sources, or with `raw` JSON lines not yet read, behind a progress bar over their bytes."""
    from vizsla.datasets import RawLines

    total = sum(s.bytes for s in sources)
    before, done, position = 0, 0, 0

    def move(to: int) -> None:
        nonlocal position
        position = to

    with console.progress(title, total, "documents") as advance:
        for source in sources:
            lines = source.raw_lines(move) if raw else None
            for item in source.documents(move) if lines is None else lines:
                yield item
                done += item.count if isinstance(item, RawLines) else 1
                if lines is not None or done % 500 == 0:
                    advance(before + position, done)
            before, position = before + source.bytes, 0
