"""JSON lines in blocks: the same lines as one by one, and a kernel that reads what Python's json reads, or nothing."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vizsla import BM25, Model, parse_model
from vizsla.datasets import RawLines, raw_lines
from vizsla.datasets.files import InputFile, read_lines
from vizsla.datasets.raw_lines import PlainLines, read_raw_lines
from vizsla.errors import InputError
from vizsla.models import field_text
from vizsla.runs import FieldNames
from vizsla.runs.documents import USUAL_NAMES

FILE = InputFile(Path("corpus.jsonl"), "corpus.jsonl")


def block(data: bytes, names: FieldNames = USUAL_NAMES) -> RawLines:
    return RawLines(FILE, names, data, data.count(b"\n") + (not data.endswith(b"\n")), 7)


def plain(lines: RawLines, model: Model | None = None) -> PlainLines | None:
    model = model or BM25()
    groups = [part.component.fields for part in model.parts]
    return lines.plain(model.fields, groups, lambda content: model.problem(content) is None)


def check_same(lines: RawLines, model: Model | None = None) -> bool:
    """Whether a kernel reads these lines; if it does, it must read what the slow way does."""
    model = model or BM25()
    found = plain(lines, model)
    if found is None:
        return False
    documents = [d.with_fields(model.fields) for d in lines.documents()]
    assert found.ids == [d.id for d in documents]
    assert list(found.origins) == [d.origin for d in documents]
    rows = [{f: d.content[f] for f in model.fields if f in d.content} for d in documents]
    assert found.objects() == [json.dumps(row, ensure_ascii=False) for row in rows]
    others = [{key: d.content[key] for key in d.content if key not in model.fields} for d in documents]
    assert found.metadata == [json.dumps(row, ensure_ascii=False) if row else None for row in others]
    for part in model.parts:
        codes, bounds = found.code_points(part.component.fields)
        texts = [codes[a:b].tobytes().decode("utf-32-le") for a, b in pairwise(bounds)]
        assert texts == [field_text(d.content, part.component.fields) for d in documents]
    return True


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
records = st.fixed_dictionaries({"_id": texts.filter(bool), "title": texts, "text": texts})


@given(st.lists(records, min_size=1, max_size=5), st.booleans(), st.sampled_from(["", " ", "\t \r"]))
@example([{"_id": '"\\/', "title": "\b\f\n\r\t\0\x1f\x7f", "text": "é\u2028\U0001f600"}], True, "")
def test_a_kernel_reads_what_json_writes(some: list[dict[str, str]], ascii_only: bool, space: str) -> None:
    ordered = [{key: record[key] for key in some[0]} for record in some]
    dumped = [json.dumps(record, ensure_ascii=ascii_only) for record in ordered]
    assert check_same(block((space + "\n" + "\n\n".join(space + line + space for line in dumped)).encode()))


pieces = st.sampled_from(
    ['{', '}', '"', '\\', ':', ',', ' ', '\t', '\n', '\r', '"_id"', '"text"', '"title"', '"a"', '"\\u00e9"', "null",
     "1", '"\\ud83d\\ude00"', '"\\ud83d"', '"\\n"', '"\\x"', '"\\u12g4"', "[]", "{}", '"é"', '"\x01"', '"', "\xa0"]
)  # fmt: skip
ODD = [
    "1",
    "01",
    "[1,]",
    "[1",
    "{]}",
    "NaN",
    "1 2",
    '{"a": "}"}',
    '{"a": 1, "a": 2}',
    '"\\ud800"',
    '"a"b',
    "",
    "tru",
    "\xa0",
]
line_of = st.builds(
    lambda i, t, more: f'{{"_id": {i}, "text": {t}{more}}}',
    st.sampled_from(['"1"', '""', "1", '"\\u0061"', '"\\ud800"', '"é"']),
    st.sampled_from(['"dog"', "null", '""', '"a\\nb"', '"\\/"', '"\\"', '"\x1f"', '"\ud83d\\ude00"', '["a"]']),
    st.sampled_from(["", ', "title": "T"', ', "_id": "2"', ",", *(f', "n": {n}' for n in ODD)]),
)


@given(st.lists(st.one_of(line_of, st.lists(pieces, max_size=9).map("".join)), min_size=1, max_size=4), st.binary())
@example(['{"_id": "1", "text": "\\ud83d\\ude00"}'], b"")
@example(['{"_id": "1", "text": "dog"}'], b'{"_id": "2", "text": "\xed\xa0\x80"}')
@example(['{"_id": "1", "text": "dog"}'], b'{"_id": "2", "text": "\xc0\x80"}')
@example(['{"_id": "1", "text": "dog"}'], b'{"_id": "2", "text": "\xf4\x90\x80\x80"}')
@example(['{"_id": "1", "text": "dog"}'], b'{"_id": "2", "text": "\xe2\x82"}')
@example(['{"_id": "1", "text": "dog"}'], b'{"text": "dog", "_id": "2"}')
def test_what_a_kernel_does_not_read_is_left_to_json(some: list[str], more: bytes) -> None:
    """It reads a block as the slow way does, or not at all; what the slow way refuses it never reads."""
    lines = block("\n".join(some).encode("utf-8", "surrogatepass") + b"\n" + more)
    try:
        documents = lines.documents()
        readable = all(BM25().problem(d.content) is None for d in documents)
    except InputError:
        readable = False
    if not readable:
        assert plain(lines) is None
    else:
        check_same(lines)


@pytest.mark.parametrize(
    ("record", "names", "model"),
    [
        ({"id": "1", "contents": "dogs"}, USUAL_NAMES, "bm25"),
        ({"docno": "1", "headline": "Dogs", "body": "bark"}, USUAL_NAMES, "bm25"),
        ({"docno": "1", "headline": "Dogs", "body": "bark"}, USUAL_NAMES, "bm25(fields=body/headline)"),
        ({"key": "1", "words": "dogs bark"}, FieldNames("key", "words"), "bm25"),
        ({"title": "Dogs", "id": "1", "text": "bark"}, USUAL_NAMES, "bm25-multifield"),
        ({"title": "", "id": "1", "text": ""}, USUAL_NAMES, "bm25-prime"),
        ({"id": "1", "docid": "2", "text": "dogs", "metadata": {}}, USUAL_NAMES, "bm25"),
        ({"id": "1", "text": "dogs", "title": ["a", "list"]}, USUAL_NAMES, "bm25(fields=text)"),
    ],
)
def test_fields_have_the_names_that_the_model_reads(record: dict[str, Any], names: FieldNames, model: str) -> None:
    assert check_same(block(json.dumps(record).encode(), names), parse_model(model))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.tuples(values, values), min_size=1, max_size=4), st.booleans(), st.sampled_from(["", " ", "\t \r"]))
def test_other_fields_are_metadata_of_any_kind(some: list[tuple[Any, Any]], ascii_only: bool, space: str) -> None:
    separators = space + "," + space, space + ":" + space
    dumped = [
        json.dumps({"more": a, "_id": f"{i}", "text": "dog", "n": b}, ensure_ascii=ascii_only, separators=separators)
        for i, (a, b) in enumerate(some)
    ]
    assert check_same(block("\n".join(dumped).encode()))


@pytest.mark.parametrize(
    "record",
    [
        {"id": 1, "text": "dog"},
        {"id": "1", "text": ["dog", "cat"]},
        {"id": "1", "text": "dog", "size": float("nan")},
        {"id": "1", "text": "dog", "more": {"a": ["\ud800"]}},
        {"id": "1", "title": "no text"},
        {"text": "no id"},
        ["a list"],
        "text",
    ],
)
def test_other_records_are_left_to_json(record: Any) -> None:
    assert plain(block(json.dumps(record).encode())) is None


file_lines = st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")), max_size=9)


@given(
    file_lines, st.booleans(), st.integers(4, 20), st.integers(1, 5), st.integers(1, 9),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
)  # fmt: skip
def test_blocks_hold_the_lines_of_a_file(
    lines: list[bytes], ends: bool, most: int, at_once: int, chunk: int, mark: bytes
) -> None:
    """An error ends both ways of reading; blocks may end earlier, and a line that is too long may be told first."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder, "lines.jsonl")
        path.write_bytes(mark + b"\n".join(lines) + (b"\n" if ends else b""))
        file = InputFile(path, "lines", most)
        patch.setattr(raw_lines, "RAW_LINES", at_once)
        patch.setattr(raw_lines, "_CHUNK", chunk)
        found, error = outcome(pair for each in checked(read_raw_lines(file, USUAL_NAMES), at_once) for pair in each)
        expected, expected_error = outcome((n, line.removesuffix("\n")) for n, line in read_lines(file))
    assert (error is None) == (expected_error is None)
    assert found == (expected if error is None else expected[: len(found)])
    if error is not None and "not UTF-8" in error:
        assert error == expected_error


