"""Threads that analyse documents side by side: the same index as from one, and what stops them leaves nothing."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla import Analyzer, Index, Model, VizslaError, parse_model
from vizsla.datasets import RawLines, Source
from vizsla.engine import processors
from vizsla.index import verify
from vizsla.index.writing import analysis, term_numbers
from vizsla.text import Lexicon, register_filter
from waiting import LIMIT


def made_words(rng: random.Random, count: int) -> list[str]:
    """Words of all kinds: short and long, of any script, in any case, so that many of them become one term."""
    letters = ["abcdefgh", "ABCdef", "éüñß", "дож", "\U00010400\U00010428", "犬"]
    return ["".join(rng.choices(rng.choice(letters), k=rng.choice([1, 3, 7, 8, 15]))) for _ in range(count)]


def test_threads_share_a_lexicon_that_grows_under_them() -> None:
    """Terms and counts are those of one thread; only the numbers of terms depend on who comes first."""
    rng = random.Random(1)
    words = made_words(rng, 20_000)
    batches = [[" ".join(rng.choices(words, k=40)) for _ in range(50)] for _ in range(60)]
    analyzer = Analyzer.parse("lucene-english")
    shared = analyzer.lexicon()
    ready = threading.Barrier(8)

    def count(numbered: tuple[int, list[str]]) -> list[Counter[str]]:
        if numbered[0] < 8:
            ready.wait()
        return counted(shared, numbered[1])

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as executor:
            found = list(executor.map(count, enumerate(batches)))
    finally:
        sys.setswitchinterval(switch)
    alone = analyzer.lexicon()
    assert found == [counted(alone, texts) for texts in batches]
    assert found[0][0] == Counter(analyzer(batches[0][0]))
    assert sorted(shared.terms) == sorted(alone.terms)


def counted(lexicon: Lexicon, texts: list[str]) -> list[Counter[str]]:
    pointers, indices, counts = lexicon.count(texts)
    terms = [lexicon.terms[i] for i in indices.tolist()]
    rows = zip(pointers.tolist(), pointers.tolist()[1:], strict=False)
    return [Counter(dict(zip(terms[a:b], counts[a:b].tolist(), strict=True))) for a, b in rows]


@pytest.mark.parametrize("name", ["lucene-english", "standard | lower", "whitespace", "wordpiece"])
@given(texts=st.lists(st.text(st.sampled_from("abcABC'. \0\n1é犬\U0001f600"), max_size=40), max_size=4))
def test_a_lexicon_counts_what_the_analyzer_finds(name: str, texts: list[str]) -> None:
    analyzer = Analyzer.parse(name)
    lexicon = analyzer.lexicon()
    for _ in range(2):  # new forms, then known ones
        assert counted(lexicon, texts) == [Counter(analyzer(text)) for text in texts]


def test_a_lexicon_grows() -> None:
    """Its table of short forms has 32,768 places at first, half of which are used."""
    analyzer = Analyzer.parse("whitespace")
    lexicon = analyzer.lexicon()
    texts = [" ".join(f"w{n}" for n in range(first, first + 5000)) for first in range(0, 40_000, 5000)]
    for _ in range(2):
        assert counted(lexicon, texts) == [Counter(text.split()) for text in texts]


def test_a_filter_that_fails_leaves_a_lexicon_as_it_was() -> None:
    failures = [ValueError("not now")]

    def change(term: str) -> str:
        if failures and term == "bad":
            raise failures.pop()
        return term

    register_filter("failing-once", change)
    lexicon = Analyzer.parse("standard | failing-once").lexicon()
    with pytest.raises(ValueError, match="not now"):
        lexicon.count(["a bad dog"])
    assert counted(lexicon, ["a bad dog"]) == [Counter(["a", "bad", "dog"])]
    assert lexicon.terms == ["a", "bad", "dog"]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A thousand documents in small batches; words come up in another order in each."""
    monkeypatch.setattr("vizsla.datasets.raw_lines.RAW_LINES", 50)
    rng = random.Random(0)
    words = made_words(rng, 900)
    lines = [
        {
            "id": str(i),
            "title": rng.choice(words),
            "text": " ".join(rng.choices(words, k=rng.randrange(40))),
            "n": [i % 9],
        }
        for i in range(1000)
    ]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(line, ensure_ascii=i % 2 == 0) + "\n" for i, line in enumerate(lines)))
    return path


