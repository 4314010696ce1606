"""Postings as messages of protocol buffers, the form of the Common Index File Format."""

from __future__ import annotations

from vizsla.kernels import njit

MOST_BYTES = 14
"""Of a posting: tag and size, then two tags with numbers of up to five bytes."""


@njit
def _put_varint(number, out, at):
    """Write a whole number, seven bits a byte, the lowest first; returns where it ends."""
    while number > 0x7F:
        out[at] = number & 0x7F | 0x80
        number >>= 7
        at += 1
    out[at] = number
    return at + 1


@njit("const int64[:], const int64[:], uint8[:]")
def put_postings(places, values, out):
    """Write each posting as a message: tag and size, then tag and varint of two numbers; returns where they end."""
    at, before = 0, 0
    for i in range(places.size):
        start = at
        out[at] = 4 << 3 | 2
        at += 2
        out[at] = 1 << 3
        at = _put_varint(places[i] - before, out, at + 1)
        out[at] = 2 << 3
        at = _put_varint(values[i], out, at + 1)
        out[start + 1] = at - start - 2
        before = places[i]
    return at
