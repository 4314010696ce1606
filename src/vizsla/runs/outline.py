"""Headings and pages of a text, which a document carries as its field `outline`, and the place of a passage in them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

OUTLINE = "outline"
"""The field of a document that holds its outline."""
DOCUMENT_TEXT = "document_text"
"""The field in which a model reads the whole document of a passage, with its title. No document stores it."""
LEVELS = 9
"""The number of levels that headings may have."""
_KEYS = {"headings", "pages", "first_page", "offset", "before"}
_BLANK = " "


class Heading(NamedTuple):
    """A heading: where it begins in the text, its level from 1, and its words."""

    offset: int
    level: int
    text: str


@dataclass(frozen=True)
class Outline:
    """Where headings and pages begin in a text, as offsets in characters.

    >>> outline = Outline((Heading(0, 1, "Dogs"), Heading(40, 2, "Barking")), pages=(0, 35))
    >>> outline.page_at(38), outline.headings_at(45)
    (2, ('Dogs', 'Barking'))
    """

    headings: tuple[Heading, ...] = ()
    pages: tuple[int, ...] = ()
    first_page: int = 1
    """The number of the first page of `pages`."""
    offset: int = 0
    """Where the text begins in the text that it was cut from."""
    before: str = _BLANK
    """The white space before it there, back to the passage before."""

    @classmethod
    def of(cls, value: object) -> Outline | None:
        """The outline in a field of a document; None if it holds anything else.

        >>> Outline.of({"headings": [[0, 1, "Dogs"]]}).headings_at(5), Outline.of("III, 17")
        (('Dogs',), None)
        """
        if not isinstance(value, Mapping) or not value.keys() <= _KEYS:
            return None
        headings, pages = value.get("headings", ()), value.get("pages", ())
        numbers = value.get("first_page", 1), value.get("offset", 0)
        before = value.get("before", _BLANK)
        if not isinstance(before, str) or before.strip():
            return None
        if not isinstance(headings, list | tuple) or not isinstance(pages, list | tuple):
            return None
        if not all(type(number) is int for number in (*pages, *numbers)) or not all(map(_is_heading, headings)):
            return None
        found = tuple(Heading(*entry) for entry in headings)
        if not _ascending(pages) or not _ascending([heading.offset for heading in found]):
            return None
        return cls(found, tuple(pages), *numbers, before)

    def as_field(self) -> dict[str, Any]:
        """The value of the field `outline`, plain JSON."""
        value: dict[str, Any] = {}
        if self.headings:
            value["headings"] = [list(heading) for heading in self.headings]
        if self.pages:
            value["pages"] = list(self.pages)
        if self.first_page != 1:
            value["first_page"] = self.first_page
        if self.offset:
            value["offset"] = self.offset
        if self.before != _BLANK:
            value["before"] = self.before
        return value

    def page_at(self, offset: int) -> int | None:
        """The number of the page that a place of the text is on; None if there are no pages."""
        if not self.pages:
            return None
        return self.first_page + max(bisect_right(self.pages, offset) - 1, 0)

    def headings_at(self, offset: int) -> tuple[str, ...]:
        """The headings that a place of the text stands under, the outermost first."""
        return tuple(heading.text for heading in self._open_at(offset))

    def _open_at(self, offset: int) -> list[Heading]:
        above: list[Heading] = []
        for heading in self.headings:
            if heading.offset > offset:
                break
            while above and above[-1].level >= heading.level:
                above.pop()
            above.append(heading)
        return above

    def cut(self, start: int, end: int, before: str = _BLANK) -> Outline:
        """The outline of a part of the text. Headings above the part have negative offsets.

        `before`: the white space before it, back to the part before.

        >>> Outline((Heading(0, 1, "Dogs"),), pages=(0, 35)).cut(38, 60).as_field()
        {'headings': [[-38, 1, 'Dogs']], 'pages': [-3], 'first_page': 2, 'offset': 38}
        """
        inside = [heading for heading in self.headings if start < heading.offset < end]
        headings = [heading._replace(offset=heading.offset - start) for heading in (*self._open_at(start), *inside)]
        if not self.pages:
            return Outline(tuple(headings), offset=self.offset + start, before=before)
        first = max(bisect_right(self.pages, start) - 1, 0)
        pages = [page - start for page in self.pages[first:] if page < end]
        return Outline(tuple(headings), tuple(pages), self.first_page + first, self.offset + start, before)


def _is_heading(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 3
        and type(value[0]) is int
        and type(value[1]) is int
        and 1 <= value[1] <= LEVELS
        and isinstance(value[2], str)
    )


def _ascending(offsets: Any) -> bool:
    return all(a <= b for a, b in pairwise(offsets))


@dataclass(frozen=True)
class Place:
    """Where a text stands: its headings, its pages, and its characters in the document that it was cut from.

    >>> place = Place(("Vizsla", "Care"), (3, 4), 120, 870)
    >>> str(place), place.page
    ('Vizsla > Care, pages 3 to 4', 3)
    """

    breadcrumb: tuple[str, ...] = ()
    """The title of the document and the headings above the first word, the outermost first."""
    pages: tuple[int, int] | None = None
    """The numbers of the first and the last page; None if there are no pages."""
    start: int = 0
    """Where the text begins in the text of the document, in characters."""
    end: int = 0

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Place:
        """The place of a document or a passage with these fields.

        >>> Place.of({"title": "Dogs", "text": "They bark.", "outline": {"offset": 40, "headings": [[-9, 2, "Noise"]]}})
        Place(breadcrumb=('Dogs', 'Noise'), pages=None, start=40, end=50)
        """
        title, text = content.get("title"), content.get("text")
        outline = Outline.of(content.get(OUTLINE)) or Outline()
        length = len(text) if isinstance(text, str) else 0
        above = [title, *outline.headings_at(0)] if isinstance(title, str) and title else [*outline.headings_at(0)]
        if len(above) > 1 and above[0] == above[1]:
            del above[0]
        first, last = outline.page_at(0), outline.page_at(max(length - 1, 0))
        pages = None if first is None or last is None else (first, last)
        return cls(tuple(above), pages, outline.offset, outline.offset + length)

    @property
    def page(self) -> int | None:
        """The number of the first page; None if there are no pages."""
        return None if self.pages is None else self.pages[0]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON.

        >>> Place(("Vizsla",), None, 0, 9).as_dict()
        {'breadcrumb': ['Vizsla'], 'start': 0, 'end': 9}
        """
        pages = {} if self.pages is None else {"pages": list(self.pages)}
        return {"breadcrumb": list(self.breadcrumb), **pages, "start": self.start, "end": self.end}

    def __str__(self) -> str:
        pages = []
        if self.pages is not None:
            first, last = self.pages
            pages = [f"page {first}" if first == last else f"pages {first} to {last}"]
        return ", ".join([*([" > ".join(self.breadcrumb)] if self.breadcrumb else []), *pages])
