"""The lines of a PDF's pages to paragraphs: reading order of columns, headers and footers, hyphens, headings.

It works on lines with their places, whoever found them. Coordinates are PDF's: points, from the bottom left.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from vizsla.datasets.source_format import MAX_HEADING, TextBuilder

HYPHEN = "\x02"
"""A hyphen at the end of a line that divides a word, as pdfium marks it."""
_APART = 1.2  # the widths of a letter's height that part two segments of a line
_MIDDLE = (0.3, 0.7)  # where the space between two columns may be, as shares of the page's text
_LEAST_ALTERNATIONS = 8  # of two columns that were drawn line by line
_FILLED = 0.6  # how much of its column a line fills, on the median; cells of a table fill less
_CROSSING = 0.3  # the share of lines that may reach over both columns: titles and figures
_LARGE = 1.15  # letters of a heading, by the size of most letters
_SPACED = 1.4  # the distance of lines in two paragraphs, by that within one
_REPEATED = 3  # pages that have the same line at the same place, before it is a header or a footer
_OUTER = 2  # lines at the top and at the bottom that may be headers and footers
_BAND = 4.0  # points
_SHARED_BAND = 0.4  # the share of pages with headers at a height, above which all lines at it are headers

_NUMBER = re.compile(r"\d+|\b[ivxlc]+\b")
_ITEM = re.compile(r"[•‣◦▪●○■–—*·-]\s|\(?(?:\d{1,2}|[a-z])[.)]\s")
_NUMBERED = re.compile(r"(\d{1,2}(?:\.\d{1,2}){0,4})\.?\s+[A-Z]")
_SENTENCE_END = (".", "!", "?", ":", ";", "”", '"', ")")
_LEADERS = re.compile(r"(?:\s?[.\u2026\u00b7]){4,}")  # between a title and its page in a table of contents
_WORDS = re.compile(r"[^\W\d_]+(?:[-\u2010][^\W\d_]+)*")
_LAST_WORD = re.compile(r"([^\W\d_]+(?:[-\u2010][^\W\d_]+)*)[-\u2010\u00ad\x02]$")
_FIRST_WORD = re.compile(r"[^\W\d_]+")


@dataclass
class Line:
    """A line of a page, or a segment of one: its text and its place."""

    text: str
    left: float
    bottom: float
    right: float
    top: float
    bold: bool = False

    @property
    def size(self) -> float:
        """The height of its letters."""
        return self.top - self.bottom

    def stands_beside(self, other: Line) -> bool:
        """Whether both are at the same height."""
        common = min(self.top, other.top) - max(self.bottom, other.bottom)
        return common > 0.5 * min(self.size, other.size)


@dataclass
class Mark:
    """A bookmark: a heading on a page, at a height if it is known."""

    level: int
    text: str
    top: float | None = None


@dataclass
class PageLines:
    """The lines of a page in reading order, and its bookmarks."""

    lines: list[Line]
    marks: list[Mark] = field(default_factory=list)


def in_reading_order(segments: Sequence[Line]) -> list[Line]:
    """The segments of a page as lines. Two columns that were drawn line by line are read one after the other.

    Otherwise the order is that of the file, which is how its author's program read the page.
    """
    gutter = _gutter(segments)
    if gutter is None:
        return _joined(segments)
    ordered: list[Line] = []
    columns: tuple[list[Line], list[Line]] = ([], [])

    def end_band() -> None:
        for column in columns:
            ordered.extend(_joined(sorted(column, key=lambda line: -line.top)))
            column.clear()

    for line in sorted(segments, key=lambda line: -line.top):
        if line.left < gutter < line.right:
            end_band()
            ordered.append(line)
        else:
            columns[line.left >= gutter].append(line)
    end_band()
    return ordered


def _gutter(segments: Sequence[Line]) -> float | None:
    """Where the space between two columns is that were drawn line by line; None if there are none."""
    if len(segments) < 2 * _LEAST_ALTERNATIONS:
        return None
    left, right = min(s.left for s in segments), max(s.right for s in segments)
    width = right - left
    edges = sorted({s.right + 0.5 for s in segments if _MIDDLE[0] < (s.right - left) / max(width, 1) < _MIDDLE[1]})
    if not edges:
        return None
    sampled = edges[:: max(len(edges) // 40, 1)]
    crossing = {x: sum(s.left < x < s.right for s in segments) for x in sampled}
    gutter = min(sampled, key=lambda x: (crossing[x], -x))
    if crossing[gutter] > _CROSSING * len(segments):
        return None
    sides = [s.left >= gutter for s in segments if not s.left < gutter < s.right]
    alternations = sum(a != b for a, b in pairwise(sides))
    if alternations < _LEAST_ALTERNATIONS or alternations < 0.5 * len(sides):
        return None
    first = [s.right - s.left for s in segments if s.right <= gutter]
    second = [s.right - s.left for s in segments if s.left >= gutter]
    if not first or not second:
        return None
    filled = median(first) > _FILLED * (gutter - left) and median(second) > _FILLED * (right - gutter)
    return gutter if filled else None


def _joined(segments: Iterable[Line]) -> list[Line]:
    """Segments that stand beside each other as one line."""
    lines: list[Line] = []
    for segment in segments:
        last = lines[-1] if lines else None
        if last is not None and segment.left >= last.right - 1 and last.stands_beside(segment):
            lines[-1] = Line(
                f"{last.text} {segment.text}", last.left, min(last.bottom, segment.bottom), segment.right,
                max(last.top, segment.top), last.bold and segment.bold,
            )  # fmt: skip
        else:
            lines.append(segment)
    return lines


def part_at_gaps(gap: float, size: float) -> bool:
    """Whether a gap between two letters parts two segments."""
    return gap > _APART * size or gap < -2 * size


def without_repeated(pages: Sequence[PageLines]) -> None:
    """Drop headers and footers: lines at the top or the bottom that other pages have at the same place.

    Numbers in them may differ. Where many pages have such a line at one height, others at this height are dropped, too:
    they name another chapter.
    """
    counted: Counter[tuple[str, int]] = Counter()
    candidates: list[tuple[list[Line], list[Line]]] = []
    for page in pages:
        by_height = sorted(page.lines, key=lambda line: -line.top)
        top, foot = by_height[:_OUTER], by_height[_OUTER:][: -_OUTER - 1 : -1]
        candidates.append((top, foot))
        counted.update({key for line in (*top, *foot) for key in _keys(line)})
    repeated = {key for key, count in counted.items() if count >= _REPEATED}
    bands: Counter[int] = Counter()
    for top, foot in candidates:
        bands.update({_band(line) for line in (*top, *foot) if any(key in repeated for key in _keys(line))})
    shared = {band for band, count in bands.items() if count >= max(_SHARED_BAND * len(pages), _REPEATED)}
    for page, (top, foot) in zip(pages, candidates, strict=True):
        dropped = set[int]()
        for side in (top, foot):  # from the edge inwards, up to the first line that stays
            for line in side:
                is_repeated = any(key in repeated for key in _keys(line))
                if not is_repeated and (_band(line) not in shared or len(line.text) > MAX_HEADING):
                    break
                dropped.add(id(line))
        page.lines = [line for line in page.lines if id(line) not in dropped]


def _band(line: Line) -> int:
    return round(line.bottom / _BAND)


def _keys(line: Line) -> list[tuple[str, int]]:
    """What makes two lines the same header: the words and, about, the height."""
    words = _NUMBER.sub("#", line.text.lower()).strip()
    return [(words, int(line.bottom / _BAND)), (words, -1 - int(line.bottom / _BAND + 0.5))]


def add_pages(pages: Sequence[PageLines], text: TextBuilder) -> str:
    """Add pages to a text; gives the words that are set largest on the first page, which are its title."""
    body = _body_size(pages)
    levels = _levels(pages, body) if not any(page.marks for page in pages) else {}
    joiner = _Paragraphs(text, _vocabulary(pages))
    for page in pages:
        joiner.begin_page()
        marks = _placed(page)
        distance = _line_distance(page.lines)
        for number, line in enumerate(page.lines):
            mark, is_heading = marks.get(number, (None, False))
            if mark is not None and is_heading:
                joiner.heading(mark.level, mark.text, line)
                continue
            if mark is not None:
                joiner.mark(mark)
            level = levels.get(_step(line.size)) if levels else None
            if level is None and levels is not None and not any(p.marks for p in pages):
                level = _numbered_level(line, body)
            if level is not None and _can_be_heading(line):
                joiner.heading(level, "", line)
            else:
                joiner.line(line, distance)
        for mark, _ in (found for number, found in marks.items() if number >= len(page.lines)):
            joiner.mark(mark)
    joiner.end()
    return _largest(pages[0].lines, body) if pages else ""


def _step(size: float) -> int:
    return round(2 * size)


def _body_size(pages: Sequence[PageLines]) -> float:
    """The size of most letters."""
    sizes: Counter[int] = Counter()
    for page in pages:
        for line in page.lines:
            sizes[_step(line.size)] += len(line.text)
    return sizes.most_common(1)[0][0] / 2 if sizes else 0.0


def _levels(pages: Sequence[PageLines], body: float) -> dict[int, int]:
    """The level of headings of each size of letters that is larger than most, where they are few."""
    sizes: Counter[int] = Counter()
    total = 0
    for page in pages:
        for line in page.lines:
            total += len(line.text)
            if line.size >= _LARGE * body and _can_be_heading(line):
                sizes[_step(line.size)] += len(line.text)
    large = sorted(size for size, count in sizes.items() if count < 0.2 * total)[::-1]
    return {size: min(level, 4) for level, size in enumerate(large, 1)}


def _can_be_heading(line: Line) -> bool:
    words = line.text.strip()
    return len(words) <= MAX_HEADING / 2 and sum(c.isalpha() for c in words) >= max(3, 0.5 * len(words))


def _numbered_level(line: Line, body: float) -> int | None:
    """The level of a numbered heading in bold letters."""
    found = _NUMBERED.match(line.text) if line.bold and line.size >= 0.95 * body else None
    return None if found is None else found[1].count(".") + 1


def _placed(page: PageLines) -> dict[int, tuple[Mark, bool]]:
    """The bookmarks of a page by the number of the line where they are, and whether this line is the heading."""
    placed: dict[int, tuple[Mark, bool]] = {}
    bare = [_bare(line.text) for line in page.lines]
    for mark in page.marks:
        words = _bare(mark.text)
        free = [(n, line) for n, line in enumerate(bare) if line and n not in placed]
        hits = [n for n, line in free if words and line.endswith(words) and len(line) < len(words) + 12]
        hits = hits or [n for n, line in free if len(line) > 12 and words.endswith(line)]
        top = mark.top
        if hits:
            best = min(hits, key=lambda n: abs(page.lines[n].top - top)) if top is not None else hits[0]
            placed[best] = mark, True
            continue
        below = (n for n, line in enumerate(page.lines) if top is None or line.bottom <= top)
        at = next((n for n in below if n not in placed), None)
        placed[len(page.lines) + len(placed) if at is None else at] = mark, False
    return placed


def _bare(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())


def _line_distance(lines: Sequence[Line]) -> float:
    """The usual distance of two lines of a page, by the height of its letters."""
    steps = [
        (a.bottom - b.bottom) / max(a.size, 1)
        for a, b in pairwise(lines)
        if 0 < a.bottom - b.bottom < 3 * a.size and _step(a.size) == _step(b.size)
    ]
    return max(median(steps), 0.9) if steps else 1.2


def _largest(lines: Sequence[Line], body: float) -> str:
    size = max((line.size for line in lines), default=0.0)
    if size < _LARGE * body:
        return ""
    words = " ".join(line.text.strip() for line in lines if line.size > 0.98 * size)
    return words if sum(c.isalpha() for c in words) > 0.5 * len(words) else ""


def _vocabulary(pages: Sequence[PageLines]) -> Counter[str]:
    """The words that stand within lines, to tell a divided word from one with a hyphen."""
    words: Counter[str] = Counter()
    for page in pages:
        for line in page.lines:
            words.update(word.lower() for word in _WORDS.findall(line.text.rstrip("-\u2010\u00ad\x02")))
    return words


class _Paragraphs:
    """Joins lines to paragraphs, over the end of a column and of a page."""

    def __init__(self, text: TextBuilder, vocabulary: Counter[str]) -> None:
        self._text = text
        self._vocabulary = vocabulary
        self._words = ""
        self._last: Line | None = None
        self._is_item = self._was_entry = False
        self._heading: tuple[int, str, list[str]] | None = None
        self._waiting: list[Mark] = []
        self._new_page = False

    def begin_page(self) -> None:
        self._end_heading()
        self._new_page = True

    def mark(self, mark: Mark) -> None:
        """A heading whose words are not on the page begins with the next line."""
        self.end()
        self._waiting.append(mark)

    def heading(self, level: int, known: str, line: Line) -> None:
        """A line that is a heading; `known`: its words, if a bookmark has them."""
        before, last = self._heading, self._last
        goes_on = before is not None and before[:2] == (level, known) == (level, "")
        if goes_on and last is not None and 0 < last.bottom - line.bottom < 2.5 * line.size:
            assert before is not None
            before[2].append(line.text)
            self._last = line
            return
        self.end()
        self._turn_page()
        self._heading = level, known, [line.text]
        self._last = line

    def line(self, line: Line, distance: float) -> None:
        """A line of a paragraph, with the usual distance of lines."""
        self._end_heading()
        words = _LEADERS.sub(" ", line.text.strip())
        is_entry = words != line.text.strip()
        if is_entry or self._words == "" or self._was_entry or self._starts_paragraph(line, distance):
            self.end()
            self._turn_page()
            self._words = words
            self._is_item = _ITEM.match(self._words) is not None
        else:
            if self._new_page and not self._words.endswith((HYPHEN, "-")):
                self._turn_page(at_end=True)
            self._words = self._join(self._words, words)
        self._last, self._was_entry = line, is_entry

    def end(self) -> None:
        """End the paragraph."""
        self._end_heading()
        words, self._words = self._words, ""
        for mark in self._waiting if words else ():
            self._text.mark(mark.level, mark.text, after=2)
        if words:
            self._waiting.clear()
        self._text.paragraph(words.replace(HYPHEN, "-"))

    def _end_heading(self) -> None:
        if self._heading is None:
            return
        level, known, lines = self._heading
        self._heading = None
        words = lines[0]
        for line in lines[1:]:
            words = self._join(words, line)
        if known and len(known) > len(words):
            words = known
        self._text.heading(level, words.replace(HYPHEN, "-"))

    def _turn_page(self, *, at_end: bool = False) -> None:
        if self._new_page:
            self._new_page = False
            self._text.page(after=len(self._words) + 1 if at_end else 0)

    def _starts_paragraph(self, line: Line, distance: float) -> bool:
        last = self._last
        if last is None or abs(_step(last.size) - _step(line.size)) > 1:
            return True
        words = line.text.strip()
        if _ITEM.match(words):
            return True
        down = last.bottom - line.bottom
        if down <= 0 or self._new_page or line.left > last.right:  # another column, another page
            return self._words.endswith(_SENTENCE_END) or not (
                words[:1].islower() or self._words.endswith((HYPHEN, "-"))
            )
        if down > _SPACED * distance * last.size:
            return True
        indented = line.left > last.left + 0.8 * line.size and not self._is_item
        short = last.right < line.right - 4 * line.size and self._words.endswith(_SENTENCE_END)
        return indented or short

    def _join(self, words: str, line: str) -> str:
        """Two lines of a paragraph as one; a word that was divided by a hyphen is one word again."""
        divided, rest = _LAST_WORD.search(words), _FIRST_WORD.match(line)
        if divided is None or rest is None:
            return words[:-1] + "-" + line if words.endswith((HYPHEN, "-")) and len(words) > 1 else f"{words} {line}"
        whole, with_hyphen = (divided[1] + rest[0]).lower(), f"{divided[1]}-{rest[0]}".lower()
        keeps = self._vocabulary[with_hyphen] > self._vocabulary[whole]
        keeps = keeps or (rest[0][0].isupper() and not self._vocabulary[whole])
        return f"{words[:-1]}-{line}" if keeps else words[:-1] + line
