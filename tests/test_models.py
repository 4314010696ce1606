"""BM25 by its formulas, length codes, the algebra, and names."""

from __future__ import annotations

import json
import math
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla import BM25, Model, Quantiser, VizslaError, parse_model
from vizsla.errors import InputError
from vizsla.models import MODELS, CountedStatistics, Part, PrecomputedVectors, Spar, Sum, expression
from vizsla.models.statistics import load_statistics, lucene_codes, lucene_lengths, save_statistics
from waiting import calls_of

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
    statistics = model.statistics(TEXTS)
    scores = model.encode_queries(["dog", "cat"], statistics).dot(model.encode_documents(TEXTS))
    average = (3 + 1 + 51) / 3  # the empty document does not count
    long = 51.0 if lengths == "exact" else 50.0  # 51 has the same byte as 50
    for q, tfs in enumerate([(2, 0, 1, 0), (1, 1, 0, 0)]):
        for d, (tf, dl) in enumerate(zip(tfs, (3, 1, long, 0), strict=True)):
            expected = by_hand(variant, tf, 2, 3, dl, average, 1.2, 0.75) if tf else 0.0
            assert scores[q, d] == pytest.approx(expected, rel=1e-12)


def test_a_term_twice_in_the_query_counts_twice() -> None:
    model = BM25()
    statistics = model.statistics(TEXTS)
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
    statistics = model.statistics(documents)
    assert statistics["title"].documents == 2
    assert statistics["text"].documents == 2
    scores = model.encode_queries(["dog"], statistics).dot(model.encode_documents(documents))[0]
    parts = [BM25(fields=(f,), namespace=f) for f in ("title", "text")]
    alone = [p.encode_queries(["dog"], p.statistics(documents)).dot(p.encode_documents(documents))[0] for p in parts]
    assert np.allclose(scores, alone[0] + alone[1])


def test_weights_sit_on_the_query_side() -> None:
    documents = [{"title": "dog", "text": "dog cat"}]
    title, text = BM25(fields=("title",), namespace="title"), BM25(fields=("text",), namespace="text")
    plain, weighted = title + text, title + 0.5 * text
    statistics = plain.statistics(documents)
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
        ("bm225", "unknown model 'bm225'; did you mean 'bm25'"),
        ("", "expected a name at character 1"),
        ("bm25 bm25", "expected \\+ at character 6"),
        ("bm25 +", "expected a name at character 7"),
        ("bm25(k1=1", "the bracket at character 5 is never closed"),
        ("bm25 + bm25", "namespaces of their own"),
        ("bm25(k2=1)", "bm25 does not take the option k2"),
        ("bm25(k1)", "expected name=value"),
        ("bm25(k1=x)", "'x' is not a number"),
        ("bm25(b=2)", "b between 0 and 1"),
        ("bm25(k1=nan)", "k1 must be 0 or more"),
        ("bm25(variant=bm26)", "unknown BM25 variant"),
        ("bm25(lengths=short)", "unknown length coding"),
        ("bm25(delta=1)", "has no delta"),
        ("1e * bm25", "is not a weight"),
        ("bm25(analyzer=nope)", "unknown analyzer or tokenizer"),
        ("bm25(k1=1e999)", "k1 must be 0 or more"),
        ("bm25(k1=1, k1=2)", "k1 appears twice"),
        ("bm25(mu=1)", "bm25 does not take the option mu .* it takes k1, b"),
        ("bm26(network=x)", "bm26 does not take the option network"),
        ("bm25-rm3(documents=" + "9" * 5000 + ")", "is not a whole number for documents"),
        ("9" * 5000 + " * bm25", "is not a weight"),
        ("sketch(width=1000000000)", "a multiple of 64 up to 65,536, not 1,000,000,000$"),
        ("spar(dense=sketch, lexical=sketch, mu=1e99)", "mu, .* from 1e-30 to 1e\\+30$"),
        ("vectors(quantiser=minmax:99999999)", "1 to 2,147,483,647 levels"),
        ("vectors(quantiser=range:0:9:ceil)", "finite and above 0"),
        ("sketch(lexical=" * 51 + "bm25" + ")" * 51, "brackets nest at most 50 deep$"),
        ("sketch(lexical=" * 50 + "bm25" + ")" * 50, "cannot be sketched"),
        (" + ".join(["bm25"] * 10_001), "a sum has at most 10,000$"),
    ],
)
def test_wrong_models_are_told(text: str, message: str) -> None:
    with pytest.raises(VizslaError, match=message) as told:
        parse_model(text)
    assert len(str(told.value)) < 1000


def test_brackets_in_brackets() -> None:
    inner = "bm25(analyzer=standard | lower, k1=1.5)"
    sketch = f"sketch(lexical={inner}, width=128)"
    model = parse_model(f"2 * spar(dense={sketch}, lexical=sketch(lexical={inner}, width=64) , mu=0.5) + bm25")
    (_, spar), (_, bm25) = model.parts
    assert isinstance(spar, Spar)
    assert (spar.mu, spar.dimensions, bm25.name) == (0.5, 192, "bm25")


