"""Did you mean, corrected queries and half-typed words, compared with looking at every word of the collection."""

from __future__ import annotations

import copy
import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from served import served
from small import small_dense
from vizsla import Index, RemoteIndex, VizslaError
from vizsla.errors import StoppedError, UnknownNameError
from vizsla.index.search import spelling
from vizsla.index.search.spelling import one_edit_away
from vizsla.models import Synonyms, with_expansion
from vizsla.runs import Hits
from vizsla.stopping import Stop
from vizsla.text import Analyzer

TEXTS = [
    "Information retrieval of documents", "Retrieval with a dog that points", "the dog retrieves 123 birds",
    "Dogs and cats, data science", "A database of data science in Zürich", "It isn't misspelt, is it? microbiology",
]  # fmt: skip


def filled(folder: Path, texts: list[str] = TEXTS, model: Any = "bm25", **options: Any) -> Index:
    index = Index.create(folder, model, **options)
    index.add([{"id": str(i), "text": text} for i, text in enumerate(texts)])
    index.commit()
    return index


def meant(index: Index, query: str, syntax: str | None = None) -> str | None:
    return index.search(query, typos="suggest", syntax=syntax).did_you_mean


def distance(a: str, b: str) -> int:
    """Insertions, deletions, substitutions and swaps of neighbours, each letter edited once: the plain definition."""
    table = {(i, j): max(i, j) for i in range(len(a) + 1) for j in range(len(b) + 1) if not (i and j)}
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                table[i, j] = min(table[i, j], table[i - 2, j - 2] + 1)
    return table[len(a), len(b)]


def frequencies_of(index: Index, analyzer: str) -> tuple[Counter[str], dict[str, str]]:
    """In how many live documents each term is, and the term of each word, by reading all of them."""
    analyze = Analyzer.parse(analyzer)
    counts: Counter[str] = Counter()
    terms: dict[str, str] = {}
    for document in index.documents():
        tokens = analyze.tokens(document["text"])
        counts.update({token.term for token in tokens})
        terms |= {document["text"][token.start : token.end].lower(): token.term for token in tokens}
    return counts, terms


def likely(typed: str, word: str, documents: int) -> float:
    return documents * (1.0 if typed[0] == word[0] else spelling._OTHER_FIRST)


# What is meant, by looking at every word


def random_word(dice: random.Random) -> str:
    return "".join(dice.choices("abcd", k=dice.randint(3, 6)))


@pytest.mark.parametrize("seed", range(2))
def test_a_correction_is_that_of_looking_at_every_word(tmp_path: Path, seed: int) -> None:
    """Over a whole life: what is added, replaced, deleted, committed, compacted and opened again."""
    dice = random.Random(seed)
    index = Index.create(tmp_path / "i", "bm25(analyzer=standard | lower)")
    corrected = 0
    for step in ["commit", "compact", "reopen"] * 3:
        for _ in range(dice.randrange(4)):
            texts = {dice.randrange(10): [random_word(dice) for _ in range(dice.randint(1, 4))] for _ in range(3)}
            index.add([{"id": str(n), "text": " ".join(words)} for n, words in texts.items()])
            index.delete([str(dice.randrange(10)) for _ in range(dice.randrange(3))])
        if step == "reopen":
            index.commit()
            index.close()
            index = Index.open(tmp_path / "i")
        else:
            getattr(index, step)()
        frequencies, _ = frequencies_of(index, "standard | lower")
        for word in [random_word(dice) for _ in range(20)]:
            wanted = expected(word, frequencies)
            assert meant(index, word) == wanted, (word, frequencies)
            corrected += wanted is not None
    index.close()
    assert corrected > 20


def expected(word: str, frequencies: Counter[str]) -> str | None:
    """The word in most documents, one edit away, of a word that is in none."""
    if len(word) < 4 or frequencies[word]:
        return None
    near = [other for other in frequencies if distance(word, other) == 1]
    return min(near, key=lambda other: (-likely(word, other, frequencies[other]), other)) if near else None


ENGLISH = (
    "retrieval", "retrieved", "retrieves", "relation", "relational", "relations", "happily", "happiness", "university",
    "universe", "creation", "creative", "creates", "dogs", "doges", "dodge", "cats", "cast", "coats", "generous",
)  # fmt: skip


