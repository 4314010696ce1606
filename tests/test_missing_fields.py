"""One rule for a field that no document has: it is refused, also in an empty index, unless a filter asks `exists`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vizsla import Index, VizslaError

DOCUMENTS: list[dict[str, Any]] = [
    {"id": "1", "title": "Dogs", "text": "Dogs bark.", "year": 1999, "source": {"name": "wire"}},
    {"id": "2", "title": "Cats", "text": "Cats and dogs.", "lang": "en"},
]
ASKED: dict[str, Callable[[Index], object]] = {
    "filter": lambda index: index.search("dogs", filter="colour = 1"),
    "negated filter": lambda index: index.search("dogs", filter="not colour = 1"),
    "other value": lambda index: index.search("dogs", filter="colour != 1"),
    "part of a filter": lambda index: index.search("dogs", filter="exists(year) or colour = 1"),
    "run": lambda index: index.run({"q": "dogs"}, filter={"colour": "red"}),
    "value in a query": lambda index: index.search("dogs colour:red", syntax="lucene"),
    "excluded value": lambda index: index.search("dogs -(colour:red)", syntax="lucene"),
    "sort": lambda index: index.search("dogs", sort="colour"),
    "collapse": lambda index: index.search("dogs", collapse="colour"),
    "facets": lambda index: index.facets(["colour"]),
    "facets of a filter": lambda index: index.facets([], filter="colour = 1"),
    "deletion": lambda index: index.matching_ids("colour = 1"),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("kind", ["empty", "emptied", "filled"])
def test_a_field_that_no_document_has_is_refused(kind: str, asked: str, tmp_path: Path) -> None:
    with Index.create(tmp_path / "i") as index:
        if kind != "empty":
            index.add([{**document, "colour": "red"} for document in DOCUMENTS])
            index.commit()
            index.delete(["1", "2"])
            index.add(DOCUMENTS if kind == "filled" else [])
            index.commit()
        with pytest.raises(VizslaError, match=r"no document has .*'colour'") as caught:
            ASKED[asked](index)
        fields = "fields are lang, source.name, text, title, year" if kind == "filled" else "there are no fields yet"
        assert fields in str(caught.value)


@pytest.mark.parametrize("documents", [[], DOCUMENTS])
def test_a_field_may_be_missing_if_the_filter_asks_for_it(documents: list[dict[str, Any]], tmp_path: Path) -> None:
    with Index.create(tmp_path / "i") as index:
        index.add(documents)
        index.commit()
        everything = [document["id"] for document in documents]
        for condition, expected in {
            "exists(colour)": [],
            "not exists(colour)": everything,
            'exists(colour) and colour = "red"': [],
            'not (exists(colour) and colour = "red")': everything,
            'not exists(colour) or colour = "red"': everything,
            "exists(source.colour) or exists(colour)": [],
        }.items():
            assert {hit.id for hit in index.search("dogs", filter=condition)} == set(expected), condition
            assert index.matching_ids(condition) == expected
            assert index.facets([], filter=condition).documents == len(expected)


def test_the_closest_field_is_suggested(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", store=False) as index:
        index.add(DOCUMENTS)
        index.commit()
        for name, hint in {
            "yaer": "did you mean 'year'[?]",
            "source.nmae": "did you mean 'source.name'[?]",
            "title": "fields are lang, source.name, year$",  # texts are not stored
        }.items():
            with pytest.raises(VizslaError, match=hint):
                index.search("dogs", filter=f"{name} = 1")
        with pytest.raises(VizslaError, match=r"did you mean 'year'[?]"):
            index.search("dogs", sort="-yaer")
