"""Lists with vectors in an index: added, replaced, deleted, filtered, compacted, verified, explained, summed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from vizsla import BM25, Index, VizslaError
from vizsla.errors import CollectionError
from vizsla.index import bytes_of, document_vectors, verify
from vizsla.models import Fields, TokenMatchComponent, field_text
from vizsla.vectors import MatchTexts

WIDTH = 4
TEXTS = ["dogs bark at the dog", "a cat", "", "dog and cat and dog", "the fish swim", "birds"]
DOCUMENTS = [{"id": f"d{i}", "text": text, "year": i} for i, text in enumerate(TEXTS)]


@dataclass(frozen=True)
class Words(TokenMatchComponent):
    """A vector for each word, from the word, the one before it and its text; with `cls` one for the text, too."""

    fields: tuple[str, ...] = ("text",)
    namespace: str = "word-matches"
    name: str = "words"
    width: int = WIDTH
    cls: int = 0

    kind: ClassVar[str] = "test-word-matches"

    @property
    def dimensions(self) -> int:
        return self.width

    @property
    def cls_dimensions(self) -> int:
        return self.cls

    def document_embeddings(self, documents: Sequence[Fields]) -> MatchTexts:
        return self.query_embeddings([field_text(d, self.fields) for d in documents])

    def query_embeddings(self, texts: Sequence[str]) -> MatchTexts:
        rows = [text.split() for text in texts]
        terms = [np.array([self.number(word) for word in row], np.int64) for row in rows]
        vectors = [
            np.array([_vector(f"{a} {b}", self.width) for a, b in zip(["", *row], row, strict=False)], np.float32)
            for row in rows
        ]
        whole = [_vector(text, self.cls) * bool(row) for text, row in zip(texts, rows, strict=True)]
        return MatchTexts(
            terms, [v.reshape(-1, self.width) for v in vectors], np.array(whole).reshape(len(texts), self.cls)
        )

    @staticmethod
    def number(word: str) -> int:
        return int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "little")

    def token_name(self, term: int) -> str:
        return next(word for text in TEXTS for word in text.split() if self.number(word) == term)


def _vector(text: str, width: int) -> np.ndarray:
    row: np.ndarray = np.frombuffer(hashlib.sha256(text.encode()).digest()[:width], np.int8).astype(np.float32) / 32
    return row


def expected(query: str, documents: list[dict[str, object]], cls: int) -> dict[str, float]:
    """The scores by definition, best first; numbers are small enough for 16 bits to hold them exactly."""
    words = Words(cls=cls)
    queries = words.encode_queries([query], words.statistics([]))
    scores = queries.dot(words.encode_documents(documents))[0].tolist()  # type: ignore[arg-type,union-attr]
    shared = [bool(set(query.split()) & set(str(d["text"]).split())) for d in documents]
    is_hit = [bool(str(d["text"]).split()) if cls else own for d, own in zip(documents, shared, strict=True)]
    pairs = [(str(d["id"]), s) for d, s, hit in zip(documents, scores, is_hit, strict=True) if hit]
    return dict(sorted(pairs, key=lambda pair: -pair[1]))


def found(index: Index, query: str, **options: object) -> dict[str, float]:
    return {hit.id: hit.score for hit in index.search(query, 10, **options)}  # type: ignore[arg-type]


def check(index: Index, documents: list[dict[str, object]], cls: int) -> None:
    for query in ("dog", "cat fish dog dog", "the dog", "unheard of"):
        scores = expected(query, documents, cls)
        assert found(index, query) == pytest.approx(scores)
        assert list(found(index, query)) == list(scores)


@pytest.mark.parametrize("cls", [0, 3])
def test_lists_with_vectors_live_as_documents_do(tmp_path: Path, cls: int) -> None:
    with Index.create(tmp_path / "i", Words(cls=cls)) as index:
        index.add(DOCUMENTS[:4])
        index.commit()
        check(index, DOCUMENTS[:4], cls)
        index.add(DOCUMENTS[4:])
        index.commit()
        check(index, DOCUMENTS, cls)
        assert found(index, "dog cat", filter="year >= 3") == pytest.approx(expected("dog cat", DOCUMENTS[3:], cls))
        changed = [{**DOCUMENTS[1], "text": "dog dog swim"}, *DOCUMENTS[3:], DOCUMENTS[2]]
        now = [*changed[1:4], changed[0]]
        index.add(changed[:1])
        index.delete("d0")
        index.commit()
        check(index, now, cls)
        assert verify(tmp_path / "i") == []
        index.compact()
        check(index, now, cls)
        assert verify(tmp_path / "i") == []
        facts = index.info()
        assert facts["vector_postings"]["vectors"] == 12
        assert facts["vector_postings"]["store"] == "float16"
        assert facts["namespaces"]["word-matches"]["dimensions"] == WIDTH
        assert bytes_of(index, index.model) > 12 * 2 * WIDTH
        index.compact(vector_index="sq8")
        assert index.info()["vector_postings"]["store"] == "sq8"
        assert found(index, "cat dog") == pytest.approx(expected("cat dog", now, cls), abs=0.3)
    with Index.open(tmp_path / "i") as index:
        assert found(index, "dog")
        with pytest.raises(VizslaError, match="its own have 4 numbers, these 2"):
            index.search("dog", model=Words(width=2, cls=cls))
    assert verify(tmp_path / "i") == []


@pytest.mark.parametrize("part", ["documents", "starts", "norms"])
def test_damaged_lists_are_named(tmp_path: Path, part: str) -> None:
    with Index.create(tmp_path / "i", Words()) as index:
        index.add(DOCUMENTS)
        index.commit()
    (file,) = (tmp_path / "i").rglob(f"match_{part}_0.npy")
    content = bytearray(file.read_bytes())
    content[-64:] = b"\xff" * 64
    file.write_bytes(content)
    (problem,) = verify(tmp_path / "i")
    assert f"match_{part}_0.npy is damaged" in problem
    with pytest.raises(CollectionError, match="damaged"), Index.open(tmp_path / "i") as index:
        index.search_many(TEXTS)
    file.write_bytes(content[:-8])
    with pytest.raises(CollectionError, match=r"match_.*_0\.npy is damaged"), Index.open(tmp_path / "i"):
        pass


@pytest.mark.parametrize("cls", [0, 3])
def test_sums_are_exact_and_explained(tmp_path: Path, cls: int) -> None:
    bm25 = BM25(fields=("text",), analyzer="whitespace")
    with Index.create(tmp_path / "i", bm25 + 0.5 * Words(cls=cls)) as index:
        index.add(DOCUMENTS)
        index.commit()
        lexical, words = found(index, "dog fish", model=bm25), expected("dog fish", DOCUMENTS, cls)
        sums = {d: lexical.get(d, 0.0) + 0.5 * words.get(d, 0.0) for d in lexical | words}
        assert found(index, "dog fish") == pytest.approx(sums)
        assert found(index, "dog fish", combine="union(depth=10)") == pytest.approx(sums)
        assert found(index, "dog fish", combine="rrf").keys() == sums.keys()
        explanation = index.explain("dog fish", "d3")
        assert explanation.score == pytest.approx(sums["d3"])
        matches = explanation.parts[1]
        assert [leaf.name for leaf in matches.parts] == ([*["[CLS]"] * bool(cls), "dog"])
        products = Words().encode_queries(["dog"], {"word-matches": None}).dot(Words().encode_documents([DOCUMENTS[3]]))  # type: ignore[dict-item,arg-type,union-attr]
        assert matches.parts[-1].facts["product"] == pytest.approx(products[0, 0])
        assert "dog  met its occurrence" in str(explanation)
        assert index.explain("unheard", "d2").score == 0
        assert index.similar("d0", 2)
        with pytest.raises(VizslaError, match="no terms to list"):
            list(document_vectors(index))


def test_there_is_no_ann_index_for_equal_tokens(tmp_path: Path) -> None:
    with pytest.raises(VizslaError, match="words has no dense part"):
        Index.create(tmp_path / "i", Words(cls=3), vector_index="hnsw")


def test_a_model_that_gives_other_shapes_or_numbers_is_refused(tmp_path: Path) -> None:
    def broken(terms: list[int], vectors: np.ndarray, whole: int = 0) -> Words:
        @dataclass(frozen=True)
        class Broken(Words):
            kind: ClassVar[str] = f"test-broken-{len(terms)}-{terms[0]}-{len(vectors)}-{whole}-{vectors.dtype}"

            def document_embeddings(self, documents: Sequence[Fields]) -> MatchTexts:
                n = len(documents)
                return MatchTexts([np.array(terms)] * n, [vectors] * n, np.zeros((n, whole)))

        return Broken()

    fine = np.ones((1, WIDTH), np.float32)
    cases = (
        (broken([1], fine * np.float16(np.nan)), "NaN or infinite"),
        (broken([-1], fine), "a number that is not from 0"),
        (broken([1, 2], fine), "expected"),
        (broken([1], fine, 7), "expected"),
    )
    for number, (model, message) in enumerate(cases):
        with Index.create(tmp_path / f"i{number}", model) as index, pytest.raises(VizslaError, match=message):
            index.add(DOCUMENTS[:1])
