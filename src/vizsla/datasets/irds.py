"""Data sets of the package ir_datasets by name: `irds:beir/scifact/test`.

Such a data set is written once to the user's cache in BEIR's layout and read from there. It can therefore be used
wherever a source of documents, a file of queries or a data set is expected, and by several processes. `irds:NAME#FIELD`
names the field that is the text of queries, as in `irds:disks45/nocr/trec-robust-2004#title`.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from vizsla.cache import cache_folder
from vizsla.errors import InputError, MissingPackageError

SCHEME = "irds:"
_VERSION = "2"  # of the written files; increment it when they change
_BEIR_QUERIES = {"trec-robust04": "description", "disks45/nocr/trec-robust-2004": "description"}
"""The query field that BEIR uses, for data sets in which ir_datasets has another default."""


def beir_folder(source: str | Path) -> Path:
    """The given path, or for `irds:NAME` the folder with the data set in BEIR's layout.

    >>> beir_folder("data/scifact").name
    'scifact'
    """
    name = str(source)
    if not name.startswith(SCHEME):
        return Path(source)
    key, field = _key_and_field(name)
    dataset = _load(name, key)
    folder = cache_folder("irds") / _VERSION / re.sub(r"[^\w.-]+", "-", f"{key}#{field}").strip("-")
    if not folder.is_dir():
        _write(dataset, name, folder)
    return folder


def _key_and_field(name: str) -> tuple[str, str]:
    """The name of a data set in ir_datasets, and the field that is the text of its queries; empty for the usual one.

    >>> _key_and_field("irds:trec-robust04/fold1"), _key_and_field("irds:trec-robust04#title")
    (('trec-robust04/fold1', 'description'), ('trec-robust04', 'title'))
    """
    key, _, field = name.removeprefix(SCHEME).partition("#")
    of_beir = next((theirs for known, theirs in _BEIR_QUERIES.items() if f"{key}/".startswith(f"{known}/")), "")
    return key, field or of_beir


def _load(name: str, key: str) -> Any:
    try:
        import ir_datasets
    except ImportError:
        raise MissingPackageError(
            f'{name}: this needs the package ir_datasets; install it with: pip install "vizsla[ir-datasets]"'
        ) from None
    try:
        return ir_datasets.load(key)
    except KeyError:
        raise InputError("ir_datasets has no data set of this name; its site lists them", file=name) from None


def _write(dataset: Any, name: str, folder: Path) -> None:
    """Write a data set to a temporary folder first, so that it appears complete or not at all."""
    has = {part: getattr(dataset, f"has_{part}")() for part in ("docs", "queries", "qrels")}
    if not any(has.values()):
        raise InputError("this data set has neither documents nor queries; name a part of it", file=name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent) as made:
        written = Path(made, folder.name)
        (written / "qrels").mkdir(parents=True)
        try:
            if has["docs"]:
                _write_records(written / "corpus.jsonl.gz", map(_document, dataset.docs_iter()))
            if has["queries"]:
                _write_records(written / "queries.jsonl.gz", _queries(dataset, name, has["docs"]))
            if has["qrels"]:
                rows = (f"{q.query_id}\t{q.doc_id}\t{q.relevance}\n" for q in dataset.qrels_iter())
                with (written / "qrels" / f"{split_of(name)}.tsv").open("w", encoding="utf-8") as file:
                    file.writelines(["query-id\tcorpus-id\tscore\n", *rows])
        except InputError:
            raise
        except Exception as e:  # errors of failed downloads and unaccepted terms have no common type
            reason = " ".join(str(e).split()) or type(e).__name__
            raise InputError(f"ir_datasets cannot provide this data set ({reason})", file=name) from None
        with suppress(OSError):  # another process was faster
            written.rename(folder)
    if not folder.is_dir():
        raise InputError(f"the data set cannot be written to {folder}; set XDG_CACHE_HOME", file=name)


def split_of(name: str) -> str:
    """The name of the split whose judgements a data set has: the last part of its name.

    >>> split_of("irds:msmarco-passage/dev/small"), split_of("irds:vaswani")
    ('small', 'test')
    """
    _, slash, last = name.partition("#")[0].rpartition("/")
    return last if slash else "test"


def _document(item: Any) -> dict[str, Any]:
    """A document as BEIR's layout has it: an id, a text, and its other fields of plain values."""
    fields = _plain_fields(item, "doc_id")
    if "text" not in fields:
        both = "title" in fields and "body" in fields  # otherwise the text would repeat the title
        fields["text"] = fields.pop("body") if both else item.default_text()
    return {"_id": item.doc_id, **fields}


def _queries(dataset: Any, name: str, has_documents: bool) -> Iterator[dict[str, Any]]:
    """The queries as BEIR's layout has them. Where a query is a document, as in TREC-NEWS, its text is the title."""
    _, field = _key_and_field(name)
    for item in dataset.queries_iter():
        fields = _plain_fields(item, "query_id")
        if field and not isinstance(fields.get(field), str):
            known = ", ".join(key for key, value in fields.items() if isinstance(value, str))
            raise InputError(f"its queries have no text {field!r}; they have {known}", file=name)
        if field or "text" in fields:
            text = fields[field or "text"]
        elif hasattr(item, "default_text"):
            text = item.default_text()
        elif has_documents and hasattr(item, "doc_id"):
            text = dataset.docs_store().get(item.doc_id).title or ""
        else:
            known = ", ".join(fields)
            raise InputError(
                f"its queries have no text, only {known}; name one of these, as in {SCHEME}NAME#FIELD", file=name
            )
        yield {"_id": item.query_id, **fields, "text": text}


def _plain_fields(item: Any, id_field: str) -> dict[str, Any]:
    return {key: value for key, value in item._asdict().items() if key != id_field and _is_plain(value)}


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool)


def _write_records(file: Path, records: Iterable[dict[str, Any]]) -> None:
    with gzip.open(file, "wb", compresslevel=1) as packed:
        for record in records:
            packed.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
