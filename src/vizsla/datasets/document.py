"""Documents as they come in: an id, and a JSON object of whatever there is to know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vizsla.errors import InputError

ID_KEYS = ("_id", "id")
TEXT_KEYS = ("text", "contents")


class Origin(NamedTuple):
    """Where a document was read, for messages."""

    file: str
    line: int


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
    def from_record(cls, record: Any, origin: Origin | None = None) -> Document:
        """A document from a JSON object with the id under `_id` or `id`; `contents` is another name for `text`."""
        if isinstance(record, Document):
            return record
        if not isinstance(record, Mapping):
            raise refusal(f"expected a JSON object with an id and a text, not {_kind(record)}", origin)
        content = dict(record)
        found = [content.pop(key) for key in ID_KEYS if key in content]
        if not found:
            raise refusal("the document has no id; expected a field '_id' or 'id'", origin)
        doc_id = str(found[0]) if isinstance(found[0], int) and not isinstance(found[0], bool) else found[0]
        if not isinstance(doc_id, str) or not doc_id:
            raise refusal(f"the id must be a text or a whole number, not {_kind(found[0])}", origin)
        if "text" not in content and "contents" in content:
            content["text"] = content.pop("contents")
        return cls(doc_id, content, origin)

    def __getitem__(self, key: str) -> Any:
        return self.content[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.content.get(key, default)

    def texts(self, fields: Iterable[str]) -> dict[str, str]:
        """The texts of these fields, for a model to read; every document needs at least `text`, if it is asked for."""
        fields = list(fields)
        texts: dict[str, str] = {}
        for name in fields:
            value = self.content.get(name)
            if value is None:
                continue
            if not isinstance(value, str):
                raise refusal(f"the field {name!r} must be a text, not {_kind(value)}", self.origin)
            texts[name] = value
        needed = ["text"] if "text" in fields else fields
        if not any(name in texts for name in needed):
            names = " or ".join(repr(n) for n in (TEXT_KEYS if needed == ["text"] else needed))
            raise refusal(f"the document {self.id!r} has no text; expected a field {names}", self.origin)
        return texts


def refusal(message: str, origin: Origin | None) -> InputError:
    """The error for a document that cannot be taken."""
    return InputError(message, file=origin.file if origin else None, line=origin.line if origin else None)


def documents_from(records: Iterable[Any]) -> Iterator[Document]:
    """Documents from mappings or documents, as a program has them."""
    return map(Document.from_record, records)


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "an empty text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), f"the number {value}" if isinstance(value, int | float) else type(value).__name__)
