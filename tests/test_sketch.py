"""Sketches: lexical models as dense ones, held against signs thrown one by one and against the models themselves."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from small import documents_of, small_dense, small_model
from vizsla import BM25, Analyzer, Document, Index, Model, VizslaError, parse_model
from vizsla.engine.projection import projected, term_keys
from vizsla.models import Sketch, Spar, expression
from vizsla.models.bm25 import VARIANTS
from vizsla.training.kinds.spar import ImitationSource, imitation_data

WORDS = [f"word{i}" for i in range(40)]


def texts(count: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(3, 12))) for _ in range(count)]


def signs(term: str, width: int) -> list[int]:
    """The direction of a term, bit by bit in whole numbers of Python's."""
    key = int.from_bytes(blake2b(term.encode(), digest_size=8).digest(), "little")
    thrown = []
    for word in range(width // 64):
        bits = (key + (word + 1) * 0x9E3779B97F4A7C15) % 2**64
        bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) % 2**64
        bits ^= bits >> 31
        thrown += [-1 if bits >> place & 1 else 1 for place in range(64)]
    return thrown


@given(
    rows=st.lists(st.dictionaries(st.text(max_size=5), st.floats(-100, 100), max_size=6), max_size=5),
    width=st.sampled_from([64, 128, 320]),
)
def test_projections_are_sums_of_thrown_signs(rows: list[dict[str, float]], width: int) -> None:
    terms = [t for row in rows for t in row]
    pointers = np.cumsum([0, *map(len, rows)])
    values = np.array([v for row in rows for v in row.values()], float)
    made = projected(pointers, term_keys(terms), values, width)
    expected = np.zeros((len(rows), width))
    for i, row in enumerate(rows):
        for term, value in row.items():
            expected[i] += value * np.array(signs(term, width)) / np.sqrt(width)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


def test_signs_are_the_same_everywhere() -> None:
    """An index would be worthless with others."""
    assert term_keys(["dog", "Ω"]).tolist() == [0x9F9C5ED2C1C78439, 0xF74D91F1B0EB4CB]
    assert projected(np.array([0, 1]), term_keys(["dog"]), np.array([8.0]), 64)[0, :6].tolist() == [-1, 1, 1, 1, 1, -1]


def test_scores_are_the_lexical_models_but_for_chance() -> None:
    documents, queries = texts(300), texts(40, seed=1)
    bm25 = BM25()
    counted = bm25.statistics(documents)
    wanted = bm25.encode_queries(queries, counted).dot(bm25.encode_documents(documents, counted))
    off = []
    for width in (256, 4096):
        sketch = Sketch(width=width).fit(documents)
        found = sketch.query_embeddings(queries)[0] @ sketch.document_embeddings(documents)[0].T
        lengths = [
            np.linalg.norm(v, axis=1)
            for v in (sketch.query_embeddings(queries)[0], sketch.document_embeddings(documents)[0])
        ]
        off.append((found - wanted) / np.outer(*lengths) * np.sqrt(width))
        assert abs(off[-1].mean()) < 0.3  # right on average,
        assert 0.5 < off[-1].std() < 1.5  # and off by the lengths over the root of the width
    assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > 0.97


def test_one_word_scores_exactly() -> None:
    """A direction is at no angle to itself."""
    documents = ["dog", "dog dog", "cat"]
    bm25, sketch = BM25(), Sketch(width=64).fit(documents)
    counted = bm25.statistics(documents)
    found = sketch.query_embeddings(["dog"])[0] @ sketch.document_embeddings(documents)[0].T
    wanted = bm25.encode_queries(["dog"], counted).dot(bm25.encode_documents(documents, counted))
    assert found[0, :2] == pytest.approx(wanted[0, :2], rel=1e-6)


