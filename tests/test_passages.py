"""Passages of documents as results: several of a document, with neighbours, within a budget; everywhere the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Cli
from served import served
from vizsla import Document, Hit, Index, RemoteIndex, Splitter, VizslaError, count_tokens
from vizsla.errors import UnsupportedError
from vizsla.runs import Hits

TEXT = "Dogs bark. They run far.\n\nCats sleep. They purr a lot.\n\nFish swim. Dogs swim too.\n\nDogs eat. Birds fly."
DOCUMENTS = [
    {"id": "1", "title": "Animals", "text": TEXT, "outline": {"headings": [[26, 2, "Others"]], "pages": [0, 56]}},
    {"id": "2", "text": "Dogs dig."},
    {
        "id": "3",
        "title": "Plants",
        "text": "Trees grow. A dogwood is a tree.\n\nDog roses are roses. Dogs eat none.",
    },
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    opened = Index.create(tmp_path_factory.mktemp("passages") / "i", passages=Splitter(6))
    opened.add(DOCUMENTS)
    opened.commit()
    return opened


def _by_definition(
    ranking: Sequence[tuple[str, int]], sizes: dict[str, int], passages: int, window: int
) -> list[tuple[str, int, list[int]]]:
    """Of a ranking of all passages those that are kept, and the passages that each shows."""
    kept: list[tuple[str, int, list[int]]] = []
    for doc_id, number in ranking:
        own = [shown for other, _, shown in kept if other == doc_id]
        taken = {n for shown in own for n in shown}
        if len(own) == passages or number in taken:
            continue
        shown = [number]
        for step in (-1, 1):
            for n in range(number + step, number + step * (window + 1), step):
                if n in taken or not 0 <= n < sizes[doc_id]:
                    break
                shown.append(n)
        kept.append((doc_id, number, sorted(shown)))
    return kept


@settings(max_examples=15)
@given(data=st.data())
def test_several_passages_with_neighbours(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Against the definition, over commits, deletions and replaced documents."""
    words = st.lists(st.sampled_from(["dog", "cat", "fish", "bird"]), max_size=25).map(" ".join)
    splitter = Splitter(3, data.draw(st.integers(0, 2)))
    with Index.create(tmp_path_factory.mktemp("i") / "i", passages=splitter) as index:
        texts: dict[str, str] = {}
        for _ in range(data.draw(st.integers(1, 3))):
            batch = data.draw(st.dictionaries(st.sampled_from("abcde"), words, max_size=4))
            gone = data.draw(st.sets(st.sampled_from("abcde"), max_size=2)) - batch.keys()
            index.add([{"id": key, "text": text} for key, text in batch.items()])
            index.delete(list(gone))
            index.commit()
            texts = {key: text for key, text in (texts | batch).items() if key not in gone}
        cut = {key: [p["text"] for p in splitter.passages(Document(key, {"text": t}))] for key, t in texts.items()}
        sizes = {key: len(parts) for key, parts in cut.items()}
        every = index.search("dog cat", 1000, passages=1000)
        ranking = [(hit.id, hit.passage or 0) for hit in every]
        assert every.scores == sorted(every.scores, reverse=True)
        assert {(d, n) for d, parts in cut.items() for n, t in enumerate(parts) if {"dog", "cat"} & {*t.split()}} == {
            *ranking
        }
        passages, window = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([0, 1, 2, "document"]))
        k, offset = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 3))
        hits = index.search("dog cat", k, passages=passages, window=window, offset=offset, total=True)
        reach = 1000 if window == "document" else window
        assert isinstance(reach, int)
        wanted = _by_definition(ranking, sizes, passages, reach)
        assert [(hit.id, hit.passage) for hit in hits] == [(d, n) for d, n, _ in wanted[offset : offset + k]]
        assert hits.total == len(wanted)
        for hit, (doc_id, _, shown) in zip(hits, wanted[offset:], strict=False):
            start, end = splitter.spans(texts[doc_id])[shown[0]][0], splitter.spans(texts[doc_id])[shown[-1]][1]
            assert hit["text"] == texts[doc_id][start:end]
            assert (hit.place.start, hit.place.end) == (start, end)


def test_passages_say_where_they_are_from(index: Index) -> None:
    hits = index.search("dogs swim", 2, passages=2)
    assert [(hit.id, hit.passage) for hit in hits] == [("1", 2), ("2", 0)]
    assert str(hits[0].place) == "Animals > Others, page 2"
    assert hits.context == "[1] Animals > Others, page 2\nFish swim. Dogs swim too.\n\n[2] 2\nDogs dig."


def test_a_budget_of_tokens(index: Index) -> None:
    every = index.search("dogs", 10, passages=5)
    for budget in (1, 9, 12, 20, 30, 1000):
        hits = index.search("dogs", 10, passages=5, max_tokens=budget)
        assert count_tokens(hits.context) <= budget
        left, kept = budget, []
        for hit in every:
            size = count_tokens(f"[{len(kept) + 1}]" + hit.context.partition("]")[2])
            if size <= left:
                left -= size
                kept.append((hit.id, hit.passage))
        assert [(hit.id, hit.passage) for hit in hits] == kept
        assert [hit.rank for hit in hits] == [*range(1, len(hits) + 1)]
        bare = index.search_many(["dogs"], 10, passages=5, max_tokens=budget, documents=False)[0]
        assert [(hit.rank, hit.id, dict(hit.document.content)) for hit in bare] == [(h.rank, h.id, {}) for h in hits]
    assert every.within(14, len).ids == []
    assert every.within(1 << 20, len) == every
    hits = Hits([Hit(4, 1.0, Document("a", {"text": "dog " * 50})), Hit(5, 0.5, Document("b", {"text": "dog"}))])
    assert [(hit.rank, hit.id) for hit in hits.within(10)] == [(4, "b")]


