"""Filters: their meaning against plain Python, of any size, on values of any kind, and what is said of wrong ones."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vizsla import Filter, Index, VizslaError
from vizsla.index.search import columns, filtering
from vizsla.index.search.columns import Columns
from vizsla.runs.filters import literal
from waiting import calls_of

TEXTS = st.sampled_from(["", "a", "a\0b", "a\0c", "b", 'a"\\b', "é", "1", "\\u0000"])
NUMBERS = st.sampled_from([-1, 0, 1, 2, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**70), 0.1, 1.0, -0.0, 1e300])
VALUES = st.one_of(st.none(), st.booleans(), TEXTS, NUMBERS)
CONTENTS = st.dictionaries(
    st.sampled_from(["x", "y", "deep", "odd\\name"]),
    st.one_of(VALUES, st.lists(VALUES, max_size=3), st.dictionaries(st.just("x"), VALUES, max_size=1)),
    max_size=3,
)
FIELDS = st.sampled_from([("x",), ("y",), ("deep",), ("deep", "x"), ("odd\\name",)])
ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def columns_of(contents: list[dict[str, Any]]) -> Columns:
    """Documents as filters see those of an index."""
    return Columns(lambda first, last, _: contents[first:last], len(contents), ("y",))


def passing(contents: list[dict[str, Any]], text: str) -> list[int]:
    """The documents that meet a condition, whether or not its fields and types are there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filtering, "_check", lambda *_: None)
        return np.flatnonzero(filtering.passing_rows(columns_of(contents), Filter.parse(text))).tolist()


Meaning = tuple[str, Callable[[dict[str, Any]], bool]]
"""The text of a filter, and what it means."""


def kind(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return type(value).__name__
    return "number" if isinstance(value, int | float) else type(value).__name__


def in_64_bits(value: Any) -> Any:
    """A whole number beyond 64 bits is compared as a float."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and not -(2**63) <= value < 2**63 else value


def leaf(field: tuple[str, ...], sign: str, values: list[Any]) -> Meaning:
    name = ".".join(field) if "\\" not in field[0] else f"`{field[0]}`"
    asked = values if sign == "in" else values[:1]

    def looked_up(content: Any) -> Any:
        for part in field:
            if not isinstance(content, dict) or part not in content:
                return ...
            content = content[part]
        return content

    def meets(content: dict[str, Any]) -> bool:
        found = looked_up(content)
        if found is ... or sign == "exists":
            return found is not ...
        elements = found if isinstance(found, list) else [] if isinstance(found, dict) else [found]
        pairs = [(in_64_bits(e), in_64_bits(a)) for e in elements for a in asked if kind(e) == kind(a)]
        if sign in ORDER:
            return any(ORDER[sign](e, a) for e, a in pairs)
        return any(e == a for e, a in pairs) != (sign == "!=")

    if sign == "exists":
        return f"exists({name})", meets
    written = f"[{', '.join(map(literal, asked))}]" if sign == "in" else literal(asked[0])
    return f"{name} {sign} {written}", meets


LEAVES = st.one_of(
    st.tuples(FIELDS, st.sampled_from(["=", "!=", "in", "exists"]), st.lists(VALUES, min_size=1, max_size=4)),
    st.tuples(FIELDS, st.sampled_from(list(ORDER)), st.lists(st.one_of(TEXTS, NUMBERS), min_size=1, max_size=1)),
).map(lambda told: leaf(*told))


def chain(word: str, parts: list[Meaning]) -> Meaning:
    every = all if word == "and" else any
    return f" {word} ".join(f"({text})" for text, _ in parts), lambda c: every(meets(c) for _, meets in parts)


def combined(inner: st.SearchStrategy[Meaning]) -> st.SearchStrategy[Meaning]:
    return st.one_of(
        inner.map(lambda a: (f"NOT ({a[0]})", lambda c: not a[1](c))),
        st.lists(inner, min_size=2, max_size=4).map(lambda parts: chain("and", parts)),
        st.lists(inner, min_size=2, max_size=4).map(lambda parts: chain("or", parts)),
    )


FILTERS = st.recursive(LEAVES, combined, max_leaves=12)


@given(contents=st.lists(CONTENTS, max_size=6), condition=FILTERS, batch=st.integers(1, 7), most=st.integers(0, 20))
@example([{"x": "a"}, {"x": "a\0b"}], leaf(("x",), "=", ["a\0b"]), 7, 20)
@example([{"x": "a"}, {"x": "a\0b"}], leaf(("x",), "in", ["a", 1]), 7, 20)
def test_filters_mean_what_they_mean_in_python(
    contents: list[dict[str, Any]], condition: Meaning, batch: int, most: int
) -> None:
    """In however many batches columns are read, and whether or not they are kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "BATCH", batch)
        patch.setattr(filtering, "BATCH", batch)
        patch.setattr(columns, "MAX_CHARACTERS", most)
        found = passing(contents, condition[0])
    assert found == [n for n, content in enumerate(contents) if condition[1](content)]


