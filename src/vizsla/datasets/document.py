"""Documents as they come in: an id, and a JSON object of whatever there is to know."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
    """What a source calls the id, the text and the title; None: whichever usual name is there.

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
        """The names as a source with these keys has them; None for what it does not have. One field is one thing."""
        there = set(keys)
        taken = {self.id, self.text, self.title}

        def choose(given: str | None, usual: tuple[str, ...]) -> str | None:
            if given is not None:
                return given if given in there else None
            chosen = next((name for name in usual if name in there and name not in taken), None)
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
    """The same, remembered: the records of a source have few sets of keys."""
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

    @classmethod
    def from_record(cls, record: Any, origin: Origin | None = None, names: FieldNames = USUAL) -> Document:
        """A document from a JSON object, its id, text and title under the names given or under usual ones."""
        if isinstance(record, Document):
            return record
        if not isinstance(record, Mapping):
            raise refusal(f"expected a JSON object with an id and a text, not {kind_of(record)}", origin)
        found = _found(names, tuple(record))
        if found.id is None:
            expected = f"{names.id!r}" if names.id else "'_id' or 'id'"
            raise refusal(f"the document has no id; expected a field {expected}", origin)
        content = {key: value for key, value in record.items() if key != found.id}
        for name, standard in ((found.text, "text"), (found.title, "title")):
            if name is not None and name != standard:
                content.pop(name, None)
                content[standard] = record[name]
        return cls(document_id(record[found.id], origin), content, origin)

    def __getitem__(self, key: str) -> Any:
        return self.content[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.content.get(key, default)


def document_id(value: Any, origin: Origin | None = None) -> str:
    """An id as it is stored: a text as it is, a whole number as its digits; anything else is refused.

    >>> document_id("007"), document_id(7)
    ('007', '7')
    """
    if isinstance(value, Integral) and not isinstance(value, bool) and abs(int(value)) < _MOST_NUMBER:
        return str(int(value))
    if not isinstance(value, str) or not value:
        raise refusal(f"the id must be a text or a whole number, not {kind_of(value)}", origin)
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise refusal(f"the id {value!a} has half a surrogate pair, which cannot be stored", origin) from None
    return str.__str__(value)  # a subclass of str, such as numpy's, becomes a plain one


def refusal(message: str, origin: Origin | None) -> InputError:
    """The error for a document that cannot be taken."""
    return InputError(message, file=origin.file if origin else None, line=origin.line if origin else None)
