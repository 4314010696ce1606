"""Kernels over ids in arrays, see `stored_ids.py`.

The number of an id is what its last digits say: up to 18 of them, without zeros in front, which count to what stands
before. An id without a digit at its end has the number -1. Ids are sorted by what stands before their number, and then
by their number.
"""

from __future__ import annotations

import numpy as np

from vizsla.kernels import njit
from vizsla.text.stored_texts import SIZE_TYPES, text_begin

_DIGITS = 18
_END = 10  # a line break stands between ids that are read together


@njit
def _split(data, begin, end):
    """Where the number of the text from `begin` to `end` begins, and the number."""
    p = end
    while p > begin and end - p < _DIGITS and 48 <= data[p - 1] <= 57:
        p -= 1
    if p == end:
        return end, np.int64(-1)
    while p < end - 1 and data[p] == 48:
        p += 1
    number = np.int64(0)
    for q in range(p, end):
        number = number * 10 + np.int64(data[q]) - 48
    return p, number


@njit(*(f"const uint8[:], const {sizes}[:], int64[:], int64[:], int64[:]" for sizes in SIZE_TYPES))
def split_all(data, sizes, begins, ends, numbers):
    """Put into `begins`, `ends` and `numbers` where each text and its number begin, and the number."""
    place = np.int64(0)
    for i in range(sizes.size):
        begins[i] = place
        place += np.int64(sizes[i])
        if place > data.size:
            return False
        ends[i], numbers[i] = _split(data, begins[i], place)
    return True


@njit
def _compare(a, a_begin, a_end, a_number, b, b_begin, b_end, b_number):
    """Below 0, 0 or above 0, as one text comes before another, is equal, or comes after it."""
    shared = min(a_end - a_begin, b_end - b_begin)
    for i in range(shared):
        x, y = a[a_begin + i], b[b_begin + i]
        if x != y:
            return -1 if x < y else 1
    if a_end - a_begin != b_end - b_begin:
        return -1 if a_end - a_begin < b_end - b_begin else 1
    if a_number != b_number:
        return -1 if a_number < b_number else 1
    return 0


@njit("const uint8[:], const int64[:], const int64[:], const int64[:], uint32[:], uint32[:]")
def sort(data, begins, ends, numbers, order, work):
    """Sort texts by merging; returns whether the result lies in `work` and not in `order`."""
    width, count, in_work = 1, order.size, False
    while width < count:
        source, target = (work, order) if in_work else (order, work)
        start = 0
        while start < count:
            a, b, middle, end = start, start + width, min(start + width, count), min(start + 2 * width, count)
            for place in range(start, end):
                first = b >= end
                if not first and a < middle:
                    x, y = source[a], source[b]
                    first = _compare(data, begins[x], ends[x], numbers[x], data, begins[y], ends[y], numbers[y]) <= 0
                if first:
                    target[place] = source[a]
                    a += 1
                else:
                    target[place] = source[b]
                    b += 1
            start += 2 * width
        in_work = not in_work
        width *= 2
    return in_work


@njit("const uint8[:], const int64[:], const int64[:], const int64[:], const uint32[:]")
def are_sorted(data, begins, ends, numbers, order):
    """How many texts come in the right order, from the first on; all, if they are sorted."""
    for i in range(1, order.size):
        x, y = order[i - 1], order[i]
        compared = _compare(data, begins[x], ends[x], numbers[x], data, begins[y], ends[y], numbers[y])
        if compared > 0:
            return i
    return order.size


@njit("const uint8[:], const int64[:], const int64[:], const int64[:], bool[:]")
def mark_firsts(data, begins, ends, numbers, firsts):
    """Mark the texts that do not count on from the one before; returns how many."""
    total = 0
    for i in range(begins.size):
        first = i == 0 or numbers[i - 1] < 0 or numbers[i] != numbers[i - 1] + 1
        if not first:
            # With the same number, only what stands before can differ.
            first = _compare(data, begins[i - 1], ends[i - 1], 0, data, begins[i], ends[i], 0) != 0
        firsts[i] = first
        total += first
    return total


@njit("const uint8[:], const int64[:], const int64[:], const int64[:], const uint32[:], const uint32[:]")
def overlap(data, begins, ends, numbers, runs, order):
    """Whether an id that is not empty is in two runs; without `runs` each has one row."""
    for i in range(1, order.size):
        x, y = order[i - 1], order[i]
        count = np.int64(runs[x + 1]) - np.int64(runs[x]) if runs.size else 1
        is_empty = numbers[x] < 0 and begins[x] == ends[x]
        near = not is_empty and numbers[y] < numbers[x] + count
        if near and _compare(data, begins[x], ends[x], 0, data, begins[y], ends[y], 0) == 0:
            return True
    return False


@njit
def _digits(number):
    """How many digits a number has."""
    count = 1
    while number >= 10:
        number //= 10
        count += 1
    return count


@njit
def _run_of(runs, places, bits, row):
    """The run of a row that is before the end of all runs."""
    low, high = np.int64(places[row >> bits]), np.int64(places[(row >> bits) + 1]) + 1
    while high - low > 1:
        middle = (low + high) >> 1
        if np.int64(runs[middle]) <= row:
            low = middle
        else:
            high = middle
    return low