def checked(blocks: Iterator[RawLines], at_once: int) -> Iterator[list[tuple[int, str]]]:
    """The numbered lines of blocks, which follow one another."""
    next_line = 1
    for each in blocks:
        assert each.first == next_line
        assert 0 < each.count <= at_once
        yield [(number, each._text(number, line)) for number, line in each._lines()][: each.count]
        next_line += each.count


def outcome(lines: Iterator[tuple[int, str]]) -> tuple[list[tuple[int, str]], str | None]:
    """The lines, and the error that ended them."""
    found = []
    try:
        for each in lines:
            found.append(each)  # noqa: PERF402 (those before the error count)
    except InputError as e:
        return found, str(e)
    return found, None


def test_blocks_do_not_depend_on_how_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [json.dumps({"_id": str(i), "text": "dog " * (i % 50)}) for i in range(2500)]
    whole = "\n".join(lines).encode()
    (tmp_path / "a.jsonl").write_bytes(whole)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(whole))
    sizes = []
    for name, chunk in (("a.jsonl", 1 << 22), ("a.jsonl", 777), ("a.jsonl.gz", 1 << 22)):
        monkeypatch.setattr(raw_lines, "_CHUNK", chunk)
        blocks = list(read_raw_lines(InputFile(tmp_path / name, name), USUAL_NAMES))
        assert b"".join(each.data for each in blocks) == whole + b"\n"
        sizes.append([each.count for each in blocks])
    assert sizes[0] == sizes[1] == sizes[2] == [1000, 1000, 500]
