"""SEAL: the n-grams that a generator writes are those of the collection, and an index scores documents by them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tiny_checkpoints import tiny_causal, tiny_seq2seq
from vizsla import BM25, Index, Model, VizslaError, parse_model
from vizsla.engine.suffix_array import BREAK, FIRST, TITLE
from vizsla.errors import CollectionError, InputError
from vizsla.index import verify
from vizsla.models import GAR, Seal
from vizsla.models.generator import CheckpointGenerator, export_generator, open_generator
from vizsla.neural.beams import BeamStates, beam_search
from vizsla.neural.checkpoints.generator import GeneratorCheckpoint
from vizsla.neural.torch_generator import open_model

pytestmark = pytest.mark.usefixtures("in_floats")

DOCUMENTS: list[dict[str, Any]] = [
    {"id": "vizsla", "title": "Vizsla", "text": "The Vizsla is a dog from Hungary.", "year": 1},
    {"id": "dog", "title": "Dog", "text": "A dog barks; the dog of the house barks at night.", "year": 2},
    {"id": "cat", "title": "Cat", "text": "A cat purrs. The cat of the house sleeps.", "year": 3},
    {"id": "plain", "text": "Dogs from Hungary and cats from the house.", "year": 4},
    {"id": "empty", "title": "", "text": "", "year": 5},
]
QUESTIONS = ["which dog is from Hungary?", "who purrs in the house?", "what"]


@pytest.fixture(autouse=True)
def _in_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16, which some processors multiply faster, scores are rounded otherwise."""
    monkeypatch.setattr("vizsla.neural.torch_network.has_fast_bfloat16", lambda device: False)  # noqa: ARG005


def tiny(folder: Path, seq2seq: bool = False, task: str = "ngrams") -> Path:
    """A generator at random that prefers the tokens of the documents, or no n-gram would be likelier than by chance."""
    made = tiny_seq2seq(folder, "bart") if seq2seq else tiny_causal(folder)
    (made / "generator.json").write_text(json.dumps({"task": task, "length": 60, "prompt": "\nPassage:"}))
    model = open_model(made, seq2seq)
    texts = [text for d in DOCUMENTS for text in (d.get("title", ""), d["text"])]
    known = {token for row in GeneratorCheckpoint.read(made).tokens(texts) for token in row}
    others = [token for token in range(400) if token not in known]
    with torch.no_grad():
        weights = model.get_output_embeddings().weight
        weights *= 12  # so that some continuations are all but certain
        weights[others] = 0
    model.save_pretrained(made)
    return made


@pytest.fixture(scope="module", params=["causal", "seq2seq", "onnx"])
def generator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tiny(tmp_path_factory.mktemp(request.param) / "floats", request.param != "causal")
    if request.param == "onnx":
        export_generator(made, made.parent / "exact", precision="float32")
        made = made.parent / "exact"
    return made


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("generator"))


def rows_of(model: Seal, documents: list[dict[str, Any]]) -> dict[str, list[int]]:
    return {d["id"]: row.tolist() for d, row in zip(documents, model.document_rows(documents), strict=True)}


def expected(model: Seal, question: str, documents: list[dict[str, Any]]) -> dict[str, float]:
    """The scores by definition: every continuation of every kept n-gram is tried in the texts themselves."""
    rows = rows_of(model, documents)
    tokens = sum(sum(t >= FIRST for t in row) for row in rows.values())
    weights: dict[tuple[int, ...], float] = {}
    for start, steps, titles in (((), model.ngram_length, False), ((TITLE,), 32, True)):
        for ngram, score in kept_ngrams(model, question, list(rows.values()), start, steps, titles=titles):
            if not titles or ngram[-1] == BREAK:
                count, after = sum(count_in(row, ngram) for row in rows.values()), min(math.exp(score), 1 - 1e-6)
                weights[ngram] = max(odds(after, count / tokens), 0.0) ** model.exponent
    scores = {name: score_of(row, weights, model.overlap) for name, row in rows.items()}
    return {name: s for name, s in sorted(scores.items(), key=lambda item: -item[1]) if s > 0}


def places_of(row: list[int], ngram: tuple[int, ...]) -> list[int]:
    return [p for p in range(len(row) - len(ngram) + 1) if tuple(row[p : p + len(ngram)]) == ngram]


def count_in(row: list[int], ngram: tuple[int, ...]) -> int:
    return len(places_of(row, ngram))


