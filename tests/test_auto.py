"""Sums that find their weights: terms beside vectors, fitted to the documents alone."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vizsla
from conftest import Cli
from vizsla import BM25, DenseComponent, Index, Model, VizslaError, parse_model
from vizsla.datasets import Source
from vizsla.models import AutoWeightedSum, Fields, Part, auto
from vizsla.models.auto_weighted import DEFAULT_DENSE_WEIGHT

WORDS = np.array([f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "bdfgklmnprst"])


@dataclass(frozen=True)
class Hashed(DenseComponent):
    """Cosines of hashed words: dense vectors without a network. `factor` scales all vectors."""

    name: str = "hashed"
    namespace: str = "hashed"
    fields: tuple[str, ...] = ("text",)
    dimensions: int = 64
    factor: float = 1.0

    kind = "hashed-of-test-auto"

    def document_embeddings(self, documents: list[Fields]) -> tuple[np.ndarray, np.ndarray]:
        return self.query_embeddings([document["text"] for document in documents])

    def query_embeddings(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.split():
                row[sum(map(ord, word)) * 31 % self.dimensions] += 1 + len(word) % 3
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return self.factor * rows / np.maximum(norms, 1e-9), norms[:, 0] > 0


def documents_of(count: int, seed: int = 0, words: int = 60) -> list[dict[str, str]]:
    """Documents of topics: each draws most of its words from a few."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        topic = rng.choice(WORDS, 40, replace=False)
        picked = [str(rng.choice(topic if rng.random() < 0.7 else WORDS)) for _ in range(rng.integers(20, words))]
        found.append({"text": " ".join(picked)})
    return found


@pytest.fixture(scope="module")
def documents() -> list[dict[str, str]]:
    return documents_of(150)


def weights_of(model: Model) -> list[float]:
    return [part.weight for part in model.parts]


def test_weights_undo_the_scale_of_a_model(documents: list[dict[str, str]]) -> None:
    fitted = auto(BM25(), Hashed()).fit(documents)
    larger = auto(BM25(), Hashed(factor=50.0)).fit(documents)
    assert not fitted.needs_fit
    assert fitted.parts[0].weight == larger.parts[0].weight == 1
    assert larger.parts[1].weight == pytest.approx(fitted.parts[1].weight / 50**2, rel=1e-3)
    assert larger.parts[0].component == fitted.parts[0].component
    assert fitted.parts[0].component.query_norm > 0.1  # type: ignore[attr-defined]
    turned = auto(Hashed(), BM25()).fit(documents)
    assert weights_of(turned)[1] == pytest.approx(1 / weights_of(fitted)[1], rel=1e-3)
    assert auto(BM25(), Hashed()).fit(documents) == fitted  # the same documents, the same weights


def test_a_norm_that_is_given_does_not_change_the_fit(documents: list[dict[str, str]]) -> None:
    assert auto(BM25(query_norm=0.9), Hashed()).fit(documents) == replace(
        auto(BM25(), Hashed()).fit(documents), name="auto(bm25, hashed)"
    )


