"""Analyzers: equal to Lucene's, values, and the fast path equal to the plain one."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordPiece as WordPieceModel
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from vizsla import Analyzer, VizslaError
from vizsla.text import TOKEN_FILTERS, CountedTexts, WordPiece, analyzer_names, register_filter
from vizsla.text.filters import snowball_languages
from vizsla.text.tokenizers import TOKENIZERS
from vizsla.text.words import word_classes

GOLDEN = [
    json.loads(line) for line in (Path(__file__).parent / "data" / "lucene-9.9.jsonl").read_text().split("\n") if line
]


@pytest.mark.parametrize("name", ["lucene-english", "standard", "cjk"])
def test_tokens_and_offsets_equal_lucenes(name: str) -> None:
    analyzer = Analyzer.parse(name)
    cases = [case for case in GOLDEN if case["analyzer"] == name]
    assert len(cases) > 80
    for case in cases:
        assert [list(t) for t in analyzer.tokens(case["text"])] == case["tokens"], ascii(case["text"])


def test_every_line_of_the_reference_file_equals_lucenes(reference: Path) -> None:
    analyzer = Analyzer.parse("lucene-english")
    cases = [json.loads(line) for line in (reference / "lucene-analysis.jsonl").read_text().split("\n") if line]
    assert len(cases) == 105
    for case in cases:
        assert analyzer(case["text"]) == case["tokens"]


def _any_text() -> st.SearchStrategy[str]:
    """Texts in which every class of the word rules is as likely as any other."""
    table, numbers = word_classes()
    by_class = [[chr(int(c)) for c in (table == n).nonzero()[0][:40]] for n in range(1, len(numbers) + 1)]
    character = st.sampled_from(by_class).flatmap(st.sampled_from)
    special = st.sampled_from([*"aAsS'’.,_:1 \n", "ing", "ational", "The", " the ", "'S ", "’s", "[SEP]", "\ud800"])
    return st.lists(st.one_of(character, special, st.characters()), max_size=40).map("".join)


@pytest.mark.parametrize("name", ["lucene-english", "whitespace", "snowball-german", "wordpiece", "cjk"])
@given(texts=st.lists(_any_text(), max_size=6))
def test_batches_equal_single_texts(name: str, texts: list[str]) -> None:
    analyzer = Analyzer.parse(name)
    lexicon = analyzer.lexicon()
    for _ in range(2):  # the second time every form is known
        numbers, ends = lexicon.encode(texts)
        terms = [lexicon.terms[n] for n in numbers]
        assert name == "cjk" or lexicon.terms == list(dict.fromkeys(terms))
        starts = [0, *ends.tolist()]
        assert [terms[a:b] for a, b in zip(starts, ends.tolist(), strict=False)] == [analyzer(t) for t in texts]


@given(text=_any_text())
def test_terms_of_bigrams_equal_those_of_tokens(text: str) -> None:
    for pipeline in ("cjk", "standard | longest:1 | bigrams", "standard | bigrams | stop:english | bigrams"):
        analyzer = Analyzer.parse(pipeline)
        assert analyzer(text) == [token.term for token in analyzer.tokens(text)]


TOKENS = ("<url>", "[X]", "covid", "@user", "new york", "c++", "?-x", "<Ä>", "_", "中文", "##s", "<URL", "Café", "\t|")


@st.composite
def _with_added_tokens(draw: st.DrawFn) -> tuple[bytes, bool]:
    """A small tokenizer of BERT's kind with tokens of all flags added, and whether words should tell them."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdeoruxyz中", "##s", "##d", "##x", "url", "covid", "new", "york"]
    pieces += list("<>[]@_-+?#;|")
    made = Tokenizer(WordPieceModel({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer = BertNormalizer(lowercase=draw(st.booleans()))
    made.pre_tokenizer = BertPreTokenizer()
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    plain = draw(st.booleans())
    flags = st.booleans()
    for content in draw(st.lists(st.sampled_from(("<url>", "[X]", "covid", "@user", "_") if plain else TOKENS))):
        single, normalised = not plain and draw(flags), draw(flags)
        token = AddedToken(content, single_word=single, lstrip=draw(flags), rstrip=draw(flags), normalized=normalised)
        (made.add_special_tokens if draw(flags) else made.add_tokens)([token])
    return made.to_str().encode(), plain


@given(made=_with_added_tokens(), data=st.data())
def test_added_tokens_are_found_as_the_library_finds_them(made: tuple[bytes, bool], data: st.DataObject) -> None:
    """In batches and in single texts, whatever stands beside them."""
    content, plain = made
    library, ours = Tokenizer.from_buffer(content), WordPiece(content, "a test")
    assert not plain or ours.segmenter is not None
    bits = [*TOKENS, *"<>[]@_-+?#;| \t\n\x0b\u2028\u200b\u0301\x00≮≠\ud800aXé", "url", "COVID"]
    texts = data.draw(st.lists(st.lists(st.sampled_from(bits), max_size=12).map("".join), max_size=4))
    analyzer = Analyzer(ours)
    lexicon = analyzer.lexicon()
    numbers, ends = lexicon.encode(texts)
    for text, end, before in zip(texts, ends.tolist(), [0, *ends.tolist()], strict=False):
        valid = text.encode("utf-8", "replace").decode("utf-8")
        expected = [library.id_to_token(i) for i in library.encode(valid, add_special_tokens=False).ids]
        assert analyzer(text) == expected
        assert [lexicon.terms[n] for n in numbers[before:end]] == expected


def test_a_token_may_take_the_place_of_another() -> None:
    made = Tokenizer(WordPieceModel({"[UNK]": 0, "[unused1]": 1, "dog": 2}, unk_token="[UNK]"))
    made.pre_tokenizer, made.normalizer = BertPreTokenizer(), BertNormalizer()
    file = json.loads(made.to_str())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    file["added_tokens"] = [{"id": 1, "content": "<url>", "special": True, **flags}]
    for _ in range(20):  # the library names pieces in another order each time
        analyzer = Analyzer(WordPiece(json.dumps(file).encode(), "a test"))
        lexicon = analyzer.lexicon()
        lexicon.encode(["<url> dog"])
        assert lexicon.terms == analyzer("<url> dog")


@given(text=_any_text())
def test_offsets_lie_in_the_text_and_in_order(text: str) -> None:
    tokens = Analyzer.parse("lucene-english").tokens(text)
    assert all(0 <= t.start < t.end <= len(text) for t in tokens)
    assert all(a.end <= b.start for a, b in pairwise(tokens))


def test_many_forms_make_the_tables_grow() -> None:
    analyzer = Analyzer.parse("whitespace")
    words = [f"form{i}" for i in range(100_000)]
    lexicon = analyzer.lexicon()
    numbers, _ = lexicon.encode([" ".join(words), " ".join(reversed(words))])
    assert lexicon.terms == words
    assert numbers.tolist() == [*range(100_000), *reversed(range(100_000))]


@pytest.mark.parametrize("name", ["lucene-english", "lower | porter", "porter | lower", "stop:german | lower:greek"])
def test_kernels_change_plain_words_as_filters_do(name: str) -> None:
    analyzer = Analyzer.parse(name if name == "lucene-english" else f"whitespace | {name}")
    words = [
        "Dogs",
        "the",
        "THE",
        "'s",
        "O'S",
        "s",
        "dog's",
        "caf\u00e9s",
        "running's",
        "Und",
        "und",
        "a\u0130s",
        "",
        "x" * 300,
    ]
    words += [f"{a}{b}" for a in ("Relat", "hopp", "'") for b in ("ional", "ing", "S", "\u2019s", "ed", "iveness", "y")]
    assert analyzer.plain_steps is not None
    for texts in ([" ".join(words)], words, [w for w in words if w.isascii()], [w for w in words if not w.isascii()]):
        lexicon = analyzer.lexicon()
        numbers, _ = lexicon.encode(texts)
        assert [lexicon.terms[n] for n in numbers] == [term for text in texts for term in analyzer(text)]


@pytest.mark.parametrize(
    "name", ["wordpiece", "cjk", "code", "whitespace | snowball:german", "whitespace | lower:turkish"]
)
def test_steps_that_kernels_lack_are_left_to_the_analyzer(name: str) -> None:
    assert Analyzer.parse(name).plain_steps is None


def test_counts_are_per_text() -> None:
    lexicon = Analyzer.parse("lucene-english").lexicon()
    pointers, indices, counts = lexicon.count(["dog cat dogs", "", "cat"])
    assert [lexicon.terms[i] for i in indices] == ["dog", "cat", "cat"]
    assert counts.tolist() == [2, 1, 1]
    assert pointers.tolist() == [0, 2, 2, 3]


def test_analyzers_are_values(tmp_path: Path) -> None:
    for name in ["lucene-english", "whitespace", "cjk", "standard | lower | longest:8 | stop:french"]:
        analyzer = Analyzer.parse(name)
        assert str(analyzer) == name
        assert Analyzer.parse(analyzer.save(tmp_path), tmp_path) == analyzer
    assert Analyzer.parse("standard | lower") != Analyzer.parse("whitespace | lower")


def test_wordpiece_is_saved_with_its_file(tmp_path: Path) -> None:
    analyzer = Analyzer.parse("wordpiece")
    text = analyzer.save(tmp_path)
    again = Analyzer.parse(text, tmp_path)
    assert again == analyzer
    assert again("Unbelievable tokenisation") == ["unbelievable", "token", "##isation"]
    assert list(again.tokens("Héllo, [SEP]")[0]) == ["hello", 0, 5]


def test_every_snowball_language_has_a_stemmer_and_stop_words() -> None:
    from vizsla.text.filters import stop_words

    for language in snowball_languages():
        analyzer = Analyzer.parse(f"snowball-{language}")
        assert len(stop_words(language)) >= 30, language
        assert analyzer("42") == ["42"], language
        single = [w for w in stop_words(language) if analyzer.tokenizer.tokens(w)[0].term == w and len(w) > 1]
        assert [analyzer(w) for w in single] == [[] for _ in single], language


def test_snowball_stems() -> None:
    assert Analyzer.parse("snowball-german")("Die Häuser und die Katzen") == ["haus", "katz"]
    assert Analyzer.parse("snowball-french")("les chevaux couraient") == ["cheval", "cour"]


def test_a_filter_of_ones_own() -> None:
    register_filter("reversed", lambda term: term[::-1])
    assert Analyzer.parse("whitespace | reversed")("abc de") == ["cba", "ed"]
    register_filter("reversed", lambda term: term[::-1] + "!")  # the same module may change its mind
    assert Analyzer.parse("whitespace | reversed")("abc de") == ["cba!", "ed!"]
    for own in (lambda term: term, str.title):
        with pytest.raises(VizslaError, match="two files register the token filter 'lower'"):
            register_filter("lower", own)
    assert Analyzer.parse("whitespace | lower")("ABC") == ["abc"]


def test_filters_and_tokenizers_say_what_they_are() -> None:
    assert set(TOKENIZERS.names()) >= {"standard", "whitespace", "wordpiece"}
    assert set(TOKEN_FILTERS.names()) >= {"lower", "stop", "porter", "snowball", "longest", "width", "bigrams"}
    for entry in (*TOKENIZERS, *TOKEN_FILTERS):
        assert entry.help
        assert all(option.help for option in entry.options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lucen-english", "did you mean 'lucene-english'"),
        ("standard | stemm", "unknown token filter 'stemm'"),
        ("standard | stop:klingon", "unknown list of stop words 'klingon'"),
        ("standard | lower:x", "unknown lower case of its own"),
        ("standard | digits:x", "takes no option"),
        ("standard | longest:x", "takes a number"),
        ("standard | longest:²", "takes a number"),
        ("standard | longest:" + "1" * 5000, "takes a number"),
        ("snowball-elvish", "unknown Snowball stemmer 'elvish'"),
        ("", "not an empty text"),
        ("wordpiece:missing.json", "missing.json: there is no such tokenizer file"),
    ],
)
def test_wrong_analyzers_are_told(text: str, message: str) -> None:
    with pytest.raises(VizslaError, match=message):
        Analyzer.parse(text)


def test_a_broken_tokenizer_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(VizslaError, match=r"tokenizer\.json: this is not a tokenizer\.json"):
        Analyzer.parse(f"wordpiece:{tmp_path}")("x")


def test_names_are_listed() -> None:
    assert {"lucene-english", "whitespace", "wordpiece", "cjk", "snowball-german"} <= set(analyzer_names())


@given(
    st.lists(
        st.text(st.sampled_from("dogs' Barking 3.5 caf\u00e9 \u72ac\u5c0f\u5c4b \U0001f415 \u0e2b\u0e21\u0e32 \ud800")),
        max_size=6,
    )
)
def test_terms_that_kernels_count(texts: list[str]) -> None:
    """The same terms, in the same order, as those of each text by itself."""
    for name in ("lucene-english", "cjk", "standard | lower", "wordpiece"):
        analyzer = Analyzer.parse(name)
        counted = [list(row.items()) for row in CountedTexts.of(analyzer, texts)]
        assert counted == [[(t, float(n)) for t, n in Counter(analyzer(text)).items()] for text in texts]


def test_queries_with_endless_new_words_take_bounded_memory() -> None:
    """A lexicon of queries is replaced once it is large, by short words or by long ones."""
    analyzer = Analyzer.parse("whitespace")
    for length, count in ((10, 60_000), (4000, 1000)):
        sizes, lexicons = [], set()
        for i in range(6):
            texts = [f"{i}-{j}".ljust(length, "x") for j in range(count)]
            counted = CountedTexts.of(analyzer, texts)
            assert counted[count - 1] == {texts[-1]: 1.0}
            sizes.append(counted.lexicon.bytes)
            lexicons.add(id(counted.lexicon))
        assert len(lexicons) > 1
        assert max(sizes) < 48 << 20