@njit(
    *(
        f"const uint8[:], const {sizes}[:], const int64[:], const uint32[:], const int64[:], int64, int64, int64, "
        "const int64[:], int64[:,:]"
        for sizes in SIZE_TYPES
    )
)
def measure(data, sizes, starts, runs, places, bits, count, first, rows, measured):
    """Measure the ids of those rows that are here: put into `measured[0]` where the first ids of their runs begin, into
    `measured[1]` how many bytes each has with a line break after it, and into `measured[2]` what number each ends with;
    -1 for the first id itself.

    `first` is taken off all rows. One below 0 then, or not below `count`, is passed over. Returns how many rows are
    here; -1 if there is damage.
    """
    found = 0
    for x in range(rows.size):
        row = rows[x] - first
        if row < 0 or row >= count:
            continue
        run, further = row, np.int64(0)
        if runs.size:
            run = _run_of(runs, places, bits, row)
            further = row - np.int64(runs[run])
        begin = text_begin(data, sizes, starts, run)
        if begin < 0 or further < 0 or measured[1, x] != 0:  # nobody else has the row
            return -1
        size, number = np.int64(sizes[run]), np.int64(-1)
        if further > 0:
            end, number = _split(data, begin, begin + size)
            if number < 0:
                return -1
            number += further
            size = end - begin + _digits(number)
        measured[0, x] = begin
        measured[1, x] = size + 1
        measured[2, x] = number
        found += 1
    return found


@njit("int64[:,:]")
def add_up(measured):
    """Make of the sizes of measured ids where they end, one after the other; returns where the last one ends."""
    total = np.int64(0)
    for x in range(measured.shape[1]):
        total += measured[1, x]
        measured[1, x] = total
    return total


@njit("const uint8[:], int64, int64, const int64[:], const int64[:,:], uint8[:]")
def gather(data, count, first, rows, measured, out):
    """Put the measured ids of those rows that are here into `out`, with a line break after each.

    `measured[1]`: where each ends in `out`, its line break included. Returns the line breaks inside of ids, -1 if there
    is damage.
    """
    breaks = 0
    for x in range(rows.size):
        if rows[x] < first or rows[x] - first >= count:
            continue
        at = measured[1, x - 1] if x else np.int64(0)
        last = measured[1, x] - 1
        place, number = measured[0, x], measured[2, x]
        end = last if number < 0 else last - _digits(number)
        if place < 0 or place + end - at > data.size:
            return -1
        for to in range(at, end):
            out[to] = data[place]
            breaks += data[place] == _END
            place += 1
        for to in range(last - 1, end - 1, -1):
            out[to] = 48 + number % 10
            number //= 10
        out[last] = _END
    return breaks


@njit(
    *(
        f"const uint8[:], const {sizes}[:], const int64[:], const uint32[:], const uint32[:], const uint8[:], "
        "const int64[:], const int64[:], int64[:,:]"
        for sizes in SIZE_TYPES
    )
)
def find(data, sizes, starts, runs, order, wanted, wanted_sizes, wanted_starts, found):
    """Put into `found` where each text is, and how often: its row with `runs`, its place in `order` without them.

    Returns False if the arrays are damaged.
    """
    for i in range(wanted_sizes.size):
        begin = text_begin(wanted, wanted_sizes, wanted_starts, i)
        end, number = _split(wanted, begin, begin + np.int64(wanted_sizes[i]))
        after = _place(data, sizes, starts, order, wanted, begin, end, number, 1)
        if after < 0:
            return False
        found[i, 0] = found[i, 1] = 0
        if after == 0:
            continue
        run = np.int64(order[after - 1])  # of this text, or of one before it
        first = text_begin(data, sizes, starts, run)
        first_end, first_number = _split(data, first, first + np.int64(sizes[run]))
        further = number - first_number
        count = np.int64(runs[run + 1]) - np.int64(runs[run]) if runs.size else 1
        if further < 0 or further >= count or _compare(data, first, first_end, 0, wanted, begin, end, 0) != 0:
            continue
        if runs.size:
            found[i, 0], found[i, 1] = np.int64(runs[run]) + further, 1
        else:
            before = _place(data, sizes, starts, order, wanted, begin, end, number, 0)
            if before < 0:
                return False
            found[i, 0], found[i, 1] = before, after - before
    return True


@njit
def _place(data, sizes, starts, order, wanted, begin, end, number, after):
    """How many texts come before one, or with `after` = 1 before it or with it; -1 if the arrays are damaged."""
    low, high = 0, order.size
    while low < high:
        middle = (low + high) >> 1
        run = np.int64(order[middle])
        first = text_begin(data, sizes, starts, run)
        if first < 0:
            return -1
        first_end, first_number = _split(data, first, first + np.int64(sizes[run]))
        if _compare(data, first, first_end, first_number, wanted, begin, end, number) < after:
            low = middle + 1
        else:
            high = middle
    return low
