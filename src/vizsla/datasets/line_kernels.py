"""Kernels that read plain JSON lines: objects with the same keys in the same order, texts where texts are expected.

They accept only what Python's `json` accepts, and leave everything else to it: `locate` gives up at the first line that
is not plain, and `decode` at the first invalid text. Of other values they only find the end. None of them holds the
GIL.
"""

from __future__ import annotations

import numpy as np

from vizsla.kernels import njit

_QUOTE, _BACKSLASH, _SLASH, _OPEN, _CLOSE, _COLON, _COMMA = (ord(c) for c in '"\\/{}:,')
_OPEN_LIST, _CLOSE_LIST = (ord(c) for c in "[]")
_SPACE, _TAB, _LINE_END, _RETURN, _BACKSPACE, _FORM_FEED = (ord(c) for c in " \t\n\r\b\f")
_B, _F, _N, _R, _T, _U = (ord(c) for c in "bfnrtu")
_ZERO, _NINE, _UPPER_A, _UPPER_F, _LOWER_A, _LOWER_F = (ord(c) for c in "09AFaf")
NOT_PLAIN = -1


@njit
def _line_end(data, at, end):
    """The next line end from `at` on, or `end`; 64 bytes at a time, which LLVM makes vector instructions of."""
    while at + 64 <= end:
        found = np.uint8(0)
        for x in range(64):
            found |= np.uint8(data[np.uint64(at) + np.uint64(x)] == _LINE_END)
        if found != 0:
            break
        at += 64
    while at < end and data[at] != _LINE_END:
        at += 1
    return at


@njit("const uint8[:], int64, int64, int64, int64, int64[:]")
def cut_lines(data, at, end, max_lines, max_bytes, found):
    """Find complete lines from `at` on: at most `max_lines`, and none that starts after `max_bytes` bytes.

    Writes to `found` where they end, their number, the length of the longest with its line end, and whether this is
    final: more lines would not change it.
    """
    start, lines, longest, stop, full = at, 0, 0, at, 0
    while full == 0:
        x = _line_end(data, stop, end)
        if x == end:
            break
        lines += 1
        longest = max(longest, x + 1 - stop)
        stop = x + 1
        full = int(lines == max_lines or stop - start > max_bytes)
    found[0], found[1], found[2], found[3] = stop, lines, longest, full


@njit
def _skip_blank(data, at, end):
    while at < end and (data[at] == _SPACE or data[at] == _TAB or data[at] == _RETURN):
        at += 1
    return at


@njit
def _text_end(data, at, end):
    """Where the text that begins at `at` ends, and whether it has escapes; -1 where it is not a valid one."""
    escaped = False
    while at < end:
        c = data[at]
        if c == _QUOTE:
            return at, escaped
        if c < _SPACE:
            break
        if c == _BACKSLASH:
            escaped = True
            at += 1
        at += 1
    return -1, escaped


@njit
def _value_end(data, at, end):
    """Where the value that begins at `at` ends, if it is a valid one; -1 where it cannot be."""
    depth = 0
    while at < end:
        c = data[at]
        if c == _QUOTE:
            at, _ = _text_end(data, at + 1, end)
            if at < 0:
                return -1
        elif c == _OPEN or c == _OPEN_LIST:
            depth += 1
        elif c == _CLOSE or c == _CLOSE_LIST or c == _COMMA:
            if depth == 0:
                return at
            depth -= c != _COMMA
        at += 1
    return -1


@njit
def _is_key(data, at, end, keys, first, last):
    """Whether there is a key in quotes at `at`."""
    if at + last - first > end:
        return False
    for x in range(last - first):
        if data[at + x] != keys[first + x]:
            return False
    return True


