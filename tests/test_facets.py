"""Facets: exact counts of values over all documents that match, compared with plain counting."""

from __future__ import annotations

import re
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from served import served
from small import small_dense
from vizsla import Filter, Index, RemoteIndex, VizslaError, parse_model
from vizsla.errors import CollectionError
from vizsla.index import FacetValue, FieldFacets, facets_of_hits
from vizsla.index.search import columns
from vizsla.runs import Document, Hit, Hits

WORDS = ["dog", "cat", "bark", "barks", "the", "fish"]
SCALARS = st.one_of(
    st.sampled_from(["en", "de", "", "zürich", "nul\x00inside", "1", "true"]),
    st.integers(-2, 2),
    st.sampled_from([0.5, 1.0, 2.0, 1e300, 2**70]),
    st.booleans(),
)
VALUES = st.one_of(SCALARS, st.none(), st.lists(st.one_of(SCALARS, st.none(), st.just({"x": 1})), max_size=4))
METADATA = st.fixed_dictionaries(
    {}, optional={"a": VALUES, "b": st.one_of(VALUES, st.fixed_dictionaries({"c": VALUES})), "odd name": VALUES}
)
TEXT = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
DOCUMENT = st.tuples(st.integers(0, 9).map(str), TEXT, METADATA)
FIELDS = ["a", "b", "b.c", "odd name", "title"]


def looked_up(content: Mapping[str, Any], field: str) -> Any:
    value: Any = content
    for key in field.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def counted(contents: list[Mapping[str, Any]], field: str) -> tuple[Counter[tuple[str, Any]], int]:
    """How many documents have each value, 1 and 1.0 as one, 1 and true as two; and how many have none."""
    counts: Counter[tuple[str, Any]] = Counter()
    missing = 0
    for content in contents:
        value = looked_up(content, field)
        elements = value if isinstance(value, list) else [value]
        present = {(family(e), e) for e in elements if isinstance(e, str | int | float)}
        missing += not present
        counts.update(present)
    return counts, missing


def family(value: object) -> str:
    return "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


def as_counter(facet: FieldFacets) -> Counter[tuple[str, Any]]:
    return Counter({(family(v.value), v.value): v.count for v in facet.values})


def in_order(facet: FieldFacets) -> bool:
    order = {"number": 0, "text": 1, "boolean": 2}
    keys = [(-v.count, order[family(v.value)], v.value) for v in facet.values]
    return keys == sorted(keys)


def fill(index: Index, commits: list[list[tuple[str, str, dict[str, Any]]]], deleted: list[str]) -> None:
    for batch in commits:
        unique = {doc_id: {"id": doc_id, "title": doc_id, "text": text, **more} for doc_id, text, more in batch}
        index.add(list(unique.values()))
        index.commit()
    index.delete(deleted)
    index.commit()