def test_no_word_of_the_documents_would_be_a_better_correction(tmp_path: Path) -> None:
    """An index of stems: what is suggested has a term at least as likely as that of any word one edit away."""
    dice = random.Random(7)
    texts = [" ".join(dice.sample(ENGLISH, dice.randint(1, 4))) for _ in range(9)]
    with filled(tmp_path / "i", texts) as index:
        frequencies, terms = frequencies_of(index, "lucene-english")
        stem = Analyzer.parse("lucene-english")
        corrected = 0
        for _ in range(150):
            typed = dice.choice(one_edit_away(dice.choice(ENGLISH), "aeilnorstz"))
            if len(typed) < 4 or frequencies[stem(typed)[0]]:
                assert meant(index, typed) is None
                continue
            near = [word for word in terms if distance(typed, word) == 1]
            got = meant(index, typed)
            if near:
                assert got is not None
                best = max(likely(typed, word, frequencies[terms[word]]) for word in near)
                assert frequencies[stem(got)[0]] >= best
                corrected += 1
            assert got is None or got in terms or distance(typed, got) == 1, "a word is shown, no stem"
        assert corrected > 20


def test_all_words_one_edit_away_are_made() -> None:
    for word in ("ab", "aba", "abbc"):
        made = one_edit_away(word, "abc")
        assert len(made) == len(set(made))
        everything = ["".join(letters) for n in range(6) for letters in _all_words("abc", n)]
        assert set(made) == {other for other in everything if distance(word, other) == 1}


def _all_words(alphabet: str, length: int) -> list[str]:
    return [""] if not length else [w + c for w in _all_words(alphabet, length - 1) for c in alphabet]


# What is suggested


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [
        ("retreival", "retrieval"),
        ("retrievls", "retrieves"),  # the edit is in what stemming removes
        ("infromation retreival", "information retrieval"),
        ("Infromation (RETREIVAL), dgos!", "Information (RETREIVAL), dogs!"),
        ("RETREIVAL", "RETRIEVAL"),
        ("datascience", "data science"),
        ("data-base of inform ation", "database of information"),
        ("retri eval", "retrieval"),
        ("poniting", "pointing"),  # the documents have points: the ending is what was typed
        ("microboilogi", "microbiology"),  # two edits
        ("tha dog wiht cats", "tha dog with cats"),  # a stop word counts as known
        ("zurich documnets", "zürich documents"),
        ("züricg", "zürich"),
        ("retrieval dog", None),
        ("dgo", None),  # too short
        ("dogs2 1234 a_b retreival.org x@retreival fetchRetreival IL-6 \ud800 \x00 🐕", None),
        ("qqqqqqq", None),
        ("x" * 41, None),
        ("", None),
    ],
)
def test_what_is_meant(tmp_path: Path, typed: str, suggested: str | None) -> None:
    with filled(tmp_path / "i") as index:
        (hits,) = index.search_many([typed], typos="suggest")
        assert hits.did_you_mean == suggested
        assert hits.corrected is None
        assert hits == index.search_many([typed])[0]
        (hits,) = index.search_many([typed], typos="on")
        assert (hits.did_you_mean, hits.corrected) == (None, suggested)
        assert hits == index.search_many([suggested or typed])[0]


def test_words_of_deleted_documents_are_not_suggested(tmp_path: Path) -> None:
    with filled(tmp_path / "i") as index:
        assert meant(index, "microbiologx") == "microbiology"
        assert meant(index, "datascience") == "data science"
        index.delete(["5", "3", "4"])
        assert meant(index, "microbiologx") == "microbiology", "not before the commit"
        index.commit()
        assert meant(index, "microbiologx") is None
        assert meant(index, "microbiolxgx") is None
        assert meant(index, "datascience") is None
        index.add([{"id": "9", "text": "microbiologists"}])
        index.commit()
        assert meant(index, "microbiologxsts") == "microbiologists"


def test_a_rare_word_is_corrected_if_another_is_far_more_frequent(tmp_path: Path) -> None:
    texts = ["the dog retrieves"] * 60 + ["the dog retreives"] * 2 + ["the doctor"] * 3 + ["the docter"] * 3
    with filled(tmp_path / "i", texts) as index:
        assert meant(index, "retreives") == "retrieves"
        assert meant(index, "docter") is None
        assert len(index.search("retreives", 100, typos="on")) == 60
        assert len(index.search("retreives", 100)) == 2


