"""Data sets of the package ir_datasets by name: `irds:beir/scifact/test`.

Such a data set is written once into the user's cache, in BEIR's layout, and read from there: so whatever takes a source
of documents, a file of queries or a data set takes it, and several processes may read it.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import zstandard

from vizsla.encoders.cache import cache_folder
from vizsla.errors import InputError, MissingPackageError

SCHEME = "irds:"
_ID_FIELDS = ("doc_id", "query_id")


def beir_folder(source: str | Path) -> Path:
    """A path as it is; for `irds:NAME` the folder that holds the data set in BEIR's layout.

    >>> beir_folder("data/scifact").name
    'scifact'
    """
    name = str(source)
    if not name.startswith(SCHEME):
        return Path(source)
    dataset = _load(name)
    folder = cache_folder("irds") / re.sub(r"[^\w.-]+", "-", name.removeprefix(SCHEME)).strip("-")
    if not folder.is_dir():
        _write(dataset, name, folder)
    return folder


def _load(name: str) -> Any:
    try:
        import ir_datasets
    except ImportError:
        raise MissingPackageError(
            f'{name}: this needs the package ir_datasets; install it with: pip install "vizsla[ir-datasets]"'
        ) from None
    try:
        return ir_datasets.load(name.removeprefix(SCHEME))
    except KeyError:
        raise InputError("ir_datasets knows no data set of this name; its site lists them", file=name) from None


def _write(dataset: Any, name: str, folder: Path) -> None:
    """Write a data set next to its place first, so that it is there whole or not at all."""
    has = {part: getattr(dataset, f"has_{part}")() for part in ("docs", "queries", "qrels")}
    if not any(has.values()):
        raise InputError("this data set has neither documents nor queries; name a part of it", file=name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent) as made:
        written = Path(made, folder.name)
        (written / "qrels").mkdir(parents=True)
        try:
            if has["docs"]:
                _write_records(written / "corpus.jsonl.zst", map(_record, dataset.docs_iter()))
            if has["queries"]:
                _write_records(written / "queries.jsonl.zst", map(_record, dataset.queries_iter()))
            if has["qrels"]:
                rows = (f"{q.query_id}\t{q.doc_id}\t{q.relevance}\n" for q in dataset.qrels_iter())
                with (written / "qrels" / f"{split_of(name)}.tsv").open("w", encoding="utf-8") as file:
                    file.writelines(["query-id\tcorpus-id\tscore\n", *rows])
        except Exception as e:  # what it raises when a download fails, or its terms were not accepted, has no one type
            reason = " ".join(str(e).split()) or type(e).__name__
            raise InputError(f"ir_datasets cannot give this data set ({reason})", file=name) from None
        with suppress(OSError):  # another process was faster
            written.rename(folder)
    if not folder.is_dir():
        raise InputError(f"the data set cannot be written to {folder}; set XDG_CACHE_HOME", file=name)


def split_of(name: str) -> str:
    """The name of the split whose judgements a data set has: the last part of its name.

    >>> split_of("irds:msmarco-passage/dev/small"), split_of("irds:vaswani")
    ('small', 'test')
    """
    _, slash, last = name.rpartition("/")
    return last if slash else "test"


def _record(item: Any) -> dict[str, Any]:
    """A document or a query as BEIR's layout has it: an id, a text, and its other fields of plain values."""
    fields = {key: value for key, value in item._asdict().items() if key not in _ID_FIELDS and _is_plain(value)}
    number = next(getattr(item, key) for key in _ID_FIELDS if hasattr(item, key))
    return {"_id": number, **fields, "text": fields["text"] if "text" in fields else item.default_text()}


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool)


def _write_records(file: Path, records: Iterable[dict[str, Any]]) -> None:
    with file.open("wb") as out, zstandard.ZstdCompressor().stream_writer(out) as packed:
        for record in records:
            packed.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
