"""Exports for other engines: read back, and searched as the engines would search them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciff_reader import read_ciff, read_postings, read_varint
from conftest import Cli
from scattered import Scattered
from test_late_interaction import WordVectors
from vizsla import BM25, Analyzer, Index, Model, VizslaError
from vizsla.backends import elasticsearch, export_vectors, search_bodies, write_bodies, write_topics
from vizsla.backends.ciff import postings_list, varint
from vizsla.backends.elasticsearch import feature
from vizsla.backends.impacts import whole_query
from vizsla.datasets import Source

TEXTS = ["dogs bark at the dog", "a cat", "", "dog and cat and fish 3.5", "the fish swim", "birds, 100% birds dog"]
QUERIES = {"q1": "dog fish dog", "q2": "birds", "q3": "3.5 cats", "q4": "unknown"}


def fill(index: Index) -> Index:
    """Two segments, a deleted and a replaced document."""
    index.add([{"id": f"d{i}", "text": text, "year": 1990 + i} for i, text in enumerate(TEXTS)])
    index.commit()
    index.delete("d1")
    index.add([{"id": "d0", "text": "fish bark"}])
    index.commit()
    return index


def living_texts() -> dict[str, str]:
    return {"d2": "", "d3": TEXTS[3], "d4": TEXTS[4], "d5": TEXTS[5], "d0": "fish bark"}


# The Common Index File Format


@given(st.integers(0, (1 << 63) - 1))
def test_varints_are_read_back(number: int) -> None:
    assert read_varint(varint(number), 0) == (number, len(varint(number)))


@given(st.text(), st.dictionaries(st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 31) - 1), max_size=20))
def test_posting_lists_are_read_back(term: str, postings: dict[int, int]) -> None:
    places = np.array(sorted(postings), np.int64)
    values = np.array([postings[place] for place in places.tolist()], np.int64)
    message = postings_list(term, places, values)
    assert read_postings(message) == (term, len(postings), sum(postings.values()), postings)


def test_counts_in_ciff(tmp_path: Path) -> None:
    with fill(Index.create(tmp_path / "i", BM25(fields=("text",)))) as index:
        assert export_vectors(index, "ciff", tmp_path / "i.ciff") == 5
    header, lists, documents = read_ciff(tmp_path / "i.ciff")
    analyzer = Analyzer.parse("lucene-english")
    counts = [Counter(analyzer(text)) for text in living_texts().values()]
    assert documents == [(i, c.total()) for i, c in zip(living_texts(), counts, strict=True)]
    terms = sorted(set().union(*counts), key=str.encode)
    assert list(lists) == terms
    assert lists == {term: {n: c[term] for n, c in enumerate(counts) if term in c} for term in terms}
    total = sum(c.total() for c in counts)
    numbers = [len(terms), 5, len(terms), 5, total]
    assert [header[field] for field in (1, 2, 3, 4, 5, 6)] == [[n] for n in (1, *numbers)]
    assert header[7] == [total / 5]
    assert header[8] == [b"Vizsla, bm25, values stored"]


@pytest.mark.parametrize(
    ("vectors", "quantiser", "expected"),
    [
        ([{"b": 3, "a": 1}, {"a": 300}], None, {"a": {0: 1, 1: 300}, "b": {0: 3}}),
        ([{"b": 0.5, "a": 1.234}, {"a": 0.001}], None, {"a": {0: 123}, "b": {0: 50}}),
        ([{"b": 0.5, "a": 1.5}, {"a": 0.5}], "minmax:8", {"a": {0: 256, 1: 1}, "b": {0: 1}}),
        ([{"b": 3, "a": 1}], "range:1:10:ceil", {"a": {0: 10}, "b": {0: 30}}),
    ],
)
def test_impacts_in_ciff(tmp_path: Path, vectors: list[Any], quantiser: str | None, expected: Any) -> None:
    with Index.create(tmp_path / "i", "vectors") as index:
        index.add([{"id": str(n), "vector": vector} for n, vector in enumerate(vectors)])
        index.commit()
        export_vectors(index, "ciff", tmp_path / "i.ciff", quantiser)
    _, lists, documents = read_ciff(tmp_path / "i.ciff")
    assert lists == expected
    if quantiser or isinstance(next(iter(vectors[0].values())), float):
        assert [length for _, length in documents] == [
            sum(postings.get(n, 0) for postings in expected.values()) for n in range(len(vectors))
        ]


def test_pyterrier_reads_the_same(tmp_path: Path) -> None:
    ciff = pytest.importorskip("pyterrier_ciff", reason="pyterrier-ciff is not installed")
    with fill(Index.create(tmp_path / "i")) as index:
        export_vectors(index, "ciff", tmp_path / "i.ciff")
    header, lists, documents = read_ciff(tmp_path / "i.ciff")
    theirs = ciff.CiffIndex(tmp_path / "i.ciff")
    assert theirs.header().average_doclength == header[7][0]
    found, records = {}, []
    for record in theirs.records_iter():
        if hasattr(record, "postings"):
            places = np.cumsum([posting.docid for posting in record.postings]).tolist()
            found[record.term] = dict(zip(places, (posting.tf for posting in record.postings), strict=True))
        else:
            records.append((record.collection_docid, record.doclength))
    assert (found, records) == (lists, documents)


# Anserini


@pytest.mark.parametrize("model", ["bm25", "bm25-multifield"])
def test_a_collection_and_topics_for_anserini_give_the_same_ranking(tmp_path: Path, model: str) -> None:
    with fill(Index.create(tmp_path / "a", model)) as index:
        assert export_vectors(index, "anserini", tmp_path / "v.jsonl") == 5
        assert write_topics(index, QUERIES, tmp_path / "topics.tsv") == 4
        expected = index.run(QUERIES)
    rows = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert all(type(w) is int and w > 0 for row in rows for w in row["vector"].values())
    topics = dict(line.split("\t") for line in (tmp_path / "topics.tsv").read_text().splitlines())
    for query_id, ranking in expected.items():
        words = Counter(topics[query_id].split())
        scores = {row["id"]: sum(n * row["vector"].get(w, 0) for w, n in words.items()) for row in rows}
        found = sorted((d for d in scores if scores[d]), key=lambda d: -scores[d])
        assert [d for d, _ in ranking] == found
        assert [scores[d] / 100 for d in found] == pytest.approx([s for _, s in ranking], abs=0.02)
    with Index.create(tmp_path / "b", "vectors") as copy:  # it is a JsonVectorCollection as any other
        copy.add(Source.find(tmp_path / "v.jsonl").documents())
        copy.commit()
        assert len(copy) == 5


def test_weights_of_queries_become_whole() -> None:
    assert whole_query({"a": 1.0, "b": 3.0}) == {"a": 1, "b": 3}
    assert whole_query({"a": 0.004, "b": 0.5}) == {"b": 50}


# Elasticsearch and OpenSearch


class Engine:
    """What Elasticsearch or OpenSearch computes for the queries that are written for it; features keep 9 bits."""

    def __init__(self, folder: Path, bits: int = 9) -> None:
        self.fields = json.loads((folder / "mapping.json").read_text())["mappings"]["properties"]
        self.bits = bits
        self.documents: dict[str, dict[str, Any]] = {}
        for part in sorted(folder.glob("bulk-*.ndjson")):
            lines = part.read_text().splitlines()
            for action, source in zip(lines[::2], lines[1::2], strict=True):
                document = json.loads(source)
                assert document.keys() <= self.fields.keys()
                self.documents[json.loads(action)["index"]["_id"]] = document

    def run(self, body: dict[str, Any]) -> dict[str, float]:
        found = {i: self.score(body["query"], d) for i, d in self.documents.items()}
        return {i: s for i, s in sorted(found.items(), key=lambda pair: -(pair[1] or 0)) if s is not None}

    def score(self, query: dict[str, Any], document: dict[str, Any]) -> float | None:
        """The score of a document, None where it does not match."""
        ((kind, of),) = query.items()
        if kind == "sparse_vector":
            assert of["prune"] is False
            return self.features(of["field"], of["query_vector"], of["boost"], document)
        if kind == "neural_sparse":
            ((field, inner),) = of.items()
            return self.features(field, inner["query_tokens"], inner["boost"], document)
        if kind == "exists":
            return 1.0 if of["field"] in document else None
        if kind == "match_none":
            return None
        if kind == "bool":
            scores = [self.score(clause, document) for clause in of.get("should", [])]
            matching = [s for s in scores if s is not None]
            least = of.get("minimum_should_match", 0 if "filter" in of else 1)
            if len(matching) < least or any(self.score(f, document) is None for f in of.get("filter", [])):
                return None
            return sum(matching)
        assert kind == "script_score"
        inner_score = self.score(of["query"], document)
        return None if inner_score is None else self.script(of["script"], inner_score, document)

    def features(self, field: str, weights: dict[str, float], boost: float, document: dict[str, Any]) -> float | None:
        assert self.fields[field]["type"] in ("sparse_vector", "rank_features")
        assert all(0 < w <= 64 and "." not in name for name, w in weights.items())
        stored = {name: self.kept(w) for name, w in document.get(field, {}).items()}
        matching = [w * stored[name] for name, w in weights.items() if name in stored]
        return boost * sum(matching) if matching else None

    def kept(self, weight: float) -> float:
        """A feature's weight as Lucene stores it: the first bits of its 32."""
        whole = np.array([weight], np.float32).view(np.uint32) >> (24 - self.bits) << (24 - self.bits)
        return float(whole.astype(np.uint32).view(np.float32)[0])

    def script(self, script: dict[str, Any], score: float, document: dict[str, Any]) -> float:
        params = script["params"]
        total = score + params["shift"]
        vectors = re.findall(r"(?:dotProduct|cosineSimilarity)\(params\.(query\d), (?:doc\[)?'(\w+)'", script["source"])
        assert vectors
        for name, field in vectors:
            assert self.fields[field]["type"] in ("dense_vector", "knn_vector")
            if field in document:
                product = float(np.dot(params[name], document[field]))
                if "cosineSimilarity" in script["source"]:
                    cosine = product / np.linalg.norm(params[name]) / np.linalg.norm(document[field])
                    product = float(cosine) * params[name.replace("query", "norm")] * document[f"{field}_norm"]
                total += product
        assert total >= 0
        return total