@given(
    st.lists(st.lists(DOCUMENT, min_size=1, max_size=6), min_size=1, max_size=3),
    st.lists(st.integers(0, 9).map(str), max_size=3),
    st.one_of(st.none(), TEXT),
    st.sampled_from([None, 'a = "en"', "b.c >= 1 or not exists(a)", 'title in ["1", "3", "5", "7"]']),
    st.sampled_from([None, 2]),
    st.sampled_from(["bm25", "bm25-multifield"]),
)
def test_counts_are_those_of_plain_counting(
    commits: list[list[tuple[str, str, dict[str, Any]]]],
    deleted: list[str],
    query: str | None,
    filter: str | None,
    passages: int | None,
    model: str,
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Index.create(Path(folder) / "i", model, passages=passages) as index,
    ):
        fill(index, commits, deleted)
        documents = list(index.documents())
        present = [f for f in FIELDS if counted([d.content for d in documents], f)[0]]
        try:
            condition = Filter.of(filter)
            expected_ids = [d.id for d in documents if condition is None or condition.accepts(d.content)]
            assert filter is None or index.matching_ids(filter) == expected_ids
            got = index.facets(present, query, filter, size=1000)
        except VizslaError as e:
            assert "no document has" in str(e)  # noqa: PT017 (what the filter asks for may be in no document)
            return
        if query is not None:
            found = {hit.id for hit in index.search_many([query], 1000, filter)[0]}
            words = query.strip() != ""
            scored = {i for i in expected_ids if words and index.explain(query, i, filter).score > 0}
            assert found == scored
            expected_ids = [i for i in expected_ids if i in found]
        matching = [d.content for d in documents if d.id in expected_ids]
        assert got.documents == len(matching)
        assert list(got.fields) == present
        for field in present:
            counts, missing = counted(matching, field)
            assert as_counter(got[field]) == counts
            assert (got[field].distinct, got[field].missing) == (len(counts), missing)
            assert in_order(got[field])
            for size in (1, 2):
                few = index.facets([field], query, filter, size=size)[field]
                assert few.values == got[field].values[:size]
                assert (few.distinct, few.missing) == (got[field].distinct, got[field].missing)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with Index.create(tmp_path / "i") as made:
        made.add(
            [
                {"id": "1", "title": "Dogs", "text": "dogs bark", "year": 1999, "lang": "en", "tags": ["a", "b", "a"]},
                {"id": "2", "title": "Cats", "text": "cats purr", "year": 2001, "lang": "en", "tags": []},
                {"id": "3", "title": "Dogs", "text": "dogs sleep", "year": 1999.0, "source": {"name": "wire"}},
                {"id": "4", "title": "", "text": "", "lang": "de", "draft": True},
            ]
        )
        made.commit()
        yield made


def test_facets_of_a_query_a_filter_and_everything(index: Index) -> None:
    both = index.facets(["year", "tags"], "dog")
    assert both.documents == 2
    assert both["year"] == FieldFacets((FacetValue(1999, 2),), 1, 0)
    assert both["tags"] == FieldFacets((FacetValue("a", 1), FacetValue("b", 1)), 2, 1)
    assert index.facets(["lang"])["lang"] == FieldFacets((FacetValue("en", 2), FacetValue("de", 1)), 2, 1)
    assert index.facets(["lang"], filter={"year": 2001}).documents == 1
    assert index.facets(["lang"], "dogs cats", "year < 2000").documents == 2
    assert index.facets(["title"])["title"].values[0] == FacetValue("Dogs", 2)
    assert index.facets(["source.name"])["source.name"] == FieldFacets((FacetValue("wire", 1),), 1, 3)
    assert index.facets(["draft"])["draft"].values == (FacetValue(True, 1),)
    assert index.facets([], "dog").documents == 2
    assert index.facets(["lang"], "vizsla").documents == index.facets(["lang"], " ").documents == 0
    assert index.facets(["lang"], "vizsla")["lang"] == FieldFacets((), 0, 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (["yaer"], "no document has a value in the field 'yaer' that can be counted or sorted by"),
        (["source"], "no document has a value in the field 'source' that can be counted or sorted by"),
        ("year", "fields are a list of names"),
        ([7], "the name of a field is a text, not the number 7"),
        ([""], "a filter cannot name the field ''"),
    ],
)
def test_fields_that_cannot_be_counted(index: Index, fields: Any, message: str) -> None:
    with pytest.raises(VizslaError, match=message):
        index.facets(fields)


@pytest.mark.parametrize("size", [0, -1, True, 1.5, "ten"])
def test_sizes_that_make_no_sense(index: Index, size: Any) -> None:
    with pytest.raises(VizslaError, match="the number of values must be"):
        index.facets(["year"], size=size)


def test_a_query_is_a_text(index: Index) -> None:
    with pytest.raises(VizslaError, match="a query is a text"):
        index.facets(["year"], 7)  # type: ignore[arg-type]
    with pytest.raises(VizslaError, match="no document has a field 'yaer'"):
        index.facets(["year"], filter="yaer = 1")
    with pytest.raises(VizslaError, match="does not have what"):
        index.facets(["year"], "dog", model="bm25-wp")


