"""GAR: generated text is searched together with the question, and what its generators learn from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from conftest import Cli
from vizsla import BM25, BeirDataset, Index, Model, VizslaError, parse_model
from vizsla.errors import InputError
from vizsla.models import GAR, gar, parse_expander
from vizsla.models.generator import Sampling, TextGenerator
from vizsla.training.kinds.generator import GAR_TASKS, TEXT_PAIRS, gar_pairs

DOCUMENTS = [
    {"id": "1", "title": "Tower", "text": "The tower was built by Gustave Eiffel."},
    {"id": "2", "title": "Bridge", "text": "A bridge over the river."},
    {"id": "3", "title": "Eiffel", "text": "An engineer of bridges and towers."},
]
QUESTIONS = ["who built the tower in paris", "what 's a bridge over"]
TEXTS = [["Gustave Eiffel", "an engineer"], ["the river"]]


@pytest.fixture
def given(tmp_path: Path) -> Path:
    file = tmp_path / "answers.jsonl"
    rows = [{"_id": str(i), "text": q, "generated": t} for i, (q, t) in enumerate(zip(QUESTIONS, TEXTS, strict=True))]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def made(tmp_path: Path) -> Path:
    with Index.create(tmp_path / "index", BM25()) as index:
        index.add(DOCUMENTS)
        index.commit()
    return tmp_path / "index"


def test_the_question_and_its_text_are_searched_as_one_query(given: Path, made: Path) -> None:
    expander = GAR(file=str(given))
    together = [" ".join([q, *t]) for q, t in zip(QUESTIONS, TEXTS, strict=True)]
    assert expander.query_terms(QUESTIONS, BM25()) == BM25().query_terms(together)
    with Index.open(made) as index:
        found = index.with_model(BM25().expand(expander)).search_many(QUESTIONS)
        expected = index.search_many(together)
        assert [[(h.id, h.score) for h in hits] for hits in found] == [
            [(h.id, h.score) for h in hits] for hits in expected
        ]
        assert [hits[0].id for hits in found] == ["1", "2"]


def test_topics_with_tabs_are_matched_with_their_questions(tmp_path: Path, made: Path) -> None:
    """As others supply them: the question, in other quotes and blanks, and the text behind it."""
    questions, topics = tmp_path / "questions.jsonl", tmp_path / "topics.tsv"
    questions.write_text("".join(json.dumps({"_id": f"q{i}", "text": q}) + "\n" for i, q in enumerate(QUESTIONS)))
    lines = ["who built the tower in paris Gustave Eiffel *** Eiffel", '"""what\'s a bridge over""" the river']
    topics.write_text("".join(f"{i}\t{line}\n" for i, line in enumerate(lines)))
    model = parse_model(f"bm25-gar(file={topics}, questions={questions})")
    expander = parse_expander(f"gar(file={topics}, questions={questions})")
    assert isinstance(expander, GAR)
    assert expander.augmented(QUESTIONS) == lines
    with Index.open(made) as index:
        assert index.with_model(model).search(QUESTIONS[0])[0].id == "1"
    topics.write_text(f"0\t{lines[1]}\n1\t{lines[0]}\n")
    with pytest.raises(InputError, match=r"topics\.tsv:1: this line is not about the question 'who built"):
        GAR(file=str(topics), questions=str(questions)).augmented(QUESTIONS)
    topics.write_text(f"0\t{lines[0]}\n")
    with pytest.raises(InputError, match="there are 1 lines and 2 questions"):
        GAR(file=str(topics), questions=str(questions)).augmented(QUESTIONS)


