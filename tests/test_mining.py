"""Passages for questions with answers, by answer string over a first stage: against a plain definition."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import Cli
from vizsla import BM25, BeirDataset, Index, VizslaError
from vizsla.evaluation import QuestionSet, has_answer, mine_passages
from vizsla.recipes.tiny import write_dataset


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    write_dataset(tmp_path / "nq", "nq")
    return tmp_path / "nq"


def mined(folder: Path) -> dict[str, tuple[list[str], list[str]]]:
    lines = (folder / "train_hard_negatives.jsonl").read_text().splitlines()
    return {one["query-id"]: (one["pos"], one["neg"]) for one in map(json.loads, lines)}


@pytest.mark.parametrize(("depth", "negatives"), [(100, 50), (5, 2), (3, 0)])
def test_positives_hold_an_answer_and_negatives_do_not(questions: Path, depth: int, negatives: int) -> None:
    asked = QuestionSet.with_answers(str(questions), None, "train")
    texts = {d.id: str(d["text"]) for d in BeirDataset.open(questions).documents()}
    to = questions.with_name("mined")
    with Index.create(questions.with_name("index"), BM25()) as index:
        index.add(BeirDataset.open(questions).documents())
        index.commit()
        report = mine_passages(index, {"train": asked}, to, depth=depth, negatives=negatives)
        expected = {}
        for question, text in asked.texts.items():
            ids = [hit.id for hit in index.search(text, depth)]
            holds = [has_answer(texts[i], asked.answers[question]) for i in ids]
            if any(holds):
                wrong = [i for i, held in zip(ids, holds, strict=True) if not held]
                expected[question] = [ids[holds.index(True)]], wrong[:negatives]
    assert mined(to) == expected
    assert report.found == {"train": len(expected)}
    assert report.without == {"train": len(asked.texts) - len(expected)}
    made = BeirDataset.open(to)
    assert made.qrels("train").judgements == {q: {positive[0]: 1} for q, (positive, _) in expected.items()}
    named = {i for positive, wrong in expected.values() for i in (*positive, *wrong)}
    assert {d.id: d["text"] for d in made.documents()} == {i: texts[i] for i in named}
    assert made.answers() == {q: list(asked.answers[q]) for q in expected}


def test_the_command_writes_train_and_dev(questions: Path, cli: Cli, tmp_path: Path) -> None:
    index, to = tmp_path / "i", tmp_path / "mined"
    assert cli("index", questions, "-o", index)[0] == 0
    code, out, err = cli("datasets", "mine", questions, "--index", index, "-o", to)
    assert code == 0, err
    assert "train " in out
    assert "dev " in out
    assert BeirDataset.open(to).splits == ["dev", "train"]
    code, _, err = cli("datasets", "mine", questions, "--index", index, "-o", to)
    assert code == 2
    assert "this folder exists already" in err
    assert not [f for f in tmp_path.iterdir() if f.name.startswith(".")]


def test_nothing_is_left_where_no_answer_is_found(questions: Path) -> None:
    with Index.create(questions.with_name("index"), BM25()) as index:
        index.add([{"id": "1", "text": "who is behind the bridge there"}])
        index.commit()
        asked = QuestionSet.with_answers(str(questions), None, "train")
        with pytest.raises(VizslaError, match="no document that was found holds an answer"):
            mine_passages(index, {"train": asked}, questions.with_name("mined"))
    assert sorted(f.name for f in questions.parent.iterdir()) == ["index", "nq"]
