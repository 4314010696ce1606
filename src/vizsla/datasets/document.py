"""Documents as they come in: an id, and a JSON object of whatever there is to know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vizsla.errors import InputError, kind_of

ID_KEYS = ("_id", "id")


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
            raise refusal(f"expected a JSON object with an id and a text, not {kind_of(record)}", origin)
        content = dict(record)
        found = [content.pop(key) for key in ID_KEYS if key in content]
        if not found:
            raise refusal("the document has no id; expected a field '_id' or 'id'", origin)
        doc_id = str(found[0]) if isinstance(found[0], int) and not isinstance(found[0], bool) else found[0]
        if not isinstance(doc_id, str) or not doc_id:
            raise refusal(f"the id must be a text or a whole number, not {kind_of(found[0])}", origin)
        if "text" not in content and "contents" in content:
            content["text"] = content.pop("contents")
        return cls(doc_id, content, origin)

    def __getitem__(self, key: str) -> Any:
        return self.content[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.content.get(key, default)


def refusal(message: str, origin: Origin | None) -> InputError:
    """The error for a document that cannot be taken."""
    return InputError(message, file=origin.file if origin else None, line=origin.line if origin else None)


def documents_from(records: Iterable[Any]) -> Iterator[Document]:
    """Documents from mappings or documents, as a program has them."""
    return map(Document.from_record, records)
