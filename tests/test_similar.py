"""Documents like a document."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from small import documents_of, small_dense, small_model
from vizsla import Analyzer, Index, VizslaError
from vizsla.index.search.similar import MAX_TEXT, MAX_WORDS

DOCUMENTS = [
    {"id": "1", "title": "Vizslas", "text": "A vizsla is a dog. Vizslas point at birds.", "lang": "en"},
    {"id": "2", "title": "Pointers", "text": "A pointer is a dog that points at birds.", "lang": "en"},
    {"id": "3", "title": "Taxes", "text": "Taxes on vehicles are high.", "lang": "en"},
    {"id": "4", "title": "Dogs", "text": "The dog is a pet, and so is the vizsla.", "lang": "de"},
    {"id": "5", "title": "", "text": "The of and.", "lang": "de"},
]


def filled(folder: Path, model: Any = "bm25", documents: Any = DOCUMENTS, **options: Any) -> Index:
    index = Index.create(folder, model, **options)
    index.add(documents)
    index.commit()
    return index


def test_documents_like_a_document(tmp_path: Path) -> None:
    with filled(tmp_path / "i") as index:
        assert index.similar_query("1").split()[0] in ("vizsla", "vizslas")
        hits = index.similar("1")
        assert [(hit.rank, hit.id) for hit in hits] == [(1, "2"), (2, "4")] or [hit.id for hit in hits] == ["4", "2"]
        searched = [hit for hit in index.search(index.similar_query("1"), 10) if hit.id != "1"]
        assert [(hit.id, hit.score) for hit in hits] == [(hit.id, hit.score) for hit in searched]
        assert [hit.id for hit in index.similar(1, 1)] == [hits[0].id]
        assert [hit.id for hit in index.similar("1", filter='lang = "de"')] == ["4"]
        assert [hit.rank for hit in index.similar("1", filter='lang = "de"')] == [1]
        assert index.similar_query("5") == ""
        assert index.similar("5") == []
        assert index.similar("3", model="bm25(k1=2)") == []


def test_mistakes_are_told(tmp_path: Path) -> None:
    with filled(tmp_path / "i") as index:
        for function in (Index.similar, Index.similar_query):
            with pytest.raises(VizslaError, match="there is no document with the id '7'"):
                function(index, "7")
            with pytest.raises(VizslaError, match="does not have what"):
                function(index, "1", model="bm25-wp")
            with pytest.raises(VizslaError, match="the id must be a text"):
                function(index, None)  # type: ignore[arg-type]
        for k in (0, 1.5, True):
            with pytest.raises(VizslaError, match="k, the number of results"):
                index.similar("1", k)  # type: ignore[arg-type]
        with pytest.raises(VizslaError, match="no document has a field 'yaer'"):
            index.similar("1", filter="yaer = 1")
        index.delete("2")
        index.commit()
        with pytest.raises(VizslaError, match="there is no document with the id '2'"):
            index.similar("2")
    with filled(tmp_path / "bare", store=False) as index, pytest.raises(VizslaError, match="does not keep the texts"):
        index.similar("1")


@given(st.integers(0, 39))
def test_the_words_are_those_with_the_highest_tf_idf(number: int) -> None:
    analyzer = Analyzer.parse("lucene-english")
    with filled_once() as index:
        document = index.get(str(number))
        assert document is not None
        counts = Counter(analyzer(document["text"]))
        frequencies = Counter(t for d in index.documents() for t in set(analyzer(d["text"])))
        worth = {t: n * (math.log(41 / (frequencies[t] + 1)) + 1) for t, n in counts.items()}
        got = [analyzer(word)[0] for word in index.similar_query(str(number)).split()]
        assert len(got) == min(MAX_WORDS, len(worth)) == len(set(got))
        values = [worth[term] for term in got]
        assert values == sorted(values, reverse=True)
        assert min(values) >= max([w for t, w in worth.items() if t not in got], default=0.0) - 1e-9


def filled_once(made: dict[str, Path] = {}) -> Index:  # noqa: B006 (one index for all examples)
    import tempfile

    if not made:
        words = [f"word{i} " * (i % 3 + 1) for i in range(60)]
        texts = [" ".join(words[(7 * i + j * j) % 60] for j in range(40)) for i in range(40)]
        made["i"] = Path(tempfile.mkdtemp()) / "i"
        filled(made["i"], documents=[{"id": str(i), "text": t} for i, t in enumerate(texts)]).close()
    return Index.open(made["i"])


def test_word_pieces_and_several_parts(tmp_path: Path) -> None:
    for i, model in enumerate(["bm25-wp", "bm25-prime", "bm25-multifield", small_model(tmp_path / "network")]):
        with filled(tmp_path / str(i), model) as index:
            words = index.similar_query("1").split()
            assert "vizsla" in words or "vizslas" in words  # whole words, not the pieces they are cut into
            assert not any(word.startswith("##") for word in words)
            assert "2" in [hit.id for hit in index.similar("1")]


def test_vectors(tmp_path: Path) -> None:
    documents = [
        {"id": "1", "vector": {"dog": 2.5, "bark": 1, "common": 0}},
        {"id": "2", "vector": {"dog": 1, "common": 1}},
        {"id": "3", "vector": {}},
    ]
    with filled(tmp_path / "i", "vectors", documents) as index:
        assert json.loads(index.similar_query("1")) == {"dog": 2.5, "bark": 1}
        assert [hit.id for hit in index.similar("1")] == ["2"]
        assert index.similar("3") == []


def test_a_dense_part_reads_the_text(tmp_path: Path) -> None:
    documents = [
        *documents_of(6),
        {"id": "long", "title": "Long", "text": "word " * 1000},
        {"id": "x", "text": "y" * 5000},
    ]
    dense = small_dense(tmp_path / "network")
    with filled(tmp_path / "i", dense, documents) as index:
        text = documents[0]["text"]
        assert index.similar_query("0") == text
        found = [hit.id for hit in index.search(text, 9)]
        assert [hit.id for hit in index.similar("0")] == [i for i in found if i != "0"]
        assert index.similar_query("long").startswith("Long\nword word")
        assert MAX_TEXT - 10 < len(index.similar_query("long")) <= MAX_TEXT
        assert index.similar_query("long").endswith("word")
        assert len(index.similar_query("x")) == MAX_TEXT


def test_passages_are_joined(tmp_path: Path) -> None:
    documents = [{"id": i, "text": f"{word} filler filler filler rare{i}"} for i, word in (("a", "dog"), ("b", "dog"))]
    with filled(tmp_path / "i", documents=documents, passages=2) as index:
        assert set(index.similar_query("a").split()) == {"dog", "filler", "rarea"}
        assert [hit.id for hit in index.similar("a")] == ["b"]
