"""JSON lines in blocks of bytes, so that other threads and processes parse them, by kernels where they are plain.

Plain lines are objects with the same keys in the same order, with texts where texts are expected. Kernels accept only
what Python's `json` accepts, and leave everything else to it: `_locate` gives up at the first line that is not plain,
and `_decode` at the first invalid text. Of other values they only find the end. None of them holds the GIL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedReader
from itertools import pairwise
from typing import overload

import numpy as np

from vizsla.datasets.files import DAMAGE, InputFile, Progress, not_utf8, opened, parse_line
from vizsla.datasets.skipped import Skipped
from vizsla.errors import InputError, VizslaError
from vizsla.kernels import njit
from vizsla.lazy import cached_property
from vizsla.plain_data import parse_json
from vizsla.runs.documents import Document, FieldNames, Origin

RAW_LINES = 1000
RAW_BYTES = 1_000_000
_CHUNK = 1 << 22
_MARK = b"\xef\xbb\xbf"  # a file may begin with it
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode

_QUOTE, _BACKSLASH, _SLASH, _OPEN, _CLOSE, _COLON, _COMMA = (ord(c) for c in '"\\/{}:,')
_OPEN_LIST, _CLOSE_LIST = (ord(c) for c in "[]")
_SPACE, _TAB, _LINE_END, _RETURN, _BACKSPACE, _FORM_FEED = (ord(c) for c in " \t\n\r\b\f")
_B, _F, _N, _R, _T, _U = (ord(c) for c in "bfnrtu")
_ZERO, _NINE, _UPPER_A, _UPPER_F, _LOWER_A, _LOWER_F = (ord(c) for c in "09AFaf")
_NOT_PLAIN = -1


@dataclass(frozen=True)
class RawLines:
    """Lines of a file of JSON lines that are not parsed yet."""

    file: InputFile
    names: FieldNames
    data: bytes
    count: int
    """How many lines there are."""
    first: int = 1
    """The number of the first line in the file."""

    @property
    def has_documents(self) -> bool:
        """Whether any line is more than white space."""
        return bool(self.data.decode("utf-8", "replace").strip())

    def documents(self, skipped: Skipped | None = None) -> list[Document]:
        """Parse the lines; empty ones are skipped. With `skipped`, those that hold no document are noted there."""
        found = []
        for number, line in self._lines():
            try:
                document = self._document(number, self._text(number, line))
            except InputError as e:
                if skipped is None:
                    raise
                skipped.add(e)
                continue
            if document is not None:
                found.append(document)
        return found

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        return enumerate(self.data.split(b"\n"), self.first)

    def _text(self, number: int, line: bytes) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError as e:
            raise not_utf8(self.file, e, number) from None

    def _document(self, number: int, text: str) -> Document | None:
        if not text.strip():
            return None
        return Document.from_record(parse_line(text, self.file, number), Origin(self.file.name, number), self.names)

    def plain(
        self, fields: Sequence[str], groups: Sequence[Sequence[str]], can_read: Callable[[dict[str, str]], bool]
    ) -> PlainLines | None:
        """The lines parsed by a kernel; None unless all are objects with the same keys and texts in the model's fields.

        `fields`: those that the model reads, `groups`: those that it joins to one text. `can_read`: whether it can read
        a document with these fields.
        """
        keys = self._keys()
        if keys is None:
            return None
        try:  # to find where each key ends up, build a document whose values are its keys
            document = Document.from_record({key: key for key in keys}, None, self.names)
        except VizslaError:
            return None
        content = dict(document.with_fields(fields).content)
        if len(content) != len(keys) - 1 or not can_read(content):
            return None
        id_key = document.source_names.id if document.source_names is not None else None
        if id_key is None or sorted([*content.values(), id_key]) != sorted(keys):
            return None
        places = {name: keys.index(content[name]) for name in fields if name in content}
        others = {name: keys.index(key) for name, key in content.items() if name not in places}
        located = self._located(keys, keys.index(id_key), places, others)
        return None if located is None or not (located.decode(groups) and located.read_metadata()) else located

    def _keys(self) -> list[str] | None:
        """The keys of the first object; None if the first line is not an object."""
        data = self.data.lstrip(b" \t\r\n")
        line = data[: data.find(b"\n") + 1] or data
        try:
            pairs = parse_json(line, object_pairs_hook=list)
        except ValueError:
            return None
        if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
            return None
        keys = [key for key, _ in pairs]
        return keys if 0 < len(keys) == len(set(keys)) else None

    def _located(
        self, keys: Sequence[str], id_place: int, places: dict[str, int], others: dict[str, int]
    ) -> PlainLines | None:
        quoted = [json.dumps(key, ensure_ascii=False).encode("utf-8", "replace") for key in keys]
        data = np.frombuffer(self.data, np.uint8)
        spans, lines = np.empty((self.count + 1, len(keys), 2), np.int64), np.empty(self.count + 1, np.int64)
        are_texts = np.ones(len(keys), np.bool_)
        are_texts[[*others.values()]] = False
        count = _locate(data, *_joined(quoted), are_texts, spans, lines)
        if count == _NOT_PLAIN:
            return None
        return PlainLines(self, data, spans[:count], self.first + lines[:count], id_place, places, others)


def _joined(texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Concatenated texts, where each begins, and where the last ends."""
    ends = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=ends[1:])
    return np.frombuffer(b"".join(texts), np.uint8), ends


