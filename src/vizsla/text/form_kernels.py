"""Kernels that number the words of many texts by their surface form, in hash tables that live across calls.

So whatever is done to a word (lower case, stemming, stop words) is done once per form, not once per word. Threads may
number words at the same time: none of them changes the tables, and new forms are added afterwards, by one at a time.
"""

from __future__ import annotations

import numpy as np

from vizsla.kernels import njit
from vizsla.text.words import PLAIN

# Where number_words stands, so that it can go on after the table of new forms has been enlarged.
TEXT, POSITION, WORDS, NEW = range(4)
_SHORT = 7  # characters of a form whose key is the form itself
_HASH_SEED, _HASH_FACTOR = 0xCBF29CE484222325, 0x100000001B3  # FNV-1a, over code points
_KEY_FACTOR = 0x9E3779B97F4A7C15


@njit
def _next_form(codes, at, end, plain, classes, transitions, accepting, longest):
    """As `next_word`, with the key of the word; a state that a run of plain characters keeps is looked at once.

    The key of up to seven plain characters is their number and they themselves, a byte each; others have the key 0.
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
    """The number of a known form; -1 if it is not there. Another thread may add forms meanwhile.

    What it adds may be seen in any order: a form of which a part is not seen yet counts as one that is not there.
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
    "const uint64[:,:], const uint64[:], const uint32[:], int32[:], uint32[:], int64[:,:], int64[:], int32[:], "
    "int64[:]"
)
def number_words(
    codes, bounds, plain, classes, transitions, accepting, longest, shorts, slots, arena,
    new_slots, new_hashes, new_places, state, words, ends,
):  # fmt: skip
    """Write the form numbers of all words of all texts to `words`; text i's words end at `ends[i]`.

    A form with a key is in `shorts`, an open-addressing hash table of keys and numbers + 1 (0: free). Others lie in
    `arena` as their number + 1, their length and their characters; `slots` is a hash table of hashes, in the upper 32
    bits, and places in the arena. A form that is not in there is new: form n of the new ones has the number -1 - n, its
    first place in `codes` is in `new_places`, and `new_slots` is a hash table of n + 1. Returns False when that one is
    full: enlarge it and call again with the same state.
    """
    text, position, count, new = state[TEXT], state[POSITION], state[WORDS], state[NEW]
    while text < bounds.size - 1:
        end = bounds[text + 1]
        at, stop, key = _next_form(codes, position, end, plain, classes, transitions, accepting, longest)
        while at < stop:
            tag = _tag_of(codes, at, stop, key)
            form = _find_form(codes, at, stop, key, tag, shorts, slots, arena)
            if form < 0:
                form = -1 - _find_new(codes, at, stop, tag, new_slots, new_hashes, new_places, new)
                if form == -1 - new:
                    if 2 * (new + 1) > new_slots.size:
                        state[TEXT], state[POSITION], state[WORDS], state[NEW] = text, at, count, new
                        return False
                    new_hashes[new], new_places[new, 0], new_places[new, 1] = tag, at, stop
                    new += 1
                    _put(tag, new, new_slots)
            words[count] = form
            count += 1
            at, stop, key = _next_form(codes, stop, end, plain, classes, transitions, accepting, longest)
        ends[text] = count
        text += 1
        position = end
    state[TEXT], state[POSITION], state[WORDS], state[NEW] = text, position, count, new
    return True


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
def find_forms(codes, places, tags, shorts, slots, arena, keys, numbers):
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
def add_forms(codes, places, tags, keys, chosen, first, used, shorts, slots, arena):
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
def fill_shorts(old, shorts):
    """Fill an empty hash table of forms with keys from another one."""
    for x in range(old.shape[0]):
        if old[x, 0] != 0:
            tag = np.uint32(old[x, 0] * np.uint64(_KEY_FACTOR) >> np.uint64(32))
            _put_short(tag, old[x, 0], old[x, 1], shorts)


@njit("const uint64[:], uint64[:]")
def fill_slots(old, slots):
    """Fill an empty hash table of other forms from another one."""
    for x in range(old.size):
        if old[x] != 0:
            _put(np.uint32(old[x] >> np.uint64(32)), old[x], slots)


@njit("const uint32[:], int64, int32[:]")
def fill_new_slots(hashes, count, slots):
    """Fill an empty hash table of new forms."""
    for n in range(count):
        _put(hashes[n], n + 1, slots)
