"""JSON lines in blocks of bytes, so that other threads and processes parse them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedReader
from itertools import pairwise
from typing import overload

import numpy as np

from vizsla.datasets import line_kernels
from vizsla.datasets.files import DAMAGE, InputFile, Progress, not_utf8, opened, parse_line
from vizsla.datasets.skipped import Skipped
from vizsla.errors import InputError, VizslaError
from vizsla.lazy import cached_property
from vizsla.plain_data import parse_json
from vizsla.runs.documents import Document, FieldNames, Origin

RAW_LINES = 1000
RAW_BYTES = 1_000_000
_CHUNK = 1 << 22
_MARK = b"\xef\xbb\xbf"  # a file may begin with it
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


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
        count = line_kernels.locate(data, *_joined(quoted), are_texts, spans, lines)
        if count == line_kernels.NOT_PLAIN:
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
            if not line_kernels.decode(self.data, self.spans, np.array(chosen, np.int64), codes, bounds[1:]):
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
        line_kernels.rewrite(self.data, self.spans, chosen, texts, ends, out, bounds[1:])
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
        line_kernels.cut_lines(codes, at, len(codes), RAW_LINES, RAW_BYTES, found)
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