class LineOrigins(Sequence[Origin]):
    """The origins of documents in a file, created on access."""

    def __init__(self, name: str, lines: np.ndarray) -> None:
        self._name = name
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, place: int) -> Origin: ...
    @overload
    def __getitem__(self, place: slice) -> LineOrigins: ...
    def __getitem__(self, place: int | slice) -> Origin | LineOrigins:
        if isinstance(place, slice):
            return LineOrigins(self._name, self._lines[place])
        return Origin(self._name, int(self._lines[place]))


@dataclass(frozen=True, eq=False)
class PlainLines:
    """Documents in lines that a kernel has parsed: the fields of a model are decoded without Python objects."""

    lines: RawLines
    data: np.ndarray
    spans: np.ndarray
    """[documents, keys, 2]: where the value of each key begins and ends; begins are negative for texts with escapes."""
    numbers: np.ndarray
    """The number of each document's line."""
    id_place: int
    """Which of the keys is the id."""
    places: dict[str, int]
    """Which of the keys each field is, in the order of the model's fields."""
    others: dict[str, int]
    """Which of the keys are metadata."""
    metadata: list[str | None] = field(default_factory=list, repr=False)
    """The metadata of each document as a JSON object; None if there is none."""
    _decoded: dict[tuple[str, ...], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, repr=False)
    """Ids under (), texts of fields under their names."""

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def origins(self) -> LineOrigins:
        """The places of the documents."""
        return LineOrigins(self.lines.file.name, self.numbers)

    def decode(self, groups: Sequence[Sequence[str]]) -> bool:
        """Decode the ids, and the fields that are read together; returns whether all are valid, and no id is empty."""
        assert set().union(*groups) >= self.places.keys()
        for group in [(), *map(tuple, groups)]:
            chosen = [self.places[name] for name in group if name in self.places] if group else [self.id_place]
            codes, bounds = np.empty(len(self.data), np.uint32), np.zeros(len(self) + 1, np.int64)
            if not _decode(self.data, self.spans, np.array(chosen, np.int64), codes, bounds[1:]):
                return False
            codes = codes[: bounds[-1]]
            codes.flags.writeable = False  # always the same array type, so that kernels are compiled once
            self._decoded[group] = codes, bounds
        return bool((np.diff(self._decoded[()][1]) > 0).all())

    def read_metadata(self) -> bool:
        """Read what the model does not; returns whether all of it is valid."""
        if not self.others:
            self.metadata.extend([None] * len(self))
            return True
        data, columns = self.lines.data, []
        try:
            for name, place in self.others.items():
                spans, label = self.spans[:, place].tolist(), _JSON(name)
                values = [data[a:b] for a, b in spans]
                known = {value: f"{label}: {_JSON(parse_json(value.decode()))}" for value in set(values)}
                columns.append([known[value] for value in values])
            self.metadata.extend(f"{{{', '.join(row)}}}" for row in zip(*columns, strict=True))
            return all(text is None or text.isascii() or text.encode() for text in self.metadata)
        except (ValueError, RecursionError):
            return False

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the documents."""
        codes, bounds = self._decoded[()]
        text, cuts = codes.tobytes().decode("utf-32-le"), bounds.tolist()
        return [text[a:b] for a, b in pairwise(cuts)]

    def code_points(self, group: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The joined texts of some fields as concatenated code points, and where each begins and ends.

        They are joined by line breaks, as `field_text` joins them.
        """
        return self._decoded[tuple(group)]

    def objects(self) -> list[str]:
        """The fields of each document as a JSON object."""
        names = [json.dumps(name, ensure_ascii=False) for name in self.places]
        before = ["{", *['", '] * (len(names) - 1)]
        labels = [f'{start}{name}: "' for start, name in zip(before, names, strict=True)]
        texts, ends = _joined([label.encode() for label in [*labels, '"}']])
        out = np.empty(len(self.data) + len(self) * len(texts), np.uint8)
        bounds = np.zeros(len(self) + 1, np.int64)
        chosen = np.array([*self.places.values()], np.int64)
        _rewrite(self.data, self.spans, chosen, texts, ends, out, bounds[1:])
        whole, cuts = out[: bounds[-1]].tobytes(), bounds.tolist()
        return [whole[a:b].decode() for a, b in pairwise(cuts)]


