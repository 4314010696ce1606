"""Vectors made elsewhere, and vectors taken out: the same scores on every way."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from vizsla import Index, VizslaError, parse_model
from vizsla.backends import export_vectors
from vizsla.datasets import Source
from vizsla.index import document_vectors, verify

TEXTS = ["dogs bark at the dog", "a cat", "dog and cat and fish", "the fish"]


def bm25_index(folder: Path, model: str = "bm25") -> Index:
    index = Index.create(folder, model)
    index.add([{"id": f"d{i}", "text": text, "title": text[:3]} for i, text in enumerate(TEXTS)])
    index.delete("d1")
    index.commit()
    return index


def test_bm25_exported_and_taken_back_scores_the_same(tmp_path: Path) -> None:
    with bm25_index(tmp_path / "a") as index:
        assert export_vectors(index, "jsonl", tmp_path / "v.jsonl") == 3
        expected = index.run({"q": "dog fish dogs"})["q"]
    with Index.create(tmp_path / "b", "vectors") as copy:
        copy.add(Source.find(tmp_path / "v.jsonl").documents())
        copy.commit()
        found = copy.run({"q": "dog fish dog"})["q"]  # the terms, as the analyzer makes them
    assert [d for d, _ in found] == [d for d, _ in expected]
    assert [s for _, s in found] == pytest.approx([s for _, s in expected], rel=1e-5)
    assert verify(tmp_path / "b") == []


def test_vectors_of_a_sum_name_their_part(tmp_path: Path) -> None:
    with bm25_index(tmp_path / "a", "bm25-multifield") as index:
        vectors = dict(document_vectors(index))
        assert {t.partition(":")[0] for v in vectors.values() for t in v} == {"title", "text"}
        score = index.search("fish")[0]
        assert sum(w for t, w in vectors[score.id].items() if t.endswith(":fish")) == pytest.approx(score.score)


def test_any_characters_may_be_in_terms(tmp_path: Path) -> None:
    """What follows a character that ends texts in C belongs to a term as well."""
    terms = ["a", "a\0b", "a\0c", "\0", "", "a\n", "b", "b\U0001f415"]
    with Index.create(tmp_path / "i", "vectors") as index:
        index.add([{"id": str(i), "vector": {term: 1 + i}} for i, term in enumerate(terms)])
        index.commit()
        for _ in range(2):
            for i, term in enumerate(terms):
                assert [(h.id, h.score) for h in index.search(json.dumps({term: 1}))] == [(str(i), 1 + i)]
            index.compact()
    assert verify(tmp_path / "i") == []


def test_a_weight_beyond_all_numbers_is_told(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", "vectors") as index, pytest.raises(VizslaError, match="above 4,294,967,295"):
        index.add([{"id": "1", "vector": {"dog": 10**400}}])


def test_eight_bits(tmp_path: Path) -> None:
    with bm25_index(tmp_path / "a") as index:
        export_vectors(index, "jsonl", tmp_path / "v.jsonl", "minmax:8")
    rows = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().split("\n") if line]
    weights = [w for row in rows for w in row["vector"].values()]
    assert (min(weights), max(weights)) == (1, 256)
    assert all(isinstance(w, int) for w in weights)


def test_anserinis_collections_and_weighted_queries(tmp_path: Path) -> None:
    lines = [
        {"id": "1", "contents": "a dog", "vector": {"dog": 120, "bark": 3}},
        {"id": "2", "contents": "a cat", "vector": {"cat": 77, "dog": 0}},
    ]
    (tmp_path / "v.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with Index.create(tmp_path / "i", "vectors") as index:
        index.add(Source.find(tmp_path / "v.jsonl").documents())
        index.commit()
        assert [(h.id, h.score) for h in index.search("dog bark bark")] == [("1", 126.0)]
        assert [(h.id, h.score) for h in index.search('{"cat": 0.5, "bark": 2}')] == [("2", 38.5), ("1", 6.0)]
        assert index.search("dog")[0]["text"] == "a dog"
        assert index._searcher.snapshot.segments[0].large.values.dtype == np.uint8
        with pytest.raises(VizslaError, match="a query is"):
            index.search("{nonsense")


def test_a_quantiser_is_part_of_the_model(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", "vectors(quantiser=range:1:100:even)") as index:
        index.add([{"id": "1", "vector": {"dog": 1.234, "cat": 0.001}}])
        index.commit()
        assert [(h.id, h.score) for h in index.search("dog cat")] == [("1", 123.0)]
        assert index.search("cat") == []
    with Index.open(tmp_path / "i") as index:
        assert index.model == parse_model("vectors(quantiser=range:1:100:even)")
    with pytest.raises(VizslaError, match="has to be fitted first"):
        parse_model("vectors(quantiser=minmax:8)")


def test_words_and_given_vectors_in_one_index(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", "bm25 + 0.5 * vectors") as index:
        index.add([{"id": "1", "text": "dog", "vector": {"dog": 2.5}}, {"id": "2", "text": "dog"}])
        index.commit()
        first, second = index.search("dog")
        assert first.id == "1"
        assert first.score - second.score == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (None, "has null in the field 'vector'; expected a value"),
        ([1, 2], "that is not a vector, but a list"),
        ({"dog": -1}, "not a number of 0 or more, but the number -1"),
        ({"dog": "x"}, "not a number of 0 or more"),
        ({"dog": float("nan")}, "not a number of 0 or more"),
    ],
)
def test_vectors_that_are_none(tmp_path: Path, vector: object, message: str) -> None:
    with Index.create(tmp_path / "i", "vectors") as index, pytest.raises(VizslaError, match=message):
        index.add([{"id": "1", "vector": vector}])
