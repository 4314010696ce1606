"""Documents: an id and a JSON object of fields."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from numbers import Integral
from typing import Any, NamedTuple

from vizsla.errors import InputError, kind_of

_MAX_ID = 10**100  # Python refuses to print numbers of more than 4,300 digits; ids are far shorter


class Origin(NamedTuple):
    """The file and the line of a document, for messages."""

    file: str
    line: int


@dataclass(frozen=True)
class FieldNames:
    """The names of the id, the text and the title in a source; None stands for any of the usual names.

    >>> FieldNames().resolve(["docno", "body", "year"])
    FieldNames(id='docno', text='body', title=None)
    """

    id: str | None = None
    text: str | None = None
    title: str | None = None

    USUAL_IDS = ("_id", "id", "docid", "doc_id", "docno", "pid", "uid")
    USUAL_TEXTS = ("text", "contents", "content", "body", "passage", "abstract")
    USUAL_TITLES = ("title", "headline", "name")

    def resolve(self, keys: Iterable[str]) -> FieldNames:
        """The names in a source with these keys; None if it lacks the field. No key is used twice."""
        present = set(keys)
        used = {self.id, self.text, self.title}

        def choose(name: str | None, usual: tuple[str, ...]) -> str | None:
            if name is not None:
                return name if name in present else None
            chosen = next((other for other in usual if other in present and other not in used), None)
            used.add(chosen)
            return chosen

        return FieldNames(
            choose(self.id, self.USUAL_IDS),
            choose(self.text, self.USUAL_TEXTS),
            choose(self.title, self.USUAL_TITLES),
        )


USUAL_NAMES = FieldNames()


@functools.lru_cache(1024)
def _resolved(names: FieldNames, keys: tuple[str, ...]) -> FieldNames:
    """`names.resolve(keys)`, cached, since the records of a source have few different sets of keys."""
    return names.resolve(keys)


@dataclass(frozen=True)
class Document:
    """A document: its id, and its fields by name, texts and anything else that a search should return.

    >>> document = Document.from_record({"_id": "7", "title": "Dogs", "contents": "Dogs bark.", "year": 1999})
    >>> document.id, document["text"], document.get("year")
    ('7', 'Dogs bark.', 1999)
    """

    id: str
    content: Mapping[str, Any]
    origin: Origin | None = field(default=None, compare=False, repr=False)
    source_names: FieldNames | None = field(default=None, compare=False, repr=False)
    """The names of the id, the text and the title in its source."""

    @classmethod
    def from_record(cls, record: object, origin: Origin | None = None, names: FieldNames = USUAL_NAMES) -> Document:
        """A document from a JSON object; `names` says which keys hold the id, the text and the title.

        A record with a text and no id gets a hash of its content as id (`content_id`).
        """
        if isinstance(record, Document):
            return record
        if not isinstance(record, Mapping):
            raise refusal(f"expected a JSON object with an id and a text, not {kind_of(record)}", origin)
        resolved = _resolved(names, tuple(record))
        if resolved.id is None and (names.id is not None or resolved.text is None):
            raise refusal(f"the document has no id; {_expected_id(names, record)}", origin)
        if resolved.text in (None, "text") and resolved.title in (None, "title"):
            content = {key: value for key, value in record.items() if key != resolved.id}
        else:
            content = _renamed(record, resolved)
        own = content_id(record, origin) if resolved.id is None else document_id(record[resolved.id], origin)
        return cls(own, content, origin, resolved)

    def with_fields(self, fields: Collection[str]) -> Document:
        """The document for a model that reads these fields.

        A field that was renamed to `text` or `title`, or taken as the id, gets its own name back if the model reads it.

        >>> document = Document.from_record({"id": "1", "body": "Dogs bark."})
        >>> dict(document.content), dict(document.with_fields(["body"]).content)
        ({'text': 'Dogs bark.'}, {'body': 'Dogs bark.'})
        """
        names = self.source_names
        if names is None:
            return self
        renamed = ((names.text, "text"), (names.title, "title"))
        back = {standard: name for name, standard in renamed if name and name in fields and standard not in fields}
        if not back and names.id not in fields:
            return self
        content = {back.get(key, key): value for key, value in self.content.items()}
        if names.id is not None and names.id in fields:
            content[names.id] = self.id
        return replace(self, content=content)

    def __getitem__(self, key: str) -> Any:
        return self.content[key]

    def get(self, key: str, default: Any = None) -> Any:
        """A field, or a default if the document has no such field."""
        return self.content.get(key, default)


def _renamed(record: Mapping[str, Any], source: FieldNames) -> dict[str, Any]:
    """A record without its id, with its text and title under the names `text` and `title`."""
    names = {name: standard for name, standard in ((source.text, "text"), (source.title, "title")) if name is not None}
    hidden = {key for key in names.values() if key not in names}
    return {names.get(k, k): value for k, value in record.items() if k != source.id and k not in hidden}


def document_id(value: object, origin: Origin | None = None) -> str:
    """The stored form of an id: a text as it is, a whole number as its digits; anything else is refused.

    >>> document_id("007"), document_id(7)
    ('007', '7')
    """
    if not isinstance(value, bool) and isinstance(value, Integral) and abs(int(value)) < _MAX_ID:
        return str(int(value))
    if not isinstance(value, str) or not value:
        raise refusal(f"the id must be a text or a whole number, not {kind_of(value)}", origin)
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise refusal(f"the id {value!a} has half a surrogate pair, which cannot be stored", origin) from None
    return str.__str__(value)  # a subclass of str, such as numpy's, becomes a plain one


def content_id(record: Mapping[str, Any], origin: Origin | None = None) -> str:
    """The id of a document that has a text and no id: a hash of all that it holds, so that the same has the same id.

    >>> content_id({"text": "Dogs bark."})
    'e7fe959810f15d52bd161e62513e986e'
    """
    try:
        plain = json.dumps(record, ensure_ascii=False, sort_keys=True).encode()
    except (TypeError, ValueError, RecursionError) as e:
        raise refusal(f"the document has no id, and cannot be stored as JSON ({e})", origin) from None
    return hashlib.blake2b(plain, digest_size=16).hexdigest()


_MAX_LISTED = 12


def listed(names: Iterable[object]) -> str:
    """The first dozen of some names, quoted and separated by commas, for a message."""
    shown = [repr(str(name)) for name in islice(names, _MAX_LISTED + 1)]
    return ", ".join([*shown[:_MAX_LISTED], "..."] if len(shown) > _MAX_LISTED else shown)


def _expected_id(names: FieldNames, record: Mapping[str, Any]) -> str:
    expected = f"{names.id!r}" if names.id else "'_id' or 'id'"
    among = f" among its fields {listed(record)}; name it with --id-field, or in Python call it 'id'" if record else ""
    return f"expected a field {expected}{among}"


def refusal(message: str, origin: Origin | None) -> InputError:
    """The error for a document that cannot be indexed; it names the document's file and line."""
    return InputError(message, file=origin.file if origin else None, line=origin.line if origin else None)