def models() -> dict[str, Model]:
    words, dense = BM25(fields=("text",)), Scattered(fields=("text",))
    return {"bm25": words, "dense": dense, "sum": 3 * words + 2 * dense, "two": words + 100 * BM25(
        fields=("text",), namespace="again", name="again", analyzer="whitespace")}  # fmt: skip


@pytest.mark.parametrize("name", ["bm25", "dense", "sum", "two"])
@pytest.mark.parametrize("engine", ["elasticsearch", "opensearch"])
def test_engines_give_the_same_scores(tmp_path: Path, name: str, engine: str) -> None:
    with fill(Index.create(tmp_path / "i", models()[name])) as index:
        assert export_vectors(index, engine, tmp_path / "out") == 5
        expected = index.run(QUERIES)
        bodies = dict(search_bodies(index, engine, QUERIES, k=100))
    exact, rounded = Engine(tmp_path / "out", bits=24), Engine(tmp_path / "out")
    assert exact.documents["d3"]["content"] == {"text": TEXTS[3], "year": 1993}
    for query_id, ranking in expected.items():
        body = bodies[query_id]
        assert body["size"] == 100
        shift = body["query"].get("script_score", {"script": {"params": {"shift": 0}}})["script"]["params"]["shift"]
        scores = {d: s - shift for d, s in exact.run(body).items()}
        assert scores.keys() == {d for d, _ in ranking}
        assert [scores[d] for d, _ in ranking] == pytest.approx([s for _, s in ranking], rel=1e-5, abs=1e-5)
        close = {d: s - shift for d, s in rounded.run(body).items()}
        assert [close[d] for d, _ in ranking] == pytest.approx([s for _, s in ranking], rel=0.005, abs=0.5)