def kept_ngrams(
    model: Seal, question: str, rows: list[list[int]], start: tuple[int, ...], steps: int, *, titles: bool
) -> list[tuple[tuple[int, ...], float]]:
    """A plain beam search: logits come from the network, text by text, and what may follow from all rows."""
    generator = open_generator(model.generator)
    assert isinstance(generator, CheckpointGenerator)
    (ids,) = generator.checkpoint.inputs([question], titles=titles)
    end, kept, best = generator.checkpoint.ends[0], [], [(start, 0.0)]
    for _ in range(steps):
        longer = []
        for ngram, score in best:
            written = [t - FIRST for t in ngram[len(start) :]]
            states = generator.running.beams([ids], 1, len(written) + 1)
            logits = states.start()
            for token in written:
                logits = states.step(np.zeros((1, 1), np.int64), np.array([[token]]))[:, 0]
            logs = np.asarray(logits[0], np.float64)
            logs -= logs.max() + math.log(np.exp(logs - logs.max()).sum())
            size = len(ngram)
            following = {row[p + size] for row in rows for p in places_of(row, ngram) if p + size < len(row)}
            for token in sorted(following - ({TITLE} if titles else {TITLE, BREAK})):
                number = end if token == BREAK else token - FIRST
                longer.append(((*ngram, token), score + float(logs[number])))
        longer = sorted(longer, key=lambda pair: -pair[1])[: model.beam]
        kept += longer
        best = [pair for pair in longer if pair[0][-1] != BREAK]
    return kept


def score_of(row: list[int], weights: dict[tuple[int, ...], float], overlap: float) -> float:
    total, taken, known = 0.0, set(), set()
    for ngram, weight in sorted(weights.items(), key=lambda item: -item[1]):
        own = [set(range(p, p + len(ngram))) for p in places_of(row, ngram)]
        if weight and any(not place & taken for place in own):
            words = {t for t in ngram if t >= FIRST}
            total += weight * (1 - overlap + overlap * len(words - known) / len(words))
            known |= words
        if weight:
            taken.update(*own)
    return total


def found(index: Any, question: str, **options: Any) -> dict[str, float]:
    return {hit.id: hit.score for hit in index.search(question, 10, **options)}


def check(index: Any, model: Seal, documents: list[dict[str, Any]], questions: list[str] = QUESTIONS) -> None:
    wanted = [expected(model, question, documents) for question in questions]
    assert any(wanted)
    for question, scores in zip(questions, wanted, strict=True):
        assert found(index, question) == pytest.approx(scores, rel=1e-4)
        for k in (1, 2):
            best = {hit.id: hit.score for hit in index.search(question, k)}
            assert best == pytest.approx(dict(list(scores.items())[:k]), rel=1e-4)


def test_an_index_gives_the_scores_of_the_definition_over_its_life(tmp_path: Path, generator: Path) -> None:
    model = Seal(str(generator), beam=3, ngram_length=3)
    with Index.create(tmp_path / "i", model) as index:
        assert found(index, QUESTIONS[0]) == {}
        index.add(DOCUMENTS[:2])
        index.commit()
        check(index, model, DOCUMENTS[:2], QUESTIONS[:1])
        index.add(DOCUMENTS[2:])
        index.commit()
        check(index, model, DOCUMENTS)
        changed = {"id": "cat", "title": "Cat", "text": "The cat purrs in Hungary.", "year": 3}
        index.add([changed])
        index.delete("dog")
        index.commit()
        now = [DOCUMENTS[0], DOCUMENTS[3], changed]
        check(index, model, now, QUESTIONS[:2])
        assert verify(tmp_path / "i") == []
        index.compact()
        check(index, model, now, QUESTIONS[:1])
        assert verify(tmp_path / "i") == []
        facts = index.info()["ngrams"]
        assert facts["tokens"] == sum(map(len, rows_of(model, now).values()))
        few = found(index, QUESTIONS[0], filter="year >= 4")
        assert few == {name: score for name, score in found(index, QUESTIONS[0]).items() if name == "plain"}
    with Index.open(tmp_path / "i") as index:
        check(index, model, now, QUESTIONS[:1])


