"""Totals: how many results all pages of a search have, against the length of the whole list of results."""

from __future__ import annotations

import copy
import json
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Cli
from served import served
from small import small_dense
from vizsla import Index, RemoteIndex, VizslaError, parse_model
from vizsla.errors import UnsupportedError
from vizsla.runs import Hits

WORDS = ["dog", "cat", "bark", "the", "fish", "bird"]
TEXT = st.lists(st.sampled_from(WORDS), max_size=7).map(" ".join)
DOCUMENT = st.tuples(st.integers(0, 14).map(str), TEXT, st.integers(1990, 1994))
PAGE = st.fixed_dictionaries(
    {},
    optional={
        "offset": st.integers(0, 4),
        "sort": st.sampled_from(["n", "-n"]),
        "collapse": st.just("n"),
        "min_score": st.sampled_from([0.05, 0.3]),
        "typos": st.sampled_from(["on", "suggest"]),
    },
)
WAYS: list[dict[str, Any]] = [{}, {"syntax": "lucene"}, {"syntax": "typing"}, {"approximate": 0.2}]


@settings(max_examples=10)
@given(
    st.lists(st.lists(DOCUMENT, min_size=1, max_size=8), min_size=1, max_size=3),
    st.lists(st.integers(0, 14).map(str), max_size=3),
    st.one_of(TEXT, st.sampled_from(["dgo fihs", '+dog -cat "the bird"~3'])),
    st.sampled_from([None, "n >= 1992", {"n": [1990, 1993]}]),
    PAGE,
    st.sampled_from(WAYS),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_the_total_is_the_length_of_the_whole_list(
    commits: list[list[tuple[str, str, int]]],
    deleted: list[str],
    query: str,
    filter: Any,
    page: dict[str, Any],
    way: dict[str, Any],
    passages: int | None,
    compacts: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder, Index.create(f"{folder}/i", passages=passages) as index:
        for batch in commits:
            index.add([{"id": doc_id, "text": text, "n": n} for doc_id, text, n in batch])
            index.commit()
        index.delete(deleted)
        index.commit()
        if compacts:
            index.compact()
        try:
            exact = {name: value for name, value in way.items() if name != "approximate"}
            (everything,) = index.search_many([query], 1000, filter, **{**page, **exact, "offset": 0})  # type: ignore[typeddict-item]
        except VizslaError as e:
            assert "no document has" in str(e) or "the query is empty" in str(e)  # noqa: PT017 (nothing to compare)
            return
        assert everything.total == len(everything)
        for k in (1, 3, 1000):
            (hits,) = index.search_many([query], k, filter, total=True, **page, **way)
            assert hits.total == len(everything), k
            (unasked,) = index.search_many([query], k, filter, **page, **way)
            assert unasked.total in (None, len(everything))
            assert (unasked, unasked.corrected) == (hits, hits.corrected)
        if not page and query.strip():
            assert index.count(query, filter, syntax=way.get("syntax")) == len(everything)


COMBINED = ["sum", "union", "rrf", "linear"]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("both")
    with Index.create(folder / "i", parse_model("bm25") + 2.0 * small_dense(folder / "network")) as index:
        texts = ["dogs bark", "cats", "", "dogs see fish", "birds", "dogs"]
        index.add([{"id": str(i), "text": text, "n": i % 2} for i, text in enumerate(texts)])
        index.commit()
        index.delete("5")
        index.commit()
        yield index


@pytest.mark.parametrize("combine", COMBINED)
@pytest.mark.parametrize("model", [None, "bm25"])
@pytest.mark.parametrize("filter", [None, "n = 0"])
def test_every_document_with_a_vector_is_a_result(both: Index, combine: str, model: str | None, filter: Any) -> None:
    if model is not None and combine != "sum":
        return
    for query in ("dogs", "river", "cats birds"):
        whole = both.search(query, 100, filter, model=model, combine=combine)
        assert whole.total == len(whole)
        for page in ({}, {"offset": 1}, {"sort": "n"}):
            hits = both.search(query, 1, filter, model=model, combine=combine, total=True, **page)  # type: ignore[arg-type]
            assert hits.total == len(whole) == both.count(query, filter, model=model)
        groups = both.search(query, 100, filter, model=model, combine=combine, collapse="n")
        hits = both.search(query, 1, filter, model=model, combine=combine, collapse="n", total=True)
        assert hits.total == len(groups)


def test_what_has_no_total(both: Index) -> None:
    with pytest.raises(UnsupportedError, match="with min_score there is no total"):
        both.search("dogs", combine="rrf", min_score=0.1, total=True)
    for wrong in (1, None, "yes"):
        with pytest.raises(VizslaError, match="total is true or false, not"):
            both.search("dogs", total=wrong)  # type: ignore[arg-type]
    with pytest.raises(VizslaError, match="a run cannot say how many results"):
        both.run({"q": "dogs"}, total=True)  # type: ignore[call-arg]
    assert both.search("dogs", 1).total is None


def test_a_total_stays_with_parts_and_copies(both: Index) -> None:
    hits = both.search("dogs", 2, model="bm25", total=True)
    for same in (hits[:1], hits[1:], Hits(hits), copy.copy(hits), pickle.loads(pickle.dumps(hits))):
        assert same.total == 2
    assert hits.with_spelling(did_you_mean="x").total == 2
    assert hits.with_total(None).total is None
    assert both.search_many(["", "dogs"], total=True)[0].total == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Index.create(tmp_path / "dogs") as index:
        index.add([{"id": str(i), "text": f"dogs bark {i}", "n": i % 3} for i in range(25)])
        index.commit()
    return tmp_path / "dogs"


def test_a_server_and_its_client_tell_the_same(folder: Path) -> None:
    with (
        served({"dogs": str(folder)}) as server,
        RemoteIndex(f"{server.url}/dogs") as client,
        Index.open(folder) as index,
    ):
        for options in ({}, {"offset": 3}, {"sort": "n"}, {"collapse": "n"}, {"min_score": 99.0}):
            for filter in (None, "n = 1"):
                theirs = client.search("dogs", 2, filter, total=True, **options)  # type: ignore[arg-type]
                ours = index.search("dogs", 2, filter, total=True, **options)  # type: ignore[arg-type]
                assert (theirs.total, list(theirs)) == (ours.total, list(ours))
        assert client.search("dogs", 100).total == 25
        assert client.search("dogs", 2).total is None
        for wrong in (1, "yes"):
            with pytest.raises(VizslaError, match="total is true or false"):
                client.search("dogs", total=wrong)  # type: ignore[arg-type]
        with pytest.raises(VizslaError, match="a run cannot say"):
            client.run({"q": "dogs"}, total=True)  # type: ignore[call-arg]
        assert client.with_model("bm25(k1=2)").search("dogs", 2, total=True).total == 25  # type: ignore[call-arg]

        def post(**body: Any) -> dict[str, Any]:
            return server.post("/v1/dogs/search", body).data["results"][0]

        assert post(k=0, total=True)["total"] == 25
        assert post(k=0, total=True, filter="n = 1")["total"] == 8
        assert post(query="dogs", k=0, total=True, filter="n = 1")["total"] == 8
        assert post(query="dogs", k=3)["hits"][2]["rank"] == 3
        assert "total" not in post(query="dogs", k=3)
        assert "total" not in post(k=0, facets={"fields": ["n"]})


def test_the_command_line_says_the_total(folder: Path, cli: Cli) -> None:
    code, out, err = cli("search", folder, "dogs", "-k", 3, "--total")
    assert (code, err) == (0, "1 to 3 of 25 results\n")
    assert len(out.splitlines()) == 6
    assert cli("search", folder, "dogs", "-k", 3)[2] == ""
    assert json.loads(cli("search", folder, "dogs", "-k", 3, "--total", "--json")[1])["total"] == 25
    assert "--total is for the results of one query" in cli("search", folder, "--total")[2]
