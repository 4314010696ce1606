"""Retrievers made from others, opened by location, of one's own; and what takes any of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import vizsla
from scattered import Scattered
from vizsla import (
    BM25,
    BeirDataset,
    Document,
    FusedRetriever,
    Hit,
    Index,
    Qrels,
    RerankedRetriever,
    Retriever,
    Run,
    VizslaError,
    compare,
    evaluate,
    evaluate_retriever,
    fuse,
)
from vizsla.errors import CannotExplainError
from vizsla.evaluation import Parameter, QuestionMeasures, QuestionSet, answer_accuracy, answer_qrels, retrieve, tune
from vizsla.evaluation.tuning import ModelRetriever
from vizsla.retrievers import LOCATIONS, pair_scores, rerank, rerank_hits
from vizsla.runs import FUSIONS, FilterLike, Fusion, parse_measures

TEXTS = {
    "1": "dogs bark at night",
    "2": "cats purr and dogs sleep",
    "3": "the river runs past a stone",
    "4": "a dog and a dog and a cat",
    "5": "stone stone stone",
}


class WordCount(Retriever):
    """A retriever of its own: documents by how many words of the query they have."""

    name = "word-count"

    def __init__(self, documents: Iterable[Document]) -> None:
        self.documents = {document.id: document for document in documents}

    def search_many(self, queries: Sequence[str], k: int = 10, filter: FilterLike = None) -> list[list[Hit]]:
        assert filter is None
        return [self._hits(query.lower().split(), k) for query in queries]

    def _hits(self, words: list[str], k: int) -> list[Hit]:
        scores = {i: float(sum(map(d["text"].lower().split().count, words))) for i, d in self.documents.items()}
        best = sorted((i for i in scores if scores[i]), key=lambda i: -scores[i])[:k]
        return [Hit(rank, scores[i], self.documents[i]) for rank, i in enumerate(best, 1)]

    def get_many(self, ids: Iterable[str | int]) -> dict[str, Document]:
        return {str(i): self.documents[str(i)] for i in ids if str(i) in self.documents}

    def __len__(self) -> int:
        return len(self.documents)


class Shortest:
    """A reranker without a network: short texts first."""

    name = "shortest"
    fields = ("text",)

    def pair_scores(self, queries: Sequence[str], texts: Sequence[str]) -> np.ndarray:
        assert len(queries) == len(texts)
        return np.array([-len(text) for text in texts], np.float32)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with Index.create(tmp_path / "ix", BM25() + 0.3 * Scattered()) as index:
        index.add({"id": i, "text": text} for i, text in TEXTS.items())
        index.commit()
        yield index


@pytest.fixture
def counting() -> WordCount:
    return WordCount(Document(i, {"text": text}) for i, text in TEXTS.items())


QUERIES = {"a": "dogs bark", "b": "stone river", "c": "cat", "d": "nothing"}


@pytest.mark.parametrize("fusion", ["rrf", "rrf(k=3)", "linear(normalise=zscore)", "mnz", "interleave"])
def test_a_fused_retriever_is_the_fusion_of_the_runs(index: Index, counting: WordCount, fusion: str) -> None:
    weights = None if fusion == "interleave" else [1.0, 0.5]
    fused = FusedRetriever([index.with_model(BM25()), counting], fusion, weights, depth=3)
    for k in (1, 2, 10):
        runs = [r.run(QUERIES, max(k, 3)) for r in fused.retrievers]
        expected = fuse(runs, fusion, weights, k)
        assert fused.run(QUERIES, k) == expected
        for query, hits in zip(QUERIES, fused.search_many(list(QUERIES.values()), k), strict=True):
            assert [(hit.id, hit.score) for hit in hits] == list(expected[query])
            assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
            assert all(hit["text"] == TEXTS[hit.id] for hit in hits)
    assert fused.name == f"{Fusion.parse(fusion)} of bm25, word-count"
    assert len(fused) == 5


def test_documents_come_from_the_first_retriever_that_has_them(index: Index, tmp_path: Path) -> None:
    with Index.create(tmp_path / "bare", "bm25", store=False) as bare:
        bare.add([{"id": "1", "text": "dogs bark"}, {"id": "9", "text": "dogs"}])
        bare.commit()
        fused = FusedRetriever([bare, index])
        assert {d: document.content for d, document in fused.get_many([1, "9", "5", "none"]).items()} == {
            "1": {"text": TEXTS["1"]}, "9": {}, "5": {"text": TEXTS["5"]},
        }  # fmt: skip
        assert {hit.id: hit.get("text") for hit in fused.search("dogs bark")}["1"] == TEXTS["1"]
        assert fused.get("none") is None


def test_a_fused_score_is_explained_by_its_parts(index: Index, counting: WordCount) -> None:
    fused = FusedRetriever([index.with_model(BM25()), counting], weights=[2.0, 1.0])
    best = fused.search("dogs bark")[0]
    explanation = fused.explain("dogs bark", best.id)
    assert explanation.score == best.score
    first, second = explanation.parts
    assert first.score == pytest.approx(index.search("dogs bark", model=BM25())[0].score)
    assert [part.name for part in first.parts] == ["dog", "bark"]
    assert (second.name, second.score, second.facts["rank"]) == ("word-count", 2.0, 1)
    text = str(explanation)
    assert "rank 1" in text
    assert "(weight 2)" in text
    purring = fused.explain("stone barking", "1")
    assert "not among the first 100" in str(purring.parts[1])
    with pytest.raises(VizslaError, match="no retriever has the document '5' among its first 100"):
        fused.explain("dogs", "5")
    with pytest.raises(CannotExplainError, match="word-count cannot explain its scores"):
        counting.explain("dogs", "1")


def test_what_cannot_be_fused(counting: WordCount) -> None:
    for arguments, message in (
        (([],), "no retrievers to fuse"),
        (([counting], "rff"), "did you mean 'rrf'"),
        (([counting], "rrf", [1.0, 2.0]), "as many weights"),
        (([counting], "interleave", [1.0]), "interleave does not take weights"),
        (([counting], "rrf", None, 0), "must be 1 or more, not 0"),
    ):
        with pytest.raises(VizslaError, match=message):
            FusedRetriever(*arguments)  # type: ignore[arg-type]
    with pytest.raises(VizslaError, match="k, the number of results, must be 1 or more"):
        FusedRetriever([counting]).search("dogs", 0)


def test_a_reranked_retriever_reranks_the_first_documents(index: Index, counting: WordCount) -> None:
    for first_stage in (index, counting):
        retriever = RerankedRetriever(first_stage, Shortest(), depth=2)
        for k in (1, 2, 10):
            deepest = first_stage.run(QUERIES, max(k, 2))
            expected = rerank(first_stage, deepest, QUERIES, Shortest(), 2).top(k)
            assert retriever.run(QUERIES, k) == expected
            hits = retriever.search(QUERIES["a"], k)
            assert [(hit.id, hit.score) for hit in hits] == list(expected["a"])
            assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
        assert retriever.get("1") == first_stage.get("1")
        assert len(retriever) == 5
    assert retriever.name == "shortest over word-count"
    best = rerank_hits(counting.search("dogs"), "dogs", Shortest())[0]
    assert (best.id, best.score) == ("1", -18.0)
    assert rerank_hits([], "dogs", Shortest()) == []


def test_a_reranked_score_is_explained_by_the_first_stage(index: Index) -> None:
    retriever = RerankedRetriever(index.with_model(BM25()), Shortest(), depth=2)
    first_stage = index.search("dogs cat", model=BM25())
    explanation = retriever.explain("dogs cat", first_stage[1].id)
    assert explanation.score == -len(first_stage[1]["text"])
    (part,) = explanation.parts
    assert part.facts["rank"] == 2
    assert part.score == pytest.approx(first_stage[1].score)
    with pytest.raises(VizslaError, match="does not find the document '5' among its first 2"):
        retriever.explain("dogs", "5")


def test_documents_without_text_cannot_be_reranked(tmp_path: Path) -> None:
    with Index.create(tmp_path / "bare", "bm25", store=False) as bare:
        bare.add([{"id": "1", "text": "dogs bark"}])
        bare.commit()
        message = "the document '1' has no text for a reranker to read; .*--no-store"
        with pytest.raises(VizslaError, match=message):
            RerankedRetriever(bare, Shortest()).search("dogs")
        with pytest.raises(VizslaError, match=message):
            pair_scores(bare, [bare.run({"q": "dogs"})], {"q": "dogs"}, Shortest())
        with pytest.raises(VizslaError, match="the document '1' has no text to search for answers"):
            answer_accuracy(bare, {"q": "dogs"}, {"q": ["bark"]}, [1])


def test_closing_closes_what_is_inside(tmp_path: Path) -> None:
    indexes = [Index.create(tmp_path / name) for name in "ab"]
    with RerankedRetriever(FusedRetriever(indexes), Shortest()) as retriever:
        assert retriever.search("dogs") == []
    for index in indexes:
        with pytest.raises(VizslaError, match="has been closed"):
            index.search("dogs")


def test_a_folder_is_opened_by_its_location(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    path = index.path
    monkeypatch.chdir(path.parent)
    for location in (
        path,
        str(path),
        "ix",
        "./ix",
        f"file:{path}",
        "file:ix",
        f"file://{path}",
        f"FILE://localhost{path}",
    ):
        with vizsla.open(location) as opened:
            assert isinstance(opened, Index)
            assert opened.search("dogs", 3) == index.search("dogs", 3)


def test_locations_that_are_none() -> None:
    with pytest.raises(VizslaError, match=r"^unknown kind of location 'gopher:'; known: file:, .*http:, https:"):
        vizsla.open("gopher://example.org/ix")
    with pytest.raises(VizslaError, match="did you mean 'file:'"):
        vizsla.open("fiel:ix")
    with pytest.raises(VizslaError, match="names no folder"):
        vizsla.open("file:")
    with pytest.raises(VizslaError, match="this folder does not exist"):
        vizsla.open("nowhere")
    with pytest.raises(VizslaError, match="a location is a text or a path, not the number 7"):
        vizsla.open(7)  # type: ignore[arg-type]


LOCATION = """
from vizsla.retrievers import LOCATIONS
from vizsla.runs import Document, Hit, Retriever


