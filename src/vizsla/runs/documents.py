"""Documents: an id and a JSON object of fields."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from numbers import Integral
from typing import Any, NamedTuple

from vizsla.errors import InputError, kind_of

_MOST_NUMBER = 10**100  # a number of more digits is no id, and beyond 4,300 Python refuses to write it


class Origin(NamedTuple):
    """Where a document was read, for messages."""

    file: str
    line: int


@dataclass(frozen=True)
class FieldNames:
    """What a source calls the id, the text and the title; None stands for any of the usual names.

    >>> FieldNames().found(["docno", "body", "year"])
    FieldNames(id='docno', text='body', title=None)
    """

    id: str | None = None
    text: str | None = None
    title: str | None = None

    USUAL_IDS = ("_id", "id", "docid", "doc_id", "docno", "pid", "uid")
    USUAL_TEXTS = ("text", "contents", "content", "body", "passage", "abstract")
    USUAL_TITLES = ("title", "headline", "name")

    def found(self, keys: Iterable[str]) -> FieldNames:
        """The names in a source with these keys; None for what it does not have. No field is used twice."""
        present = set(keys)
        taken = {self.id, self.text, self.title}

        def choose(given: str | None, usual: tuple[str, ...]) -> str | None:
            if given is not None:
                return given if given in present else None
            chosen = next((name for name in usual if name in present and name not in taken), None)
            taken.add(chosen)
            return chosen

        return FieldNames(
            choose(self.id, self.USUAL_IDS),
            choose(self.text, self.USUAL_TEXTS),
            choose(self.title, self.USUAL_TITLES),
        )


USUAL = FieldNames()


@functools.lru_cache(1024)
def _found(names: FieldNames, keys: tuple[str, ...]) -> FieldNames:
    """`names.found(keys)`, cached: the records of a source have few different sets of keys."""
    return names.found(keys)


@dataclass(frozen=True)
class Document:
    """An id and the content: texts under their field names, and anything else a search should give back.

    >>> document = Document.from_record({"_id": "7", "title": "Dogs", "contents": "Dogs bark.", "year": 1999})
    >>> document.id, document["text"], document.get("year")
    ('7', 'Dogs bark.', 1999)
    """

    id: str
    content: Mapping[str, Any]
    origin: Origin | None = field(default=None, compare=False, repr=False)
    found: FieldNames | None = field(default=None, compare=False, repr=False)
    """The names of the id, the text and the title in its source."""

    @classmethod
    def from_record(cls, record: object, origin: Origin | None = None, names: FieldNames = USUAL) -> Document:
        """A document from a JSON object, its id, text and title under the names given or under usual ones."""
        if isinstance(record, Document):
            return record
        if not isinstance(record, Mapping):
            raise refusal(f"expected a JSON object with an id and a text, not {kind_of(record)}", origin)
        found = _found(names, tuple(record))
        if found.id is None:
            raise refusal(f"the document has no id; {_id_wanted(names, record)}", origin)
        if found.text in (None, "text") and found.title in (None, "title"):
            content = {key: value for key, value in record.items() if key != found.id}
        else:
            content = _renamed(record, found)
        return cls(document_id(record[found.id], origin), content, origin, found)

    def with_fields(self, fields: Collection[str]) -> Document:
        """The document for a model that reads these fields.

        A field that was renamed to `text` or `title`, or taken as the id, gets its own name back if the model reads it.

        >>> document = Document.from_record({"id": "1", "body": "Dogs bark."})
        >>> dict(document.content), dict(document.with_fields(["body"]).content)
        ({'text': 'Dogs bark.'}, {'body': 'Dogs bark.'})
        """
        own = self.found
        if own is None:
            return self
        taken = ((own.text, "text"), (own.title, "title"))
        back = {standard: name for name, standard in taken if name and name in fields and standard not in fields}
        if not back and own.id not in fields:
            return self
        content = {back.get(key, key): value for key, value in self.content.items()}
        if own.id is not None and own.id in fields:
            content[own.id] = self.id
        return replace(self, content=content)

    def __getitem__(self, key: str) -> Any:
        return self.content[key]

    def get(self, key: str, default: Any = None) -> Any:
        """A field, or a default if the document has no such field."""
        return self.content.get(key, default)


def _renamed(record: Mapping[str, Any], found: FieldNames) -> dict[str, Any]:
    """A record without its id, with its text and title under the names `text` and `title`."""
    names = {name: standard for name, standard in ((found.text, "text"), (found.title, "title")) if name is not None}
    others = {key for key in names.values() if key not in names}
    return {names.get(k, k): value for k, value in record.items() if k != found.id and k not in others}


def document_id(value: object, origin: Origin | None = None) -> str:
    """An id as it is stored: a text as it is, a whole number as its digits; anything else is refused.

    >>> document_id("007"), document_id(7)
    ('007', '7')
    """
    if not isinstance(value, bool) and isinstance(value, Integral) and abs(int(value)) < _MOST_NUMBER:
        return str(int(value))
    if not isinstance(value, str) or not value:
        raise refusal(f"the id must be a text or a whole number, not {kind_of(value)}", origin)
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise refusal(f"the id {value!a} has half a surrogate pair, which cannot be stored", origin) from None
    return str.__str__(value)  # a subclass of str, such as numpy's, becomes a plain one


_MOST_NAMED = 12


def listed(names: Iterable[object]) -> str:
    """Names for a message, the first dozen of them."""
    shown = [repr(str(name)) for name in islice(names, _MOST_NAMED + 1)]
    return ", ".join([*shown[:_MOST_NAMED], "..."] if len(shown) > _MOST_NAMED else shown)


def _id_wanted(names: FieldNames, record: Mapping[str, Any]) -> str:
    wanted = f"{names.id!r}" if names.id else "'_id' or 'id'"
    among = f" among its fields {listed(record)}; name it with --id-field" if record else ""
    return f"expected a field {wanted}{among}"


def refusal(message: str, origin: Origin | None) -> InputError:
    """The error for a document that cannot be taken."""
    return InputError(message, file=origin.file if origin else None, line=origin.line if origin else None)
