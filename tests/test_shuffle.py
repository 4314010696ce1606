"""The token-shuffle stress test: questions whose words stand in another order."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from vizsla import Index, VizslaError
from vizsla.evaluation import compare_shuffled, shuffle_words

TEXTS = st.dictionaries(st.text(max_size=5), st.text("ab c\n?", max_size=20))


@given(TEXTS, st.integers(0, 100))
def test_shuffling_keeps_the_words_and_depends_on_seed_and_id_alone(texts: dict[str, str], seed: int) -> None:
    found = shuffle_words(texts, seed)
    assert list(found) == list(texts)
    for name, text in texts.items():
        assert Counter(found[name].split()) == Counter(text.split())
        assert shuffle_words({name: text}, seed) == {name: found[name]}


def test_every_order_is_as_likely() -> None:
    orders = Counter(shuffle_words({"q": "one two three"}, seed)["q"] for seed in range(1200))
    assert len(orders) == 6
    assert all(150 < n < 250 for n in orders.values())
    assert len(set(shuffle_words({str(i): "one two three four five" for i in range(50)}).values())) > 20


def test_figures_before_and_after() -> None:
    before = {"Acc@1": {"q": 1.0, "r": 1.0, "s": 0.0}}
    after = [{"Acc@1": {"q": 0.0, "r": 1.0, "s": 0.0}}, {"Acc@1": {"q": 1.0, "r": 0.0, "s": 0.0}}]
    (found,) = compare_shuffled(before, after)
    assert (found.before, found.after, *found.by_seed) == pytest.approx((2 / 3, 1 / 3, 1 / 3, 1 / 3))
    assert found.difference.mean == pytest.approx(-1 / 3)
    assert (found.difference.wins, found.difference.ties, found.difference.losses) == (0, 1, 2)
    with pytest.raises(VizslaError, match="shuffle at least once"):
        compare_shuffled(before, [])
    with pytest.raises(VizslaError, match="not the same"):
        compare_shuffled(before, [{"Acc@1": {"q": 1.0}}])


@pytest.fixture
def learned(cli: Cli, judged: Path, start: Path, tmp_path: Path) -> Path:
    """An index of a network, whose query vectors depend on the order of words."""
    assert cli("index", judged / "corpus.jsonl", "-o", tmp_path / "learned", "--model", start)[0] == 0
    return tmp_path / "learned"


def test_a_bag_of_words_loses_nothing(cli: Cli, judged: Path, tmp_path: Path) -> None:
    assert cli("index", judged / "corpus.jsonl", "-o", tmp_path / "i")[0] == 0
    code, out, err = cli(
        "run", "word-order", judged, "--index", tmp_path / "i", "-m", "bm25,bm25(k1=2)", "--shuffles", "3", "--json"
    )
    assert code == 0, err
    results = json.loads(out)["results"]
    assert [(r["model"], r["measure"]) for r in results] == [
        (model, measure) for model in ("bm25", "bm25(k1=2)") for measure in ("nDCG@10", "R@100")
    ]  # fmt: skip
    for r in results:
        assert r["by_shuffle"] == pytest.approx([r["before"]] * 3)
        assert (r["p"], r["ties"]) == (1.0, 5)
    code, out, err = cli("run", "word-order", judged, "--index", tmp_path / "i")
    assert "+0.0 to +0.0" in out
    assert "Words shuffled 5 times, the mean" in err


def test_answers_before_and_after(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    assert cli("index", dataset, "-o", tmp_path / "i")[0] == 0
    questions = dataset / "queries.jsonl"
    code, out, err = cli(
        "run",
        "word-order",
        questions,
        "--index",
        tmp_path / "i",
        "--measures",
        "Acc@1 Acc@4",
        "--shuffles",
        "1",
        "--json",
    )
    assert code == 0, err
    figures = {r["measure"]: (r["before"], r["after"]) for r in json.loads(out)["results"]}
    found = json.loads(cli("eval", questions, "--index", tmp_path / "i", "--measures", "Acc@1 Acc@4", "--json")[1])
    (asked,) = found["results"]
    assert figures == {name: (value, value) for name, value in asked["accuracy"].items()}
    code, out, err = cli("run", "word-order", questions, "--index", tmp_path / "i", "--limit", "2", "--shuffles", "1")
    assert code == 0, err
    assert "range" not in out
    assert "queries: 1 of 2 questions has fewer than two words" in err


def test_answers_of_several_models(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    assert cli("index", dataset, "-o", tmp_path / "i")[0] == 0
    asked = ("eval", dataset / "queries.jsonl", "--index", tmp_path / "i", "--measures", "Acc@1")
    code, out, err = cli(*asked, "-m", "bm25,bm25(k1=2, b=0)", "--json")
    assert code == 0, err
    assert [r["model"] for r in json.loads(out)["results"]] == ["bm25", "bm25(k1=2, b=0)"]
    assert "bm25(k1=2, b=0)" in cli(*asked, "-m", "bm25,bm25(k1=2, b=0)")[1]
    (tmp_path / "r").write_text("q1 Q0 d1 1 1 t\n")
    assert "not both" in cli(*asked, "-m", "bm25", "--run", tmp_path / "r")[2]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data set, its index, and an index of something else."""
    folder = tmp_path_factory.mktemp("room")
    (folder / "pets" / "qrels").mkdir(parents=True)
    (folder / "pets" / "queries.jsonl").write_text('{"_id": "q1", "text": "a dog", "answers": ["dog"]}\n')
    (folder / "pets" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    (folder / "bare.jsonl").write_text('{"_id": "a", "text": "two words"}\n')
    for name, document in (("i", "d1"), ("fish", "f")):
        with Index.create(folder / name, "bm25") as index:
            index.add([{"id": document, "text": "a dog and a fish"}])
            index.commit()
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.jsonl", "--index", "i"], "this file does not exist"),
        (["pets", "--index", "nowhere"], "this folder does not exist"),
        (["pets", "--index", "i", "--shuffles", "0"], "must be 1 or more, not 0"),
        (["pets", "--index", "i", "--limit", "0"], "must be 1 or more, not 0"),
        (["pets", "--index", "i", "--measures", "Acc@0"], "is not a measure"),
        (["pets", "--index", "i", "--test", "x"], "unknown significance test"),
        (["pets", "--index", "i", "--split", "x"], "unknown split 'x'"),
        (["pets", "pets", "--index", "i"], "two sets of questions are called 'pets'"),
        (["pets", "--index", "i", "-m", "bm25,bm25"], "named twice"),
        (["bare.jsonl", "--index", "i"], "neither judgements nor answers"),
        (["pets", "--index", "fish"], "none of the documents judged in pets"),
    ],
)
def test_mistakes_are_one_sentence(
    cli: Cli, room: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(room)
    code, out, err = cli("run", "word-order", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