def test_a_question_without_a_text_is_refused(cli: Cli, given: Path, made: Path, tmp_path: Path) -> None:
    code, _, said = cli("search", made, "who was eiffel", "--expand", f"gar(file={given})")
    assert (code, "there is no text for the question 'who was eiffel' here" in said) == (2, True), said
    code, out, said = cli("search", made, f" {QUESTIONS[0]} ", "--expand", f"gar(file={given})", "--json")
    assert (code, "Gustave" in out) == (0, True), said
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text('{"text": "who", "generated": [1]}\n')
    for expander, expected in (
        ("gar", "needs a generator or a file of generated texts"),
        ("gar(file=/no/such)", "/no/such: this file does not exist"),
        (f"gar(file={wrong})", f"{wrong}:1: the question or a generated text is not a text"),
        (f"gar(file={wrong}, field=other)", "and generated texts as 'other'"),
        (f"gar(file={wrong}, questions={wrong})", "expected an id, a tab and a text"),
        ("gar(generator=/no/such)", "/no/such: this folder does not exist"),
    ):
        code, _, said = cli("search", made, "who", "--expand", expander)
        assert (code, expected in said, "Traceback" in said) == (2, True, False), said


def test_a_model_with_given_texts_is_saved_with_them(given: Path, tmp_path: Path) -> None:
    BM25().expand(GAR(file=str(given))).save(tmp_path / "model")
    given.unlink()
    model = Model.load(tmp_path / "model")
    assert model.parts[0].component.query_terms(QUESTIONS[:1]) == [  # type: ignore[attr-defined]
        BM25().query_terms([" ".join([QUESTIONS[0], *TEXTS[0]])])[0]
    ]


class Answers(TextGenerator):
    """Answers every question alike."""

    name, digest, length = "answers", "0", 64

    def __init__(self, task: str = "answer") -> None:
        self.task = task

    def generate(self, texts, sampling=None, keys=None):  # type: ignore[no-untyped-def]
        assert sampling == Sampling(texts=1, temperature=0.0, max_tokens=32)
        assert keys is None
        return [["Gustave Eiffel"] for _ in texts]

    def token_counts(self, texts):  # type: ignore[no-untyped-def]
        return np.ones(len(texts), np.int64)


def test_a_generator_answers_while_searching(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gar, "open_generator", lambda _: Answers())
    expander = GAR(generator="somewhere", max_tokens=32)
    assert expander.augmented(["who was it"]) == ["who was it Gustave Eiffel"]
    monkeypatch.setattr(gar, "open_generator", lambda _: Answers("query"))
    with pytest.raises(InputError, match="gar needs one that reads a question"):
        GAR(generator="somewhere").augmented(["who was it"])


@pytest.fixture
def questions(tmp_path: Path) -> BeirDataset:
    folder = tmp_path / "questions"
    (folder / "qrels").mkdir(parents=True)
    passages = [
        {"_id": "a", "title": "Paris", "text": "Paris is a city. Its tower was built by Gustave Eiffel. It is high."},
        {"_id": "b", "title": "Eiffel", "text": "An engineer."},
        {"_id": "c", "title": "Paris", "text": "Eiffel built it."},
        {"_id": "d", "title": "", "text": "Rivers."},
    ]
    asked = [
        {"_id": "q1", "text": "who built the tower", "metadata": {"answers": ["Gustave Eiffel", "Eiffel"]}},
        {"_id": "q2", "text": "what flows", "metadata": {"answers": ["the Seine"]}},
        {"_id": "q3", "text": "why"},
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(p) + "\n" for p in passages))
    (folder / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in asked))
    rows = ["q1\tb\t1", "q1\ta\t1", "q1\tc\t1", "q1\td\t0", "q2\td\t1", "q3\tb\t1"]
    (folder / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq3\tb\t1\n")
    return BeirDataset.open(folder)


def test_what_generators_learn_from(questions: BeirDataset) -> None:
    pairs = {task: list(TEXT_PAIRS[task](questions, "train")) for task in GAR_TASKS}
    assert pairs["answer"] == [("who built the tower", "Gustave Eiffel"), ("what flows", "the Seine")]
    assert pairs["sentence"] == [("who built the tower", "Its tower was built by Gustave Eiffel.")]
    assert pairs["title"] == [("who built the tower", "Eiffel *** Paris"), ("why", "Eiffel")]
    with pytest.raises(VizslaError, match="unknown task of GAR 'query'"):
        list(gar_pairs(questions, "train", "query"))
    with pytest.raises(InputError, match="no question of dev has answers"):
        list(gar_pairs(questions, "dev", "answer"))