def test_signs_of_the_query_language_stay(tmp_path: Path) -> None:
    with filled(tmp_path / "i") as index:
        query = (
            '+retreival -dgos "infromation retreival"~2 text:retreival retreiv* birdz~1 (documnets^2 OR datascience)'
        )
        assert meant(index, query, "lucene") == query.replace("+retreival", "+retrieval").replace(
            "documnets", "documents"
        )
        assert meant(index, "retreival\\+x", "lucene") is None
        assert meant(index, "retri eval", "lucene") is None
        hits = index.search("+retreival +pionts", typos="on", syntax="lucene")
        assert (hits.ids, hits.corrected) == (["1"], "+retrieval +points")
        with pytest.raises(VizslaError, match="not closed"):
            index.search("(retreival", typos="on", syntax="lucene")


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [
        ("dogz", None),  # as without synonyms: dogs
        ("retreival dogz", "retrieval dogz"),
        ("micro bioligy", None),  # two words that have a synonym; one alone has none
        ("bioligy retreival", "biology retrieval"),
        ("datta", None),  # stands for science
    ],
)
def test_words_with_synonyms_are_no_typing_errors(tmp_path: Path, typed: str, suggested: str | None) -> None:
    (tmp_path / "s.txt").write_text("dogz, points\nmicro bioligy => microbiology\ndatta => science\n")
    index = filled(tmp_path / "i", [*TEXTS, "biology"])
    view = index.with_model(with_expansion(index.model, Synonyms.read(tmp_path / "s.txt")))
    for syntax in (None, "lucene"):
        hits = view.search(typed, typos="suggest", syntax=syntax)
        assert hits.did_you_mean == suggested
        if suggested is None:
            assert hits.ids == view.search(typed, typos="on", syntax=syntax).ids
            assert index.search(typed, typos="suggest", syntax=syntax).did_you_mean is not None


@pytest.mark.parametrize("syntax", [None, "lucene", "typing"])
def test_a_query_of_nothing_finds_nothing(tmp_path: Path, syntax: str | None) -> None:
    with filled(tmp_path / "i") as index:
        assert [hits.ids for hits in index.search_many(["", "  "], syntax=syntax, typos="on")] == [[], []]


def test_nothing_is_corrected_unless_it_is_asked_for(tmp_path: Path) -> None:
    with filled(tmp_path / "i") as index:
        for hits in (
            index.search("retreival"),
            index.search("retreival", typos="off"),
            index.search("dogs", typos="on"),
        ):
            assert (hits.did_you_mean, hits.corrected) == (None, None)
        assert not index.search("retreival")
        for searched in (index, index.with_model("bm25(k1=1.5)")):
            assert searched.search("retreival", typos="on").corrected == "retrieval"  # type: ignore[union-attr]
        with pytest.raises(VizslaError, match="a run cannot say"):
            index.run({"q": "retreival"}, typos="on")  # type: ignore[call-arg]
        with pytest.raises(UnknownNameError, match="typos"):
            index.search("dogs", typos="maybe")
        with pytest.raises(VizslaError, match="typos is a text"):
            index.search("dogs", typos=True)  # type: ignore[arg-type]


def test_what_is_said_stays_with_the_hits(tmp_path: Path) -> None:
    with filled(tmp_path / "i") as index:
        hits = index.search("retreival", typos="on")
        for same in (hits[:1], Hits(hits), copy.copy(hits), pickle.loads(pickle.dumps(hits))):
            assert same.corrected == "retrieval"
        assert "showing results for <b>retrieval</b>" in hits._repr_html_()
        nothing = index.search("<retreival>", typos="suggest")
        assert "did you mean <b>&lt;retrieval&gt;</b>?" in nothing._repr_html_()


