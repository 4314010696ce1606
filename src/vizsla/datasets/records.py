"""Documents and changes of documents as a program gives them: mappings, rather than files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vizsla.datasets.files import InputFile, is_pipe, spool
from vizsla.datasets.formats.json import read_json_records
from vizsla.datasets.raw_lines import RawLines
from vizsla.datasets.skipped import Skipped
from vizsla.datasets.values import plain_content
from vizsla.errors import InputError, VizslaError, kind_of
from vizsla.runs.documents import USUAL_NAMES, Document, Origin, document_id, refusal

BATCH = "documents"
"""How messages name the documents of a program."""


def documents_from(items: Iterable[Any], skipped: Skipped | None = None) -> Iterator[Document | RawLines]:
    """Documents from the mappings or documents of a program; raw lines are passed through.

    With `skipped`, what is no document is noted there, with its number, and left out.
    """
    records = records_of_program(items)
    return map(_document_from, records) if skipped is None else _good_documents(records, skipped)


def records_of_program(items: Iterable[Any]) -> Iterable[Any]:
    """The records that a program gives, if it gives several."""
    if isinstance(items, str | Path):
        message = f"documents come as a list or another iterable; for a file, read_documents({str(items)!r})"
        raise InputError(message)
    if isinstance(items, Mapping | Document) or not isinstance(items, Iterable):
        raise InputError("documents come as a list or another iterable, not as a single one")
    if hasattr(items, "to_dict"):
        raise InputError("documents come as a list of records; for a pandas table pass table.to_dict('records')")
    return items


def changes_by_id(items: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """The fields to change of documents, by id; of several changes of a field the last one counts.

    >>> changes_by_id([{"id": 1, "year": 1999, "lang": "en"}, {"_id": "1", "year": 2001}])
    {'1': {'year': 2001, 'lang': 'en'}}
    """
    changes: dict[str, dict[str, Any]] = {}
    for doc_id, fields in (change_from(item) for item in records_of_program(items)):
        changes.setdefault(doc_id, {}).update(fields)
    return changes


def changed_fields(source: str | Path) -> Iterator[Document]:
    """The changes of documents in a file of JSON, each with the id and the fields that change; errors name the line."""
    name, piped = str(source), is_pipe(source)
    path = spool(source) if piped else Path(source)
    try:
        for line, record in read_json_records(InputFile(path, name)):
            yield Document(*change_from(record, Origin(name, line)))
    finally:
        if piped:
            path.unlink(missing_ok=True)


def change_from(record: object, origin: Origin | None = None) -> tuple[str, dict[str, Any]]:
    """The id of a document, and the fields of it that change, which keep the names that they are given."""
    if isinstance(record, Document):
        return record.id, dict(record.content)
    if not isinstance(record, Mapping):
        raise refusal(f"expected a JSON object with an id and the fields that change, not {kind_of(record)}", origin)
    key = USUAL_NAMES.resolve(record).id
    if key is None:
        raise refusal("a change of a document needs its id, under _id or id", origin)
    return document_id(record[key], origin), {name: value for name, value in record.items() if name != key}


def _good_documents(items: Iterable[Any], skipped: Skipped) -> Iterator[Document | RawLines]:
    for number, item in enumerate(items, 1):
        try:
            document = _document_from(item)
        except VizslaError as e:
            problem = e.problem if isinstance(e, InputError) else str(e)
            skipped.add(InputError(problem, file=BATCH, line=number))
            continue
        yield document


def _checked(document: Document) -> Document:
    """A document of a program, checked by the same rules as a document from a file."""
    return replace(document, id=document_id(document.id), content=plain_content(document.content))


def _document_from(item: Any) -> Document | RawLines:
    if isinstance(item, RawLines):
        return item
    try:
        if isinstance(item, Document):
            return item if item.origin is not None else _checked(item)
        return Document.from_record(plain_content(item) if isinstance(item, Mapping) else item)
    except RecursionError:
        raise InputError("a document is nested too deeply") from None
