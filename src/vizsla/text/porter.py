"""The original Porter stemmer, as Lucene's PorterStemFilter runs it.

M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980, with the two later departures that
Porter's own programs and Lucene carry (-bli becomes -ble, -logi becomes -log) and with words of one or two
characters left alone. The letters are UTF-16 units, as in Lucene, so that characters beyond the basic plane
count as two; anything but a, e, i, o, u and y is a consonant.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vizsla.kernels import njit
from vizsla.text.units import changed_units

_STEP_2 = (
    "ational ate,tional tion,enci ence,anci ance,izer ize,bli ble,alli al,entli ent,eli e,ousli ous,"
    "ization ize,ation ate,ator ate,alism al,iveness ive,fulness ful,ousness ous,aliti al,iviti ive,"
    "biliti ble,logi log"
)
_STEP_3 = "icate ic,ative ,alize al,iciti ic,ical ic,ful ,ness "
_STEP_4 = "al ,ance ,ence ,er ,ic ,able ,ible ,ant ,ement ,ment ,ent ,ion ,ou ,ism ,ate ,iti ,ous ,ive ,ize "


def _rules(text: str) -> np.ndarray:
    """Rules as rows of numbers: lengths of suffix and replacement, then the letters of both (8 places each)."""
    rows = []
    for rule in text.split(","):
        suffix, replacement = rule.split(" ")
        row = np.zeros(18, np.uint16)
        row[0], row[1] = len(suffix), len(replacement)
        row[2 : 2 + len(suffix)] = [ord(c) for c in suffix]
        row[10 : 10 + len(replacement)] = [ord(c) for c in replacement]
        rows.append(row)
    return np.array(rows)


_RULES_2, _RULES_3, _RULES_4 = _rules(_STEP_2), _rules(_STEP_3), _rules(_STEP_4)
_A, _E, _I, _O, _U, _Y, _S, _L, _Z, _W, _X, _D, _N, _G, _T, _B = (ord(c) for c in "aeiouyslzwxdngtb")


@njit
def _consonant(w, i):
    c = w[i]
    if c == _A or c == _E or c == _I or c == _O or c == _U:
        return False
    if c == _Y:  # a consonant at the start and after a vowel; a run of y alternates
        run = 0
        while i - run >= 0 and w[i - run] == _Y:
            run += 1
        first = i - run < 0 or not (
            w[i - run] != _A and w[i - run] != _E and w[i - run] != _I and w[i - run] != _O and w[i - run] != _U
        )
        return first == (run % 2 == 1)
    return True


@njit
def _measure(w, n):
    """How often a vowel is followed by a consonant among the first n letters: Porter's m."""
    m = 0
    vowel = False
    for i in range(n):
        consonant = _consonant(w, i)
        if consonant and vowel:
            m += 1
        vowel = not consonant
    return m


@njit
def _has_vowel(w, n):
    for i in range(n):
        if not _consonant(w, i):
            return True
    return False


@njit
def _double_consonant(w, n):
    return n >= 2 and w[n - 1] == w[n - 2] and _consonant(w, n - 1)


@njit
def _short_end(w, n):
    """The first n letters end consonant, vowel, consonant, and the last is not w, x or y: Porter's *o."""
    if n < 3 or not _consonant(w, n - 1) or _consonant(w, n - 2) or not _consonant(w, n - 3):
        return False
    c = w[n - 1]
    return c != _W and c != _X and c != _Y


@njit
def _ends(w, n, rule):
    length = rule[0]
    if length > n:
        return False
    for i in range(length):
        if w[n - length + i] != rule[2 + i]:
            return False
    return True


@njit
def _apply_rules(w, n, rules):
    """Steps 2 and 3: the first rule whose suffix fits decides; it replaces where m > 0 before the suffix."""
    for r in range(rules.shape[0]):
        rule = rules[r]
        if _ends(w, n, rule):
            stem = n - rule[0]
            if _measure(w, stem) == 0:
                return n
            for i in range(rule[1]):
                w[stem + i] = rule[10 + i]
            return stem + rule[1]
    return n