def test_a_sum_of_many_parts_is_read_in_one_pass() -> None:
    def text(parts: int) -> str:
        return " + ".join(f"{i}.5 * bm25(namespace=n{i})" for i in range(parts))

    model = parse_model(text(2000))
    assert (len(model.parts), model.parts[7].weight) == (2000, 7.5)
    assert calls_of(lambda: parse_model(text(800))) < 3 * calls_of(lambda: parse_model(text(400)))


NUMBERS = st.floats(0, 1e300) | st.floats(0, 2)


@given(
    weights=st.lists(NUMBERS | st.floats(-9, 9), min_size=1, max_size=3),
    k1=NUMBERS,
    b=st.floats(0, 1),
    delta=NUMBERS,
    span=st.floats(1e-9, 1e9),
    pieces=st.booleans(),
)
def test_an_expression_reads_back(
    weights: list[float], k1: float, b: float, delta: float, span: float, pieces: bool
) -> None:
    """Every digit of every number."""
    first = BM25(k1=k1, b=b, delta=delta, variant="bm25l", fields=("title", "body"), namespace="a")
    vectors = PrecomputedVectors(str(Quantiser.parse(f"range:{span}:{span + 1}:even")), namespace="b")
    last = BM25(analyzer="wordpiece" if pieces else "standard | lower | longest:7", lengths="exact", namespace="c")
    model = Sum(tuple(Part(w, c) for w, c in zip(weights, (first, vectors, last), strict=False)))
    read = parse_model(expression(model))
    assert [w for w, _ in read.parts] == weights
    assert [replace(c, name="") for _, c in read.parts] == [replace(c, name="") for _, c in model.parts]  # type: ignore[type-var]


def test_what_cannot_be_written_as_an_expression_says_so(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_bytes(json.dumps(json.loads(BM25(analyzer="wordpiece").text_analyzer.tokenizer.content)).encode())  # type: ignore[attr-defined]
    for model in (BM25(namespace="a, b=1"), BM25(fields=("a/b",)), BM25(analyzer=f"wordpiece:{file}")):
        with pytest.raises(VizslaError, match="cannot be written as an expression; save the model"):
            expression(model)


@given(least=st.floats(0, 100), size=st.floats(0, 100))
def test_a_fitted_quantiser_prints_as_it_is(least: float, size: float) -> None:
    fitted = Quantiser.parse("minmax:8").fit(np.array([least, least + size]))
    assert Quantiser.parse(str(fitted)) == fitted


def test_a_mistake_inside_of_a_model_is_not_taken_for_a_wrong_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**options: float) -> Model:
        return len(options["k1"])  # type: ignore[arg-type, return-value]

    monkeypatch.setitem(MODELS._entries, "bm25", replace(MODELS["bm25"], make=broken))
    with pytest.raises(TypeError, match="has no len"):
        parse_model("bm25(k1=2)")


def test_models_take_the_options_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(which: str) -> None:
        raise VizslaError(f"there is no {which}")

    monkeypatch.setattr("vizsla.neural.checkpoints.checkpoint.find_checkpoint", absent)
    values = {"analyzer": "standard", "variant": "bm25l", "lengths": "exact", "quantiser": "range:5:9:ceil"}
    values |= {"dense": "sketch", "lexical": "bm25", "combine": "concat", "length": "8", "pooling": "mean"}
    values |= {"precision": "int8", "similarity": "dot", "preset": "dpr", "width": "128", "query_length": "8"}
    for entry in MODELS:
        for option in entry.options:
            with suppress(VizslaError):  # most cannot be made with this option alone
                parse_model(f"{entry.name}({option.name}={values.get(option.name, '1')})")


def test_a_folder_without_a_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(VizslaError, match="no saved model"):
        parse_model(str(tmp_path))
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(VizslaError, match="not the description of a model"):
        parse_model(str(tmp_path))


@given(st.dictionaries(st.text(st.characters(exclude_categories=()), max_size=4), st.integers(1, 99), max_size=6))
def test_frozen_statistics_are_those_that_were_saved(frequencies: dict[str, int]) -> None:
    """With any characters in terms: line breaks, none at all, halves of surrogates."""
    counted = CountedStatistics(9, 99, 12, frequencies)
    with tempfile.TemporaryDirectory() as folder:
        assert load_statistics(save_statistics(counted, Path(folder)), Path(folder)) == counted


def test_damaged_statistics_are_one_sentence(tmp_path: Path) -> None:
    """Also where the file is cut, which numpy leaves open and tells by an error of its own."""
    told = save_statistics(BM25().statistics(["a dog barks", "cats and dogs"])["words"], tmp_path)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    assert load_statistics(told, tmp_path) is not None
    for damaged in (content[:100], b"", b"nothing"):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match="these are not frozen statistics"):
            load_statistics(told, tmp_path)