@dataclass(frozen=True)
class Concepts(Hashed):
    """Words with the same first letters mean the same. `reads`: how many words of a text it reads."""

    name: str = "concepts"
    namespace: str = "concepts"
    dimensions: int = 60
    reads: int = 1000

    kind = "concepts-of-test-auto"

    def query_embeddings(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        prefixes = {prefix: i for i, prefix in enumerate(dict.fromkeys(word[:2] for word in WORDS))}
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.split()[: self.reads]:
                row[prefixes[word[:2]]] += 1
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return self.factor * rows / np.maximum(norms, 1e-9), norms[:, 0] > 0


def ranks(model: Model, documents: list[dict[str, str]], queries: list[str]) -> list[int]:
    """The rank of document i for query i."""
    statistics = model.statistics(documents)
    scores = np.zeros((len(queries), len(documents)))
    for weight, component in model.parts:
        known = statistics[component.namespace]
        rows = component.document_vectors(documents, known)
        scores += weight * component.query_vectors(queries, known).dot(rows)  # type: ignore[arg-type]
    return [int((row > row[i]).sum()) + 1 for i, row in enumerate(scores)]


def found(model: Model, documents: list[dict[str, str]], queries: list[str]) -> float:
    """The mean reciprocal rank."""
    return float(np.mean([1 / rank for rank in ranks(model, documents, queries)]))


def in_other_words(count: int, seed: int) -> tuple[list[dict[str, str]], list[str]]:
    """Documents and a query for each, about a few concepts: which word stands for a concept is left to chance."""
    rng = np.random.default_rng(seed)
    prefixes = sorted({word[:2] for word in WORDS})
    suffixes = sorted({word[2:] for word in WORDS})
    documents, queries = [], []
    for _ in range(count):
        topic = rng.choice(prefixes, 8, replace=False)
        text = [f"{rng.choice(topic)}{rng.choice(suffixes)}" for _ in range(60)]
        documents.append({"text": " ".join(text[:50])})
        queries.append(" ".join(text[50:]))
    return documents, queries


def test_where_vectors_do_not_find_passages_words_decide() -> None:
    documents = documents_of(120, seed=3, words=150)
    rng = np.random.default_rng(0)
    own_words = [" ".join(rng.choice(d["text"].split(), 6, replace=False)) for d in documents]
    blind = auto(BM25(), Concepts(reads=4)).fit(documents)
    assert found(blind, documents, own_words) > found(BM25(), documents, own_words) - 0.01
    assert found(BM25() + DEFAULT_DENSE_WEIGHT * Concepts(reads=4), documents, own_words) < 0.9  # a fixed weight harms
    assert weights_of(blind)[1] < weights_of(auto(BM25(), Concepts()).fit(documents))[1]


def test_where_words_do_not_find_passages_meaning_decides() -> None:
    documents, queries = in_other_words(120, seed=4)
    fitted = auto(BM25(), Concepts()).fit(documents)
    assert found(fitted, documents, queries) > found(Concepts(), documents, queries) - 0.03  # words keep some weight
    assert found(Concepts(), documents, queries) > found(BM25(), documents, queries) + 0.1


def test_long_queries_do_not_drown_the_vectors(documents: list[dict[str, str]]) -> None:
    fitted = auto(BM25(), Hashed()).fit(documents)
    statistics = fitted.statistics(documents)
    ratios, plain = [], []
    for length in (3, 8, 20):
        queries = [" ".join(d["text"].split()[:length]) for d in documents_of(40, seed=1)]
        spreads = []
        for weight, component in fitted.parts:
            known = statistics[component.namespace]
            scores = component.query_vectors(queries, known).dot(component.document_vectors(documents, known))  # type: ignore[arg-type]
            spreads.append(weight * np.sort(scores, 1)[:, -18:].std(1).mean())
        ratios.append(spreads[1] / spreads[0])
        plain.append(ratios[-1] / math.pow(length, fitted.parts[0].component.query_norm))  # type: ignore[attr-defined]
    assert max(plain) / min(plain) > max(ratios) / min(ratios)  # `plain` is with the fixed weight


def test_equal_parts_get_equal_weights(documents: list[dict[str, str]]) -> None:
    twin = Hashed(name="twin", namespace="twin")
    one, two = auto(BM25(), Hashed()).fit(documents), auto(BM25(), Hashed(), twin).fit(documents)
    _, first, second = weights_of(two)
    assert first == pytest.approx(second, rel=1e-3)
    assert first < weights_of(one)[1]  # both together find what one of them finds


def test_documents_that_tell_nothing_leave_equal_spreads() -> None:
    """Words are drawn at chance, so no part finds a passage that is taken out: there is no reason to prefer one."""
    rng = np.random.default_rng(1)
    documents = [{"text": " ".join(map(str, rng.choice(WORDS, 30)))} for _ in range(150)]
    fitted = auto(Hashed(), Hashed(name="twice", namespace="twice", factor=2.0)).fit(documents)
    assert weights_of(fitted)[1] == pytest.approx(1 / 4, rel=1e-3)


def test_too_few_documents_leave_the_first_guess() -> None:
    model = auto(BM25(), Hashed())
    assert model.fit(documents_of(20)) is model
    assert weights_of(model) == [1.0, DEFAULT_DENSE_WEIGHT]
    same = [{"text": "the same words in all of these documents are here again and again"}] * 80
    assert auto(BM25(), Hashed()).fit(same).needs_fit
    assert auto(BM25(), Hashed()).fit([{"text": ""}] * 80).needs_fit
    blind = auto(BM25(), Hashed(factor=0.0)).fit(documents_of(80))  # gives all documents the same score
    assert weights_of(blind) == [1.0, DEFAULT_DENSE_WEIGHT]


def test_an_index_keeps_what_was_fitted(documents: list[dict[str, str]], tmp_path: Path) -> None:
    model = auto(BM25(), Hashed())
    with Index.create(tmp_path / "i", model) as index:
        index.add([{"id": str(i), **d} for i, d in enumerate(documents)])
        index.commit()
        fitted = index.model
        hits = [(hit.id, hit.score) for hit in index.search(documents[7]["text"], k=5)]
    with vizsla.open(tmp_path / "i") as opened:
        assert opened.model.parts == fitted.parts == model.fit(documents).parts
        assert [(hit.id, hit.score) for hit in opened.search(documents[7]["text"], k=5)] == hits
        named = opened.with_model(model).search(documents[7]["text"], k=5)  # takes the weights of the index
        assert [(hit.id, hit.score) for hit in named] == hits
        assert hits[0][0] == "7"
        told = opened.explain(documents[7]["text"], "7")
        assert told.score == pytest.approx(hits[0][1], rel=1e-5)


def test_weights_are_fitted_again(documents: list[dict[str, str]], tmp_path: Path) -> None:
    others = [{"text": d["text"].upper() + " " + d["text"]} for d in documents_of(300, seed=5, words=200)]
    with Index.create(tmp_path / "i", 2 * BM25() + 7 * Hashed()) as index:
        index.add([{"id": str(i), **d} for i, d in enumerate([*documents, *others])])
        fitted = index.fit_weights()  # commits
        weight, norm = fitted.parts[1].weight, fitted.parts[0].component.query_norm  # type: ignore[attr-defined]
        assert fitted.parts[0].weight == 2
        assert weight not in (7, 0)
        assert norm > 0
        assert index.model == fitted
        assert len(index) == 450
    with Index.open(tmp_path / "i") as index:
        assert index.model.parts == fitted.parts
        assert index.fit_weights() == fitted
        index.delete([str(i) for i in range(440)])
        with pytest.raises(VizslaError, match="here are fewer"):
            index.fit_weights()
        assert index.model.parts == fitted.parts
        assert len(index) == 10  # what was deleted is committed all the same
    with Index.create(tmp_path / "j", BM25() + Hashed(), store=False) as index:
        index.add([{"id": str(i), **d} for i, d in enumerate(documents)])
        with pytest.raises(VizslaError, match="texts are not stored"):
            index.fit_weights()
    with Index.create(tmp_path / "k", BM25()) as index, pytest.raises(VizslaError, match="is not a sum"):
        index.fit_weights()


def test_the_command_line_fits_a_shipped_network(cli: Cli, documents: list[dict[str, str]], tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", parse_model("bm25 + 3 * bm26")) as index:
        index.add([{"id": str(i), "text": d["text"][:60]} for i, d in enumerate(documents[:80])])
        index.commit()
    code, _, said = cli("models", "fit", tmp_path / "i")
    assert code == 0, said
    assert "before: 1 * bm25 + 3 * bm26" in said
    assert "now:    1 * bm25 + " in said
    assert (cli("models", "fit", tmp_path / "i")[2]).endswith("the weights have not changed\n")


@given(
    st.lists(st.dictionaries(st.sampled_from(WORDS.tolist()), st.floats(0.1, 9), max_size=9), max_size=5),
    st.floats(0, 2),
)
def test_a_norm_keeps_the_order_of_terms(queries: list[dict[str, float]], norm: float) -> None:
    from vizsla.models.components import shortened

    for query, short in zip(queries, shortened(queries, norm), strict=True):
        assert short.keys() == query.keys()
        for term, weight in query.items():
            assert short[term] == pytest.approx(weight / len(query) ** norm)


def test_a_norm_changes_no_ranking_of_bm25_alone(documents: list[dict[str, str]], tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", BM25()) as index:
        index.add([{"id": str(i), **d} for i, d in enumerate(documents)])
        index.commit()
        query = documents[3]["text"]
        plain, normed = index.search(query, k=20), index.with_model(BM25(query_norm=0.7)).search(query, k=20)
        assert [hit.id for hit in normed] == [hit.id for hit in plain]
        terms = len(BM25().query_terms([query])[0])
        assert normed[0].score == pytest.approx(plain[0].score / terms**0.7, rel=1e-4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("auto(bm25)", "name two or more"),
        ("auto", "name two or more"),
        ("auto(bm25, 2 * bm25-wp)", "finds the weights itself"),
        ("auto(bm25, bm25-wp) + bm25(namespace=n)", "put all of them in auto"),
        ("2 * auto(bm25, bm25-wp)", "put all of them in auto"),
        ("bm25(bm25-wp)", "expected name=value"),
        ("auto(bm25, bm25)", "namespaces of their own"),
        ("bm25(query_norm=3)", "from 0 to 2"),
    ],
)
def test_what_auto_refuses(text: str, words: str) -> None:
    with pytest.raises(VizslaError, match=words):
        parse_model(text)


def test_lexical_models_become_equally_strong(documents: list[dict[str, str]]) -> None:
    two = AutoWeightedSum((Part(1.0, BM25()), Part(1.0, BM25(k1=2.0, namespace="other"))), "both").fit(documents)
    named = parse_model("auto(bm25, bm25(k1=2.0, namespace=other))").fit(documents)
    assert weights_of(two) == weights_of(named)
    assert [part.component.query_norm for part in named.parts] == [0, 0]  # type: ignore[attr-defined]


def test_documents_that_are_left_out_tell_no_weights(tmp_path: Path) -> None:
    documents = [{"id": str(i), "text": " ".join(WORDS[i : i + 9])} for i in range(40)]
    bad = [{"id": "number", "text": 7}, {"id": "object", "text": {"a": 1}}]
    file = tmp_path / "corpus.jsonl"
    file.write_text("no JSON\n" + "".join(json.dumps(d) + "\n" for d in [*bad, *documents]))
    lines = Source.find(file).raw_lines()
    assert lines is not None
    weights = []
    for name, some, left_out in (("clean", documents, 0), ("mixed", [*bad, *documents], 2), ("lines", lines, 3)):
        with Index.create(tmp_path / name, auto(BM25(), Hashed())) as index:
            added = index.add(some, skip_bad=True)
            index.commit()
            weights.append([part.weight for part in index.model.parts])
            assert (added.documents, added.skipped.count) == (40, left_out)
    assert weights[1:] == weights[:1] * 2
    assert weights[0][1] != 1