def test_fused_passages(tmp_path: Path) -> None:
    model = "bm25 + bm25(k1=2, namespace=other)"
    with Index.create(tmp_path / "i", model, passages=Splitter(6)) as index:
        index.add(DOCUMENTS)
        index.commit()
        hits = index.search("dogs", 10, passages=3, combine="rrf")
        assert [(hit.id, hit.passage) for hit in hits] == [
            (hit.id, hit.passage) for hit in index.search("dogs", 10, passages=3)
        ]
        assert len(hits) > len(set(hits.ids))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"passages": 0}, "passages, how many of a document"), ({"passages": "2"}, "passages, how many"),
        ({"window": -1}, "window is a number of passages"), ({"window": "all"}, "window is a number"),
        ({"max_tokens": 0}, "max_tokens is a whole number"), ({"max_tokens": "9"}, "max_tokens is a whole number"),
        ({"passages": 2, "collapse": "title"}, "leave out collapse or passages"),
    ],
)  # fmt: skip
def test_wrong_options(index: Index, options: dict[str, Any], message: str) -> None:
    with pytest.raises(VizslaError, match=message):
        index.search("dogs", **options)


def test_a_run_has_documents(index: Index) -> None:
    for options in ({"passages": 2}, {"window": 1}, {"max_tokens": 10}):
        with pytest.raises(VizslaError, match="a run holds whole documents"):
            index.run({"q": "dogs"}, **options)  # type: ignore[arg-type]


def test_whole_documents_have_no_passages(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i") as whole:
        whole.add(DOCUMENTS)
        whole.commit()
        for options in ({"passages": 2}, {"window": 1}):
            with pytest.raises(UnsupportedError, match="the index holds whole documents; build it with passages"):
                whole.search("dogs", **options)  # type: ignore[arg-type]
        assert whole.search("dogs", max_tokens=8).ids == ["2"]
    with Index.create(tmp_path / "bare", passages=6, store=False) as bare:
        bare.add(DOCUMENTS)
        bare.commit()
        assert len(bare.search("dogs", passages=3)) == 6
        with pytest.raises(UnsupportedError, match="stores no texts"):
            bare.search("dogs", max_tokens=9)


def test_a_server_and_its_client_give_the_same(index: Index) -> None:
    with served({"dogs": str(index.path)}) as server, RemoteIndex(f"{server.url}/dogs") as client:
        for options in (
            {}, {"passages": 3}, {"passages": 2, "window": 1}, {"window": "document"},
            {"passages": 3, "max_tokens": 25}, {"passages": 3, "max_tokens": 25, "offset": 1},
        ):  # fmt: skip
            here, there = index.search("dogs eat", 4, **options), client.search("dogs eat", 4, **options)  # type: ignore[arg-type]
            assert list(there) == list(here)
            assert [hit.place for hit in there] == [hit.place for hit in here]
            query = {name: str(value) for name, value in options.items()}
            answer = server.get("/v1/dogs/search", query="dogs eat", hits="4", **query).data
            assert [(c["docid"], c["doc"]["text"]) for c in answer["candidates"]] == [(h.id, h["text"]) for h in here]
        hit = server.post("/v1/dogs/search", {"query": "swim", "k": 1}).data["results"][0]["hits"][0]
        assert hit["place"] == {"breadcrumb": ["Animals", "Others"], "pages": [2, 2], "start": 56, "end": 81}
        refused = server.post("/v1/dogs/search", {"query": "swim", "explain": True, "passages": 2})
        assert "leave out explain or passages" in refused.error
        with pytest.raises(VizslaError, match="a run holds whole documents"):
            client.run({"q": "dogs"}, passages=2)  # type: ignore[call-arg]


def test_the_command_line(index: Index, tmp_path: Path, cli: Cli) -> None:
    out = cli("search", index.path, "dogs swim", "--passages", 2, "--max-tokens", 30, "--context")[1]
    assert out == index.search("dogs swim", 100, passages=2, max_tokens=30).context + "\n"
    assert "Others, page 2" in cli("search", index.path, "dogs swim")[1]
    (hit,) = json.loads(cli("search", index.path, "swim", "--window", 1, "--json")[1])["results"]
    assert hit["place"] == {"breadcrumb": ["Animals", "Others"], "pages": [1, 2], "start": 26, "end": 103}
    assert "leave out --json" in cli("search", index.path, "swim", "--context", "--json")[2]
    text = tmp_path / "a.txt"
    text.write_text("Dogs.")
    assert "give a query" in cli("search", index.path, "--passages", 2)[2]
    assert "say how long they are with --passages" in cli("index", text, "-o", tmp_path / "y", "--unit", "tokens")[2]