def test_long_queries_take_bounded_work(tmp_path: Path) -> None:
    with filled(tmp_path / "i") as index:
        assert meant(index, "retreival " * 250) is None
        said = meant(index, "retreival " * 100)
        assert said is not None
        assert said.split().count("retrieval") == spelling.MAX_CORRECTED
        assert meant(index, "dog " * 100 + "retreival") is None, f"after {spelling.MAX_WORDS} words"
        stop = Stop()
        stop.set("enough")
        with stop.active(), pytest.raises(StoppedError, match="enough"):
            index._searcher.speller().corrected("retreival")


def test_a_thread_that_forgets_corrections_disturbs_no_other(tmp_path: Path) -> None:
    class Forgotten(dict[str, str | None]):
        def __contains__(self, word: object) -> bool:
            speller._known = {}  # as another thread does when there are too many
            return super().__contains__(word)

    with filled(tmp_path / "i") as index:
        speller = index._searcher.speller()
        for _ in range(2):
            speller._known = Forgotten(speller._known)
            assert speller.corrected("retreival") == "retrieval"


# Models and languages


def test_models_whose_terms_are_no_words(tmp_path: Path) -> None:
    with filled(tmp_path / "pieces", model="bm25-wp") as index:
        assert meant(index, "retreival") is None
        assert not index.has_words
    with filled(tmp_path / "dense", model=small_dense(tmp_path)) as index:
        assert meant(index, "retreival") is None
        assert not index.has_words
    with filled(tmp_path / "bigrams", ["日本語の文書検索システム", "dogs"], model="bm25(analyzer=cjk)") as index:
        assert meant(index, "日本話の文書検索") is None
        assert meant(index, "doggs") == "dogs"


def test_an_index_without_texts_corrects_too(tmp_path: Path) -> None:
    with filled(tmp_path / "i", store=False) as index:
        assert meant(index, "retreival") == "retrieval"
        assert meant(index, "datascience") is None


def test_the_language_that_has_the_word_corrects(tmp_path: Path) -> None:
    texts = [
        "Der Hund ist nicht im Garten, sondern auf der Straße vor den alten Häusern.",
        "The dog is not in the garden, but on the street in front of the old houses.",
        "Собака не в саду, а на улице перед старыми домами, и она лает.",
    ]
    with filled(tmp_path / "i", texts, model=None, language="de,en,ru") as index:
        assert meant(index, "hosues Straase домаим") == "houses Straße домами"
        assert [hit.id for hit in index.search("Häusren", typos="on")] == ["0"]
        assert meant(index, "sondren") == "sondern", "a stop word of its language"
        assert meant(index, "ภาษาไทยครับผม") is None


# Half-typed words


def test_the_last_word_may_be_half_typed(tmp_path: Path) -> None:
    with filled(tmp_path / "i") as index:
        for typed, same in (
            ("retri", "retri*"), ("dog retri", "dog retri*"), ("(dog) ret", "dog ret*"), ("RETRI", "retri*"),
            ("point-retri", "point retri*"), ("dog point", "dog point*"), ("isn't mis", "isn't mis*"),
        ):  # fmt: skip
            assert index.search(typed, syntax="typing") == index.search(same, syntax="lucene"), typed
            assert index.search(typed, syntax="typing")
        for typed in ("retri ", "dog d", "dog retri.", "documents of", "dog 日本", "+dog -documents"):
            assert index.search(typed, syntax="typing") == index.search(typed.strip()), typed
        assert index.count("retri", syntax="typing") == index.count("retrieval") == 3
        (first,) = index.search("retri", 1, syntax="typing")
        assert index.explain("retri", first.id, syntax="typing").score == pytest.approx(first.score)
        shown = index.highlighter("dog retri", syntax="typing").snippet(index.search("retrieval")[0].document)
        assert shown.matches
        hits = index.search("infromation retri", syntax="typing", typos="on")
        assert (hits.corrected, hits.ids[0]) == ("information retri", "0")


def test_marks_belong_to_a_half_typed_word(tmp_path: Path) -> None:
    with filled(tmp_path / "i", ["पुस्तकालय में", "किताबें और पुस्तकें", "cafe\u0301teria"], "bm25(analyzer=standard)") as index:
        for typed, ids in (("और पुस्त", ["1", "0"]), ("किता", ["1"]), ("cafe\u0301", ["2"]), ("कि\n", [])):
            assert index.search(typed, syntax="typing").ids == ids, typed
        assert index.search("a" * 200_000 + " ", syntax="typing") == [], "in linear time"