def test_the_best_are_the_first_of_all_over_a_random_life(
    tmp_path: Path, causal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search for as many documents as there are scores each; one for fewer leaves out what bounds rule out."""
    monkeypatch.setattr("vizsla.engine.ngram_scores._BATCH", 2)
    rng, words = np.random.default_rng(1), [w for d in DOCUMENTS for w in f"{d.get('title', '')} {d['text']}".split()]

    def some(count: int) -> list[dict[str, Any]]:
        texts = [" ".join(rng.choice(words, rng.integers(1, 12)).tolist()) for _ in range(count)]
        titles = [" ".join(rng.choice(words, rng.integers(0, 3)).tolist()) for _ in range(count)]
        names = [f"d{n}" for n in rng.permutation(80)[:count].tolist()]
        return [
            {"id": name, "title": title, "text": text, "year": int(rng.integers(5))}
            for name, title, text in zip(names, titles, texts, strict=True)
        ]

    def agree(index: Index) -> None:
        seal = Seal(str(causal), beam=4, ngram_length=4)
        for model in (seal, BM25() + 0.01 * seal):
            view = index.with_model(model)
            for options in ({}, {"filter": "year >= 3"}):
                whole = [[(h.id, h.score) for h in hits] for hits in view.search_many(QUESTIONS, 200, **options)]
                assert any(whole)
                for k in (1, 15):
                    found = [[(h.id, h.score) for h in hits] for hits in view.search_many(QUESTIONS, k, **options)]
                    assert found == [hits[:k] for hits in whole]

    with Index.create(tmp_path / "i", BM25() + Seal(str(causal))) as index:
        for _ in range(2):
            index.add(some(50))
            index.commit()
            for name in list(index.get_many([f"d{n}" for n in rng.permutation(80)[:15].tolist()])):
                index.delete(name)
            index.commit()
            agree(index)
        index.compact()
        agree(index)
    with Index.open(tmp_path / "i") as index:
        agree(index)


def test_other_options_search_the_same_index(tmp_path: Path, causal: Path) -> None:
    with Index.create(tmp_path / "i", Seal(str(causal))) as index:
        index.add(DOCUMENTS)
        index.commit()
        for options in ({"beam": 1}, {"exponent": 1.0, "overlap": 0.0}):
            model = Seal(str(causal), ngram_length=2, **options)
            check(index.with_model(model), model, DOCUMENTS, QUESTIONS[:2])
        with pytest.raises(VizslaError, match="it can be searched with other weights and options of the search"):
            index.with_model(Seal(str(causal), fields=("text",))).search("dog")
        with pytest.raises(VizslaError, match="does not have what 'seal' reads"):
            Index.create(tmp_path / "b", BM25()).with_model(Seal(str(causal))).search("dog")


def test_explanations_show_the_ngrams_and_add_up(tmp_path: Path, causal: Path) -> None:
    model = Seal(str(causal), beam=4)
    with Index.create(tmp_path / "i", model) as index:
        index.add(DOCUMENTS)
        index.commit()
        for question in QUESTIONS:
            for hit in index.search(question):
                explanation = index.explain(question, hit.id)
                assert explanation.score == pytest.approx(hit.score, rel=1e-5)
                assert sum(part.score for part in explanation.parts) == pytest.approx(hit.score, rel=1e-5)
                content = next(d for d in DOCUMENTS if d["id"] == hit.id)
                for part in explanation.parts:
                    text = part.facts["ngram"]
                    if text.startswith("title: "):
                        assert text == f"title: {content['title']}"
                    else:
                        assert text in content["text"] or text in content.get("title", "")
                    assert part.facts["occurrences"] >= 1
                assert "generated for the query" in str(explanation)


def test_a_sum_with_bm25_adds_scores_and_a_fusion_takes_ranks(tmp_path: Path, causal: Path) -> None:
    seal = Seal(str(causal), beam=4)
    with Index.create(tmp_path / "i", BM25() + 0.01 * seal) as index:
        index.add(DOCUMENTS[:3])
        index.commit()
        index.add(DOCUMENTS[3:])
        index.commit()
        for question in QUESTIONS:
            words, ngrams = found(index.with_model(BM25()), question), found(index.with_model(seal), question)
            both = {n: words.get(n, 0) + 0.01 * ngrams.get(n, 0) for n in words.keys() | ngrams.keys()}
            assert found(index, question) == pytest.approx(both, rel=1e-5)
            few = {hit.id: hit.score for hit in index.search(question, 2)}
            assert few == dict(list(found(index, question).items())[:2])
            assert found(index, question.replace("?", ""), syntax="lucene").keys() <= both.keys()
            for name, score in found(index, question).items():
                assert index.explain(question, name).score == pytest.approx(score, rel=1e-5)
        fused = found(index, QUESTIONS[0], combine="rrf(k=60)")
        assert fused.keys() == found(index, QUESTIONS[0]).keys()
        assert found(index, QUESTIONS[0], combine="union(depth=10)") == pytest.approx(found(index, QUESTIONS[0]))


def test_many_questions_are_searched_as_one_by_one(tmp_path: Path, causal: Path) -> None:
    with Index.create(tmp_path / "i", Seal(str(causal), beam=5)) as index:
        index.add(DOCUMENTS)
        index.commit()
        for question, hits in zip(QUESTIONS, index.search_many(QUESTIONS, 5), strict=True):
            assert {h.id: h.score for h in hits} == pytest.approx(found(index, question), rel=1e-4)


def test_a_saved_model_and_its_expression(tmp_path: Path, causal: Path) -> None:
    model = parse_model(f"seal(generator={causal}, beam=4, titles=false)")
    assert isinstance(model, Seal)
    assert (model.beam, model.titles, model.name) == (4, False, f"seal(generator={causal}, beam=4, titles=false)")
    model.save(tmp_path / "m")
    loaded = Model.load(tmp_path / "m")
    assert loaded == model
    assert loaded.index_signature == Seal(str(causal)).index_signature  # type: ignore[attr-defined]


class Wishing:
    """A generator that all but certainly writes one n-gram and one title, whatever the question."""

    def __init__(self, model: Seal, task: str = "ngrams") -> None:
        self.writes_ngrams, self.writes_titles = task != "title", task in ("title", "ngrams")
        self._end = GeneratorCheckpoint.read(model.generator).ends[0]
        self._ngram, self._title = GeneratorCheckpoint.read(model.generator).tokens(["the dog of the house", "Dog"])
        model.opened.__dict__["generator"] = self

    def search(self, texts: list[str], rule: Any, beam: int, steps: int, *, titles: bool) -> list[list[Any]]:
        wish = [*self._title, self._end] if titles else self._ngram

        class States(BeamStates):
            def start(self) -> np.ndarray:
                self.texts: list[list[int]] = [[]]
                return self.logits()[0]

            def step(self, parents: np.ndarray, tokens: np.ndarray) -> np.ndarray:
                self.texts = [[*self.texts[p], t] for p, t in zip(parents[0].tolist(), tokens[0].tolist(), strict=True)]
                return self.logits()

            def logits(self) -> np.ndarray:
                rows = np.zeros((1, len(self.texts), 400), np.float32)
                for row, text in zip(rows[0], self.texts, strict=True):
                    if text == wish[: len(text)] and len(text) < len(wish):
                        row[wish[len(text)]] = 20
                return rows

        return [beam_search(States(), 1, rule, beam, steps)[0] for _ in texts]


@pytest.mark.parametrize("task", ["ngrams", "title", "answer", "sentence"])
def test_titles_are_ngrams_of_their_own(tmp_path: Path, causal: Path, task: str) -> None:
    model = Seal(str(causal), beam=2)
    Wishing(model, task)
    rows = rows_of(model, DOCUMENTS)
    tokens = sum(t >= FIRST for row in rows.values() for t in row)
    with Index.create(tmp_path / "i", model) as index:
        index.add(DOCUMENTS)
        index.commit()
        view = index.with_model(model)
        explained = {part.facts["ngram"]: part for part in view.explain("what", "dog").parts}
        assert ("title: Dog" in explained) == (task in ("title", "ngrams"))
        begun = [text for text in explained if "the dog of the house".startswith(text)]
        assert bool(begun) == (task != "title")
        if task in ("title", "ngrams"):
            own = explained["title: Dog"]
            assert own.facts["occurrences"] == 1
            assert own.facts["ngram_weight"] == pytest.approx(odds(1 - 2e-6, 1 / tokens) ** 2, rel=0.1)
            assert "title: Cat" not in {p.facts["ngram"] for p in view.explain("what", "cat").parts}
        if task == "ngrams":
            unlike = replace(model, titles=False)
            assert "title: Dog" not in {p.facts["ngram"] for p in index.with_model(unlike).explain("what", "dog").parts}


def odds(after: float, before: float) -> float:
    return math.log(after / (1 - after)) - math.log(before / (1 - before))


def test_mistakes_are_told(tmp_path: Path, causal: Path) -> None:
    with pytest.raises(VizslaError, match="no generator of n-grams comes with Vizsla; train one"):
        parse_model("seal")
    for options in ({"beam": 0}, {"beam": 1001}, {"ngram_length": 65}, {"exponent": 0.0}, {"overlap": 1.5}):
        with pytest.raises(VizslaError, match="seal needs a"):
            Seal(str(causal), **options)  # type: ignore[arg-type]
    model = Seal(str(causal))
    with pytest.raises(VizslaError, match="it needs an index and has no vectors"):
        model.encode_queries(["dog"], model.statistics(DOCUMENTS))
    folder = tiny_causal(tmp_path / "g")  # as it comes, a generator writes queries
    with pytest.raises(InputError, match="this generator reads a document, and seal needs one that reads a question"):
        Index.create(tmp_path / "i", Seal(str(folder)))
    with pytest.raises(InputError, match="this generator writes n-grams, not texts"):
        GAR(generator=str(causal)).augmented(["dog"])


def test_damaged_files_are_found(tmp_path: Path, causal: Path) -> None:
    with Index.create(tmp_path / "i", Seal(str(causal))) as index:
        index.add(DOCUMENTS)
        index.commit()
    (file,) = (tmp_path / "i").rglob("suffixes_*.npy")
    content = bytearray(file.read_bytes())
    content[-4:] = b"\xff\xff\xff\xff"
    file.write_bytes(content)
    assert any("is damaged" in problem for problem in verify(tmp_path / "i"))
    content[-400:] = b"\xff" * 400
    file.write_bytes(content)
    with Index.open(tmp_path / "i") as index, pytest.raises(CollectionError, match="damaged"):
        index.search("dog")
