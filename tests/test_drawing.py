"""Queries drawn from documents: what each style draws, what its documents lose, and training on them."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from vizsla import BeirDataset, VizslaError
from vizsla.datasets import Document
from vizsla.expansion import STYLES, DrawingSettings, DrawnDataset, draw_queries

WORDS = "vizsla dogs point birds river stone bridge summer winter music paint Über don't il-6 42 e.g. x".split()  # noqa: SIM905
SENTENCES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(lambda w: " ".join(w).capitalize() + ".")
TEXTS = st.lists(SENTENCES, max_size=5).map(" ".join)
CORPORA = st.lists(
    st.tuples(st.sampled_from(["", "Dogs", "Birds of a  feather"]), TEXTS, st.lists(SENTENCES, max_size=3)), max_size=8
).map(lambda rows: [Document(str(i), {"title": t, "text": x, "queries": q}) for i, (t, x, q) in enumerate(rows)])
SETTINGS = st.builds(
    DrawingSettings, st.integers(1, 3), st.integers(0, 4), st.sampled_from([0, 0.6, 0.99]),
    st.sampled_from([0, 0.5, 1]), st.integers(0, 2),
)  # fmt: skip


def drawn(
    folder: Path, documents: list[Document], styles: list[str], how: DrawingSettings
) -> tuple[DrawnDataset | None, dict[str, bytes]]:
    """The report and the files; None where nothing can be drawn."""
    with suppress(VizslaError):
        report = draw_queries(documents, folder, styles, how)
        return report, {file.name: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert not folder.exists()
    return None, {}


def is_inside(words: list[str], text: str) -> bool:
    """Whether the words are in the text, in this order."""
    rest = iter(text.split())
    return all(word in rest for word in words)


def expected_words(document: Document, documents: list[Document]) -> set[str]:
    """The words that a keyword query may have, by counting everything."""
    words = [split_words(d) for d in documents]
    counts = Counter(word for some in words for word in set(some))
    own = [w for w in dict.fromkeys(words[documents.index(document)]) if counts[w] > 1]
    ranked = sorted(own, key=lambda word: counts[word])
    return set(ranked[: max(6, round(len(own) / 3))])


def split_words(document: Document) -> list[str]:
    text = f"{document['title']} {document['text']}".lower()
    words = (word.strip(".") for word in text.split())
    return [word for word in words if not word[0].isdigit()]


@given(CORPORA, st.lists(st.sampled_from(list(STYLES)), min_size=1, unique=True), SETTINGS)
def test_what_is_drawn(documents: list[Document], styles: list[str], how: DrawingSettings) -> None:
    with TemporaryDirectory() as temporary:
        root = Path(temporary)
        report, files = drawn(root / "a", documents, styles, how)
        assert drawn(root / "b", documents, styles, how) == (report, files)
        if report is None:
            return
        made = BeirDataset.open(root / "a")
        judged, queries = made.qrels("train").judgements, made.queries()
        assert judged.keys() == queries.keys()
        assert Counter(query.partition("-")[0] for query in queries) == Counter(report.queries)
        for line in files["queries.jsonl"].splitlines():
            record = json.loads(line)
            style = record["metadata"]["style"]
            assert record["_id"].startswith(f"{style}-")
            check_query(style, record["text"], [int(d) for d in judged[record["_id"]]], documents)
        if how.max_queries:
            assert max(report.queries.values()) <= how.max_queries
        check_documents(list(made.documents()), documents, how, report)
        for style in styles:  # it draws the same alone
            alone, own = drawn(root / style, documents, [style], how)
            assert report.queries[style] == (alone.queries[style] if alone else 0)
            lines = [x for x in files["queries.jsonl"].splitlines() if json.loads(x)["metadata"]["style"] == style]
            assert lines == own.get("queries.jsonl", b"").splitlines()


def check_query(style: str, text: str, numbers: list[int], documents: list[Document]) -> None:
    document, words = documents[numbers[0]], text.split()
    if style == "titles":
        titles = [" ".join(d["title"].split()) for d in documents]
        assert {titles[n] for n in numbers} == {text}
        around = [n for n in (numbers[0] - 1, numbers[-1] + 1) if 0 <= n < len(titles)]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert all(titles[n] != text for n in around)
        return
    assert len(numbers) == 1
    if style == "generated":
        assert text in document["queries"]
    elif style == "next":
        before = documents[numbers[0] - 1]
        assert before["title"] == document["title"] != ""
        assert 8 <= len(words) <= 24
        assert before["text"].split()[: len(words)] == words
    elif style == "keywords":
        assert 2 <= len(words) <= 6
        assert len(set(words)) == len(words)
        assert set(words) <= expected_words(document, documents)
    else:
        assert is_inside(words, document["text"])


def check_documents(
    written: list[Document], documents: list[Document], how: DrawingSettings, report: DrawnDataset
) -> None:
    """Documents lose only what a query has; something always stays."""
    assert [d.id for d in written] == [d.id for d in documents]
    assert report.documents == len(documents)
    pairs = [(new, old) for new, old in zip(written, documents, strict=True)]
    assert report.shortened == sum((n["title"], n["text"]) != (o["title"], o["text"]) for n, o in pairs)
    if not how.removed:
        assert report.shortened == 0
    for new, old in pairs:
        assert new["title"] in ("", old["title"])
        assert is_inside(new["text"].split(), old["text"])
        assert bool(new["text"]) == bool(old["text"])


ARTICLE = [
    Document("a#0", {"text": "The vizsla points birds in high grass. It also retrieves them from cold water."}),
    Document("a#1", {"text": "Its coat is short and has one colour. Owners walk with it for hours."}),
    Document("b#0", {"title": "Cats", "text": "Cats sleep most of the day. They wake to eat some fish."}),
]


def test_a_sentence_that_is_a_query_leaves_its_document(tmp_path: Path) -> None:
    how = DrawingSettings(left_out=0, removed=1)
    report = draw_queries(ARTICLE, tmp_path / "d", ["sentences", "titles", "next"], how)
    assert report.queries == {"sentences": 3, "titles": 1, "next": 1}
    made = BeirDataset.open(tmp_path / "d")
    texts, queries = {d.id: (d["title"], d["text"]) for d in made.documents()}, made.queries()
    for number, document in enumerate(ARTICLE):
        sentence = queries[f"sentences-{number}"]
        assert document["text"].replace(sentence, "").strip() == texts[document.id][1]
    assert texts["b#0"][0] == ""
    assert queries["titles-0"] == "Cats"
    assert ARTICLE[0]["text"].startswith(queries["next-0"])
    assert made.qrels("train").judgements["next-0"] == {"a#1": 1}


def test_words_are_left_out(tmp_path: Path) -> None:
    text = " ".join(f"Word{i}" for i in range(1000)) + "."
    documents = [Document(str(i), {"text": text}) for i in range(60)]
    draw_queries(documents, tmp_path / "d", ["sentences"], DrawingSettings(left_out=0.6))
    shares = [len(query.split()) / 1000 for query in BeirDataset.open(tmp_path / "d").queries().values()]
    assert 0.4 <= min(shares) < 0.5 < 0.9 < max(shares) <= 1


def test_some_of_many_queries_are_chosen_at_random(tmp_path: Path) -> None:
    documents = [Document(str(i), {"title": f"Title {i}", "text": "x"}) for i in range(300)]
    chosen = []
    for seed in (0, 1):
        how = DrawingSettings(max_queries=30, removed=0, seed=seed)
        draw_queries(documents, tmp_path / str(seed), ["titles"], how)
        judged = BeirDataset.open(tmp_path / str(seed)).qrels("train").judgements.values()
        chosen.append([int(document) for grades in judged for document in grades])
    assert [len(some) for some in chosen] == [30, 30]
    assert chosen[0] != chosen[1]
    assert all(some == sorted(set(some)) and some[-1] - some[0] > 150 for some in chosen)


@pytest.mark.parametrize(
    ("content", "styles", "problem"),
    [
        ({"text": "Dogs bark at night here."}, ["titles", "keywords"], "no query of the styles titles, keywords"),
        ({"text": "Dogs."}, ["sentence"], "did you mean 'sentences'"),
        ({"text": 5}, ["sentences"], "'text' that is not a text"),
        ({"text": "Dogs."}, ["generated"], "vizsla queries generate writes it"),
    ],
)
def test_mistakes(tmp_path: Path, content: dict[str, object], styles: list[str], problem: str) -> None:
    with pytest.raises(VizslaError, match=problem):
        draw_queries([Document("1", content)], tmp_path / "d", styles)
    assert list(tmp_path.iterdir()) == []


def test_ids_and_settings_that_cannot_be(tmp_path: Path) -> None:
    twice = [Document("1", {"text": "The same dog barks at night."})] * 2
    with pytest.raises(VizslaError, match="two documents have the id '1'"):
        draw_queries(twice, tmp_path / "d", ["sentences"])
    with pytest.raises(VizslaError, match="tab or a line break"):
        draw_queries([Document("a\tb", {"title": "Dogs", "text": "Bark."})], tmp_path / "d", ["titles"])
    for wrong in ({"per_document": 0}, {"max_queries": -1}, {"left_out": 1.0}, {"removed": 1.1}, {"removed": -0.1}):
        with pytest.raises(VizslaError, match=r"expected|must be from 0"):
            DrawingSettings(**wrong)
    assert list(tmp_path.iterdir()) == []


def test_the_command(cli: Cli, tmp_path: Path) -> None:
    file, to = tmp_path / "docs.jsonl.gz", tmp_path / "drawn"
    records = [{"id": d.id, **d.content} for d in ARTICLE]
    file.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in records).encode()))
    code, out, said = cli("queries", "draw", file, "-o", to, "--styles", "sentences, titles", "--json")
    assert code == 0, said
    assert json.loads(out)["queries"] == {"sentences": 3, "titles": 1}
    before = {f.name: f.read_bytes() for f in to.rglob("*") if f.is_file()}
    code, _, said = cli("queries", "draw", file, "-o", to)
    assert (code, "exists already" in said) == (2, True)
    assert before == {f.name: f.read_bytes() for f in to.rglob("*") if f.is_file()}
    options = ("--passages", "6", "--styles", "next,titles", "--remove", "0")
    code, out, said = cli("queries", "draw", file, "-o", tmp_path / "passages", *options)
    assert code == 0, said
    assert "next " in out
    assert f"--dataset {tmp_path / 'passages'}" in said.replace("\n", "")
    code, _, said = cli("queries", "draw", file, "-o", tmp_path / "x", "--left-out", "2")
    assert (code, "from 0 to below 1" in said) == (2, True)
