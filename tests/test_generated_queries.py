"""Generated queries filtered by scores, or cut to the first ones."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from small import small_dense, small_model
from vizsla import BM25, Document, Index, Model, VizslaError, read_documents
from vizsla.expansion import ModelScorer, QueryFilter, QueryScorer, RerankerScorer, filter_queries
from vizsla.expansion.filtering import _threshold

EXPANDED = [
    {"_id": "dogs", "title": "Dogs", "text": "A dog barks.", "queries": ["why do dogs bark", "Dog", "dog", "fish"]},
    {"_id": "cats", "title": "Cats", "text": "Cats purr, cats sleep.", "queries": ["cats", "sleeping cat", "dog"]},
    {"_id": "fish", "text": "Fish swim.", "queries": [], "year": 1999},
    {"_id": "empty", "queries": []},
    {"_id": "birds", "text": "Birds sing and swim.", "queries": ["swim", "do dogs sing"]},
]


@pytest.fixture
def expanded(tmp_path: Path) -> Path:
    file = tmp_path / "expanded.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in EXPANDED))
    return file


def kept(file: Path) -> dict[str, list[str]]:
    return {record["_id"]: record["queries"] for record in map(json.loads, file.read_text().splitlines())}


class Lengths(QueryScorer):
    """A query's score is its length, so that the longest are kept."""

    name = "lengths"

    def scores(self, documents: Sequence[Document], queries: Sequence[Sequence[str]]) -> np.ndarray:
        del documents
        return np.array([float(len(query)) for some in queries for query in some])


def test_the_best_share_of_all_queries_is_kept(expanded: Path, tmp_path: Path) -> None:
    output = tmp_path / "filtered.jsonl"
    chosen = QueryFilter(Lengths(), share=5 / 9)
    report = filter_queries(lambda: read_documents(expanded), output, chosen, with_scores=True)
    assert kept(output) == {
        "dogs": ["why do dogs bark", "fish"],
        "cats": ["cats", "sleeping cat"],
        "fish": [],
        "empty": [],
        "birds": ["do dogs sing"],  # "swim" has the score of "fish" and "cats", which come before it
    }
    assert (report.documents, report.queries, report.kept, report.without_queries, report.threshold) == (5, 9, 5, 2, 4)
    first, *_, third, _, _ = map(json.loads, output.read_text().splitlines())
    assert first == {**EXPANDED[0], "queries": ["why do dogs bark", "fish"], "query_scores": [16.0, 4.0]}
    assert third == {**EXPANDED[2], "query_scores": []}
    filter_queries(lambda: read_documents(output), tmp_path / "again.jsonl", QueryFilter(first=1))
    assert "query_scores" not in (tmp_path / "again.jsonl").read_text(), "they would belong to other queries"


def test_by_score_and_the_first_of_each(expanded: Path, tmp_path: Path, cli: Cli) -> None:
    output = tmp_path / "filtered.jsonl"
    filter_queries(lambda: read_documents(expanded), output, QueryFilter(Lengths(), min_score=4, first=2))
    assert kept(output)["dogs"] == ["why do dogs bark"]
    assert kept(output)["birds"] == ["swim", "do dogs sing"]
    code, out, err = cli("queries", "filter", expanded, "-o", output, "--queries", 2)
    assert (code, out) == (0, "")
    assert f"{output}: 6 of 9 queries (66.7%); 2 documents without any" in err
    assert [len(queries) for queries in kept(output).values()] == [2, 2, 0, 0, 2]
    assert [record["_id"] for record in map(json.loads, output.read_text().splitlines())] == [*kept(expanded)]
    code, out, err = cli("queries", "filter", expanded, "-o", output, "--by", "bm25", "--keep", 0.5, "--json")
    facts = json.loads(out)
    assert (facts["queries"], facts["counted"], facts["kept"]) == (9, 9, 4)
    assert [*tmp_path.glob("*.new")] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "say what to keep"),
        (("--keep", 0.3), "needs something that scores the queries"),
        (("--by", "bm25"), "name either the share of queries to keep or the lowest score"),
        (("--by", "bm25", "--keep", 0.3, "--min-score", 1), "name either the share"),
        (("--by", "bm25", "--keep", 30), "the share of queries to keep is above 0 and at most 1, not 30"),
        (("--by", "doct5query", "--keep", 0.3), "doct5query reads the field 'queries' itself"),
        (("--by", "bm25", "--reranker", "x", "--keep", 0.3), "not by both"),
        (("--queries", 0), "must be 1 or more, not 0"),
        (("--queries", 1, "--scores"), "there are no scores to write"),
    ],
)
def test_filters_that_mean_nothing_are_refused(
    expanded: Path, tmp_path: Path, cli: Cli, options: tuple[object, ...], message: str
) -> None:
    code, _, err = cli("queries", "filter", expanded, "-o", tmp_path / "filtered.jsonl", *options)
    assert code == 2
    assert message in err
    assert not (tmp_path / "filtered.jsonl").exists()