def content(folder: Path) -> tuple[list[str], dict[str, list[tuple[object, ...]]]]:
    """All that an index stores, but for the names of its segments."""
    files = sorted(hashlib.sha256(f.read_bytes()).hexdigest() for f in (folder / "segments").rglob("*.npy"))
    db = sqlite3.connect(folder / "index.db")
    names = ("terms", "term_blocks", "contents", "documents")
    tables = {name: sorted(db.execute(f"SELECT * FROM {name}"), key=repr) for name in names}
    db.close()
    return files, tables


@pytest.mark.parametrize("model", ["bm25", "bm25-multifield", "bm25-wp"])
@pytest.mark.parametrize("store", [True, False], ids=["texts", "no texts"])
def test_any_number_of_threads_builds_the_same_index(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, model: str, store: bool
) -> None:
    monkeypatch.setattr("vizsla.index.storage.terms._MIN_FOLDED", 100)
    threads = []
    submit = ThreadPoolExecutor.__init__
    monkeypatch.setattr(ThreadPoolExecutor, "__init__", lambda pool, n: (threads.append(n), submit(pool, n))[1])
    contents = []
    for n, workers in enumerate([1, 2, 4, None]):
        with Index.create(tmp_path / f"{n}.index", model, store=store) as index:
            added = index.add(Source.find(corpus).raw_lines() or (), workers=workers)
            assert added.documents == 1000
            index.commit()
        contents.append(content(tmp_path / f"{n}.index"))
        assert verify(tmp_path / f"{n}.index") == []
    monkeypatch.setattr("vizsla.models.model.Component.batch_size", 50)
    with Index.create(tmp_path / "slow.index", model, store=store) as index:
        assert index.add(Source.find(corpus).documents()).documents == 1000
        index.commit()
    contents.append(content(tmp_path / "slow.index"))
    assert all(each == contents[0] for each in contents)
    most = min(processors(), 8)
    assert [n for n in threads if n > 1] == [2, 4, *([most] if most > 1 else [])]


