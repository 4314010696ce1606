"""Suggestions: words of the collection that begin as what is typed, compared with looking at every word there is."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from small import small_dense, small_model
from vizsla import Index, SparseComponent, VizslaError
from vizsla.errors import CollectionError
from vizsla.index import Suggestion
from vizsla.index.search import suggestions
from vizsla.index.search.bound_model import SparsePart

WORDS = (
    "retrieval", "retrieves", "retrieving", "Retrieve", "retreat", "happy", "happiness", "happily", "cats", "cat",
    "category", "flies", "fly", "universities", "universe", "dog's", "don't", "Dogs", "dog", "U.S.", "1999", "199",
    "naïve", "Über", "über", "zürich", "Zürich", "relational", "relate", "state-of-the-art", "(bracket)", "a_b",
    "हिन्दी", "हिमालय", "日本語", "日本", "the",
)  # fmt: skip
TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
TYPED = st.sampled_from(WORDS).flatmap(lambda word: st.integers(1, len(word)).map(lambda n: word[:n]))


def every_word(index: Index) -> dict[str, Counter[str]]:
    """For each term all words that stand for it in the collection, in lower case."""
    (part, *_) = index.model.parts
    component = part.component
    assert isinstance(component, SparseComponent)
    words: dict[str, Counter[str]] = {}
    for document in index.documents():
        for field in component.fields:
            text = document.get(field) or ""
            for token in component.tokens(text):
                words.setdefault(token.term, Counter())[text[token.start : token.end].lower()] += 1
    return words


def expected(index: Index, prefix: str) -> dict[str, int]:
    """For each term with a word that begins so, the most frequent of these words, and the documents of the term."""
    found: dict[str, int] = {}
    terms = index._searcher.own.sparse[0].statistics.terms
    for term, words in every_word(index).items():
        some = {word: n for word, n in words.items() if word.startswith(prefix.lower())}
        if some:
            best = min(some, key=lambda word: (-some[word], len(word), word))
            frequency = int(terms.lookup(0, [term])[1][0])
            found[best] = max(found.get(best, 0), frequency)
    return found


@given(
    st.lists(st.lists(TEXT, min_size=1, max_size=3), min_size=1, max_size=2),
    st.sets(st.integers(0, 5), max_size=2),
    TYPED,
    st.sampled_from([None, 3]),
    st.sampled_from(
        ["bm25", "bm25(analyzer=snowball-german)", "bm25(analyzer=standard | lower)", "bm25(analyzer=cjk)"]
    ),
)
def test_suggestions_are_those_of_looking_at_every_word(
    commits: list[list[str]], deleted: set[int], typed: str, passages: int | None, model: str
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Index.create(Path(folder) / "i", model, passages=passages) as index,
    ):
        for n, texts in enumerate(commits):
            index.add(
                [{"id": str(2 * n + i), "title": "" if passages else t[:9], "text": t} for i, t in enumerate(texts)]
            )
            index.commit()
        index.delete([str(i) for i in deleted])
        index.commit()
        with patch.object(suggestions, "_DOCUMENTS", 1000), patch.object(suggestions, "_MORE_DOCUMENTS", 1000):
            got = index.suggest(f"some words {typed}", 50)
            assert index.suggest(typed, 2) == got[:2]
        keys = [(-s.documents, s.text) for s in got]
        assert keys == sorted(keys)
        assert len({s.text for s in got}) == len(got)
        start = index._searcher.completer()._start(typed)
        wanted = expected(index, typed[start:]) if typed[start:] else {}
        assert {s.text: s.documents for s in got} == {typed[:start] + w: n for w, n in wanted.items()}


def filled(folder: Path, texts: list[str], model: Any = "bm25", **options: Any) -> Index:
    index = Index.create(folder, model, **options)
    index.add([{"id": str(i), "text": text} for i, text in enumerate(texts)])
    index.commit()
    return index


TEXTS = ["Information retrieval", "Retrieval of documents", "the dog retrieves", "retreat, dogs!", "Dogs and cats"]


def test_words_are_shown_not_stems(tmp_path: Path) -> None:
    with filled(tmp_path / "i", TEXTS) as index:
        assert index.suggest("information retr") == [Suggestion("retrieval", 3), Suggestion("retreat", 1)]
        assert index.suggest("Retr") == index.suggest("RETR") == index.suggest("retr")
        assert index.suggest("retrieva") == [Suggestion("retrieval", 3)]  # longer than the stem
        assert index.suggest("retrieve") == [Suggestion("retrieves", 3)]
        assert index.suggest("dog") == [Suggestion("dogs", 3)]
        assert index.suggest("d", 1) == [Suggestion("dogs", 3)]
        assert index.suggest("(retrea") == [Suggestion("(retreat", 1)]
        assert index.suggest("re-retrea") == [Suggestion("re-retreat", 1)]
        assert index.suggest("retrievals") == []
        index.delete(["0", "1"])
        index.commit()
        assert index.suggest("retr") == [Suggestion("retreat", 1), Suggestion("retrieves", 1)]


NOTHING = ["", " ", "dog ", "dog\n", "retr\u3000", "retr%", "_etr", "%", "*", "re*", "retr\x00", "\x00", "\ud800"]
NOTHING += ["retr\udfff", "r" * 65, "x" * (1 << 20), "retr!", "retr.", "'", "\u0301", "\U0010ffff" * 9, "🐕"]


@pytest.mark.parametrize("typed", NOTHING, ids=lambda typed: ascii(typed)[:20])
def test_what_completes_to_nothing(tmp_path: Path, typed: str) -> None:
    with filled(tmp_path / "i", TEXTS) as index:
        assert index.suggest(typed) == []


def test_only_the_last_word_of_a_long_text_counts(tmp_path: Path) -> None:
    with filled(tmp_path / "i", TEXTS) as index:
        assert index.suggest("word " * 200_000 + "retrea") == [Suggestion("retreat", 1)]


def test_terms_at_the_ends_of_the_alphabet(tmp_path: Path) -> None:
    words = ["a\U0010ffffb", "a\U0010ffff", "a\ud7ffc", "a\ue000d", "%x", "%", "_x", "nul\x00l"]
    with filled(tmp_path / "i", words, "bm25(analyzer=whitespace)") as index:
        for typed, found in [
            ("a\U0010ffff", ["a\U0010ffff", "a\U0010ffffb"]),
            ("a\ud7ff", ["a\ud7ffc"]),
            ("a\ue000", ["a\ue000d"]),
            ("%", ["%", "%x"]),
            ("_", ["_x"]),
            ("nul", ["nul\x00l"]),
            ("nul\x00", ["nul\x00l"]),
        ]:
            assert [s.text for s in index.suggest(typed)] == found


@pytest.mark.parametrize(("typed", "message"), [(None, "what is typed is a text"), (b"re", "what is typed is a text")])
def test_what_is_typed_is_a_text(tmp_path: Path, typed: Any, message: str) -> None:
    with filled(tmp_path / "i", TEXTS) as index:
        with pytest.raises(VizslaError, match=message):
            index.suggest(typed)
        for size in (0, True, "8", 1.5):
            with pytest.raises(VizslaError, match="the number of suggestions must be"):
                index.suggest("re", size)  # type: ignore[arg-type]
    with pytest.raises(CollectionError, match="has been closed"):
        index.suggest("re")


def test_a_model_that_tells_upper_from_lower_case(tmp_path: Path) -> None:
    texts = ["Polish sausage", "Polish people", "polish shoes"]
    with filled(tmp_path / "i", texts, "bm25(analyzer=whitespace)") as index:
        assert index.suggest("Pol") == [Suggestion("Polish", 2), Suggestion("polish", 1)]
        assert [hit.id for hit in index.search("Polish")] == ["0", "1"]


def test_words_that_lower_case_would_change(tmp_path: Path) -> None:
    """Python writes the last sigma of a word in another way, and a dot apart from its letter; the model does not."""
    with filled(tmp_path / "i", ["ΣΑΣ", "İstanbul", "istanbul is"]) as index:
        assert index.suggest("σ") == index.suggest("Σ") == [Suggestion("ΣΑΣ", 1)]
        assert index.suggest("ista") == [Suggestion("istanbul", 2)]
        assert index.suggest("İst") == [Suggestion("İstanbul", 2)]
        assert [hit.id for hit in index.search("İstanbul")] == ["1", "2"]


def test_without_texts_terms_are_shown(tmp_path: Path) -> None:
    with filled(tmp_path / "i", TEXTS, store=False) as index:
        assert index.suggest("retr") == [Suggestion("retriev", 3), Suggestion("retreat", 1)]
        assert index.suggest("retrieva") == []
    with filled(tmp_path / "pieces", ["retrieval"], "bm25-wp", store=False) as index:
        assert index.suggest("re") == [Suggestion("retrieval", 1)]
        assert index.suggest("##") == []


def test_of_word_pieces_only_whole_words(tmp_path: Path) -> None:
    texts = ["retrieval", "vizslas point", "vizsla. Pointing!", "pointers", "re-point"]
    with filled(tmp_path / "i", texts, "bm25-wp") as index:
        assert index.suggest("poi") == [Suggestion("point", 2), Suggestion("pointing", 1)]  # not point of pointers
        assert index.suggest("retr") == [Suggestion("retrieval", 1)]
        assert index.suggest("vi") == []  # vizsla is three pieces
        assert index.suggest("re-po") == [Suggestion("re-point", 2), Suggestion("re-pointing", 1)]
    with filled(tmp_path / "prime", texts, "bm25-wp + bm25") as index:  # the part with words goes first
        assert index.suggest("vi") == [Suggestion("vizsla", 2)]


def test_a_learned_model(tmp_path: Path) -> None:
    with filled(tmp_path / "i", ["dogs bark", "a dog"], small_model(tmp_path / "network")) as index:
        frequencies = {s.text: s.documents for s in index.suggest("do")}
        assert frequencies.keys() <= {"dog", "dogs"}
        for word, documents in frequencies.items():
            assert int(index._searcher.own.sparse[0].statistics.terms.lookup(0, [word])[1][0]) == documents
        assert frequencies


def test_vectors_and_dense_models(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", "vectors") as index:
        index.add([{"id": "1", "vector": {"dog": 1, "##gy": 2, "Dogma": 1}}, {"id": "2", "vector": {"dog": 3}}])
        index.commit()
        assert index.suggest("do") == [Suggestion("dog", 2)]
        assert index.suggest("Do") == [Suggestion("dog", 2), Suggestion("Dogma", 1)]
        assert index.suggest("#") == []
    with filled(tmp_path / "dense", TEXTS, small_dense(tmp_path / "network")) as index:
        assert index.suggest("retr") == []


def test_an_empty_index_suggests_nothing(tmp_path: Path) -> None:
    with filled(tmp_path / "i", []) as index:
        assert index.suggest("r") == []
        index.add([{"id": "1", "text": "rivers"}])
        index.commit()
        assert index.suggest("r") == [Suggestion("rivers", 1)]


def test_what_was_asked_is_kept_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggestions, "_MAX_CACHED", 3)
    asked: list[str] = []
    find = suggestions.Completer._find

    def watched(self: suggestions.Completer, part: SparsePart, typed: str, size: int) -> list[Suggestion]:
        asked.append(typed)
        return find(self, part, typed, size)

    monkeypatch.setattr(suggestions.Completer, "_find", watched)
    with filled(tmp_path / "i", TEXTS) as index:
        for _ in range(3):
            assert index.suggest("some retr")
            assert index.suggest("other retr")
        assert asked == ["retr"]
        for typed in ("a", "b", "c", "d", "e"):
            index.suggest(typed)
        assert len(index._searcher.completer()._known) <= 3


def test_common_terms_come_first_and_a_few_documents_are_enough(tmp_path: Path) -> None:
    texts = [f"rivers rare{i} {'river' if i % 3 else 'stones'}" for i in range(400)]
    with filled(tmp_path / "i", texts, passages=2) as index:
        first, *others = index.suggest("r", 5)
        assert first == Suggestion("rivers", 666)  # passages with rivers or river
        assert [s.documents for s in others] == [1, 1, 1, 1]
        assert index.suggest("rare39", 20)[-1].text.startswith("rare39")
        assert len(index.suggest("rare39", 20)) == 11
