"""Reads the Common Index File Format, byte by byte: a second opinion on what the exporter writes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def read_message(data: bytes) -> dict[int, list[Any]]:
    """The values of each field of a message."""
    fields: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        value: Any
        if tag & 7 == 0:
            value, at = read_varint(data, at)
        elif tag & 7 == 1:
            value, at = struct.unpack("<d", data[at : at + 8])[0], at + 8
        else:
            assert tag & 7 == 2
            size, at = read_varint(data, at)
            value, at = data[at : at + size], at + size
            assert len(value) == size
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def read_postings(message: bytes) -> tuple[str, int, int, dict[int, int]]:
    """Term, document frequency, sum of values, and the value of each document."""
    fields = read_message(message)
    postings, number = {}, 0
    for posting in map(read_message, fields.get(4, [])):
        number += posting[1][0]
        postings[number] = posting[2][0]
    return fields[1][0].decode(), fields[2][0], fields[3][0], postings


def read_ciff(file: Path) -> tuple[dict[int, list[Any]], dict[str, dict[int, int]], list[tuple[str, int]]]:
    """Header, posting lists by term, and the id and length of each document."""
    data, at, messages = file.read_bytes(), 0, []
    while at < len(data):
        size, at = read_varint(data, at)
        messages.append(data[at : at + size])
        at += size
    header = read_message(messages[0])
    lists, documents = {}, []
    for message in messages[1 : 1 + header[2][0]]:
        term, frequency, total, postings = read_postings(message)
        assert (frequency, total) == (len(postings), sum(postings.values()))
        lists[term] = postings
    for number, record in enumerate(map(read_message, messages[1 + header[2][0] :])):
        assert record[1] == [number]
        documents.append((record[2][0].decode(), record[3][0]))
    assert len(documents) == header[3][0]
    return header, lists, documents
