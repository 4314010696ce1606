"""The Common Index File Format: posting lists for Lucene, PISA, Terrier and others.

A file is a sequence of length-prefixed protobuf messages: a header, the posting list of each term in the order of the
terms' UTF-8 bytes, and a record for each document. Document numbers in a list are delta-encoded.

A posting holds a count for BM25, and an integer weight (impact) for a learned model. Weights that are not integers are
quantised.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from vizsla.backends.impacts import DEFAULT_QUANTISER, check_positive, fitted
from vizsla.engine.protobuf_postings import MOST_BYTES, put_postings
from vizsla.errors import VizslaError
from vizsla.index import Index, document_lengths, stored_ids, stores_whole_numbers, term_lists

_MAX = (1 << 31) - 1  # document numbers, counts and lengths are signed 32-bit integers


def write_ciff(index: Index, output: Path, quantiser: str | None = None) -> int:
    """Write the posting lists of an index with one sparse model, and return the number of documents.

    `quantiser`: write full weights, idf included, as integers. By default stored counts or integer weights are written
    unchanged, and other weights are quantised by `range:1:100:even`.
    """
    as_stored = quantiser is None and stores_whole_numbers(index)
    lengths = document_lengths(index)
    if len(lengths) > _MAX:
        raise VizslaError(f"ciff numbers at most {_MAX:,} documents, and this index has {len(lengths):,}")
    with tempfile.TemporaryFile(dir=output.parent) as lists:  # the header, which comes first, has their number
        if as_stored:
            count = _write_lists(lists, term_lists(index))
        else:
            lengths = np.zeros(len(lengths), np.int64)
            count = _write_lists(lists, _impacts(index, quantiser or DEFAULT_QUANTISER, lengths))
        lists.seek(0)
        with output.open("wb") as file:
            file.write(delimited(_header(index.model.name, count, lengths, "stored" if as_stored else "quantised")))
            shutil.copyfileobj(lists, file, 1 << 20)
            for number, (doc_id, length) in enumerate(zip(stored_ids(index), lengths.tolist(), strict=True)):
                file.write(delimited(_record(number, doc_id, length)))
    return len(lengths)


def _impacts(index: Index, quantiser: str, lengths: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The lists of quantised full weights; their sums by document are added to `lengths`."""
    weights = (values for _, _, values in term_lists(index, weighted=True))
    chosen = fitted(quantiser, weights)
    for term, places, values in term_lists(index, weighted=True):
        check_positive(values, index.model.name, "ciff")
        whole = chosen.quantise(values).astype(np.int64)
        lengths[places] += whole
        yield term, places[whole > 0], whole[whole > 0]


def _write_lists(file: IO[bytes], lists: Iterable[tuple[str, np.ndarray, np.ndarray]]) -> int:
    count = 0
    for term, places, values in lists:
        if len(places):
            file.write(delimited(postings_list(term, places, values.astype(np.int64))))
            count += 1
    return count


def _header(model: str, lists: int, lengths: np.ndarray, values: str) -> bytes:
    documents, total = len(lengths), int(lengths.sum())
    mean = total / documents if documents else 0.0
    return b"".join(
        [
            *(_number(field, n) for field, n in ((1, 1), (2, lists), (3, documents), (4, lists), (5, documents))),
            _number(6, total),
            bytes([7 << 3 | 1]) + struct.pack("<d", mean),
            _text(8, f"Vizsla, {model}, values {values}"),
        ]
    )


def _record(number: int, doc_id: str, length: int) -> bytes:
    return _number(1, number) + _text(2, doc_id) + _number(3, length)


def postings_list(term: str, places: np.ndarray, values: np.ndarray) -> bytes:
    """The message of a term: its document frequency, the sum of its values, and its postings."""
    if len(values) and int(values.max()) > _MAX:
        raise VizslaError(f"ciff holds counts and weights up to {_MAX:,}, and one of {term!r} is {int(values.max()):,}")
    return _text(1, term) + _number(2, len(places)) + _number(3, int(values.sum())) + _postings(places, values)


def _postings(places: np.ndarray, values: np.ndarray) -> bytes:
    out = np.empty(MOST_BYTES * len(places), np.uint8)
    return out[: put_postings(places, values, out)].tobytes()


def varint(number: int) -> bytes:
    """A whole number of 0 or more, seven bits a byte, the lowest first.

    >>> varint(1), varint(300)
    (b'\\x01', b'\\xac\\x02')
    """
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def delimited(message: bytes) -> bytes:
    """A message with its length before it."""
    return varint(len(message)) + message


def _number(field: int, number: int) -> bytes:
    return varint(field << 3) + varint(number)


def _text(field: int, text: str) -> bytes:
    return varint(field << 3 | 2) + delimited(text.encode())
