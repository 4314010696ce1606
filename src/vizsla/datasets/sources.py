"""Sources of documents: what `vizsla index` can be pointed at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from vizsla.datasets.beir import find_file, is_beir
from vizsla.datasets.document import Document, Origin
from vizsla.datasets.files import COMPRESSIONS, read_json_lines
from vizsla.errors import InputError

JSON_ENDINGS = (".jsonl", ".ndjson", ".json")


def source_file(source: str | Path) -> Path:
    """The file with the documents of a source: the file itself, or the corpus of a BEIR folder."""
    path = Path(source)
    if path.is_dir():
        if not is_beir(path):
            raise InputError("this folder holds no corpus.jsonl, so it is no BEIR folder", file=str(path))
        return find_file(path, "corpus.jsonl")
    if not path.exists():
        raise InputError("there is no such file or folder", file=str(path))
    name = path.name
    for ending in COMPRESSIONS:
        name = name.removesuffix(ending)
    if not name.endswith(JSON_ENDINGS):
        raise InputError(
            "expected a BEIR folder or a file of JSON lines (.jsonl, plain or with .gz, .xz or .zst)", file=str(path)
        )
    return path


def read_documents(source: str | Path, progress: Callable[[int], None] | None = None) -> Iterator[Document]:
    """The documents of a JSON-lines file or a BEIR folder, one by one."""
    path = source_file(source)
    for line, record in read_json_lines(path, progress):
        yield Document.from_record(record, Origin(str(path), line))
