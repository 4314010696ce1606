"""The scanning kernels: text as code points in, words out, a few nanoseconds a character.

Two loops over the same automaton. `find_words` gives the places of the words of one text, for offsets.
`number_words` numbers the words of many texts by their surface form in a hash table that lives across calls,
so that whatever is done to a word (lower case, stemming, stop words) is done once per form, not once per word.
"""

from __future__ import annotations

import numpy as np

from vizsla.kernels import njit_no_alloc
from vizsla.text.words import Segmenter


def code_points(text: str) -> np.ndarray:
    """A text as an array of code points; a lone surrogate stays what it is."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


@njit_no_alloc
def next_word(codes, at, end, classes, transitions, accepting, longest):
    """The first word at or after `at`, as (start, end); (end, end) without a word."""
    while at < end:
        state = transitions[1, classes[codes[at]]]
        match = at
        x = at
        units = 0
        while state != 0:
            units += 2 if codes[x] > 0xFFFF else 1
            if units > longest:
                break
            x += 1
            if accepting[state]:
                match = x
            if x == end:
                break
            state = transitions[state, classes[codes[x]]]
        if match > at:
            return at, match
        at += 1
    return end, end


@njit_no_alloc
def _find_words(codes, classes, transitions, accepting, longest, places):
    """Put the places of all words into `places`; returns how many there are."""
    count = 0
    at, end = next_word(codes, 0, codes.size, classes, transitions, accepting, longest)
    while at < end:
        places[count, 0] = at
        places[count, 1] = end
        count += 1
        at, end = next_word(codes, end, codes.size, classes, transitions, accepting, longest)
    return count


def find_words(text: str, segmenter: Segmenter) -> list[list[int]]:
    """The places of the words of a text, as [start, end] in characters.

    >>> from vizsla.text.words import standard
    >>> find_words("Don't panic!", standard())
    [[0, 5], [6, 11]]
    """
    a, codes = segmenter.automaton, code_points(text)
    places = np.empty((codes.size, 2), np.int64)
    count = _find_words(codes, segmenter.classes, a.transitions, a.accepting, segmenter.longest, places)
    return places[:count].tolist()  # type: ignore[no-any-return]


# Where number_words stands, so that it can go on after its tables have been enlarged.
TEXT, POSITION, WORDS, FORMS, USED = range(5)


@njit_no_alloc
def form_hash(codes, at, stop):
    """FNV-1a over code points, folded to 32 bits."""
    h = np.uint64(0xCBF29CE484222325)
    for x in range(at, stop):
        h = (h ^ np.uint64(codes[x])) * np.uint64(0x100000001B3)
    return np.uint32((h ^ (h >> np.uint64(32))) & np.uint64(0xFFFFFFFF))


@njit_no_alloc
def same_form(codes, at, stop, arena, start, end):
    if end - start != stop - at:
        return False
    for x in range(stop - at):
        if arena[start + x] != codes[at + x]:
            return False
    return True


@njit_no_alloc
def number_words(
    codes, bounds, classes, transitions, accepting, longest, slots, hashes, starts, arena, state, words, ends
):
    """Write the form numbers of all words of all texts to `words`; text i's words end at `ends[i]`.

    A form's characters lie at arena[starts[f]:starts[f + 1]]; `slots` is an open-addressing hash table of
    f + 1 (0: free). Returns False when a table is full: enlarge it and call again with the same state.
    """
    mask = slots.size - 1
    text, position, count, forms, used = state[TEXT], state[POSITION], state[WORDS], state[FORMS], state[USED]
    room = True
    while room and text < bounds.size - 1:
        end = bounds[text + 1]
        at, stop = next_word(codes, position, end, classes, transitions, accepting, longest)
        while at < stop:
            tag = form_hash(codes, at, stop)
            slot = np.int64(tag) & mask
            while slots[slot] != 0:
                form = slots[slot] - 1
                if hashes[form] == tag and same_form(codes, at, stop, arena, starts[form], starts[form + 1]):
                    break
                slot = (slot + 1) & mask
            if slots[slot] == 0:
                if 2 * (forms + 1) > slots.size or used + (stop - at) > arena.size:
                    room = False
                    break
                for x in range(at, stop):
                    arena[used + x - at] = codes[x]
                used += stop - at
                hashes[forms] = tag
                forms += 1
                starts[forms] = used
                slots[slot] = forms
            words[count] = slots[slot] - 1
            count += 1
            at, stop = next_word(codes, stop, end, classes, transitions, accepting, longest)
        if room:
            ends[text] = count
            text += 1
        position = at
    state[TEXT], state[POSITION], state[WORDS], state[FORMS], state[USED] = text, position, count, forms, used
    return room


@njit_no_alloc
def rehash(hashes, count, slots):
    """Fill an empty, larger hash table with the known forms."""
    mask = slots.size - 1
    for f in range(count):
        slot = np.int64(hashes[f]) & mask
        while slots[slot] != 0:
            slot = (slot + 1) & mask
        slots[slot] = f + 1


@njit_no_alloc
def _count_terms(words, piece_ends, keep_dropped):
    """How many terms the forms of words have; a form without terms counts as one with `keep_dropped`."""
    total = 0
    for x in range(words.size):
        count = piece_ends[words[x] + 1] - piece_ends[words[x]]
        total += max(count, 1) if keep_dropped else count
    return total


@njit_no_alloc
def _replace_forms(words, ends, pieces, piece_ends, keep_dropped, out, out_ends):
    n = 0
    at = 0
    for i in range(ends.size):
        while at < ends[i]:
            f = words[at]
            if keep_dropped and piece_ends[f] == piece_ends[f + 1]:
                out[n] = -1
                n += 1
            for x in range(piece_ends[f], piece_ends[f + 1]):
                out[n] = pieces[x]
                n += 1
            at += 1
        out_ends[i] = n


def replace_forms(
    words: np.ndarray, ends: np.ndarray, pieces: np.ndarray, piece_ends: np.ndarray, *, keep_dropped: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Replace every form by its terms, which may be 0, 1 or several. Returns the terms and where each text's end.

    With `keep_dropped`, a form without terms becomes -1, so that the others keep their distance.
    """
    out, out_ends = np.empty(_count_terms(words, piece_ends, keep_dropped), np.int32), np.empty(ends.size, np.int64)
    _replace_forms(words, ends, pieces, piece_ends, keep_dropped, out, out_ends)
    return out, out_ends


@njit_no_alloc
def _count_numbers(numbers, ends, place, pointers, indices, counts):
    used = 0
    at = 0
    for i in range(ends.size):
        row = used
        while at < ends[i]:
            n = numbers[at]
            p = place[n]
            if p < row:
                place[n] = used
                indices[used] = n
                counts[used] = 1
                used += 1
            else:
                counts[p] += 1
            at += 1
        pointers[i + 1] = used
    return used


def count_numbers(numbers: np.ndarray, ends: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How often each number below `size` occurs in each text: CSR rows in order of first occurrence.

    >>> pointers, indices, counts = count_numbers(np.array([3, 0, 3], np.int32), np.array([2, 3]), 4)
    >>> pointers.tolist(), indices.tolist(), counts.tolist()
    ([0, 2, 3], [3, 0, 3], [1, 1, 1])
    """
    pointers = np.zeros(ends.size + 1, np.int64)
    indices, counts = np.empty((2, numbers.size), np.int32)
    used = _count_numbers(numbers, ends, np.full(size, -1, np.int64), pointers, indices, counts)
    return pointers, indices[:used].copy(), counts[:used].copy()