def read_raw_lines(file: InputFile, names: FieldNames, progress: Progress = None) -> Iterator[RawLines]:
    """The lines of a file in blocks; a line of more bytes than a document may have is refused."""
    number, rest = 1, b""
    with opened(file) as (stream, raw):
        assert isinstance(stream, BufferedReader)
        while True:
            try:
                chunk = stream.read1(_CHUNK)
            except DAMAGE as e:
                message = f"the file is damaged or not what its name says ({e})"
                raise file.refusal(message, number + rest.count(b"\n")) from None
            data, at = rest + chunk, 0
            if not chunk and data and not data.endswith(b"\n"):
                data += b"\n"
            for stop, count in _blocks(file, data, number, at_end=not chunk):
                block = data[at:stop]
                yield RawLines(file, names, block.removeprefix(_MARK) if number == 1 else block, count, number)
                at, number = stop, number + count
            if not chunk:
                return
            rest = data[at:]
            if progress is not None:
                progress(raw.tell())


def _blocks(file: InputFile, data: bytes, number: int, *, at_end: bool) -> Iterator[tuple[int, int]]:
    """The ends of blocks of complete lines, and their numbers of lines; an incomplete rest is kept, unless `at_end`."""
    codes, found, at = np.frombuffer(data, np.uint8), np.zeros(4, np.int64), 0
    while True:
        _cut_lines(codes, at, len(codes), RAW_LINES, RAW_BYTES, found)
        stop, count, longest, is_full = found.tolist()
        if longest > file.max_document and not at_end:  # at the end all lines have been looked at
            sizes = [len(line) + 1 for line in data[at:stop].split(b"\n")]
            raise file.too_large(number + next(i for i, size in enumerate(sizes) if size > file.max_document))
        if count == 0 or not (is_full or at_end):
            break
        yield stop, count
        at, number = stop, number + count
    if len(data) - stop > file.max_document:
        raise file.too_large(number + count)


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
def _cut_lines(data, at, end, max_lines, max_bytes, found):
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
def _locate(data, keys, key_ends, are_texts, spans, lines):
    """Find the values of all lines, [document, key, from and to]; lines of white space are skipped.

    `keys`: the keys of every object in their order, each in quotes; `are_texts`: which of their values must be texts.
    Writes the line numbers of documents to `lines`, from 0. Returns the number of documents, or _NOT_PLAIN if a line is
    not plain.
    """
    at, line, count = 0, 0, 0
    while at < data.size:
        end = at
        while end < data.size and data[end] != _LINE_END:
            end += 1
        if _skip_blank(data, at, end) < end:
            if not _locate_line(data, at, end, keys, key_ends, are_texts, spans[count]):
                return _NOT_PLAIN
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
    """Put the characters of a text into `codes` from `to` on; returns where they end, _NOT_PLAIN if it is not valid."""
    while at < end:
        c = np.int64(data[at])
        if c < 0x80 and c != _BACKSLASH:
            at += 1
        else:
            c, at = _escaped(data, at + 1, end) if c == _BACKSLASH else _character(data, at, end)
            if c < 0:
                return _NOT_PLAIN
        codes[to] = c
        to += 1
    return to


@njit("const uint8[:], const int64[:,:,:], const int64[:], uint32[:], int64[:]")
def _decode(data, spans, chosen, codes, ends):
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
def _rewrite(data, spans, chosen, labels, label_ends, out, ends):
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