def test_half_typed_words_are_those_with_the_prefix(tmp_path: Path) -> None:
    dice = random.Random(3)
    texts = [[random_word(dice) for _ in range(4)] for _ in range(12)]
    with filled(tmp_path / "i", [" ".join(words) for words in texts], "bm25(analyzer=standard)") as index:
        for _ in range(50):
            others, prefix = [random_word(dice) for _ in range(2)], random_word(dice)[: dice.randint(2, 4)]
            wanted = {str(i) for i, t in enumerate(texts) if any(w.startswith(prefix) or w in others for w in t)}
            assert set(index.search(" ".join([*others, prefix]), 20, syntax="typing").ids) == wanted


def test_a_short_prefix_stands_for_its_most_frequent_terms(tmp_path: Path) -> None:
    texts = [f"re{n:03} re{n % 10:03}" for n in range(200)]
    with filled(tmp_path / "i", texts) as index:
        frequent = {f"re{n:03}" for n in range(10)}
        found = index.search("re", 1000, syntax="typing")
        assert frequent <= {word for hit in found for word in hit["text"].split()}
        assert len(found) == 200


# Over HTTP


def test_served_searches_say_what_is_meant(tmp_path: Path) -> None:
    filled(tmp_path / "dogs").close()
    with served({"dogs": str(tmp_path / "dogs")}) as server:
        body = {"queries": ["retreival", "dogs"], "typos": "suggest", "fields": []}
        results = server.send("POST", "/v1/dogs/search", body).data["results"]
        assert [(r["query"], r.get("did_you_mean"), len(r["hits"])) for r in results] == [
            ("retreival", "retrieval", 0),
            ("dogs", None, 3),
        ]
        body = {"query": "retreival", "typos": "on", "highlight": True, "explain": True}
        counted = {"facets": {"fields": [], "over": "all"}, "k": 0}
        (result,) = server.send("POST", "/v1/dogs/search", {**body}).data["results"]
        assert (result["query"], result["corrected"], len(result["hits"])) == ("retreival", "retrieval", 3)
        assert result["hits"][0]["highlights"]["text"]["matches"]
        assert result["hits"][0]["explanation"]["score"] == pytest.approx(result["hits"][0]["score"])
        (result,) = server.send("POST", "/v1/dogs/search", {**body, **counted, "explain": False}).data["results"]
        assert (result["facets_over"]["documents"], result["hits"]) == (3, [])
        answer = server.send("GET", "/v1/dogs/search", query="retreival", typos="on").data
        assert answer["query"] == {"text": "retreival", "corrected": "retrieval"}
        assert len(answer["candidates"]) == 3
        answer = server.send("GET", "/v1/dogs/search", query="retri", syntax="typing").data
        assert (answer["query"], len(answer["candidates"])) == ({"text": "retri"}, 3)
        assert server.send("GET", "/v1/dogs").data["words"] is True
        wrong = server.send("POST", "/v1/dogs/search", {"query": "x", "typos": "maybe"})
        assert wrong.status == 400
        with RemoteIndex(f"{server.url}/dogs") as client, pytest.raises(VizslaError, match="a run cannot say"):
            client.run({"q": "retreival"}, typos="on")  # type: ignore[call-arg]


# On the command line


def test_the_command_line_says_what_is_meant(cli: Any, tmp_path: Path) -> None:
    filled(tmp_path / "i").close()
    code, out, err = cli("search", tmp_path / "i", "retreival of dgos")
    assert (code, out) == (0, "")
    assert err.splitlines()[-1] == "Did you mean: retrieval of dogs"
    code, out, err = cli("search", tmp_path / "i", "retreival of dgos", "--typos", "on", "--json")
    assert (code, '"corrected": "retrieval of dogs"' in out, err) == (0, True, "")
    code, out, err = cli("search", tmp_path / "i", "retreival dogs", "--typos", "on")
    assert err == "Results for: retrieval dogs (--typos off searches for what was typed)\n"
    assert out
    assert "Did you mean" not in cli("search", tmp_path / "i", "retreival", "--typos", "off")[2]
    code, _, err = cli("search", tmp_path / "i", "dogs", "--typos", "maybe")
    assert code == 2
    assert "maybe" in err