YEARS = [{"x": 1900 + i % 100, "id": f"id{i}"} for i in range(300)]


@pytest.mark.parametrize(
    ("text", "meets"),
    [
        ("not " * 1000 + "x = 1950", lambda year: year == 1950),
        ("not (" * 99 + "x = 1950" + ")" * 99, lambda year: year != 1950),
        (" or ".join(f"x = {year}" for year in range(1950, 3000)), lambda year: year >= 1950),
        (" and ".join(f"x != {year}" for year in range(1950, 3000)), lambda year: year < 1950),
        (" or ".join(f"x > {year} and x < {year + 2}" for year in range(1000, 1950)), lambda year: year <= 1950),
        (
            "".join(f"not (x = {year} {('and', 'or')[year % 2]} " for year in range(1900, 1999))
            + "x = 1950"
            + ")" * 99,
            None,
        ),
    ],
    ids=["nots", "nested", "or", "and", "ranges", "deep"],
)
def test_large_and_deep_filters_are_answered(text: str, meets: Callable[[int], bool] | None) -> None:
    def deep(year: int, at: int = 1900) -> bool:
        if at == 1999:
            return year == 1950
        return not (year == at or deep(year, at + 1)) if at % 2 else not (year == at and deep(year, at + 1))

    expected = [n for n, content in enumerate(YEARS) if (meets or deep)(int(content["x"]))]
    assert passing(YEARS, text) == expected


def test_a_long_list_of_values_is_read_at_once() -> None:
    """As JSON it takes as many steps as a short one, and each value is looked up once, not in each document."""

    def text(values: int) -> str:
        return f"x in [{', '.join(literal(f'id{i}') for i in range(0, 2 * values, 2))}]"

    contents = [{"x": f"id{i}"} for i in range(10_000)]
    assert len(passing(contents, text(100_000))) == 5_000
    texts = text(300), text(3_000)
    assert calls_of(lambda: Filter.parse(texts[0])) == calls_of(lambda: Filter.parse(texts[1]))
    few, more = (calls_of(lambda: passing(contents, one)) for one in texts)  # noqa: B023
    assert more - few < 20 * 2_700
    odd = f"x in [{', '.join(repr(f'id{i}') for i in range(20_000))}]"  # not JSON
    assert len(passing(contents, odd)) == 10_000


def index_of(folder: Path, documents: list[dict[str, Any]]) -> Index:
    index = Index.create(folder / "i")
    index.add([{"text": "dog", **document} for document in documents])
    index.commit()
    return index


def found(index: Index, filter: Any) -> list[str]:
    return [hit.id for hit in index.search("dog", 100, filter)]


def test_a_text_with_a_nul_is_found_by_all_of_it(tmp_path: Path) -> None:
    with index_of(
        tmp_path, [{"id": "1", "x": "a"}, {"id": "2", "x": "a\0b"}, {"id": "3", "x": ["c", "a\0c"]}]
    ) as index:
        assert found(index, 'x = "a\0b"') == ["2"]
        assert found(index, 'x = "a"') == ["1"]
        assert found(index, 'x > "a\0b"') == ["3"]
        assert found(index, {"x": ["a\0c", "a"]}) == ["1", "3"]
        assert found(index, 'not x = "a\0c"') == ["1", "2"]