def test_a_query_with_large_weights_is_scaled(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", "vectors") as index:
        index.add([{"id": "1", "vector": {"a.b": 2, "": 1}}])
        index.commit()
        export_vectors(index, "opensearch", tmp_path / "out")
        ((_, body),) = search_bodies(index, "opensearch", {"q": json.dumps({"a.b": 640, "": 6.4})})
    assert body["query"]["neural_sparse"]["terms_vectors"] == {"query_tokens": {"a%2Eb": 64, "%": 0.64}, "boost": 10}
    assert Engine(tmp_path / "out").run(body) == {"1": pytest.approx(1286.4)}


@given(st.lists(st.text(alphabet="a.%25E", max_size=4), unique=True))
def test_names_of_features_are_different(terms: list[str]) -> None:
    names = [feature(term) for term in terms]
    assert len(set(names)) == len(terms)
    assert all(name and "." not in name for name in names)


def test_large_collections_come_in_parts_and_passages_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elasticsearch, "_PART_BYTES", 500)
    with Index.create(tmp_path / "i", passages=2) as index:
        index.add([{"id": "d", "text": "dogs bark. cats purr. fish swim. dogs sleep."}, {"id": "e", "text": "fish"}])
        index.commit()
        export_vectors(index, "elasticsearch", tmp_path / "out")
        ((_, body),) = search_bodies(index, "elasticsearch", {"q": "dogs"})
        export_vectors(index, "ciff", tmp_path / "i.ciff")
    assert len(list((tmp_path / "out").glob("bulk-*.ndjson"))) > 1
    documents = Engine(tmp_path / "out").documents
    assert {i: d["document"] for i, d in documents.items()} == {i: i[0] for i in documents}
    assert body["collapse"] == {"field": "document"}
    assert [i for i, _ in read_ciff(tmp_path / "i.ciff")[2]] == list(documents)