def test_terms_that_are_forgotten_or_stored_early_have_the_same_numbers(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second index remembers no terms from one batch to the next, the third keeps few of them in memory."""
    tables = []
    for n, (memory, pending) in enumerate([(1 << 30, 10**6), (1, 10**6), (1 << 30, 7)]):
        monkeypatch.setattr(term_numbers, "_MOST_PENDING", pending)
        with Index.create(tmp_path / f"{n}.index", memory=memory) as index:
            for part in (slice(None, 10), slice(10, None)):  # two commits: the second one knows most terms
                index.add(list(Source.find(corpus).raw_lines() or ())[part], workers=4)
                index.commit()
            found = index.run({"1": "abc éü", "2": "犬 дож ab"})
        tables.append((content(tmp_path / f"{n}.index")[1], found))
        assert verify(tmp_path / f"{n}.index") == []
    assert tables[0] == tables[1] == tables[2]


def test_a_bad_line_is_named_and_nothing_is_added(tmp_path: Path, corpus: Path) -> None:
    lines = corpus.read_text().split("\n")
    with Index.create(tmp_path / "i") as index:
        index.add([{"id": "before", "text": "dog"}])
        for line, message in [
            ('{"id": "x", "text": "dog"', "this line is not JSON"),
            ('{"id": "x", "title": "dog"}', "has no text"),
            ('{"id": "", "title": "", "text": "dog"}', "the id must be a text"),
            ('{"id": "x", "title": "", "text": "\\ud800"}', "half a surrogate pair"),
        ]:
            corpus.write_text("\n".join([*lines[:777], line, *lines[777:]]))
            with pytest.raises(VizslaError, match=rf"corpus\.jsonl:778: .*{message}"):
                index.add(Source.find(corpus).raw_lines() or (), workers=4)
        corpus.write_bytes("\n".join(lines[:777]).encode() + b'\n{"id": "x", "title": "", "text": "\xff"}\n')
        with pytest.raises(VizslaError, match=r"corpus\.jsonl:778: this is not UTF-8 \(byte 0xff at position"):
            index.add(Source.find(corpus).raw_lines() or (), workers=4)
        index.commit()
        assert [d.id for d in index.documents()] == ["before"]
    assert verify(tmp_path / "i") == []


def test_an_error_in_a_thread_ends_all_of_them(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = analysis.Analyst.encode
    left = iter(range(7))

    def failing(*arguments: object) -> object:
        if next(left, None) is None:
            raise MemoryError
        return encode(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(analysis.Analyst, "encode", failing)
    before = threading.active_count()
    with Index.create(tmp_path / "i") as index:
        with pytest.raises(MemoryError):
            index.add(Source.find(corpus).raw_lines() or (), workers=4)
        assert threading.active_count() == before
        monkeypatch.undo()
        assert index.add(Source.find(corpus).raw_lines() or (), workers=4).documents == 1000
        index.commit()
        assert len(index) == 1000
    assert verify(tmp_path / "i") == []


def test_an_interrupted_build_adds_nothing(tmp_path: Path, corpus: Path) -> None:
    def interrupted() -> Iterator[RawLines]:
        for n, lines in enumerate(Source.find(corpus).raw_lines() or ()):
            if n == 15:
                raise KeyboardInterrupt
            yield lines

    before = threading.active_count()
    with Index.create(tmp_path / "i") as index:
        with pytest.raises(KeyboardInterrupt):
            index.add(interrupted(), workers=4)
        assert threading.active_count() == before
        index.add([{"id": "a", "text": "dog"}])
        index.commit()
        assert [d.id for d in index.documents()] == ["a"]
    assert verify(tmp_path / "i") == []


PROGRAM = """
import sys
from vizsla.datasets import Source
from vizsla.index import Index

def lines():
    for n in range(1_000_000):  # the same documents again, so that the second time would be an error
        for block in Source.find(sys.argv[2]).raw_lines():
            text = block.data.replace(b'"id": "', b'"id": "%d-' % n)
            yield type(block)(block.file, block.names, text, block.count, block.first)
        if n == 20:
            print("at work", flush=True)

with Index.open(sys.argv[1]) as index:
    try:
        index.add(lines(), workers=4)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_a_build_that_is_stopped_leaves_the_last_commit(tmp_path: Path, corpus: Path, how: signal.Signals) -> None:
    with Index.create(tmp_path / "i") as index:
        index.add([{"id": "a", "text": "a cat"}])
        index.commit()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, tmp_path / "i", corpus], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "at work\n"
    os.kill(process.pid, how)
    out, _ = process.communicate(timeout=LIMIT)
    assert out == ("interrupted\n" if how == signal.SIGINT else "")
    with Index.open(tmp_path / "i") as index:
        assert [d.id for d in index.documents()] == ["a"]
        assert index.add(Source.find(corpus).raw_lines() or ()).documents == 1000
        index.commit()
        assert len(index) == 1001
    assert verify(tmp_path / "i") == []


@pytest.mark.parametrize(
    ("model", "record", "shared"),
    [
        ("bm25", {"id": "1", "text": "dog"}, True),
        ("bm25-multifield", {"id": "1", "title": "a", "text": "dog"}, True),
        ("bm25", {"id": "1", "text": "dog", "year": 1999}, True),
        ("bm25", {"id": "1", "text": ["dog", "cat"]}, False),
        ("bm25(analyzer=cjk)", {"id": "1", "text": "dog"}, True),
        ("counts", {"id": "1", "counts": {"dog": 1}}, False),
    ],
)
def test_threads_are_for_lines_that_a_kernel_reads(
    tmp_path: Path, model: str | Model, record: dict[str, object], shared: bool
) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps(record) + "\n")
    parsed = parse_model(model) if isinstance(model, str) else model
    (lines,) = Source.find(path, fields=parsed.fields).raw_lines() or ()
    analyst = analysis.Analyst(parsed, None, True, 1 << 20)
    assert analyst.can_share(lines) == shared
    assert not analyst.can_share(lines.documents())
