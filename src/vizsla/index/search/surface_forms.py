"""The surface forms of a term, the words that it stands for: an index stores terms, and people read words.

A term can be the stem of several words, as `retriev` is of retrieval and retrieves. So the words of a term are looked
up in a sample of the documents that have it.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from vizsla.engine import Segment, rows_with_all
from vizsla.index.reading.snapshot import Snapshot
from vizsla.index.search.bound_model import SparsePart
from vizsla.models import PrecomputedVectors, SparseComponent, as_text, is_text


class SurfaceForms:
    """Finds the words of terms in the documents of one snapshot."""

    def __init__(self, snapshot: Snapshot, part: SparsePart) -> None:
        self._snapshot = snapshot
        self._part = part
        component = part.component
        self.has_pieces = cuts_words(component)
        self.knows_words = (
            snapshot.documents.has_texts
            and not isinstance(component, PrecomputedVectors)
            and bool(component.tokens("dog"))
        )
        """Whether there are texts to find words in, and terms come from words."""

    def find(self, counts: Mapping[str, int], prefix: str) -> dict[str, Counter[str]]:
        """For each term its words that begin in some way, given in lower case, and how often they were seen.

        `counts`: how many documents with each term are looked at.
        """
        blocks = [block for text in self.texts(counts) for block in _blocks_with(text, prefix)]
        found: dict[str, Counter[str]] = {term: Counter() for term in counts}
        for term, word in self.terms_in(blocks):
            if term in found and word.lower().startswith(prefix):
                found[term][word] += 1
        return found

    def texts(self, counts: Mapping[str, int]) -> Iterator[str]:
        """The texts of some documents with each term; `counts`: how many of a term."""
        part = self._part
        numbers, _ = part.statistics.terms.lookup(part.space, list(counts))
        rows: set[int] = set()
        for count, number in zip(counts.values(), numbers.tolist(), strict=True):
            rows.update(self._documents_with(number, count))
        yield from self._texts_of(rows)

    def texts_with_both(self, term: str, other: str, count: int) -> Iterator[str]:
        """The texts of some documents that have two terms of the collection."""
        numbers, _ = self._part.statistics.terms.lookup(self._part.space, list(dict.fromkeys([term, other])))
        found: list[int] = []
        for segment, alive in zip(self._snapshot.segments, self._snapshot.alive, strict=True):
            rows = rows_with_all(segment, np.ascontiguousarray(numbers))
            rows = rows if alive is None else rows[alive[rows]]
            found += segment.numbers[rows[:count]].tolist()
        yield from self._texts_of(found[:count])

    def _texts_of(self, numbers: Iterable[int]) -> Iterator[str]:
        for content in self._snapshot.documents.read_by_models(numbers).values():
            for field in self._part.component.fields:
                if is_text(value := content.get(field)):
                    yield as_text(value)

    def shown(self, words: Mapping[str, str]) -> dict[str, str]:
        """How the words of terms are shown: in lower case, unless a model takes that for another word."""
        in_lower_case = set(self.terms_in([word.lower() for word in words.values()]))
        return {term: word.lower() if (term, word.lower()) in in_lower_case else word for term, word in words.items()}

    def terms_in(self, blocks: Sequence[str]) -> Iterator[tuple[str, str]]:
        """The terms in some texts without blanks, and the words they stand for; of word pieces only whole words."""
        text = f" {' '.join(blocks)} "
        for term, start, end in self._part.component.tokens(text):
            word = text[start:end].strip()
            start = end - len(word)  # some tokenizers add the blank before a word to it
            if not self.has_pieces or not (is_of_a_word(text[start - 1]) or is_of_a_word(text[end])):
                yield term, word

    def _documents_with(self, term: int, count: int) -> list[int]:
        """The insertion numbers of some live documents that have a term, from all over the collection."""
        found: list[int] = []
        for segment, alive in zip(self._snapshot.segments, self._snapshot.alive, strict=True):
            rows = _rows_with(segment, alive, term, count)
            found += segment.numbers[rows].tolist()
        chosen = np.linspace(0, len(found) - 1, min(count, len(found))).astype(int)
        return [found[i] for i in chosen.tolist()]


def _blocks_with(text: str, prefix: str) -> Iterator[str]:
    """What stands between blanks in a text and may have a word with a prefix, which is in lower case.

    >>> list(_blocks_with("The (Dogs) bark at hot-dogs, not at underdogs.", "dog"))
    ['(Dogs)', 'hot-dogs,']
    """
    lowered = text.lower()
    if len(lowered) != len(text):  # some letters become two
        yield from (block for block in text.split() if prefix in block.lower())
        return
    at = lowered.find(prefix)
    while at >= 0:
        before = lowered[at - 1] if at else " "
        end = at + len(prefix)
        if not before.isascii() or not before.isalnum():
            start = at
            while start and not text[start - 1].isspace():
                start -= 1
            while end < len(text) and not text[end].isspace():
                end += 1
            yield text[start:end]
        at = lowered.find(prefix, end)


def cuts_words(component: SparseComponent) -> bool:
    """Whether the terms of a component are word pieces: a meaningless string then has several terms."""
    return len(component.tokens("qzxvkjwq")) > 1


def is_of_a_word(character: str) -> bool:
    """Whether a character is a letter, a digit, or a mark such as an accent."""
    return unicodedata.category(character)[0] in "LNM"


def most_frequent(words: Counter[str]) -> str:
    """The most frequent word, in whatever case; of equal ones the shortest."""
    in_lower_case: Counter[str] = Counter()
    for word, count in words.items():
        in_lower_case[word.lower()] += count
    return min(words, key=lambda w: (-in_lower_case[w.lower()], len(w), w.lower(), -words[w], w))


def _rows_with(segment: Segment, alive: np.ndarray | None, term: int, count: int) -> np.ndarray:
    """Some live rows of a segment that have a term."""
    rows = np.zeros(0, np.int64)
    for lists in (segment.small, segment.large):
        documents, _ = lists.list_of(term, len(segment))
        living = documents if alive is None else documents[alive[documents]]
        chosen = np.linspace(0, len(living) - 1, min(count, len(living))).astype(np.int64)
        rows = np.concatenate([rows, living[chosen].astype(np.int64)])
        if len(rows) >= count:
            break
    return np.sort(rows)