class Echo(Retriever):
    def __init__(self, word):
        self.name = word

    def search_many(self, queries, k=10, filter=None):
        return [[Hit(1, 1.0, Document("1", {"text": self.name + " " + query}))] for query in queries]

    def get_many(self, ids):
        return {}

    def __len__(self):
        return 1


@LOCATIONS.register("toy-echo", help="toy-echo:WORD finds the query behind a word.")
def open_echo(location):
    return Echo(location.removeprefix("toy-echo:"))
"""

FUSION = """
from dataclasses import dataclass

from vizsla.runs import FUSIONS, Fusion, Ranking
from vizsla.spec import Option


@FUSIONS.register("toy-best", help="The best reciprocal rank.", options=[Option("power", "int", 1, "of the rank")])
@dataclass(frozen=True)
class Best(Fusion):
    name = "toy-best"
    power: int = 1

    def fuse_rankings(self, rankings, weights):
        scores = {}
        for ranking, weight in zip(rankings, weights):
            for rank, document in enumerate(ranking.documents, 1):
                scores[document] = max(scores.get(document, 0.0), weight / rank**self.power)
        return Ranking.of_pairs(scores.items())
"""


def test_a_location_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = tmp_path / "toy_location.py"
    plugin.write_text(LOCATION)
    monkeypatch.setenv("VIZSLA_PLUGINS", str(plugin))
    with vizsla.open("toy-echo:hello") as retriever:
        assert retriever.search("dogs")[0]["text"] == "hello dogs"
    assert {"file", "toy-echo"} <= set(LOCATIONS.names())
    assert LOCATIONS["toy-echo"].help


def test_a_fusion_of_ones_own(
    index: Index, counting: WordCount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "toy_fusion.py"
    plugin.write_text(FUSION)
    monkeypatch.setenv("VIZSLA_PLUGINS", str(plugin))
    a, b = Run({"q": [("x", 3.0), ("y", 2.0)]}), Run({"q": [("z", 5.0), ("y", 4.0)]})
    assert list(fuse([a, b], "toy-best(power=2)", [1.0, 0.5])["q"]) == [("x", 1.0), ("z", 0.5), ("y", 0.25)]
    assert str(Fusion.parse("toy-best")) == "toy-best(power=1)"
    assert "toy-best" in FUSIONS.names()
    parts = [index.run(QUERIES, 100, model=model) for model in (BM25(), Scattered())]
    combined = index.run(QUERIES, 3, combine="toy-best(power=2, depth=100)")
    assert {q: list(r) for q, r in combined.items()} == {
        q: list(r) for q, r in fuse(parts, "toy-best(power=2)", depth=3).items()
    }
    fused = FusedRetriever([index, counting], "toy-best(power=2)")
    assert fused.name.startswith("toy-best(power=2) of ")
    assert fused.search("dogs bark")[0].score == 1.0
    with pytest.raises(VizslaError, match="'x' is not a whole number for power"):
        Fusion.parse("toy-best(power=x)")


def test_any_retriever_is_evaluated_and_compared(dataset: Path) -> None:
    opened = BeirDataset.open(dataset)
    counting = WordCount(opened.documents())
    qrels = opened.qrels("test")
    found = evaluate_retriever(counting, opened)
    assert found.evaluation.measures == evaluate(found.run, qrels, "nDCG@10 R@100").measures
    assert found.run == retrieve(counting, opened.queries_of(qrels))
    assert (found.documents, list(found.seconds)) == (len(counting), ["search"])
    comparison = compare([(opened, "test")], {"bm25": BM25()}, "nDCG@10", retrievers={"count": {"pets": counting}})
    assert comparison.systems == ("bm25", "count")
    assert comparison.value("pets", "count", "nDCG@10") == found.evaluation.measures["nDCG@10"]
    with pytest.raises(VizslaError, match="the baseline count has no results on pets"):
        compare([(opened, "test")], {}, "nDCG@10", retrievers={"count": {}})
    questions = QuestionSet("pets", opened.queries_of(qrels), {}, qrels)
    values = questions.values(QuestionMeasures(parse_measures("nDCG@10")), retriever=counting)
    assert values == {"nDCG@10": evaluate(found.run, qrels, "nDCG@10").by_query["nDCG@10"]}


def test_answers_are_looked_for_in_what_any_retriever_finds(counting: WordCount) -> None:
    questions, answers = {"q": "cat", "r": "", "s": "stone"}, {"q": ["a dog"], "r": ["x"], "s": ["past a stone"]}
    assert answer_accuracy(counting, questions, answers, [1, 2]) == {"Acc@1": 1 / 3, "Acc@2": 2 / 3}
    run = Run({"q": [("2", 2.0), ("4", 1.0)], "s": [("gone", 1.0)]})
    assert answer_accuracy(counting, questions, answers, [1, 2], run=run) == {"Acc@1": 0.0, "Acc@2": 1 / 3}
    assert answer_qrels(counting, [run], answers, 2).judgements == {"q": {"2": 0, "4": 1}, "r": {}, "s": {"gone": 0}}


def test_an_index_and_its_view_swap_models(index: Index) -> None:
    qrels = Qrels({"a": {"1": 1}, "b": {"3": 1}})
    queries = {q: QUERIES[q] for q in qrels.judgements}
    measure, parameters = parse_measures("RR@10")[0], [Parameter("scattered.weight", (0.0, 0.1, 1.0))]
    retrievers: list[ModelRetriever] = [index, index.with_model(BM25() + Scattered())]
    first, second = (tune(r, index.model, queries, qrels, measure, parameters) for r in retrievers)
    assert first.tried == second.tried
    assert len(first.tried) == 3