@njit
def _locate_line(data, at, end, keys, key_ends, are_texts, spans):
    """Find the values of one line; returns whether it is a plain one. A text with escapes has its start negated."""
    at = _skip_blank(data, at, end)
    if at >= end or data[at] != _OPEN:
        return False
    for k in range(key_ends.size - 1):
        at = _skip_blank(data, at + 1, end)
        if not _is_key(data, at, end, keys, key_ends[k], key_ends[k + 1]):
            return False
        at = _skip_blank(data, at + key_ends[k + 1] - key_ends[k], end)
        if at >= end or data[at] != _COLON:
            return False
        at = _skip_blank(data, at + 1, end)
        if are_texts[k]:
            if at >= end or data[at] != _QUOTE:
                return False
            stop, escaped = _text_end(data, at + 1, end)
            spans[k, 0] = -(at + 1) if escaped else at + 1
            at = stop + 1
        else:
            stop = _value_end(data, at, end)
            spans[k, 0] = at
            at = stop
        if stop < 0:
            return False
        spans[k, 1] = stop
        at = _skip_blank(data, at, end)
        if at >= end or data[at] != (_CLOSE if k == key_ends.size - 2 else _COMMA):
            return False
    return _skip_blank(data, at + 1, end) == end


@njit("const uint8[:], const uint8[:], const int64[:], const bool[:], int64[:,:,:], int64[:]")
def locate(data, keys, key_ends, are_texts, spans, lines):
    """Find the values of all lines, [document, key, from and to]; lines of white space are skipped.

    `keys`: the keys of every object in their order, each in quotes; `are_texts`: which of their values must be texts.
    Writes the line numbers of documents to `lines`, from 0. Returns the number of documents, or NOT_PLAIN if a line is
    not plain.
    """
    at, line, count = 0, 0, 0
    while at < data.size:
        end = at
        while end < data.size and data[end] != _LINE_END:
            end += 1
        if _skip_blank(data, at, end) < end:
            if not _locate_line(data, at, end, keys, key_ends, are_texts, spans[count]):
                return NOT_PLAIN
            lines[count] = line
            count += 1
        line += 1
        at = end + 1
    return count


@njit
def _hex(data, at, end):
    """The value of four hexadecimal digits; -1 if they are not valid."""
    if at + 4 > end:
        return -1
    value = np.int64(0)
    for x in range(at, at + 4):
        c = np.int64(data[x])
        if _ZERO <= c <= _NINE:
            c -= _ZERO
        elif _LOWER_A <= c <= _LOWER_F:
            c += 10 - _LOWER_A
        elif _UPPER_A <= c <= _UPPER_F:
            c += 10 - _UPPER_A
        else:
            return -1
        value = 16 * value + c
    return value


@njit
def _escaped_unit(data, at, end):
    r"""The character of \uXXXX, read after the u (perhaps a surrogate pair), and its end; -1 for half a pair."""
    value = _hex(data, at, end)
    if value < 0 or 0xDC00 <= value <= 0xDFFF:
        return -1, at
    at += 4
    if value < 0xD800 or value > 0xDFFF:
        return value, at
    if at + 2 > end or data[at] != _BACKSLASH or data[at + 1] != _U:
        return -1, at
    low = _hex(data, at + 2, end)
    if low < 0xDC00 or low > 0xDFFF:
        return -1, at
    return 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00), at + 6


@njit
def _escaped(data, at, end):
    """The character of the escape after a backslash, and where it ends; -1 for an invalid one."""
    if at >= end:
        return -1, at
    c = np.int64(data[at])
    if c == _U:
        return _escaped_unit(data, at + 1, end)
    value = np.int64(-1)
    if c == _QUOTE or c == _BACKSLASH or c == _SLASH:
        value = c
    elif c == _N:
        value = np.int64(_LINE_END)
    elif c == _T:
        value = np.int64(_TAB)
    elif c == _R:
        value = np.int64(_RETURN)
    elif c == _B:
        value = np.int64(_BACKSPACE)
    elif c == _F:
        value = np.int64(_FORM_FEED)
    return value, at + 1


@njit
def _character(data, at, end):
    """The character of two to four bytes of UTF-8, and where it ends; -1 for what is not UTF-8."""
    first = np.int64(data[at])
    if 0xC2 <= first < 0xE0:
        size, value, least = 2, first & 0x1F, 0x80
    elif 0xE0 <= first < 0xF0:
        size, value, least = 3, first & 0x0F, 0x800
    elif 0xF0 <= first < 0xF5:
        size, value, least = 4, first & 0x07, 0x10000
    else:
        return -1, at
    if at + size > end:
        return -1, at
    for x in range(at + 1, at + size):
        if data[x] & 0xC0 != 0x80:
            return -1, at
        value = (value << 6) | (np.int64(data[x]) & 0x3F)
    if value < least or value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
        return -1, at
    return value, at + size


