"""Words as UTF-16 units, the letters of Lucene's stemmers: a character beyond the basic plane counts as two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np


def changed_units(words: Sequence[str], change: Callable[..., int]) -> list[str]:
    """Words as a kernel changes them, all at once.

    `change(letters, lengths, word, out, out_lengths)` puts the new letters into `out`, which has room for as many, and
    says how many there are; `word` is memory for the longest word and two letters more.
    """
    if not words:
        return []
    encoded = "".join(words).encode("utf-16-le", "surrogatepass")
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    if 2 * int(lengths.sum()) != len(encoded):  # characters of two units
        lengths = np.array([len(w.encode("utf-16-le", "surrogatepass")) // 2 for w in words], np.int64)
    letters, new_lengths = np.empty(len(encoded) // 2, np.uint16), np.empty_like(lengths)
    word = np.empty(int(lengths.max()) + 2, np.uint16)
    letters = letters[: change(np.frombuffer(encoded, np.uint16), lengths, word, letters, new_lengths)]
    ends = [0, *np.cumsum(new_lengths).tolist()]
    if letters.size and int(letters.max()) >= 0xD800:  # units and characters may differ: cut the units
        units = letters.tobytes()
        return [units[2 * a : 2 * b].decode("utf-16-le", "surrogatepass") for a, b in pairwise(ends)]
    text = letters.tobytes().decode("utf-16-le")
    return [text[a:b] for a, b in pairwise(ends)]