def test_an_index_of_a_sketch(tmp_path: Path) -> None:
    documents = [{"id": str(i), "text": text} for i, text in enumerate(texts(200))]
    sketch = Sketch(width=2048).fit(documents)
    with Index.create(tmp_path / "index", sketch) as index:
        index.add(documents)
        index.commit()
        index.add([{"id": "new", "text": "zebra word1 word2"}, {"id": "long", "text": " ".join(WORDS * 30)}])
        index.delete(["7"])
        index.commit()
    with Index.open(tmp_path / "index") as index:
        assert isinstance(index.model, Sketch)
        assert index.model.frozen == sketch.frozen  # as it was settled, not what has come since
        assert index.search("zebra", 1) == []  # nobody had counted it
        assert index.search("word1 word2", 1)[0].id == "new"
        assert "7" not in [hit.id for hit in index.search(documents[7]["text"], 200)]
        hits = index.search(documents[3]["text"], 5)
        assert hits[0].id == "3"
        again = index.search(documents[3]["text"], 5, model="sketch(width=2048)")  # takes over what was frozen
        assert [(h.id, h.score) for h in again] == [(h.id, h.score) for h in hits]
        assert index.explain(documents[3]["text"], "3").score == pytest.approx(hits[0].score, rel=1e-5)
        assert index.search("?!", 5) == []  # no word, so no vector
        with pytest.raises(VizslaError, match="does not have what"):
            index.search("word1", model="sketch(lexical=bm25(k1=1.2), width=2048)")
        with pytest.raises(VizslaError, match="its own have 2048 numbers, these 64"):
            index.search("word1", model="sketch(width=64)")


@pytest.mark.parametrize("variant", VARIANTS)
def test_any_bm25_is_sketched(variant: str) -> None:
    """Robertson's rarity is below 0 for words that most documents have."""
    documents = ["dog cat", "dog", "dog bird", "fish"]
    bm25 = BM25(variant=variant)
    sketch, counted = Sketch(bm25, width=8192).fit(documents), bm25.statistics(documents)
    wanted = bm25.encode_queries(["dog bird"], counted).dot(bm25.encode_documents(documents, counted))
    found = sketch.query_embeddings(["dog bird"])[0] @ sketch.document_embeddings(documents)[0].T
    np.testing.assert_allclose(found, wanted, atol=0.15)


def test_two_sketches_of_one_name_are_explained_apart(tmp_path: Path) -> None:
    documents = texts(20)
    both = Spar(Sketch(width=64), Sketch(width=64), 0.5).fit(documents)
    with Index.create(tmp_path / "index", both) as index:
        index.add([{"id": str(i), "text": text} for i, text in enumerate(documents)])
        index.commit()
        (hit,) = index.search("word1 word2", 1)
        told = index.explain("word1 word2", hit.id)
        assert told.score == pytest.approx(hit.score, rel=1e-5)
        assert [part.name for part in told.parts] == ["sketch", "sketch"]


def test_spar_of_a_sketch_is_the_sum(tmp_path: Path) -> None:
    dense, documents = small_dense(tmp_path / "a", name="a"), texts(30)
    sketch = Sketch(width=64).fit(documents)
    spar = Spar(dense, Sketch(width=64), 0.3).fit(documents)
    assert not spar.needs_corpus_statistics
    found = spar.query_embeddings(["word1 word2"])[0] @ spar.document_embeddings(documents)[0].T
    parts = [m.query_embeddings(["word1 word2"])[0] @ m.document_embeddings(documents)[0].T for m in (dense, sketch)]
    np.testing.assert_allclose(found, parts[0] + 0.3 * parts[1], rtol=1e-4, atol=1e-5)
    spar.save(tmp_path / "saved")
    opened = Model.load(tmp_path / "saved")
    assert isinstance(opened, Spar)
    np.testing.assert_array_equal(opened.document_embeddings(documents)[0], spar.document_embeddings(documents)[0])
    with Index.create(tmp_path / "index", spar) as index:
        index.add([{"id": str(i), "text": text} for i, text in enumerate(documents)])
        index.commit()
        other = Spar(dense, Sketch(width=64), 5.0)
        assert index.search("word1", 3, model=other)[0].score > index.search("word1", 3)[0].score


def test_learned_models_are_sketched_without_counting(tmp_path: Path) -> None:
    learned = small_model(tmp_path / "model")
    sketch, documents = Sketch(learned, width=4096), [d["text"] for d in documents_of(20)]
    assert not sketch.needs_corpus_statistics
    counted = learned.statistics(documents)
    wanted = learned.encode_queries(documents[:3], counted).dot(learned.encode_documents(documents, counted))
    found = sketch.query_embeddings(documents[:3])[0] @ sketch.document_embeddings(documents)[0].T
    assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > 0.95
    sketch.save(tmp_path / "saved")
    opened = Model.load(tmp_path / "saved")
    assert isinstance(opened, Sketch)
    np.testing.assert_array_equal(opened.document_embeddings(documents)[0], sketch.document_embeddings(documents)[0])