def test_fields_worth_sorting_by(tmp_path: Path) -> None:
    records = [
        {
            "id": str(i), "text": "x", "price": i / 7, "day": f"2024-01-{10 + i % 15}",
            "lang": "de" if i % 3 else "en",
            "source": {"year": 1990 + i}, "url": f"https://example.org/{i}", "tags": ["a", "b"], "draft": i % 2 == 0,
            "same": 1, "note": None,
        }
        for i in range(50)
    ]  # fmt: skip
    with Index.create(tmp_path / "i") as index:
        assert index.sort_fields() == []
        index.add(records)
        index.commit()
        fields = index.sort_fields()
        assert fields == ["price", "day", "lang", "source.year"]
        for field in fields:
            assert len(index.search("x", sort=field)) == 10


def test_an_empty_index_has_no_values(tmp_path: Path) -> None:
    for passages in (None, 3):
        with Index.create(tmp_path / f"{passages}", passages=passages) as index:
            assert index.facets([], "dog").documents == 0
            assert index.facet_fields() == []
            with pytest.raises(VizslaError, match=r"no document has .* the field 'year' .*; there are no fields yet"):
                index.facets(["year"], "dog")


def test_what_rm3_adds_to_a_query_counts(tmp_path: Path) -> None:
    """An expanded query finds documents that have no word of the query itself."""
    with Index.create(tmp_path / "i") as index:
        texts = ["vizsla points", "points birds", "birds"] + [f"other{i}" for i in range(60)]
        index.add([{"id": str(i), "text": text} for i, text in enumerate(texts)])
        index.commit()
        model = "bm25-rm3"
        assert index.facets(["text"], "vizsla").documents == 1
        assert index.facets(["text"], "vizsla", model=model).documents == 2
        assert index.facets(["text"], "points", model=model).documents == 3
        assert len(index.search("points", 10, model=model)) == 3
        assert index.facets(["text"], "points", 'text = "vizsla points"', model=model).documents == 1


@pytest.mark.parametrize("weight", [0.0, 2.0])
def test_all_documents_with_a_vector_match_a_dense_part(tmp_path: Path, weight: float) -> None:
    model = parse_model("bm25") + weight * small_dense(tmp_path / "network")
    with Index.create(tmp_path / "i", model) as index:
        index.add([{"id": str(i), "text": text} for i, text in enumerate(["dogs bark", "cats", "", "fish"])])
        index.commit()
        index.delete("3")
        index.commit()
        for query in ("dogs", "river", "\u0378"):
            found = index.search(query, 10)
            assert index.facets(["text"], query).documents == len(found)
            for part in ("bm25", model):
                found = index.search(query, 10, model=part)
                assert index.facets(["text"], query, model=part).documents == len(found)


def test_words_that_weigh_nothing_or_less_count_as_in_a_search(tmp_path: Path) -> None:
    """A search gives documents whose only word weighs nothing, and so they are counted."""
    for variant in ("robertson", "atire"):
        with Index.create(tmp_path / variant, f"bm25(variant={variant})") as index:
            index.add([{"id": str(i), "text": f"common word{i}", "n": i} for i in range(4)])
            index.commit()
            assert index.facets(["n"], "common").documents == len(index.search("common")) == 4