@njit
def _decode_text(data, at, end, codes, to):
    """Put the characters of a text into `codes` from `to` on; returns where they end, NOT_PLAIN if it is not valid."""
    while at < end:
        c = np.int64(data[at])
        if c < 0x80 and c != _BACKSLASH:
            at += 1
        else:
            c, at = _escaped(data, at + 1, end) if c == _BACKSLASH else _character(data, at, end)
            if c < 0:
                return NOT_PLAIN
        codes[to] = c
        to += 1
    return to


@njit("const uint8[:], const int64[:,:,:], const int64[:], uint32[:], int64[:]")
def decode(data, spans, chosen, codes, ends):
    """Put the chosen texts of each document into `codes`, joined by line breaks; empty texts are skipped.

    Text i ends at `ends[i]`. Returns whether all texts are valid.
    """
    to = 0
    for i in range(spans.shape[0]):
        begin = to
        for x in range(chosen.size):
            at, end = abs(spans[i, chosen[x], 0]), spans[i, chosen[x], 1]
            if at == end:
                continue
            if to > begin:
                codes[to] = _LINE_END
                to += 1
            to = _decode_text(data, at, end, codes, to)
            if to < 0:
                return False
        ends[i] = to
    return True


@njit
def _copy(data, at, end, out, to):
    for x in range(end - at):
        out[to + x] = data[at + x]
    return to + end - at


@njit
def _put_utf8(c, out, to):
    if c < 0x80:
        out[to] = c
        return to + 1
    if c < 0x800:
        out[to] = 0xC0 | (c >> 6)
    elif c < 0x10000:
        out[to] = 0xE0 | (c >> 12)
    else:
        out[to] = 0xF0 | (c >> 18)
        to += 1
        out[to] = 0x80 | ((c >> 12) & 0x3F)
    if c >= 0x800:
        to += 1
        out[to] = 0x80 | ((c >> 6) & 0x3F)
    out[to + 1] = 0x80 | (c & 0x3F)
    return to + 2


@njit
def _put_escaped(c, out, to):
    """Write a character as Python's `json` does: escaped if it must be, else in UTF-8."""
    if c >= _SPACE and c != _QUOTE and c != _BACKSLASH:
        return _put_utf8(c, out, to)
    letter = c
    if c == _LINE_END:
        letter = _N
    elif c == _TAB:
        letter = _T
    elif c == _RETURN:
        letter = _R
    elif c == _BACKSPACE:
        letter = _B
    elif c == _FORM_FEED:
        letter = _F
    out[to] = _BACKSLASH
    if letter >= _SPACE:
        out[to + 1] = letter
        return to + 2
    out[to + 1], out[to + 2], out[to + 3], out[to + 4] = _U, _ZERO, _ZERO, _ZERO + (c >> 4)
    digit = c & 15
    out[to + 5] = _ZERO + digit if digit < 10 else _LOWER_A + digit - 10
    return to + 6


@njit("const uint8[:], const int64[:,:,:], const int64[:], const uint8[:], const int64[:], uint8[:], int64[:]")
def rewrite(data, spans, chosen, labels, label_ends, out, ends):
    """Write the chosen texts of each document as an object, as Python's `json` writes it; they are valid.

    `labels`: the JSON before each text, and at the end of the object.
    """
    to = 0
    for i in range(spans.shape[0]):
        for x in range(chosen.size):
            to = _copy(labels, label_ends[x], label_ends[x + 1], out, to)
            at, end = spans[i, chosen[x], 0], spans[i, chosen[x], 1]
            if at >= 0:
                to = _copy(data, at, end, out, to)
                continue
            at = -at
            while at < end:
                if data[at] == _BACKSLASH:
                    c, at = _escaped(data, at + 1, end)
                    to = _put_escaped(c, out, to)
                else:
                    out[to] = data[at]
                    to += 1
                    at += 1
        to = _copy(labels, label_ends[chosen.size], label_ends[chosen.size + 1], out, to)
        ends[i] = to