@njit
def _plural_and_past(w, n):
    """Steps 1a and 1b."""
    if w[n - 1] == _S:
        if n >= 4 and w[n - 4] == _S and w[n - 3] == _S and w[n - 2] == _E:
            n -= 2
        elif n >= 3 and w[n - 3] == _I and w[n - 2] == _E:
            n -= 2
        elif w[n - 2] != _S:
            n -= 1
    if n >= 3 and w[n - 3] == _E and w[n - 2] == _E and w[n - 1] == _D:
        return n - 1 if _measure(w, n - 3) > 0 else n
    stem = -1
    if n >= 2 and w[n - 2] == _E and w[n - 1] == _D:
        stem = n - 2
    elif n >= 3 and w[n - 3] == _I and w[n - 2] == _N and w[n - 1] == _G:
        stem = n - 3
    if stem < 0 or not _has_vowel(w, stem):
        return n
    n = stem
    if n >= 2 and (
        (w[n - 2] == _A and w[n - 1] == _T)
        or (w[n - 2] == _B and w[n - 1] == _L)
        or (w[n - 2] == _I and w[n - 1] == _Z)
    ):
        w[n] = _E
        return n + 1
    if _double_consonant(w, n):
        c = w[n - 1]
        return n if c == _L or c == _S or c == _Z else n - 1
    if _measure(w, n) == 1 and _short_end(w, n):
        w[n] = _E
        return n + 1
    return n


@njit
def _longer_suffix(w, n):
    """Step 4: drop the first suffix that fits where m > 1 before it; -ion only after s or t."""
    for r in range(_RULES_4.shape[0]):
        rule = _RULES_4[r]
        if _ends(w, n, rule):
            stem = n - rule[0]
            if rule[2] == _I and rule[3] == _O and (stem < 1 or (w[stem - 1] != _S and w[stem - 1] != _T)):
                continue
            return stem if _measure(w, stem) > 1 else n
    return n


@njit
def _tidy(w, n):
    """Step 5: a final -e, and -ll. The measure for -ll is taken before the -e goes, as in Porter's program."""
    whole = _measure(w, n)
    if w[n - 1] == _E:
        m = _measure(w, n - 1)
        if m > 1 or (m == 1 and not _short_end(w, n - 1)):
            n -= 1
    if n >= 1 and w[n - 1] == _L and _double_consonant(w, n) and whole > 1:
        n -= 1
    return n


@njit
def stem_word(w, n):
    """Stem the n letters in w, in place; gives the new length. w needs room for one letter more."""
    if n <= 2:
        return n
    n = _plural_and_past(w, n)
    if n >= 1 and w[n - 1] == _Y and _has_vowel(w, n - 1):
        w[n - 1] = _I
    n = _apply_rules(w, n, _RULES_2)
    n = _apply_rules(w, n, _RULES_3)
    n = _longer_suffix(w, n)
    return _tidy(w, n)


@njit("const uint16[:], const int64[:], uint16[:], uint16[:], int64[:]")
def _stem_words(letters, lengths, word, out, out_lengths):
    """Put the stems of words and their lengths into `out` and `out_lengths`; returns how many letters they have.

    `word`: memory for the longest word and two letters more.
    """
    at = 0
    to = 0
    for i in range(lengths.size):
        n = lengths[i]
        for x in range(n):
            word[x] = letters[at + x]
        at += n
        n = stem_word(word, n)
        for x in range(n):
            out[to + x] = word[x]
        to += n
        out_lengths[i] = n
    return to


def stem_words(words: Sequence[str]) -> list[str]:
    """The stems of lower-case words.

    >>> stem_words(["foxes", "jumping", "lazy", "possibly", "as"])
    ['fox', 'jump', 'lazi', 'possibl', 'as']
    """
    return changed_units(words, _stem_words)
