"""BM25 by its formulas, length codes, the algebra, and names."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from vizsla.errors import InputError, VizslaError
from vizsla.models import BM25, Model, Sum, parse_model
from vizsla.models.lengths import lucene_codes, lucene_lengths
from vizsla.models.statistics import load_statistics, save_statistics

TEXTS = ["dog dog cat", "cat", "fish " * 50 + "dog", ""]


def by_hand(variant: str, tf: int, df: int, n: int, dl: float, avg: float, k1: float, b: float) -> float:
    """The formulas as the papers print them."""
    norm = 1 - b + b * dl / avg
    if variant == "lucene":
        return math.log(1 + (n - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * norm)
    if variant == "robertson":
        return math.log((n - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * norm)
    if variant == "atire":
        return math.log(n / df) * (k1 + 1) * tf / (tf + k1 * norm)
    if variant == "bm25l":
        c = tf / norm
        return math.log((n + 1) / (df + 0.5)) * (k1 + 1) * (c + 0.5) / (k1 + c + 0.5)
    return math.log((n + 1) / df) * ((k1 + 1) * tf / (k1 * norm + tf) + 1)


@pytest.mark.parametrize("variant", ["lucene", "robertson", "atire", "bm25l", "bm25+"])
@pytest.mark.parametrize("lengths", ["lucene", "exact"])
def test_each_variant_follows_its_formula(variant: str, lengths: str) -> None:
    model = BM25(k1=1.2, b=0.75, variant=variant, lengths=lengths)
    statistics = model.fit(TEXTS)
    scores = model.encode_queries(["dog", "cat"], statistics).dot(model.encode_documents(TEXTS))
    average = (3 + 1 + 51) / 3  # the empty document does not count
    long = 51.0 if lengths == "exact" else 50.0  # 51 has the same byte as 50
    for q, tfs in enumerate([(2, 0, 1, 0), (1, 1, 0, 0)]):
        for d, (tf, dl) in enumerate(zip(tfs, (3, 1, long, 0), strict=True)):
            expected = by_hand(variant, tf, 2, 3, dl, average, 1.2, 0.75) if tf else 0.0
            assert scores[q, d] == pytest.approx(expected, rel=1e-12)


def test_a_term_twice_in_the_query_counts_twice() -> None:
    model = BM25()
    statistics = model.fit(TEXTS)
    once, twice = model.encode_queries(["dog", "dog dogs"], statistics).values
    assert twice == pytest.approx(2 * once)


def test_length_codes_are_lucenes() -> None:
    lengths = np.arange(200_000)
    codes = lucene_codes(lengths)
    decoded = lucene_lengths()[codes]
    assert (decoded[:40] == lengths[:40]).all()
    assert (decoded <= lengths).all()
    assert (decoded[40:] > lengths[40:] * 0.88).all()
    assert lucene_lengths()[[40, 41, 63, 64, 255]].tolist() == [40, 42, 144, 152, 2013265944]
    assert (lucene_codes(lucene_lengths()) == np.arange(256)).all()


def test_fields_are_summed_with_their_own_statistics() -> None:
    documents = [{"title": "dog", "text": "a cat"}, {"text": "dog and dog"}, {"title": "fish"}]
    model = parse_model("bm25-multifield")
    statistics = model.fit(documents)
    assert statistics["title"].documents == 2
    assert statistics["text"].documents == 2
    scores = model.encode_queries(["dog"], statistics).dot(model.encode_documents(documents))[0]
    parts = [BM25(fields=(f,), namespace=f) for f in ("title", "text")]
    alone = [p.encode_queries(["dog"], p.fit(documents)).dot(p.encode_documents(documents))[0] for p in parts]
    assert np.allclose(scores, alone[0] + alone[1])


def test_weights_sit_on_the_query_side() -> None:
    documents = [{"title": "dog", "text": "dog cat"}]
    title, text = BM25(fields=("title",), namespace="title"), BM25(fields=("text",), namespace="text")
    plain, weighted = title + text, title + 0.5 * text
    statistics = plain.fit(documents)
    assert plain.encode_documents(documents)[0] == weighted.encode_documents(documents)[0]
    query = weighted.encode_queries(["dog"], statistics)[0]
    assert query["text", "dog"] == 0.5 * plain.encode_queries(["dog"], statistics)[0]["text", "dog"]


def test_models_are_saved_and_loaded(tmp_path: Path) -> None:
    for text in [
        "bm25(k1=1.5, variant=bm25+, delta=0.7, lengths=exact)",
        "bm25-multifield",
        "bm25 + 2 * bm25(namespace=x)",
    ]:
        model = parse_model(text)
        model.save(tmp_path / "m")
        assert Model.load(tmp_path / "m") == model
        assert parse_model(str(tmp_path / "m")) == model


def test_prime_is_words_plus_pieces() -> None:
    model = parse_model("bm25-prime")
    assert isinstance(model, Sum)
    assert model.namespaces == ("words", "pieces")
    assert [p.weight for p in model.parts] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bm225", "there is no model called 'bm225'; did you mean 'bm25'"),
        ("", "expected a name at character 1"),
        ("bm25 bm25", "expected \\+ at character 6"),
        ("bm25 +", "expected a name at character 7"),
        ("bm25(k1=1", "the bracket at character 5 is never closed"),
        ("bm25 + bm25", "namespaces of their own"),
        ("bm25(k2=1)", "there is no model option called 'k2'"),
        ("bm25(k1)", "expected name=value"),
        ("bm25(k1=x)", "'x' is no number"),
        ("bm25(b=2)", "b between 0 and 1"),
        ("bm25(k1=nan)", "k1 must be 0 or more"),
        ("bm25(variant=bm26)", "there is no BM25 variant"),
        ("bm25(lengths=short)", "there is no length coding"),
        ("bm25(delta=1)", "has no delta"),
        ("1e * bm25", "is no weight"),
        ("bm25(analyzer=nope)", "there is no analyzer or tokenizer"),
    ],
)
def test_wrong_models_are_told(text: str, message: str) -> None:
    with pytest.raises(VizslaError, match=message):
        parse_model(text)


def test_a_folder_without_a_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(VizslaError, match="no saved model"):
        parse_model(str(tmp_path))
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(VizslaError, match="not the description of a model"):
        parse_model(str(tmp_path))


def test_damaged_statistics_are_one_sentence(tmp_path: Path) -> None:
    """Also where the file is cut, which numpy leaves open and tells by an error of its own."""
    name, *counts = save_statistics(BM25().fit(["a dog barks", "cats and dogs"])["words"], tmp_path)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    assert load_statistics(name, *counts, folder=tmp_path).frequencies["dog"] == 2
    for damaged in (content[:100], b"", b"nothing"):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match="these are no frozen statistics"):
            load_statistics(name, *counts, folder=tmp_path)
