"""Synonyms: files in Solr's format, what they add to queries, and that documents get the scores of the definition."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vizsla
from conftest import Cli
from qdrant_server import address, nodes
from served import served
from vizsla import BM25, Index, RemoteIndex, VizslaError
from vizsla.backends.qdrant import QdrantIndex
from vizsla.models import Model, Synonyms, parse_expander, with_expansion
from vizsla.models.synonyms import Rule, format_synonyms, parse_synonyms
from vizsla.server.hosting import check_hosting
from vizsla.server.settings import Settings

CARS = "# vehicles\n\ncar, automobile, motor car\nteh => the fish, fish\nnyc, new york city\n"
DOCUMENTS = [
    {"id": "1", "text": "a red car"},
    {"id": "2", "text": "an automobile, blue"},
    {"id": "3", "text": "motor car of yore"},
    {"id": "4", "text": "a motor boat"},
    {"id": "5", "text": "New York City hotels"},
    {"id": "6", "text": "city fish of new England"},
    {"id": "7", "text": "NYC hotel"},
]


@pytest.fixture
def cars(tmp_path: Path) -> Path:
    file = tmp_path / "cars.txt"
    file.write_text(CARS)
    return file


@pytest.fixture
def plain(tmp_path: Path) -> Index:
    index = Index.create(tmp_path / "cars.index")
    index.add(DOCUMENTS)
    index.commit()
    return index


# The file


def test_lines_are_read_as_solr_reads_them() -> None:
    lines = ["\tcar ,automobile", r"AT\,T => a\=>b, a\\b", " # no", "", "a, b => c, d", r"\#1, number one"]
    assert parse_synonyms(lines) == (
        Rule(("car", "automobile"), ("car", "automobile")),
        Rule(("AT,T",), ("a=>b", "a\\b")),
        Rule(("a", "b"), ("c", "d")),
        Rule(("#1", "number one"), ("#1", "number one")),
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("car", "'car' has no synonym in its line"),
        ("car, car", "'car' has no synonym in its line"),
        ("car,, bus", "a word is missing beside a comma"),
        ("car, bus,", "a word is missing beside a comma"),
        ("=> bus", "there is no word before =>"),
        ("car =>", "there is no word after =>"),
        ("a => b => c", "a line can have => only once"),
        ("car, bus\\", "a backslash needs a character after it"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "s.txt"
    file.write_text(f"# one\nb, c\n{line}\n")
    with pytest.raises(VizslaError) as caught:
        Synonyms.read(file)
    assert str(caught.value).startswith(f"{file}:3: {said}")
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9, coffee")
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbfcar, bus\r\nb, c\r\n")
    for name, said in (("latin", "not text in UTF-8"), ("none", "cannot be read"), ("", "cannot be read")):
        with pytest.raises(VizslaError, match=said):
            Synonyms.read(tmp_path / name)
    assert Synonyms.read(tmp_path / "marked").rules[0].left == ("car", "bus")
    with pytest.raises(VizslaError, match=r"none\.txt: the synonyms cannot be read"):
        parse_expander(str(tmp_path / "none.txt"))
    with pytest.raises(VizslaError, match="name a file of synonyms"):
        parse_expander("synonyms")


texts = st.text("ab,=>\\# ", min_size=1, max_size=6).map(str.strip).filter(bool)


@given(st.lists(st.tuples(st.lists(texts, min_size=1, unique=True), st.lists(texts, min_size=1, unique=True))))
def test_rules_that_are_written_are_read_again(sides: list[tuple[list[str], list[str]]]) -> None:
    rules = tuple(Rule(tuple(a), tuple(b)) for a, b in sides if a != b or len(a) > 1)
    assert parse_synonyms(format_synonyms(rules)) == rules


# What it adds


def test_the_longest_of_several_matches_is_taken() -> None:
    synonyms = Synonyms(parse_synonyms(["new york, ny", "new york city, nyc", "york, yrk"]))
    analyzer = BM25().text_analyzer
    found = synonyms.matches(analyzer("in New York Cities and new York"), analyzer)
    assert [(m.start, m.end, m.synonyms) for m in found] == [(0, 3, (("nyc",),)), (3, 5, (("ny",),))]


def test_searches_find_synonyms_and_explain_them(plain: Index, cars: Path) -> None:
    view = plain.with_model(with_expansion(plain.model, Synonyms.read(cars)))
    found = {hit.id: hit.score for hit in view.search("automobile")}
    assert found.keys() == {"1", "2", "3", "4"}
    assert found["2"] == plain.search("automobile")[0].score, "its own word weighs what it weighed"
    assert found["1"] == {h.id: h.score for h in plain.search("car")}["1"], "the more frequent word decides the weight"
    assert found["3"] > found["4"]
    assert view.search("teh").ids == ["6"]
    said = str(view.explain("the Automobiles", "3"))
    assert "car (synonym of Automobiles)" in said
    assert "motor (in motor car, synonym of Automobiles)" in said
    assert view.explain("nyc hotels", "5").score == pytest.approx(view.search("nyc hotels")[1].score)
    assert {h.id: h.score for h in view.search("red boat")} == {h.id: h.score for h in plain.search("red boat")}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("+automobile", {"1", "2", "3"}),
        ("automobile -red", {"2", "3"}),
        ("-automobile motor boat", {"4"}),
        ("nyc", {"5", "7"}),
        ("+nyc +hotel", {"5", "7"}),
        ('"red automobile"', {"1"}),
        ('"nyc hotel"', {"5", "7"}),
        ('+"new york city" hotel', {"5", "7"}),
        ('"motor car"', {"1", "2", "3"}),
        ("teh", {"6"}),
        ("text:automobile", {"1", "2", "3"}),
        ("auto*", {"2"}),
        ("automobil~1", {"2"}),
        ("(automobile nyc)^2", {"1", "2", "3", "5", "7"}),
    ],
)
@pytest.mark.parametrize("positions", [False, True])
def test_the_query_language_knows_synonyms(
    tmp_path: Path, cars: Path, query: str, found: set[str], positions: bool
) -> None:
    index = Index.create(tmp_path / "i", BM25(fields=("text",)), positions=positions)
    index.add(DOCUMENTS)
    index.commit()
    view = index.with_model(with_expansion(index.model, Synonyms.read(cars)), syntax="lucene")
    hits = view.search(query)
    assert {hit.id for hit in hits} == found
    for hit in hits:
        assert view.explain(query, hit.id).score == pytest.approx(hit.score)


def test_boosts_reach_synonyms(plain: Index, cars: Path) -> None:
    model = with_expansion(plain.model, Synonyms.read(cars))
    once = plain.search("+automobile", model=model, syntax="lucene")
    twice = plain.search("+automobile^2", model=model, syntax="lucene")
    assert [hit.score for hit in twice] == pytest.approx([2 * hit.score for hit in once])
    (one,) = plain.search('"red automobile"', model=model, syntax="lucene")
    assert one.score == pytest.approx({h.id: h.score for h in plain.search("red automobile", model=model)}["1"])


def test_a_phrase_of_too_many_synonyms_is_refused(plain: Index) -> None:
    synonyms = Synonyms(parse_synonyms(["a1, b1, c1", "a2, b2, c2", "a3, b3, c3", "a4, b4, c4"]))
    model = with_expansion(plain.model, synonyms)
    with pytest.raises(VizslaError, match="with its synonyms this is more than 64 phrases"):
        plain.search('"a1 a2 a3 a4"', model=model, syntax="lucene")
    assert len(plain.search('"a1 a2 a3"', model=model, syntax="lucene")) == 0


# Against the definition, over whole lives

WORDS = ["red", "blue", "cat", "dog", "fish", "bird", "tree", "leaf"]
RULES = [
    "cat, dog",
    "fish, blue fish, bird",
    "tree => leaf, red leaf",
    "red cat => bird",
    "leaf, blue red",
    "dog, tree",
]


def by_definition(query: str, documents: dict[str, str], rules: Sequence[Rule]) -> dict[str, float]:
    """Scores as the documentation defines them, from the words of all documents."""
    words = {i: text.split() for i, text in documents.items()}
    count = sum(bool(w) for w in words.values())
    frequency = Counter(w for own in words.values() for w in set(own))
    mean = sum(map(len, words.values())) / max(count, 1)
    idf = {w: math.log1p((count - df + 0.5) / (df + 0.5)) for w, df in frequency.items()}
    table: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for left, right in rules:
        for side in left:
            if set(right) != {side}:
                own = table.setdefault(tuple(side.split()), [])
                own += [r for r in (tuple(text.split()) for text in right) if r not in own]
    typed, groups, at = Counter[str](), [], 0
    sent = query.split()
    while at < len(sent):
        sizes = [n for n in range(1, len(sent) - at + 1) if tuple(sent[at : at + n]) in table]
        own = tuple(sent[at : at + max(sizes, default=1)])
        at += len(own)
        others = table.get(own, [own])
        typed.update(own if own in others else ())
        if sizes:
            groups.append((own, [o for o in others if o != own], own in others))
    weights = {w: n * idf.get(w, 0.0) for w, n in typed.items()}
    for own, others, keeps in groups:
        single = [w[0] for w in (*([own] if keeps else []), *others) if len(w) == 1 and w[0] in idf]
        least = min((idf[w] for w in single), default=math.inf)
        shares: dict[str, float] = {}
        for other in others:
            if keeps and set(own) <= set(other):
                continue
            for w in set(other) - typed.keys():
                shares[w] = max(shares.get(w, 0.0), min(idf.get(w, 0.0), least) / len(other))
        for w, share in shares.items():
            weights[w] = weights.get(w, 0.0) + share
    scores = {}
    for i, own in words.items():
        norm = 0.9 * (0.6 + 0.4 * len(own) / mean)
        score = sum(w * own.count(t) / (own.count(t) + norm) for t, w in weights.items() if t in own)
        if score:
            scores[i] = score
    return scores


@pytest.mark.parametrize("seed", range(4))
def test_scores_are_those_of_the_definition(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rules = parse_synonyms(rng.sample(RULES, 4))
    bm25 = BM25(analyzer="whitespace", fields=("text",), lengths="exact")
    index, living = Index.create(tmp_path / "i", bm25), dict[str, str]()

    def check() -> None:
        for _ in range(12):
            query = " ".join(rng.choices(WORDS, k=rng.randint(1, 5)))
            found = {h.id: h.score for h in index.search(query, 100, model=bm25.expand(Synonyms(rules)))}
            assert found == pytest.approx(by_definition(query, living, rules), rel=1e-6), query

    for step in range(5):
        for _ in range(rng.randint(1, 12)):
            name = str(rng.randrange(20))
            living[name] = " ".join(rng.choices(WORDS, k=rng.randint(1, 7)))
            index.add([{"id": name, "text": living[name]}])
        for name in rng.sample(sorted(living), min(2, len(living) - 1)):
            del living[name]
            index.delete([name])
        index.commit()
        check()
        if step == 3:
            index.compact()
            index.close()
            index = Index.open(tmp_path / "i")
            check()


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_the_query_language_are_those_of_the_definition(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    synonyms = Synonyms(parse_synonyms(["cat, dog", "fish, blue fish, bird", "tree => leaf, red leaf"]))
    stands_for = {
        "cat": ["cat", "dog"], "dog": ["cat", "dog"], "tree": ["leaf", "red leaf"],
        "fish": ["fish", "blue fish", "bird"], "bird": ["fish", "blue fish", "bird"],
    }  # fmt: skip
    texts = {str(i): " ".join(rng.choices(WORDS, k=rng.randint(1, 6))) for i in range(40)}
    index = Index.create(tmp_path / "i", BM25(analyzer="whitespace"), positions=bool(seed % 2))
    index.add([{"id": i, "text": text} for i, text in texts.items()])
    index.commit()
    view = index.with_model(with_expansion(index.model, synonyms), syntax="lucene")

    def has(text: str, phrase: str) -> bool:
        return f" {phrase} " in f" {text} "

    for _ in range(25):
        one, other = rng.choices(WORDS, k=2)
        rows = {i for i, t in texts.items() if any(has(t, p) for p in stands_for.get(one, [one]))}
        without = {i for i in rows if not any(has(texts[i], p) for p in stands_for.get(other, [other]))}
        assert set(view.search(f"+{one}", 100).ids) == rows
        assert set(view.search(f"+{one} -{other}", 100).ids) == without
        if f"{one} {other}" != "blue fish":
            places = [f"{a} {b}" for a in stands_for.get(one, [one]) for b in stands_for.get(other, [other])]
            met = {i for i, t in texts.items() if any(has(t, p) for p in places)}
            assert set(view.search(f'"{one} {other}"', 100).ids) == met, (one, other)


# Everywhere else


def test_a_model_keeps_its_synonyms(tmp_path: Path, cars: Path) -> None:
    model = vizsla.parse_model(f"bm25-synonyms(file={cars})")
    index = Index.create(tmp_path / "own", model)
    index.add(DOCUMENTS)
    index.commit()
    expected = index.search("automobile")
    cars.unlink()
    assert vizsla.open(tmp_path / "own").search("automobile") == expected
    assert expected[0].id == "2"


def test_in_a_sum_and_in_several_languages(tmp_path: Path) -> None:
    synonyms = Synonyms(parse_synonyms(["Auto, Wagen, car", "house, Haus"]))
    index = Index.create(tmp_path / "i", language="de,en")
    index.add(
        [
            {"id": "de", "text": "Die Wagen stehen vor den Häusern.", "language": "de"},
            {"id": "en", "text": "The cars stand before the houses.", "language": "en"},
            {"id": "fr", "text": "une maison", "language": "fr"},
        ]
    )
    index.commit()
    model: Model = with_expansion(index.model, synonyms)
    assert set(index.search("Auto", model=model).ids) == {"de", "en"}
    assert index.search("Auto").ids == []
    assert set(index.search("+car", model=model, syntax="lucene").ids) == {"de", "en"}
    assert "(synonym of Auto)" in str(index.explain("Auto", "en", model=model))
    stored = Index.create(tmp_path / "stored", model)
    stored.add([{"id": "de", "text": "Die Wagen", "language": "de"}])
    stored.commit()
    assert vizsla.open(tmp_path / "stored").search("car").ids == ["de"]


def test_words_with_synonyms_are_not_corrected(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("kittem => kitten\nhoond dogg => hound\n")
    with Index.create(tmp_path / "i") as index:
        index.add([{"id": str(i), "text": "the kittens, the dogs and the hound"} for i in range(3)])
        index.commit()
        assert index.search("kittem", typos="suggest").did_you_mean == "kittens"
        known = index.with_model(with_expansion(index.model, Synonyms.read(file)))
        for syntax in (None, "lucene", "typing"):
            for typed, meant in (("Kittem hoond", "Kittem hound"), ("hoond dogg, hoond", "hoond dogg, hound")):
                said = known.search(f"{typed} a", typos="suggest", syntax=syntax).did_you_mean
                assert said == f"{meant} a"
        hits = known.search("kittem", typos="on")
        assert (hits.corrected, len(hits)) == (None, 3)


def test_the_command_line_takes_a_file(plain: Index, cars: Path, cli: Cli) -> None:
    code, out, _ = cli("search", plain.path, "teh", "--expand", cars, "--json")
    assert code == 0
    assert '"6"' in out
    code, out, _ = cli("explain", plain.path, "automobile", "1", "--expand", f"synonyms(file={cars})")
    assert code == 0
    assert "car (synonym of automobile)" in out
    cars.write_text("car\n")
    code, _, said = cli("search", plain.path, "teh", "--expand", cars)
    assert code == 2
    assert f"{cars}:1: " in said


def test_a_server_takes_them_by_name_only(plain: Index, cars: Path) -> None:
    expanders = {"cars": str(cars)}
    assert check_hosting(Settings(indexes={"i": str(plain.path)}, expanders=expanders))["i"]["documents"] == 7
    with pytest.raises(VizslaError, match="the query expander cars: "):
        check_hosting(Settings(indexes={"i": str(plain.path)}, expanders={"cars": "synonyms(file=/none)"}))
    expected = plain.search("automobile", model=with_expansion(plain.model, Synonyms.read(cars)))
    with served({"i": str(plain.path)}, expanders=expanders) as client:
        assert client.get("/v1/i").data["expanders"][0] == "cars"
        with RemoteIndex(f"{client.url}/i") as remote:
            view = remote.with_model(expand="cars")
            assert view.search("automobile") == expected
            assert "car (synonym of automobile)" in str(view.explain("automobile", "1"))
        for text in (str(cars), f"synonyms(file={cars})"):
            answer = client.post("/v1/i/search", {"query": "automobile", "expand": text})
            assert answer.status == 400
            assert "--expander NAME=EXPANDER" in answer.error or "is not a query expander" in answer.error


def test_a_cluster_scores_them_alike(plain: Index, cars: Path, tmp_path: Path, qdrant_command: list[str]) -> None:
    with nodes(tmp_path / "nodes", command=qdrant_command) as (node,):
        cluster = QdrantIndex.create(address([node], "cars"))
        cluster.add(DOCUMENTS)
        cluster.commit()
        model = with_expansion(plain.model, Synonyms.read(cars))
        for query in ("automobile", "nyc hotels", "teh", "cars of new york city"):
            expected = plain.search(query, model=model)
            found = cluster.search(query, model=model)
            assert {h.id: h.score for h in found} == pytest.approx({h.id: h.score for h in expected}, rel=1e-5)
        assert "synonym of automobile" in str(cluster.explain("automobile", "1", model=model))