def test_a_value_of_a_type_no_document_has_is_told(tmp_path: Path) -> None:
    documents = [
        {"id": "1", "year": 1920, "lang": "en", "draft": True, "mixed": 1, "source": {"name": "w"}, "none": None},
        {"id": "2", "year": [1921, 7.5], "lang": ["de"], "draft": False, "mixed": "1", "tags": []},
    ]
    with index_of(tmp_path, documents) as index:
        for text, message in {
            'lang = "en" and year = "1920"': "no document has a text in the field 'year', only numbers; "
            r"write year = 1920 \(character 17 of the filter\)",
            'year > "7"': "only numbers; write year > 7 ",
            'year != "old"': "only numbers; compare with a number ",
            'year in ["1920", "7.5"]': r"write year in \[1920, 7.5\] ",
            "lang > 7": "no document has a number in the field 'lang', only texts; write lang > \"7\" ",
            'draft = "true"': "only true or false; write draft = true ",
            "draft > 0": "only true or false; write draft = true or draft = false ",
            "year = true": "no document has true or false in the field 'year'",
            'source = "w"': "only objects; name a field in it, as in source.name ",
            "`source` in [1, 2, 3, 4]": "only objects",
            'text = 3 or mixed = "x"': "the field 'text', only texts",
        }.items():
            with pytest.raises(VizslaError, match=message):
                found(index, text)
        assert found(index, "mixed = 1") == ["1"]
        assert found(index, 'mixed = "1"') == ["2"]
        assert found(index, 'year in [1920, "1920"]') == ["1"]
        assert found(index, "year = null") == []
        assert found(index, 'none = "x" or tags = 3') == []  # nothing is known of their types


def test_a_mapping_says_what_fields_must_be(tmp_path: Path) -> None:
    documents = [
        {"id": "1", "year": 1903, "lang": "en", "a.b": True, "source": {"name": "wire"}},
        {"id": "2", "year": 1903, "lang": 'a "word"\\', "not": 1.5},
    ]
    with index_of(tmp_path, documents) as index:
        assert found(index, {"year": 1903}) == ["1", "2"]
        assert found(index, {"year": np.int64(1903), "lang": ["en", "de"]}) == ["1"]
        assert found(index, {"lang": 'a "word"\\', "not": np.float32(1.5)}) == ["2"]
        assert found(index, {"source.name": "wire", "`a.b`": True}) == ["1"]
        assert found(index, {"year": np.array([1, 1903])}) == ["1", "2"]
        assert found(index, {}) == ["1", "2"]
        assert [hits[0].id for hits in index.search_many(["dog"], 1, {"lang": "en"})] == ["1"]
        assert index.run({"q": "dog"}, 10, {"lang": "en"})["q"].documents == ["1"]
        for wrong, message in [
            ({"year": {"from": 1903}}, "compares with texts, numbers, .* not with an object"),
            ({"year": float("nan")}, "not with the number nan"),
            ({3: 1}, "the fields of a filter are texts, not the number 3"),
            ({'a"b': 1}, "cannot name the field"),
            (["year"], "a filter is a text, .* or a mapping of fields to values, not a list"),
            (b"year = 1", "a filter is a text, .* not bytes"),
            ('year = "\ud800"', "at character 9: half a surrogate pair"),
        ]:
            with pytest.raises(VizslaError, match=message):
                found(index, wrong)


@given(st.dictionaries(st.sampled_from(["x", "deep.x", "and", "a b", "`a.b`"]), st.one_of(VALUES, st.lists(VALUES))))
def test_a_mapping_reads_back(conditions: dict[str, Any]) -> None:
    made = Filter.of(conditions)
    if made is None:
        assert conditions == {}
        return
    parts = made.root.parts if made.root.kind == "and" else (made.root,)
    values = [value if isinstance(value, list) else [value] for value in conditions.values()]
    assert [list(part.values) for part in parts] == [[in_64_bits(v) for v in some] for some in values]


def test_words_of_filters_in_any_case(tmp_path: Path) -> None:
    with index_of(tmp_path, [{"id": "1", "n": 1}, {"id": "2", "n": 2, "And": True}]) as index:
        assert found(index, "n = 1 OR NOT n IN [1] AND EXISTS(`And`) And `And` = TRUE") == ["1", "2"]
        assert found(index, "EXISTS(n) AND NOT EXISTS(`And`)") == ["1"]