def test_without_texts_metadata_is_counted(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", store=False) as index:
        index.add([{"id": "1", "title": "Dogs", "text": "dogs bark", "year": 1999}])
        index.commit()
        assert index.facets(["year"], "dog")["year"].values == (FacetValue(1999, 1),)
        with pytest.raises(VizslaError, match="no document has a value in the field"):
            index.facets(["title"])


def test_a_column_is_read_once_and_few_are_kept(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_COLUMNS", 2)
    reads: list[tuple[str, ...]] = []
    read = columns.Columns._finish
    monkeypatch.setattr(columns.Columns, "_finish", lambda self, path: reads.append(path) or read(self, path))
    index.facets(["year", "lang"])
    index.facets(["year", "lang"], "dog")
    assert reads == [("year",), ("lang",)]
    index.facets(["tags"])
    index.facets(["lang"])
    assert len(reads) == 3
    index.facets(["year"])
    assert len(reads) == 4
    index.add([{"id": "9", "text": "more", "year": 7}])
    index.commit()
    assert index.facets(["year"], filter="year = 7")["year"].values == (FacetValue(7, 1),)


def test_threads_share_a_column(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[tuple[str, ...]] = []
    read = columns.Columns._finish
    monkeypatch.setattr(columns.Columns, "_finish", lambda self, path: reads.append(path) or read(self, path))
    got: list[Any] = []
    index.facets([])  # rows are there
    assert index._searcher.columns
    threads = [threading.Thread(target=lambda: got.append(index.facets(["year"], "dog"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reads) == 1
    assert len(got) == 8
    assert all(g == got[0] for g in got)


def test_long_values_have_their_bounds(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_CHARACTERS", 20)
    assert index.facets(["lang"])["lang"].distinct == 2
    with pytest.raises(VizslaError, match="the field 'text' has too many long values to count or sort them"):
        index.facets(["text"])


def test_the_whole_text_of_a_document_in_passages(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", passages=2) as index:
        index.add([{"id": i, "text": "a b c d e", "n": i} for i in ("1", "2#0", "3#1")])
        index.commit()
        assert index.facets(["text"])["text"].values == (FacetValue("a b c d e", 3),)
        assert index.facets(["n"], "e")["n"].distinct == 3
        assert index.matching_ids('n = "2#0"') == ["2#0"]
        assert index.matching_ids('text = "c d"') == ["1", "2#0", "3#1"]  # a filter looks at passages


def test_facets_of_hits(index: Index) -> None:
    hits = index.search("dogs cats purr", 10)
    everything = facets_of_hits(hits, ["year", "tags", "source.name", "nowhere"])
    assert everything.documents == 3
    for field in ("year", "tags", "source.name"):
        assert everything[field] == index.facets([field], "dogs cats purr")[field]
    assert everything["nowhere"] == FieldFacets((), 0, 3)
    assert facets_of_hits(hits[:1], ["title"])["title"].values == (FacetValue("Cats", 1),)
    assert facets_of_hits([], ["title"]).documents == 0
    assert len(facets_of_hits(hits, ["year"], size=1)["year"].values) == 1


def test_fields_worth_counting(tmp_path: Path) -> None:
    records = [
        {
            "id": str(i),
            "title": "Dogs",
            "text": "dogs",
            "year": 1900 + i % 60,
            "lang": ["en", "de"][i % 2],
            "url": f"https://example.org/{i}",
            "abstract": "long " * 20,
            "tags": ["a", "b"] if i % 2 else [],
            "source": {"name": "wire", "place": {"city": "Bonn"}, "odd key": "x"},
            "draft": i % 3 == 0,
            "price": i / 7,
            "nothing": None,
            "outline": {"headings": [[0, 1, "Dogs"]], "pages": [0]},  # as documents from files have it
            "with.dot": "x",
            "two words": "x",
            "and": "x",
            "a`b": "x",
        }
        for i in range(300)
    ]
    expected = [
        "year",
        "lang",
        "tags",
        "source.name",
        "source.place.city",
        "draft",
        "`with.dot`",
        "`two words`",
        "`and`",
    ]
    for passages in (None, 1):
        with Index.create(tmp_path / f"{passages}", passages=passages) as index:
            index.add(records)
            index.commit()
            assert index.facet_fields() == expected
            assert index.facets(expected).documents == 300
    with Index.create(tmp_path / "many") as index:
        index.add([{"id": str(i), "text": "x", **{f"f{n}": 1 for n in range(20)}} for i in range(3)])
        index.commit()
        assert index.facet_fields() == [f"f{n}" for n in range(12)]


def test_a_filter_is_needed_to_match_ids(index: Index) -> None:
    assert index.matching_ids("year = 1999") == ["1", "3"]
    assert index.matching_ids({"lang": ["en", "de"]}) == ["1", "2", "4"]
    for nothing in (None, {}):
        with pytest.raises(VizslaError, match="without one all documents would match"):
            index.matching_ids(nothing)
    index.delete(index.matching_ids("year = 1999"))
    index.commit()
    assert index.matching_ids("exists(lang)") == ["2", "4"]


def test_a_closed_index_is_told(index: Index) -> None:
    index.close()
    with pytest.raises(CollectionError, match="has been closed"):
        index.facets(["year"])


# Ranges and dates

ENDS = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, 1.5, -1e3]), st.sampled_from(["", "a", "e", "zürich"]))
DATES = st.sampled_from(["1999-12-31", "2000-01-01", "2000-02-29T10:00:00", "2001-02-29", "2000-03-05 08:00", "soon"])
DATED = st.one_of(DATES, st.none(), st.lists(st.one_of(DATES, st.integers(0, 1)), max_size=3))


@st.composite
def ranges(draw: st.DrawFn) -> str:
    low, high = draw(st.one_of(st.none(), ENDS)), draw(st.one_of(st.none(), ENDS))
    return "..".join("" if end is None else f'"{end}"' if isinstance(end, str) else repr(end) for end in (low, high))


@settings(max_examples=6)
@given(
    st.lists(st.lists(st.tuples(DOCUMENT, DATED), min_size=1, max_size=6), min_size=1, max_size=3),
    st.lists(st.integers(0, 9).map(str), max_size=3),
    st.one_of(st.none(), TEXT),
    st.lists(ranges(), min_size=1, max_size=4),
    st.sampled_from(["year", "month", "day"]),
    st.sampled_from([None, 2]),
)
def test_buckets_are_those_of_plain_counting(
    commits: list[list[tuple[tuple[str, str, dict[str, Any]], Any]]],
    deleted: list[str],
    query: str | None,
    asked: list[str],
    unit: str,
    passages: int | None,
) -> None:
    with tempfile.TemporaryDirectory() as folder, Index.create(Path(folder) / "i", passages=passages) as index:
        fill(index, [[(i, text, {**more, "on": on}) for (i, text, more), on in batch] for batch in commits], deleted)
        found = None if query is None else {hit.id for hit in index.search_many([query], 1000)[0]}
        matching = [d.content for d in index.documents() if found is None or d.id in found]
        hits = Hits(Hit(i, 1.0, Document(str(i), content)) for i, content in enumerate(matching))
        for field in (f"a({', '.join(asked)})", f"on({unit})"):
            try:
                counted_all = index.facets([field], query)[field]
            except VizslaError as e:
                assert re.search("no document has|is not a range|is a text, the other|is empty|has no dates", str(e))  # noqa: PT017
                continue
            name = field.partition("(")[0]
            assert facets_of_hits(hits, [field])[field] == counted_all
            assert counted_all.missing == counted(matching, name)[1]
            for bucket in counted_all.values:
                condition = Filter.parse(str(bucket.filter))
                assert bucket.count == sum(condition.accepts(content) for content in matching)
            if name == "a":
                assert [v.value for v in counted_all.values] == asked
                continue
            length = {"year": 4, "month": 7, "day": 10}[unit]
            elements = {e for c in matching for e in (c["on"] if isinstance(c.get("on"), list) else [c.get("on")])}
            dates = sorted(e[:length] for e in elements if isinstance(e, str) and e not in ("soon", "2001-02-29"))
            names = [str(v.value) for v in counted_all.values]
            assert names == sorted(set(names))
            assert set(dates) <= set(names)
            assert (names[:1], names[-1:]) == (dates[:1], dates[-1:])


@pytest.fixture
def dated(tmp_path: Path) -> Iterator[Index]:
    days = ["2023-11-05", "2023-11-30T23:59:59", "2024-02-01", None, "2024-02-29"]
    with Index.create(tmp_path / "dated") as made:
        made.add([{"id": str(i), "text": "dogs", "day": day, "year": 1900 + 25 * i} for i, day in enumerate(days)])
        made.commit()
        yield made


def test_ranges_are_half_open_and_may_overlap(dated: Index) -> None:
    facet = "year(..1925, 1925..1975, 1950.., 1990..1995)"
    got = dated.facets([facet], "dogs", size=1)[facet]
    assert got.values == (
        FacetValue("..1925", 1, "year < 1925"),
        FacetValue("1925..1975", 2, "year >= 1925 and year < 1975"),
        FacetValue("1950..", 3, "year >= 1950"),
        FacetValue("1990..1995", 0, "year >= 1990 and year < 1995"),
    )
    assert (got.distinct, got.missing) == (4, 0)
    for bucket in got.values:
        assert dated.search("dogs", filter=bucket.filter, total=True).total == bucket.count
    days = "day(..2024-02-01, 2024-02-01..)"
    assert [v.count for v in dated.facets([days])[days].values] == [2, 2]
    assert dated.facets([days])[days].missing == 1


def test_dates_have_no_gaps(dated: Index) -> None:
    got = dated.facets(["day(month)", "day(year)"], "dogs")
    assert [(v.value, v.count) for v in got["day(month)"].values] == [
        ("2023-11", 2), ("2023-12", 0), ("2024-01", 0), ("2024-02", 2),
    ]  # fmt: skip
    assert got["day(month)"].values[1].filter == 'day >= "2023-12" and day < "2024-01"'
    assert [(v.value, v.count) for v in got["day(year)"].values] == [("2023", 2), ("2024", 2)]
    assert len(dated.facets(["day(day)"])["day(day)"].values) == 117
    assert dated.facets(["day(day)"], filter="year = 1975")["day(day)"] == FieldFacets((), 0, 1)
    assert sorted(dated.facet_fields()) == ["day(year)", "year"]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("yaer(1..2)", "no document has a value in the field 'yaer' .* did you mean 'year'"),
        ("year(2..1)", "the range 2..1 of the field 'year' is empty; write the smaller end first"),
        ("year(1..1)", "the range 1..1 of the field 'year' is empty"),
        ('year(1.."b")', "one end of the range .* is a text, the other a number"),
        ('year("a"..)', "no document has a text in the field 'year'"),
        ("day(1900..)", "no document has a number in the field 'day'"),
        ("year(month)", "the field 'year' has no dates such as"),
        ("day(week)", "unknown way to count a field"),
        ("day()", "unknown way to count a field"),
        ("year(..)", r"'\.\.' is not a range of the field 'year'"),
        ("year(1..2 3..4)", "is not a range of the field 'year'"),
        ("year(true..)", "is not a range of the field 'year'"),
        ("(1..2)", "a filter cannot name the field ''"),
    ],
)
def test_buckets_that_cannot_be_counted(dated: Index, field: str, message: str) -> None:
    with pytest.raises(VizslaError, match=message):
        dated.facets([field])


def test_dates_at_the_ends_of_the_calendar(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i") as index:
        index.add([{"id": "1", "text": "x", "day": "0001-01-01"}, {"id": "2", "text": "x", "day": "9999-12-31"}])
        index.commit()
        for unit, last in (("year", "9999"), ("month", "9999-12"), ("day", "9999-12-31")):
            facet = f"day({unit})"
            (value,) = index.facets([facet], filter='day > "9"')[facet].values
            assert value == FacetValue(last, 1, f'day >= "{last}"')
        with pytest.raises(VizslaError, match="span 119,988 months, more than 10,000; count longer units"):
            index.facets(["day(month)"])


def test_a_field_with_parentheses_in_its_name(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i") as index:
        index.add([{"id": str(i), "text": "x", "length (cm)": i} for i in range(4)])
        index.commit()
        (field,) = index.facet_fields()
        assert index.facets([field])[field].distinct == 4
        facet = f"{field}(0..2)"
        (bucket,) = index.facets([facet])[facet].values
        assert (bucket.count, index.count(filter=bucket.filter)) == (2, 2)


def test_a_server_counts_the_same_buckets(dated: Index) -> None:
    wanted = ["year(..1950, 1950..)", "day(month)", "year"]
    with served({"dogs": str(dated.path)}) as server, RemoteIndex(f"{server.url}/dogs") as client:
        assert client.facets(wanted, "dogs") == dated.facets(wanted, "dogs")
        assert client.facets(wanted, "dogs", over=2) == dated.facets(wanted, "dogs", over=2)
        with pytest.raises(VizslaError, match="is empty; write the smaller end first"):
            client.facets(["year(2..1)"])
