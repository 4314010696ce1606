"""Length codes: how long a document is, as the index stores it."""

from __future__ import annotations

import numpy as np

from vizsla.errors import UnknownNameError

_EXACT_BELOW = 24  # codes below this are the length itself; above, four significant bits are kept


def lucene_codes(lengths: np.ndarray) -> np.ndarray:
    """Lengths in one byte, as Lucene codes them: exact below 40, four significant bits above.

    >>> lucene_codes(np.array([0, 39, 40, 41, 42, 1000])).tolist()
    [0, 39, 40, 40, 41, 87]
    """
    rest = np.maximum(lengths.astype(np.int64) - _EXACT_BELOW, 0)
    bits = np.frexp(rest.astype(np.float64))[1]  # the number of binary digits; 0 for 0
    shift = np.maximum(bits - 4, 0)
    packed = np.where(bits < 4, rest, ((rest >> shift) & 7) | ((shift + 1) << 3))
    return np.where(lengths < _EXACT_BELOW, lengths, _EXACT_BELOW + packed).astype(np.uint8)


def lucene_lengths() -> np.ndarray:
    """The length each of the 256 codes stands for."""
    codes = np.arange(256)
    packed = np.maximum(codes - _EXACT_BELOW, 0)
    shift = (packed >> 3) - 1
    long = ((packed & 7) | 8) << np.maximum(shift, 0)
    return np.where(codes < _EXACT_BELOW, codes, _EXACT_BELOW + np.where(shift < 0, packed, long))


def encode_lengths(scheme: str, lengths: np.ndarray) -> np.ndarray:
    """Length codes by the scheme `lucene` (one byte) or `exact`."""
    return lucene_codes(lengths) if scheme == "lucene" else lengths.astype(np.uint32)


def decoded_lengths(scheme: str, longest: int) -> np.ndarray:
    """The length every code stands for; `exact` codes go up to the longest document's."""
    return lucene_lengths() if scheme == "lucene" else np.arange(longest + 1)


def check_scheme(scheme: str) -> None:
    if scheme not in ("lucene", "exact"):
        raise UnknownNameError("length coding", scheme, ("lucene", "exact"))