# The command line, and what is refused


def test_queries_on_the_command_line(tmp_path: Path, cli: Cli) -> None:
    with fill(Index.create(tmp_path / "i")) as index:
        write_bodies(index, "elasticsearch", QUERIES, tmp_path / "expected.jsonl", 5)
    (tmp_path / "q.tsv").write_text("".join(f"{i}\t{text}\n" for i, text in QUERIES.items()))
    code, out, _ = cli("export", tmp_path / "i", "--format", "elasticsearch", "--query", "dog", "-k", 7)
    assert code == 0
    assert json.loads(out)["query"]["sparse_vector"]["query_vector"] == {"dog": 1}
    assert json.loads(out)["size"] == 7
    given_queries = "--queries", tmp_path / "q.tsv"
    assert (
        cli("export", tmp_path / "i", "--format", "elasticsearch", *given_queries, "-k", 5, "-o", "-")[1]
        == (tmp_path / "expected.jsonl").read_text()
    )
    assert cli("export", tmp_path / "i", "--format", "ciff", "--query", "dogs and a dog")[1] == "1\tdog dog\n"
    assert cli("export", tmp_path / "i", "--format", "anserini", "-o", "-")[1].count("\n") == 5
    assert cli("export", tmp_path / "i", "--format", "opensearch", "-o", tmp_path / "out", "--no-texts")[0] == 0
    assert all("content" not in d for d in Engine(tmp_path / "out").documents.values())


def test_options_that_do_not_go_together(tmp_path: Path, cli: Cli) -> None:
    fill(Index.create(tmp_path / "i")).close()
    cases = {
        (): "name the output with -o",
        ("--format", "ciff", "-o", "-"): "ciff needs files",
        ("--format", "opensearch", "-o", "-"): "the output of opensearch is a folder",
        ("--format", "opensearch", "-o", str(tmp_path / "i")): "needs a folder that is new or empty",
        ("--format", "elasticsearch", "--quantise", "minmax:8", "-o", "x"): "elasticsearch rounds weights itself",
        ("--query", "dog"): "queries are written as ciff, anserini, elasticsearch, opensearch, not as jsonl",
        ("--format", "ciff", "--query", "dog", "--queries", "x"): "not both",
        ("--format", "ciff", "--query", " "): "the query is empty",
        ("--format", "ciff", "--query", "a", "--quantise", "minmax:8"): "--quantise is for the weights of documents",
        ("--no-texts", "-o", "x"): "--no-texts is for",
        ("-k", "3", "-o", "x"): "-k is for queries",
    }
    for arguments, message in cases.items():
        code, _, err = cli("export", tmp_path / "i", *arguments)
        assert code == 2
        assert message in err


def refused(tmp_path: Path) -> Iterator[tuple[Index, str, str]]:
    """An index, a format, and why the one cannot be written in the other."""
    with Index.create(tmp_path / "tokens", BM25(fields=("text",)) + WordVectors()) as index:
        yield index, "elasticsearch", "words has token vectors, which cannot be exported to other engines"
        yield index, "ciff", "posting lists can be exported of one sparse model"
    with Index.create(tmp_path / "dense", Scattered(fields=("text",))) as index:
        yield index, "anserini", "have no terms, and files for Anserini hold only terms"
        yield index, "ciff", "posting lists can be exported of one sparse model"
    with Index.create(tmp_path / "unstored", store=False) as index:
        yield fill(index), "opensearch", "keeps no texts to export; leave them out with --no-texts"
    with Index.create(tmp_path / "negative", -1 * BM25(fields=("text",))) as index:
        fill(index)
        yield index, "elasticsearch", "gives terms negative weights, and elasticsearch takes none"
        yield index, "anserini", "gives terms negative weights, and anserini takes none"
    with Index.create(tmp_path / "blank", "vectors") as index:
        index.add([{"id": "1", "vector": {"a b": 1}}, {"id": "2" * 600, "vector": {"a": 1}}])
        index.commit()
        yield index, "anserini", "'a b' is empty or has white space in it"
        yield index, "elasticsearch", "takes ids of at most 512 bytes"


def test_what_an_engine_cannot_take_is_told(tmp_path: Path) -> None:
    for number, (index, to, message) in enumerate(refused(tmp_path)):
        with pytest.raises(VizslaError, match=re.escape(message)):
            export_vectors(index, to, tmp_path / f"out{number}")