def test_documents_without_generated_queries_are_refused(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "documents.jsonl"
    file.write_text('{"_id": "a", "text": "b"}\n')
    code, _, err = cli("queries", "filter", file, "-o", tmp_path / "x.jsonl", "--queries", 2)
    assert code == 2
    assert f"{file}:1: the document 'a' has no texts in the field 'queries'; vizsla queries generate" in err


def test_scores_are_those_of_a_search(expanded: Path, tmp_path: Path) -> None:
    documents = [d for d in read_documents(expanded) if d.get("text")]
    queries = [d["queries"] for d in documents]
    contents = [Document(d.id, {k: v for k, v in d.content.items() if k != "queries"}) for d in documents]
    models: list[Model] = [
        BM25(k1=1.2),
        BM25() + 0.5 * BM25(fields=("text",), namespace="text", name="text"),
        small_model(tmp_path / "sparse") + BM25(),
        BM25() + 2.0 * small_dense(tmp_path / "dense"),
    ]
    for number, model in enumerate(models):
        scorer = ModelScorer(model)
        scorer.fit(documents)
        scores = scorer.scores(documents, queries).tolist()
        with Index.create(tmp_path / str(number), model) as index:
            index.add(contents)
            index.commit()
            for document, some in zip(documents, queries, strict=True):
                for query in some:
                    assert scores.pop(0) == pytest.approx(index.explain(query, document.id).score, rel=1e-5)


class Pairs:
    """A reranker that likes queries with many letters of the text."""

    name, fields = "pairs", ("title", "text")

    def pair_scores(self, queries: Sequence[str], texts: Sequence[str]) -> np.ndarray:
        return np.array([len(set(q) & set(t)) for q, t in zip(queries, texts, strict=True)])


def test_a_reranker_scores_each_query_with_its_document(expanded: Path) -> None:
    documents = list(read_documents(expanded))
    scores = RerankerScorer(Pairs()).scores(documents, [d["queries"][:2] for d in documents])
    texts = ["Dogs\nA dog barks.", "Cats\nCats purr, cats sleep.", "Birds sing and swim."]
    own = [
        (q, t) for t, d in zip(texts, (documents[0], documents[1], documents[4]), strict=True) for q in d["queries"][:2]
    ]
    assert scores.tolist() == [len(set(q) & set(t)) for q, t in own]


@given(
    st.lists(st.floats(-1e3, 1e3, width=32) | st.sampled_from([0.0, -0.0, 1.5, -1.5]), min_size=1, max_size=50),
    st.data(),
)
def test_thresholds_are_exact(values: list[float], drawn: st.DataObject) -> None:
    keep = drawn.draw(st.integers(1, len(values)))
    scores = io.BytesIO(np.array(values, np.float32).tobytes())
    threshold, ties = _threshold(scores, len(values), keep)
    ordered = sorted(values, reverse=True)
    assert threshold == ordered[keep - 1]
    assert ties == keep - sum(value > threshold for value in values)


class NoNumbers(Lengths):
    def scores(self, documents: Sequence[Document], queries: Sequence[Sequence[str]]) -> np.ndarray:
        return super().scores(documents, queries) * np.nan


def test_scores_that_are_no_numbers_are_refused(expanded: Path, tmp_path: Path) -> None:
    with pytest.raises(VizslaError, match="lengths gives a query a score that is not a finite number"):
        filter_queries(lambda: read_documents(expanded), tmp_path / "x.jsonl", QueryFilter(NoNumbers(), share=0.5))
    assert not (tmp_path / "x.jsonl").exists()
