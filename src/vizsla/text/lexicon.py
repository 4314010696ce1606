"""A lexicon turns many texts into term numbers, fast: the batch side of an analyzer.

Kernels number the words of many texts by their surface form, in hash tables that live across calls. So whatever is done
to a word (lower case, stemming, stop words) is done once per form, not once per word. Threads may number words at the
same time: none of them changes the tables, and new forms are added afterwards, by one at a time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, Protocol, overload

import numpy as np

from vizsla.kernels import njit
from vizsla.text import scan
from vizsla.text.filters import TokenFilter, is_bigrams
from vizsla.text.plain_forms import LEFT, PlainSteps
from vizsla.text.term_table import TermTable, utf8
from vizsla.text.tokenizers import Tokenizer, Trigrams, Words
from vizsla.text.words import CODE_POINTS, PLAIN, is_cjk_class, is_unspaced_class, word_classes

# Where `_number_words` stands, so that it can go on after the table of new forms has been enlarged.
_TEXT, _POSITION, _WORDS, _NEW, _LAST, _ALONE = range(6)
_NONE = -2  # no character that the next one may be neighbour of
_SHORT = 7  # characters of a form whose key is the form itself
_HASH_SEED, _HASH_FACTOR = 0xCBF29CE484222325, 0x100000001B3  # FNV-1a, over code points
_KEY_FACTOR = 0x9E3779B97F4A7C15
_NO_FORMS = np.zeros(0, np.int64)

# How a word is cut further, said of each character that begins it or is in it: not at all; into pairs of neighbours;
# left to Python, since a filter changes its characters; into pieces of three, in scripts without spaces.
_WHOLE, _PAIRED, _CHANGED, _IN_PIECES = range(4)
_JAMO = ((0x1100, 0x1200), (0xA960, 0xA980), (0xD7B0, 0xD800))
"""Parts of Korean characters, which become one where they stand together."""
_NO_CUTS = np.zeros(0, np.uint8)

_MAX_KEPT = 16 << 20  # bytes of a lexicon of queries
_MAX_LEXICONS = 16


class TermAnalyzer(Protocol):
    """What a lexicon needs of an analyzer."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def works_word_by_word(self) -> bool: ...

    @property
    def cuts(self) -> np.ndarray | None: ...

    def __call__(self, text: str) -> list[str]: ...

    @property
    def plain_steps(self) -> PlainSteps | None: ...

    def terms_of_words(self, words: Sequence[str]) -> tuple[list[str], list[int]]: ...


def cuts_of(tokenizer: Tokenizer, filters: Sequence[TokenFilter]) -> np.ndarray | None:
    """The numbers of all characters for an analyzer, none if words are not cut; None if kernels cannot cut for it.

    >>> from vizsla.text import Analyzer
    >>> cuts = Analyzer.parse("cjk").cuts
    >>> [int(cuts[ord(c)]) for c in "a中ｶ"], len(Analyzer.parse("lucene-english").cuts), Analyzer.parse("code").cuts
    ([0, 1, 2], 0, array([], dtype=uint8))
    """
    if tokenizer.segmenter is None:
        return None
    if type(tokenizer) is Trigrams and all(step.of_characters for step in filters):
        return _pieces()
    if all(step.terms is not None for step in filters):
        return _NO_CUTS
    places = [i for i, step in enumerate(filters) if step.terms is None]
    before = tuple(filters[: places[0]])
    if type(tokenizer) is not Words or len(places) > 1 or not is_bigrams(filters[places[0]]):
        return None
    return _pairs(before) if all(step.of_characters for step in before) else None


@lru_cache(1)
def _pieces() -> np.ndarray:
    cuts = np.zeros(CODE_POINTS, np.uint8)
    cuts[is_unspaced_class()[word_classes()[0]]] = _IN_PIECES
    return cuts


@lru_cache(8)
def _pairs(filters: tuple[TokenFilter, ...]) -> np.ndarray:
    """Numbers for bigrams behind filters; what these change is left to them, such as half-width katakana."""
    codes = np.flatnonzero(is_cjk_class()[word_classes()[0]])
    characters = [chr(c) for c in codes.tolist()]
    changed: Sequence[str | None] = characters
    for step in filters:
        assert step.terms is not None
        changed = step.terms([c or "" for c in changed])
    cuts = np.zeros(CODE_POINTS, np.uint8)
    cuts[codes] = [_PAIRED if a == b else _CHANGED for a, b in zip(characters, changed, strict=True)]
    for first, end in _JAMO:
        cuts[first:end] = _CHANGED
    return cuts