def test_what_cannot_be_sketched() -> None:
    for text, message in (
        ("sketch(width=100)", "the width of a sketch is a multiple of 64 up to 65,536, not 100"),
        ("sketch(lexical=bm25-prime)", "bm25-prime cannot be sketched"),
        ("sketch(lexical=vectors)", "vectors cannot be sketched"),
        ("sketch(lexical=bm52)", "unknown model 'bm52'"),
        ("sketch(mu=2)", "sketch does not take the option mu"),
        ("spar(dense=sketch, lexical=bm25)", "bm25 is not a dense model, and SPAR needs two; sketch turns bm25 into"),
        ("sketch(lexical=bm25(k1=1.2)", "the bracket at character 7 is never closed"),
    ):
        with pytest.raises(VizslaError) as told:
            parse_model(text)
        assert message in str(told.value)
    with pytest.raises(VizslaError, match="call fit\\(\\) with them first"):
        Sketch().document_embeddings(["dog"])
    with pytest.raises(VizslaError, match="cannot be written as an expression"):
        expression(Sketch())


def test_brackets_in_brackets() -> None:
    model = parse_model("sketch(lexical=bm25(k1=1.2, b=0.5), width=128) + 2 * bm25")
    sketch = model.parts[0].component
    assert isinstance(sketch, Sketch)
    assert (sketch.lexical, sketch.width) == (BM25(k1=1.2, b=0.5, name="bm25(k1=1.2, b=0.5)"), 128)
    deep = parse_model("spar(dense=sketch(width=64), lexical=sketch(lexical=bm25(k1=1), width=128), mu=2)")
    assert isinstance(deep, Spar)
    assert (deep.dimensions, deep.mu) == (192, 2.0)


def test_a_sketch_by_command(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    folder = tmp_path / "s.index"
    code, _, err = cli("index", dataset / "corpus.jsonl", "-o", folder, "--model", "sketch(width=1024)")
    assert code == 0, err
    code, out, _ = cli("search", folder, "dog")
    assert code == 0
    assert out.index("d1") < out.index("d2")
    code, out, _ = cli("eval", dataset, "-m", "sketch(width=1024)", "--measures", "RR@10")
    assert (code, out.split()[-1]) == (0, cli("eval", dataset, "-m", "bm25", "--measures", "RR@10")[1].split()[-1])


def test_what_a_sketch_is_settled_on(cli: Cli, tmp_path: Path) -> None:
    """Passages where there are such; what cannot be read is told as it is for other models."""
    file, words = tmp_path / "long.jsonl", [f"w{i % 50}" for i in range(400)]
    file.write_text(json.dumps({"id": "a", "text": " ".join(words)}) + "\n" + '{"id": "b", "text": "w1 w2 w3"}\n')
    assert cli("index", file, "-o", tmp_path / "index", "--model", "sketch(width=64)", "--passages", "20")[0] == 0
    with Index.open(tmp_path / "index") as index:
        assert isinstance(index.model, Sketch)
        assert index.model.frozen is not None
        assert (index.model.frozen.documents, index.model.frozen.longest) == (21, 20)
    for text, good, message in (
        ('{"id": "1", "text": 5}', '{"id": "2", "text": "dog"}', "that is not a text"),
        ('{"id": "1", "text": "the"}', "", "have no words"),
    ):
        file.write_text(text + "\n" + good)
        code, _, err = cli("index", file, "-o", tmp_path / "none.index", "--model", "sketch")
        assert code == 2
        assert message in err
        assert "Traceback" not in err


def test_a_sketch_teaches() -> None:
    documents = [Document(str(i), {"text": text}) for i, text in enumerate(texts(30))]
    settings = ImitationSource(depth=5, top_positives=2, bottom_negatives=2)
    pairs = imitation_data(documents, Sketch(width=64), Analyzer.parse("wordpiece"), settings).pairs
    assert len(pairs.queries) == 30
    assert np.diff(pairs.positives.offsets).tolist() == [2] * 30


def test_what_cannot_be_written_down_is_not_tuned(cli: Cli, dataset: Path) -> None:
    code, _, err = cli("tune", dataset, "-m", "bm25 + sketch(width=64)", "--split", "test")
    assert code == 2
    assert "cannot be written as an expression" in err
