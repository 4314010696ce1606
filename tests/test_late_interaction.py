"""Token vectors in an index: added, replaced, deleted, filtered, compacted, verified, explained, summed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from scattered import Scattered
from vizsla import BM25, Index, VizslaError
from vizsla.backends import export_vectors
from vizsla.errors import CollectionError
from vizsla.index import document_vectors, verify
from vizsla.models import Fields, TokenComponent, field_text

WIDTH = 8
TEXTS = ["dogs bark at the dog", "a cat", "", "dog and cat and fish", "the fish swim", "birds"]
DOCUMENTS = [{"id": f"d{i}", "text": text, "year": i} for i, text in enumerate(TEXTS)]


@dataclass(frozen=True)
class WordVectors(TokenComponent):
    """A vector of length 1 for each word, from its hash."""

    fields: tuple[str, ...] = ("text",)
    namespace: str = "word-vectors"
    name: str = "words"
    width: int = WIDTH

    kind: ClassVar[str] = "test-word-vectors"

    @property
    def dimensions(self) -> int:
        return self.width

    def document_embeddings(self, documents: Sequence[Fields]) -> list[np.ndarray]:
        return self.query_embeddings([field_text(d, self.fields) for d in documents])

    def query_embeddings(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.array([self._vector(w) for w in t.split()], np.float32).reshape(-1, self.width) for t in texts]

    def _vector(self, word: str) -> np.ndarray:
        digest = hashlib.sha256(word.encode()).digest()
        row = np.frombuffer(digest[: self.width], np.int8).astype(np.float32)
        return row / np.linalg.norm(row)  # type: ignore[no-any-return]

    def document_tokens(self, document: Fields) -> list[str]:
        return field_text(document, self.fields).split()

    def query_tokens(self, text: str) -> list[str]:
        return text.split()


def expected(query: str, documents: list[dict[str, object]], store: str = "float16") -> dict[str, float]:
    """The scores by definition, best first; documents of no token are not found."""
    words = WordVectors()
    (vectors,) = words.query_embeddings([query])
    scores = {}
    for document in documents:
        (rows,) = words.document_embeddings([document])
        if len(rows):
            rows = rows.astype(store).astype(np.float64)
            scores[str(document["id"])] = float((vectors.astype(np.float64) @ rows.T).max(axis=1).sum())
    return dict(sorted(scores.items(), key=lambda pair: -pair[1]))


def found(index: Index, query: str, **options: object) -> dict[str, float]:
    return {hit.id: hit.score for hit in index.search(query, 10, **options)}  # type: ignore[arg-type]


def check(index: Index, documents: list[dict[str, object]]) -> None:
    for query in ("dog", "cat fish dog", "bark"):
        scores = expected(query, documents)
        assert found(index, query) == pytest.approx(scores)
        assert list(found(index, query)) == list(scores)


def test_token_vectors_live_as_documents_do(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", WordVectors()) as index:
        index.add(DOCUMENTS[:4])
        index.commit()
        check(index, DOCUMENTS[:4])
        index.add(DOCUMENTS[4:])
        index.commit()
        check(index, DOCUMENTS)
        assert found(index, "dog", filter="year >= 3") == pytest.approx(expected("dog", DOCUMENTS[3:]))
        changed = [{**DOCUMENTS[1], "text": "dog dog swim"}, *DOCUMENTS[3:], DOCUMENTS[2]]
        index.add(changed[:1])
        index.delete("d0")
        index.commit()
        check(index, [*changed[1:4], changed[0]])
        assert verify(tmp_path / "i") == []
        index.compact()
        check(index, [*changed[1:4], changed[0]])
        assert verify(tmp_path / "i") == []
        facts = index.info()
        assert facts["token_vectors"]["vectors"] == 12
        assert facts["token_vectors"]["store"] == "float16"
        assert facts["namespaces"]["word-vectors"]["dimensions"] == WIDTH
        index.compact(vector_index="sq8")
        assert index.info()["token_vectors"]["store"] == "sq8"
        assert found(index, "cat fish") == pytest.approx(expected("cat fish", [*changed[1:4], changed[0]]), abs=0.03)
    with Index.open(tmp_path / "i") as index:
        assert len(index.search("dog", 10)) == 4
        with pytest.raises(VizslaError, match="its own have 8 numbers, these 4"):
            index.search("dog", model=WordVectors(width=4))
    assert verify(tmp_path / "i") == []


def test_damaged_token_vectors_are_named(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", WordVectors()) as index:
        index.add(DOCUMENTS)
        index.commit()
    (file,) = (tmp_path / "i").rglob("tokens_0.npy")
    content = bytearray(file.read_bytes())
    content[-40] ^= 0x7F  # where a document begins
    file.write_bytes(content)
    (problem,) = verify(tmp_path / "i")
    assert "tokens_0.npy is damaged" in problem
    with Index.open(tmp_path / "i") as index, pytest.raises(CollectionError, match="damaged"):
        index.search("dog")
    file.write_bytes(content[:-8])
    with pytest.raises(CollectionError, match=r"tokens_0\.npy is damaged"), Index.open(tmp_path / "i"):
        pass


def test_sums_are_exact_and_unions_take_the_best_of_each_part(tmp_path: Path) -> None:
    model = BM25(fields=("text",), analyzer="whitespace") + 0.5 * WordVectors()
    with Index.create(tmp_path / "i", model) as index:
        index.add(DOCUMENTS)
        index.commit()
        bm25 = found(index, "dog fish", model=BM25(fields=("text",), analyzer="whitespace"))
        words = expected("dog fish", DOCUMENTS)
        sums = {d: bm25.get(d, 0.0) + 0.5 * score for d, score in words.items()}
        assert found(index, "dog fish") == pytest.approx(sums)
        assert found(index, "dog fish", combine="union(depth=10)") == pytest.approx(sums)
        best = {hit.id for hit in index.search("dog fish", 1, combine="union(depth=1)")}
        assert best <= {max(bm25, key=bm25.__getitem__), max(words, key=words.__getitem__)}
        assert found(index, "dog fish", combine="rrf").keys() == words.keys()
        among = {d: score for d, score in sums.items() if d in bm25}
        assert found(index, "dog fish", combine="candidates(depth=10)") == pytest.approx(among)
        with pytest.raises(VizslaError, match="candidates combines the parts of a sum"):
            index.search("dog", model=WordVectors(), combine="candidates")
        with pytest.raises(VizslaError, match="weight 0 finds no candidates"):
            index.search("dog", model=0 * model.parts[0].component + WordVectors(), combine="candidates")
        explanation = index.explain("dog fish", "d3")
        assert explanation.score == pytest.approx(sums["d3"])
        tokens = explanation.parts[1]
        assert [(leaf.facts["query_token"], leaf.facts["document_token"]) for leaf in tokens.parts] == [
            ("dog", "dog"),
            ("fish", "fish"),
        ]
        assert [leaf.facts["position"] for leaf in tokens.parts] == [1, 5]
        named = tokens.facts["document_tokens"]
        assert [named[leaf.facts["position"] - 1] for leaf in tokens.parts] == ["dog", "fish"]
        assert len(named) == tokens.facts["tokens"]
        assert "dog  ~ dog (token 1 of this document)" in str(explanation)
        assert not index.explain("dog", "d2").score
        assert index.similar("d0", 2)
        with pytest.raises(VizslaError, match="no terms to list"):
            list(document_vectors(index))


def test_token_vectors_have_no_ann_index(tmp_path: Path) -> None:
    with pytest.raises(VizslaError, match="words has no dense part"):
        Index.create(tmp_path / "i", WordVectors(), vector_index="hnsw")


def test_a_model_that_makes_no_numbers_is_refused(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Broken(WordVectors):
        kind: ClassVar[str] = "test-broken-vectors"

        def document_embeddings(self, documents: Sequence[Fields]) -> list[np.ndarray]:
            return [np.full((2, WIDTH), np.nan, np.float32) for _ in documents]

    with Index.create(tmp_path / "i", Broken()) as index, pytest.raises(VizslaError, match="NaN or infinite"):
        index.add(DOCUMENTS)


@pytest.mark.parametrize("store", ["exact", "sq8"])
def test_dense_and_token_vectors_are_exported(tmp_path: Path, store: str) -> None:
    model = BM25(fields=("text",)) + WordVectors() + Scattered(fields=("text",))
    with Index.create(tmp_path / "i", model, vector_index=store) as index:
        index.add(DOCUMENTS)
        index.commit()
        index.delete("d1")
        index.add([{**DOCUMENTS[0], "text": "fish bark"}])
        index.commit()
        assert export_vectors(index, "arrays", tmp_path / "v.npz") == 5
        with pytest.raises(VizslaError, match="only weights of terms can be quantised"):
            export_vectors(index, "arrays", tmp_path / "w.npz", "minmax:8")
    ids, arrays = json.loads((tmp_path / "v.ids.json").read_text()), np.load(tmp_path / "v.npz")
    assert ids == ["d2", "d3", "d4", "d5", "d0"]
    texts = [*TEXTS[2:], "fish bark"]
    starts = arrays["word-vectors.starts"]
    assert starts.tolist() == [0, 0, 5, 8, 9, 11]
    expected_rows = np.concatenate(WordVectors().query_embeddings(texts))
    assert arrays["word-vectors.vectors"] == pytest.approx(expected_rows, abs=1e-2)
    assert arrays["scattered.vectors"] == pytest.approx(Scattered().query_embeddings(texts)[0], abs=5e-2)
    with Index.create(tmp_path / "s") as index, pytest.raises(VizslaError, match="no dense or token vectors"):
        export_vectors(index, "arrays", tmp_path / "s.npz")