class Lexicon:
    """The terms an analyzer has met so far, numbered in order of first sight; it only grows.

    If the analyzer works word by word, several threads may encode texts at a time.

    >>> from vizsla.text import Analyzer
    >>> lexicon = Lexicon(Analyzer.parse("lucene-english"))
    >>> numbers, ends = lexicon.encode(["The dogs run", "a running dog"])
    >>> numbers.tolist(), ends.tolist(), lexicon.terms
    ([0, 1, 1, 0], [2, 4], ['dog', 'run'])
    """

    def __init__(self, analyzer: TermAnalyzer) -> None:
        self.analyzer = analyzer
        self.table = TermTable()
        self.terms = self.table.terms
        self._forms = None if analyzer.cuts is None else _Forms(analyzer, self.table, analyzer.cuts)

    @property
    def bytes(self) -> int:
        """About how much memory its words and terms take."""
        return self.table.bytes + (0 if self._forms is None else self._forms.bytes)

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The term numbers of all texts in one array, and where each text's end in it."""
        if self._forms is not None:
            return self._terms(self._forms, *_code_points(texts), keep_dropped=False)
        rows = [self.analyzer(text) for text in texts]
        ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
        return self.numbers([term for row in rows for term in row]), ends

    def count(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How often each term occurs in each text, as CSR rows: pointers, term numbers, counts."""
        if self._forms is not None:
            return self.count_code_points(*_code_points(texts))
        numbers, ends = self.encode(texts)
        return scan.count_numbers(numbers, ends, len(self.terms))

    def count_code_points(self, codes: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As `count`, of texts as code points: text i is codes[bounds[i]:bounds[i + 1]]. Needs `cuts`."""
        assert self._forms is not None
        numbered, left = self._forms.number(codes, bounds)
        if not len(left):
            return numbered.counts(len(self.terms))
        terms, ends = self._with_left(*numbered.terms(keep_dropped=False), left, codes, bounds)
        return scan.count_numbers(terms, ends, len(self.terms))

    def _terms(
        self, forms: _Forms, codes: np.ndarray, bounds: np.ndarray, *, keep_dropped: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        numbered, left = forms.number(codes, bounds)
        return self._with_left(*numbered.terms(keep_dropped=keep_dropped), left, codes, bounds)

    def _with_left(
        self, terms: np.ndarray, ends: np.ndarray, left: np.ndarray, codes: np.ndarray, bounds: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The terms of all texts, given those of the texts that kernels could cut; `left` are the others."""
        if not len(left):
            return terms, ends
        texts = _texts(codes, np.stack((bounds[left], bounds[left + 1]), axis=1))
        rows = [self.analyzer(text) for text in texts]
        sizes = np.zeros(len(ends), np.int64)
        sizes[left] = list(map(len, rows))
        numbers = self.numbers([term for row in rows for term in row])
        return np.insert(terms, np.repeat(ends[left], sizes[left]), numbers), ends + np.cumsum(sizes)

    def sequences(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `encode`, with -1 in the place of each word that the analyzer drops, such as a stop word.

        An analyzer that does not work word by word gives no -1 for dropped words.

        >>> from vizsla.text import Analyzer
        >>> Lexicon(Analyzer.parse("lucene-english")).sequences(["state of the art"])[0].tolist()
        [0, -1, -1, 1]
        """
        if self._forms is None:
            return self.encode(texts)
        return self._terms(self._forms, *_code_points(texts), keep_dropped=self.analyzer.works_word_by_word)

    def numbers(self, terms: Sequence[str]) -> np.ndarray:
        """The numbers of terms; an unknown one gets the next number."""
        return self.table.numbers(terms)


@dataclass(frozen=True, eq=False)
class CountedTexts(Sequence[dict[str, float]]):
    """How often each term occurs in each text, in the order of first occurrence; kernels have counted them.

    Text i has the terms numbers[pointers[i]:pointers[i + 1]] of the lexicon.

    >>> from vizsla.text import Analyzer
    >>> CountedTexts.of(Analyzer.parse("lucene-english"), ["A dog barks", "dogs eat dogs"])[1]
    {'dog': 2.0, 'eat': 1.0}
    """

    lexicon: Lexicon
    pointers: np.ndarray
    numbers: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, analyzer: TermAnalyzer, texts: Sequence[str]) -> CountedTexts:
        """Count the terms of queries, with a lexicon that is kept, since queries share words."""
        lexicon = _lexicons.get(id(analyzer))
        if lexicon is None or lexicon.bytes > _MAX_KEPT:
            if len(_lexicons) >= _MAX_LEXICONS:
                _lexicons.clear()
            lexicon = _lexicons[id(analyzer)] = Lexicon(analyzer)
        return cls(lexicon, *lexicon.count(texts))

    def __len__(self) -> int:
        return len(self.pointers) - 1

    @overload
    def __getitem__(self, at: int) -> dict[str, float]: ...
    @overload
    def __getitem__(self, at: slice) -> list[dict[str, float]]: ...
    def __getitem__(self, at: int | slice) -> dict[str, float] | list[dict[str, float]]:
        if isinstance(at, slice):
            return [self[i] for i in range(len(self))[at]]
        i = range(len(self))[at]
        a, z = self.pointers[i], self.pointers[i + 1]
        terms = [self.lexicon.terms[n] for n in self.numbers[a:z].tolist()]
        return dict(zip(terms, self.counts[a:z].astype(np.float64).tolist(), strict=True))


_lexicons: dict[int, Lexicon] = {}
"""Lexicons of queries by the id() of their analyzer, which they keep alive."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lexicons.clear)  # another thread may have held the lock of one


def _code_points(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Texts as code points, end to end, and where each begins and ends."""
    bounds = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=bounds[1:])
    return scan.code_points("".join(texts)), bounds


class _Table(NamedTuple):
    """A hash table of forms, as `_number_words` reads it."""

    shorts: np.ndarray
    slots: np.ndarray
    arena: np.ndarray


class _Forms:
    """The distinct surface forms of words met so far, and the terms each becomes.

    The scanning kernel numbers words by form; only forms that are new go through the analyzer's filters, in
    one batch. English text has about one new form in a hundred words, soon far fewer.

    Several threads may number words at a time. They read the table while one of them, which holds the lock, adds forms
    to it. A thread that does not see a form yet treats it as new, and looks it up again under the lock.
    """

    def __init__(self, analyzer: TermAnalyzer, terms: TermTable, cuts: np.ndarray) -> None:
        segmenter = analyzer.tokenizer.segmenter
        assert segmenter is not None
        self._analyzer = analyzer
        self._terms = terms
        self._segmenter = segmenter
        self._plain = analyzer.plain_steps
        self._cuts = cuts
        self._lock = threading.Lock()
        self._table = _Table(
            np.zeros((1 << 15, 2), np.uint64), np.zeros(1 << 15, np.uint64), np.zeros(1 << 18, np.uint32)
        )
        self._shorts = 0  # forms with a key
        self._used = 1  # of the arena; no form has the place 0
        self._count = 0
        self._pieces = np.zeros(1 << 15, np.int32)
        self._piece_ends = np.zeros((1 << 15) + 1, np.int64)
        self._most = 0

    @property
    def bytes(self) -> int:
        """About how much memory the forms take."""
        return 32 * self._count + 4 * self._used

    def number(self, codes: np.ndarray, bounds: np.ndarray) -> tuple[scan.NumberedWords, np.ndarray]:
        """The words of texts as form numbers; new forms are added, so that the terms of all forms are known.

        Also the texts that are left to the analyzer itself; they have no words here.
        """
        words, ends = np.empty(codes.size, np.int32), np.empty(bounds.size - 1, np.int64)
        left, state = np.zeros(bounds.size - 1, np.bool_), np.array([0, 0, 0, 0, _NONE, 0], np.int64)
        slots, tags, places = (
            np.zeros(1 << 12, np.int32),
            np.zeros(1 << 11, np.uint32),
            np.zeros((1 << 11, 2), np.int64),
        )
        s, a, table = self._segmenter, self._segmenter.automaton, self._table
        while not _number_words(
            codes, bounds, s.plain, s.classes, a.transitions, a.accepting, s.longest, self._cuts, *table,
            slots, tags, places, state, words, ends, left,
        ):  # fmt: skip
            tags, places, slots = _doubled(tags), _doubled(places), np.zeros(2 * slots.size, np.int32)
            _fill_new_slots(tags, int(state[_NEW]), slots)
        count = int(state[_NEW])
        if count:
            with self._lock:
                new = self._added(codes, places[:count], tags[:count])
                pieces, piece_ends, most = self._pieces, self._piece_ends, self._most
        else:  # the pieces of all forms were there before the forms
            new, pieces, piece_ends, most = _NO_FORMS, self._pieces, self._piece_ends, self._most
        numbered = scan.NumberedWords(words[: int(state[_WORDS])], ends, new, pieces, piece_ends, most)
        return numbered, np.flatnonzero(left)

    def _added(self, codes: np.ndarray, places: np.ndarray, tags: np.ndarray) -> np.ndarray:
        """The numbers of forms at some places; those that are not known yet are added with their terms."""
        keys, numbers = np.empty(len(tags), np.uint64), np.empty(len(tags), np.int64)
        _find_forms(codes, places, tags, *self._table, keys, numbers)
        chosen = np.flatnonzero(numbers < 0)
        if len(chosen):
            new = places[chosen]
            self._add_pieces(*self._terms_of(codes, new))
            self._make_room(int(np.count_nonzero(keys[chosen])), len(new), int((new[:, 1] - new[:, 0]).sum()))
            self._used = _add_forms(codes, places, tags, keys, chosen, self._count, self._used, *self._table)
            numbers[chosen] = np.arange(self._count, self._count + len(chosen))
            self._count += len(chosen)
        return numbers

    def _terms_of(self, codes: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the terms of forms, and how many terms each form has."""
        if self._plain is None:
            terms, counts = self._analyzer.terms_of_words(_texts(codes, places))
            return self._terms.numbers(terms), np.array(counts, np.int64)
        letters, sizes = self._plain.change(codes, places)
        own = np.flatnonzero(sizes >= 0)
        data, bounds, order = letters, np.append(0, np.cumsum(sizes[own])), None
        sums = (sizes >= 0).astype(np.int64)
        left = np.flatnonzero(sizes == LEFT)
        if len(left):  # their terms come behind the others and are numbered in the order of the forms
            terms, counts = self._analyzer.terms_of_words(_texts(codes, places[left]))
            sums[left] = counts
            others, ends = utf8(terms)
            data, bounds = np.concatenate([data, others]), np.append(bounds, bounds[-1] + ends[1:])
            order = np.argsort(np.concatenate([own, np.repeat(left, counts)]), kind="stable")
        return self._terms.numbers_of(data, bounds, order), sums

    def _add_pieces(self, numbers: np.ndarray, counts: np.ndarray) -> None:
        """Store the terms of the next forms."""
        used, end = int(self._piece_ends[self._count]), self._count + len(counts)
        while self._pieces.size < used + numbers.size:
            self._pieces = _doubled(self._pieces)
        while self._piece_ends.size < end + 1:
            self._piece_ends = _doubled(self._piece_ends)
        self._pieces[used : used + numbers.size] = numbers
        self._piece_ends[self._count + 1 : end + 1] = used + np.cumsum(counts)
        self._most = max(self._most, int(counts.max()))

    def _make_room(self, short: int, forms: int, characters: int) -> None:
        """Have room for more forms, `short` of them with a key.

        Threads that are reading keep the old tables. They do not see forms that are added to the new arena, since their
        old slots do not refer to them.
        """
        shorts, slots, arena = self._table
        self._shorts += short
        if 2 * self._shorts > len(shorts):
            shorts = np.zeros((_size_for(self._shorts), 2), np.uint64)
            _fill_shorts(self._table.shorts, shorts)
        others, needed = self._count + forms - self._shorts, self._used + characters + 2 * forms
        if 2 * others > len(slots) or needed > len(arena):
            while needed > len(arena):
                arena = _doubled(arena)
            slots = np.zeros(max(_size_for(others), len(slots)), np.uint64)
            _fill_slots(self._table.slots, slots)
        self._table = _Table(shorts, slots, arena)


def _size_for(forms: int) -> int:
    """The size of a hash table for so many forms, or half as many more."""
    return int(1 << (3 * forms).bit_length())


def _texts(codes: np.ndarray, places: np.ndarray) -> list[str]:
    """The texts at some places."""
    sizes = places[:, 1] - places[:, 0]
    ends = np.cumsum(sizes)
    rows = np.arange(ends[-1]) + np.repeat(places[:, 0] - (ends - sizes), sizes)
    text, cuts = codes[rows].tobytes().decode("utf-32-le", "surrogatepass"), [0, *ends.tolist()]
    return [text[a:b] for a, b in pairwise(cuts)]


def _doubled(array: np.ndarray) -> np.ndarray:
    out = np.zeros((2 * len(array), *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    return out


# Kernels


@njit
def _next_form(codes, at, end, plain, classes, transitions, accepting, longest):
    """As `next_word`, and also returns the key of the word; runs of plain characters in one state take a fast path.

    The key of a word of up to seven plain characters is its length and its characters, a byte each; other words have
    the key 0.
    """
    while at < end:
        state = np.int64(1)
        key, found = np.uint64(0), np.uint64(0)
        match = x = at
        units, wide = 0, False
        while x < end:
            c = codes[x]
            if c < PLAIN:
                state = np.int64(plain[state, c])
            else:
                state = np.int64(transitions[state, classes[c]])
                wide = True
            if state == 0:
                break
            units += 2 if c > 0xFFFF else 1
            if units > longest:
                break
            key = key << np.uint64(8) | np.uint64(c)
            x += 1
            first, stop = x, min(end, x + longest - units)
            while x < stop and codes[x] < PLAIN and plain[state, codes[x]] == state:
                key = key << np.uint64(8) | np.uint64(codes[x])
                x += 1
            units += x - first
            if accepting[state]:
                match = x
                found = np.uint64(0) if wide else key
        if match > at:
            size = match - at
            return (
                at,
                match,
                found | np.uint64(size) << np.uint64(56) if found != 0 and size <= _SHORT else np.uint64(0),
            )
        at += 1
    return end, end, np.uint64(0)


@njit
def _key_of(codes, at, stop):
    """The key of a form, as `_next_form` gives it."""
    key = np.uint64(0)
    if stop - at > _SHORT:
        return key
    for x in range(at, stop):
        if codes[x] >= PLAIN:
            return np.uint64(0)
        key = key << np.uint64(8) | np.uint64(codes[x])
    return key | np.uint64(stop - at) << np.uint64(56) if key != 0 else key


@njit
def _tag_of(codes, at, stop, key):
    """The hash of a form in 32 bits."""
    if key != 0:
        return np.uint32(key * np.uint64(_KEY_FACTOR) >> np.uint64(32))
    h = np.uint64(_HASH_SEED)
    for x in range(at, stop):
        h = (h ^ np.uint64(codes[x])) * np.uint64(_HASH_FACTOR)
    return np.uint32((h ^ (h >> np.uint64(32))) & np.uint64(0xFFFFFFFF))


@njit
def _same(codes, at, stop, others, start):
    for x in range(stop - at):
        if others[start + x] != codes[at + x]:
            return False
    return True


@njit
def _find_form(codes, at, stop, key, tag, shorts, slots, arena):
    """The number of a known form; -1 if it is not found. Another thread may add forms at the same time.

    Its writes may become visible in any order: a form that is only partly visible counts as not found.
    """
    if key != 0:
        mask = shorts.shape[0] - 1
        slot = np.int64(tag) & mask
        while shorts[slot, 0] != 0:
            if shorts[slot, 0] == key:
                return np.int64(shorts[slot, 1]) - 1
            slot = (slot + 1) & mask
        return np.int64(-1)
    mask = slots.size - 1
    slot = np.int64(tag) & mask
    entry = slots[slot]
    while entry != 0:
        if entry >> np.uint64(32) == tag:
            place = np.int64(entry & np.uint64(0xFFFFFFFF))
            form = np.int64(arena[place])
            if form != 0 and arena[place + 1] == stop - at and _same(codes, at, stop, arena, place + 2):
                return form - 1
        slot = (slot + 1) & mask
        entry = slots[slot]
    return np.int64(-1)


@njit(
    "const uint32[:], const int64[:], const uint8[:,:], const uint8[:], const uint8[:,:], const bool[:], int64, "
    "const uint8[:], const uint64[:,:], const uint64[:], const uint32[:], int32[:], uint32[:], int64[:,:], int64[:], "
    "int32[:], int64[:], bool[:]"
)
def _number_words(
    codes, bounds, plain, classes, transitions, accepting, longest, cuts, shorts, slots, arena,
    new_slots, new_hashes, new_places, state, words, ends, left,
):  # fmt: skip
    """Write the form numbers of all words of all texts to `words`; text i's words end at `ends[i]`.

    A form with a key is in `shorts`, an open-addressing hash table of keys and numbers + 1 (0: free). Others lie in
    `arena` as their number + 1, their length and their characters; `slots` is a hash table of hashes, in the upper 32
    bits, and places in the arena. A form that is not in there is new: form n of the new ones has the number -1 - n, its
    first place in `codes` is in `new_places`, and `new_slots` is a hash table of n + 1. Returns False when that one is
    full: enlarge it and call again with the same state.

    `cuts` says of each character how its word is cut further, see `cuts_of`; a text in which this cannot be done
    here is noted in `left` and has no words.
    """
    text, position, count = state[_TEXT], state[_POSITION], state[_WORDS]
    while text < bounds.size - 1:
        end = bounds[text + 1]
        at, stop, key = _next_form(codes, position, end, plain, classes, transitions, accepting, longest)
        while at < stop:
            kind = _WHOLE if cuts.size == 0 else _kind_of(codes, at, stop, cuts)
            if kind == _WHOLE and state[_ALONE] == 0:
                if 2 * (state[_NEW] + 1) > new_slots.size:
                    state[_TEXT], state[_POSITION], state[_WORDS] = text, at, count
                    return False
                words[count] = _form_of(
                    codes, at, stop, key, shorts, slots, arena, new_slots, new_hashes, new_places, state
                )
                count += 1
                state[_LAST] = _NONE
            elif kind == _CHANGED:
                left[text] = True
                count = 0 if text == 0 else ends[text - 1]
                state[_LAST], state[_ALONE] = _NONE, 0
                stop = end
            else:
                if 2 * (state[_NEW] + stop - at + 1) > new_slots.size:
                    state[_TEXT], state[_POSITION], state[_WORDS] = text, at, count
                    return False
                count = _cut_word(
                    codes, at, stop, kind, shorts, slots, arena, new_slots, new_hashes, new_places, state, words, count
                )
            at, stop, key = _next_form(codes, stop, end, plain, classes, transitions, accepting, longest)
        if state[_ALONE] != 0:
            if 2 * (state[_NEW] + 1) > new_slots.size:
                state[_TEXT], state[_POSITION], state[_WORDS] = text, end, count
                return False
            at = state[_LAST]
            words[count] = _piece(codes, at, at + 1, shorts, slots, arena, new_slots, new_hashes, new_places, state)
            count += 1
        state[_LAST], state[_ALONE] = _NONE, 0
        ends[text] = count
        text += 1
        position = end
    state[_TEXT], state[_POSITION], state[_WORDS] = text, position, count
    return True


@njit
def _kind_of(codes, at, stop, cuts):
    """How a word is cut."""
    first = np.int64(cuts[codes[at]])
    if first == _IN_PIECES:
        return np.int64(_IN_PIECES if stop - at > 3 else _WHOLE)
    found = first
    for x in range(at + 1, stop):
        kind = np.int64(cuts[codes[x]])
        if kind != first:
            found = max(found, kind, np.int64(_CHANGED if first == _PAIRED or kind == _PAIRED else _WHOLE))
    return np.int64(_WHOLE) if found == _IN_PIECES else found


@njit
def _cut_word(
    codes, at, stop, kind, shorts, slots, arena, new_slots, new_hashes, new_places, state, words, count
):  # fmt: skip
    """Write the forms of a word that is cut, and of a character before it that is in no pair; returns their end."""
    if state[_ALONE] != 0 and (kind != _PAIRED or state[_LAST] + 1 != at):
        last = state[_LAST]
        words[count] = _piece(codes, last, last + 1, shorts, slots, arena, new_slots, new_hashes, new_places, state)
        count += 1
        state[_ALONE] = 0
    if kind != _PAIRED:
        size = stop - at if kind == _WHOLE else np.int64(3)
        for x in range(at, stop - size + 1):
            words[count] = _piece(codes, x, x + size, shorts, slots, arena, new_slots, new_hashes, new_places, state)
            count += 1
        state[_LAST] = _NONE
        return count
    first = at
    if state[_LAST] + 1 != at:
        first = at + 1
        state[_ALONE] = 1
    for x in range(first, stop):
        words[count] = _piece(codes, x - 1, x + 1, shorts, slots, arena, new_slots, new_hashes, new_places, state)
        count += 1
        state[_ALONE] = 0
    state[_LAST] = stop - 1
    return count


@njit
def _piece(codes, at, stop, shorts, slots, arena, new_slots, new_hashes, new_places, state):
    """The number of a form that is cut here."""
    key = _key_of(codes, at, stop)
    return _form_of(codes, at, stop, key, shorts, slots, arena, new_slots, new_hashes, new_places, state)


@njit
def _form_of(codes, at, stop, key, shorts, slots, arena, new_slots, new_hashes, new_places, state):
    """The number of a form, which becomes one of the new ones if it is not known; there must be room for it."""
    tag = _tag_of(codes, at, stop, key)
    form = _find_form(codes, at, stop, key, tag, shorts, slots, arena)
    if form >= 0:
        return form
    new = state[_NEW]
    form = -1 - _find_new(codes, at, stop, tag, new_slots, new_hashes, new_places, new)
    if form == -1 - new:
        new_hashes[new], new_places[new, 0], new_places[new, 1] = tag, at, stop
        state[_NEW] = new + 1
        _put(tag, new + 1, new_slots)
    return form


@njit
def _find_new(codes, at, stop, tag, slots, hashes, places, count):
    """The place of a form among the new ones; `count`, how many there are, if it is not there."""
    mask = slots.size - 1
    slot = np.int64(tag) & mask
    while slots[slot] != 0:
        n = np.int64(slots[slot]) - 1
        size = places[n, 1] - places[n, 0]
        if hashes[n] == tag and size == stop - at and _same(codes, at, stop, codes, places[n, 0]):
            return n
        slot = (slot + 1) & mask
    return count


@njit(
    "const uint32[:], const int64[:,:], const uint32[:], const uint64[:,:], const uint64[:], const uint32[:], "
    "uint64[:], int64[:]"
)
def _find_forms(codes, places, tags, shorts, slots, arena, keys, numbers):
    """Put the keys of forms at some places into `keys`, and their numbers into `numbers`, -1 for each not known."""
    for n in range(numbers.size):
        at, stop = places[n, 0], places[n, 1]
        keys[n] = _key_of(codes, at, stop)
        numbers[n] = _find_form(codes, at, stop, keys[n], tags[n], shorts, slots, arena)


@njit
def _put(tag, value, slots):
    """Put a value into the first free slot for a hash."""
    mask = slots.size - 1
    slot = np.int64(tag) & mask
    while slots[slot] != 0:
        slot = (slot + 1) & mask
    slots[slot] = value


@njit
def _put_short(tag, key, value, shorts):
    mask = shorts.shape[0] - 1
    slot = np.int64(tag) & mask
    while shorts[slot, 0] != 0:
        slot = (slot + 1) & mask
    shorts[slot, 1] = value
    shorts[slot, 0] = key


@njit(
    "const uint32[:], const int64[:,:], const uint32[:], const uint64[:], const int64[:], int64, int64, uint64[:,:], "
    "uint64[:], uint32[:]"
)
def _add_forms(codes, places, tags, keys, chosen, first, used, shorts, slots, arena):
    """Add the chosen forms to tables with enough room; their numbers count up from `first`. Returns what is used."""
    for x in range(chosen.size):
        n = chosen[x]
        if keys[n] != 0:
            _put_short(tags[n], keys[n], first + x + 1, shorts)
            continue
        at, stop = places[n, 0], places[n, 1]
        for i in range(stop - at):
            arena[used + 2 + i] = codes[at + i]
        arena[used + 1] = stop - at
        arena[used] = first + x + 1
        _put(tags[n], np.uint64(tags[n]) << np.uint64(32) | np.uint64(used), slots)
        used += 2 + stop - at
    return used


@njit("const uint64[:,:], uint64[:,:]")
def _fill_shorts(old, shorts):
    """Fill an empty hash table of forms with keys from another one."""
    for x in range(old.shape[0]):
        if old[x, 0] != 0:
            tag = np.uint32(old[x, 0] * np.uint64(_KEY_FACTOR) >> np.uint64(32))
            _put_short(tag, old[x, 0], old[x, 1], shorts)


@njit("const uint64[:], uint64[:]")
def _fill_slots(old, slots):
    """Fill an empty hash table of other forms from another one."""
    for x in range(old.size):
        if old[x] != 0:
            _put(np.uint32(old[x] >> np.uint64(32)), old[x], slots)


@njit("const uint32[:], int64, int32[:]")
def _fill_new_slots(hashes, count, slots):
    """Fill an empty hash table of new forms."""
    for n in range(count):
        _put(hashes[n], n + 1, slots)
