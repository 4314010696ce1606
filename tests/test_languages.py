"""Analyzers of languages: Lucene's tokens, normalisation, and what an index remembers of its analyzer."""

from __future__ import annotations

import json
import lzma
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vizsla
from conftest import Cli
from qdrant_server import address, nodes
from served import served
from vizsla import Analyzer, VizslaError
from vizsla.backends.qdrant import QdrantIndex
from vizsla.models import detect_model, language_model
from vizsla.text import register_filter
from vizsla.text.detection import detect_language
from vizsla.text.filters import parse_token_filter
from vizsla.text.languages import GENERAL, PIPELINES, PROBE
from vizsla.text.normalizing import fold, nfc, normalizations
from vizsla.text.stemmers import language_stemmer, stem_languages

LUCENE = [name for name in PIPELINES if name.startswith("lucene-")]


def _cases() -> dict[str, list[tuple[str, list[list[object]]]]]:
    """Strings made by bench/lucene_analyzers.py and the tokens of Lucene 10.5, by analyzer."""
    found: dict[str, list[tuple[str, list[list[object]]]]] = {}
    path = Path(__file__).parent / "data" / "lucene-10.5.jsonl.xz"
    for line in lzma.decompress(path.read_bytes()).decode().split("\n"):
        if line:
            case = json.loads(line)
            found.setdefault(case["analyzer"], []).append((case["text"], case["tokens"]))
    return found


CASES = _cases()


@pytest.mark.parametrize("name", LUCENE)
def test_tokens_offsets_and_positions_equal_lucenes(name: str) -> None:
    analyzer = Analyzer.parse(name)
    assert len(CASES[name]) == 80
    for text, tokens in CASES[name]:
        assert [list(t) for t in analyzer.tokens(text)] == [token[:3] for token in tokens], ascii(text)
        if analyzer.works_word_by_word:
            numbers, _ = analyzer.lexicon().sequences([text])
            assert [i for i, n in enumerate(numbers.tolist()) if n >= 0] == [token[3] for token in tokens], ascii(text)


@pytest.mark.parametrize("name", [*LUCENE, "standard:trigrams | lower | fold"])
def test_batches_equal_single_texts(name: str) -> None:
    analyzer = Analyzer.parse(name)
    texts = [*(text for text, _ in CASES.get(name, CASES["lucene-english"])[:40]), PROBE, ""]
    lexicon = analyzer.lexicon()
    for _ in range(2):  # the second time every form is known
        numbers, ends = lexicon.encode(texts)
        starts = [0, *ends.tolist()]
        terms = [lexicon.terms[n] for n in numbers]
        assert [terms[a:b] for a, b in zip(starts, ends.tolist(), strict=False)] == [analyzer(t) for t in texts]
    assert [token.term for token in analyzer.tokens(PROBE)] == analyzer(PROBE)


ODD = [*"中日本語한국어のひカタナ々ー〜ﾊﾞﾟｶＡ１9a_ .\n", "\u3099", "\u3042\u3099", "\u1112\u1161\u11ab", "\ufe0f",
       "\u200d", "\u0301", "\uf900", "\U00020000", "กิน", "ข้าว", "ລາວ", "abc", "e\u0301", "を", "\ud800"]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["cjk", "east-asian", "lucene-cjk", GENERAL, "standard:trigrams | lower | stop:english"]
)
@given(st.lists(st.lists(st.sampled_from(ODD), max_size=14).map("".join), max_size=5))
def test_pairs_and_pieces_that_kernels_cut_equal_those_of_single_texts(name: str, texts: list[str]) -> None:
    lexicon, analyzer = Analyzer.parse(name).lexicon(), Analyzer.parse(name)
    numbers, ends = lexicon.encode(texts)
    rows = [[lexicon.terms[n] for n in row] for row in np.split(numbers, ends[:-1])] if texts else []
    assert rows == [analyzer(text) for text in texts]
    pointers, terms, counts = lexicon.count(texts)
    for i, row in enumerate(rows):
        found = slice(pointers[i], pointers[i + 1])
        counted = Counter(lexicon.numbers(row).tolist())
        assert dict(zip(terms[found].tolist(), counts[found].tolist(), strict=True)) == counted


def test_many_new_pairs_in_one_text() -> None:
    analyzer = Analyzer.parse("cjk")
    text = "".join(chr(0x4E00 + i * 7 % 20_000) for i in range(20_000))
    lexicon = analyzer.lexicon()
    numbers, _ = lexicon.encode(["a", text, "中"])
    assert [lexicon.terms[n] for n in numbers] == [*analyzer(text), "中"]


@pytest.mark.parametrize(
    "name", [*(f"normalize:{n}" for n in normalizations()), "lower", "lower:greek", "lower:turkish", "fold", "width"]
)
def test_what_is_changed_in_all_words_at_once_equals_word_by_word(name: str) -> None:
    change = parse_token_filter(name).terms
    assert change is not None
    words = [
        *PROBE.split(),
        "ueber",
        "quelle",
        "\u0c12\u0c4c",
        "\u0921\u093c",
        "\u0930\u094d\u200d",
        "ﾊﾞｶ",
        "a\nb",
        "",
        "İI",
    ]
    assert list(change(words)) == [term for word in words for term in change([word])]


_SIGNS = st.sampled_from(
    [*"\u0627\u0628\u0648\u064a\u064b\u064e\u0651\u0652\u0653\u0654\u0655\u0670\u06e1ae\u0301\u0323"]
)


@given(st.lists(st.lists(_SIGNS, max_size=6).map("".join), max_size=70))
def test_nfc_of_many_words_equals_that_of_each(words: list[str]) -> None:
    assert list(nfc(words)) == [unicodedata.normalize("NFC", word) for word in words]


@pytest.mark.parametrize("language", stem_languages())
def test_stemmers_take_any_word(language: str) -> None:
    words = ["", "x", "I", "1111", "aaaa", "𐐨𐐨𐐨en", "ﷺ", *PROBE.split()]
    stems = language_stemmer(language)(words)
    assert len(stems) == len(words)
    assert stems == [language_stemmer(language)([word])[0] for word in words]


def test_thai_is_cut_into_trigrams_with_their_places() -> None:
    analyzer = Analyzer.parse("standard:trigrams | lower")
    text = "Aกินข้าว ไป"
    tokens = analyzer.tokens(text)
    assert [t.term for t in tokens] == ["a", "กิน", "ินข", "นข้", "ข้า", "้าว", "ไป"]
    assert all(text[t.start : t.end].lower() == t.term for t in tokens)


def test_folding() -> None:
    words = ["Café", "cafe\u0301", "Straße", "œuvre", "ŁÓDŹ", "Ελλάδα", "ёж", "йод", "שָׁלוֹם", "كِتَاب", "が", "각"]
    folded = ["Cafe", "cafe", "Strasse", "oeuvre", "LODZ", "Ελλαδα", "еж", "йод", "שלום", "كتاب", "が", "각"]
    assert [fold(word) for word in words] == folded
    analyzer = Analyzer.parse("standard | lower | fold")
    assert analyzer("Café CAFE\u0301 cafe") == ["cafe"] * 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("standard:thai", "unknown variant of the tokenizer standard"),
        ("standard | stem:klingon", "klingon"),
        ("standard | normalize:nfx", "nfx"),
        ("standard | lower:german", "german"),
        ("standard | elision:english", "english"),
    ],
)
def test_unknown_options_are_named(text: str, said: str) -> None:
    with pytest.raises(VizslaError, match=said):
        Analyzer.parse(text)


FORMS = {  # what finds what, by the analyzers of languages; docs/languages.md has the table
    "german": ("Häuser Ha\u0308user Haeuser hauser", "Straße STRASSE Strasse"),
    "french": ("été e\u0301te\u0301",),
    "greek": ("Ελλάδα ΕΛΛΑΔΑ Ελλα\u0301δα",),
    "arabic": ("مدرسه مدرسة مَدْرَسَة", "أحمد احمد ا\u0654حمد", "٣٤ 34"),
    "persian": ("کتاب كتاب", "خانه‌ها خانه‌هاي", "۳۴ 34"),
    "turkish": ("İstanbul istanbul I\u0307stanbul",),
    "hindi": ("क\u093cलम \u0958लम", "२४ 24"),
    "east-asian": ("ＡＢＣ abc", "カ\u3099 ガ ｶﾞ", "\u1112\u1161\u11ab 한"),
    "snowball-polish": ("ksią\u017cki ksia\u0328z\u0307ki",),
    "standard:trigrams | normalize:nfc | width | lower | digits": ("Điện Đie\u0323\u0302n", "ＡＢＣ abc", "๓๔ 34"),
    "standard | lower | fold": ("שָׁלוֹם שלום", "café CAFE cafe\u0301"),
    "code": ("ﬁle FILE",),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_a_word_that_are_one(name: str) -> None:
    analyzer = Analyzer.parse(name)
    for forms in FORMS[name]:
        terms = [analyzer(form) for form in forms.split()]
        assert terms[0], forms
        assert terms == [terms[0]] * len(terms), ascii(forms)


def test_lucenes_analyzers_keep_letters_and_accents_apart_as_lucene_does() -> None:
    assert Analyzer.parse("lucene-english")("cafe\u0301") != Analyzer.parse("lucene-english")("café")
    assert Analyzer.parse("lucene-french")("e\u0301te\u0301") != Analyzer.parse("lucene-french")("été")


@pytest.mark.parametrize("name", [n for n in PIPELINES if f"lucene-{n}" in PIPELINES and n != "cjk"])
def test_analyzers_of_languages_are_lucenes_on_composed_text(name: str) -> None:
    own, lucenes = Analyzer.parse(name), Analyzer.parse(f"lucene-{name}")
    texts = [unicodedata.normalize("NFC", text) for text, _ in CASES[f"lucene-{name}"]]
    assert [own.tokens(text) for text in texts] == [lucenes.tokens(text) for text in texts]


def test_an_index_whose_analyzer_gives_other_terms_is_refused(tmp_path: Path) -> None:
    register_filter("shortened-for-test", lambda term: term[:4])
    model = vizsla.parse_model("bm25(analyzer=standard | lower | shortened-for-test)")
    index = vizsla.Index.create(tmp_path / "index", model)
    index.add([{"id": "1", "text": "searching"}])
    index.commit()
    assert vizsla.open(tmp_path / "index").search("searches")[0].id == "1"
    register_filter("shortened-for-test", lambda term: term[:3])
    with pytest.raises(VizslaError, match="gives other terms than when this was written"):
        vizsla.open(tmp_path / "index")


def test_english_is_saved_as_ever(tmp_path: Path) -> None:
    assert Analyzer.parse("lucene-english").save(tmp_path) == "lucene-english"
    saved = Analyzer.parse("lucene-german").save(tmp_path)
    assert saved.startswith("lucene-german # ")
    assert str(Analyzer.parse(saved)) == "lucene-german"


# Detection, and indexes of languages

GERMAN = "Der Hund und die Katze sind nicht im Garten, sondern auf der Straße vor den alten Häusern."
TEXTS = {
    "de": GERMAN,
    "en": "The dog and the cat are not in the garden, but on the street in front of the old houses.",
    "fr": "Le chien et le chat ne sont pas dans le jardin, mais dans la rue devant les vieilles maisons.",
    "es": "El perro y el gato no están en el jardín, sino en la calle delante de las casas viejas.",
    "it": "Il cane e il gatto non sono nel giardino, ma nella strada davanti alle vecchie case della città.",
    "pt": "O cão e o gato não estão no jardim, mas na rua em frente das casas velhas que são muito grandes.",
    "nl": "De hond en de kat zijn niet in de tuin, maar op de straat voor de oude huizen van het dorp.",
    "ru": "Собака и кошка не в саду, а на улице перед старыми домами, которые были там всегда.",
    "uk": "Собака і кішка не в саду, а на вулиці перед старими будинками, які були там завжди.",
    "ar": "الكلب والقط ليسا في الحديقة بل في الشارع أمام البيوت القديمة التي كانت هناك.",
    "fa": "سگ و گربه در باغ نیستند، بلکه در خیابان جلوی خانه‌های قدیمی هستند که پیش از این بودند.",
    "hi": "कुत्ता और बिल्ली बगीचे में नहीं हैं, बल्कि पुराने घरों के सामने सड़क पर हैं।",
    "bn": "কুকুর এবং বিড়াল বাগানে নেই, পুরোনো বাড়ির সামনে রাস্তায় আছে।",
    "el": "Ο σκύλος και η γάτα δεν είναι στον κήπο, αλλά στον δρόμο.",
    "he": "הכלב והחתול אינם בגינה אלא ברחוב לפני הבתים הישנים.",
    "ja": "犬と猫は庭ではなく、古い家の前の通りにいます。",
    "zh": "狗和猫不在花园里，而是在老房子前面的街道上。",
    "ko": "개와 고양이는 정원이 아니라 오래된 집 앞 거리에 있습니다.",
    "th": "สุนัขและแมวไม่ได้อยู่ในสวน แต่อยู่บนถนนหน้าบ้านเก่า",
    "tr": "Köpek ve kedi bahçede değil, ama eski evlerin önündeki sokakta ve bu çok güzel bir gün için daha iyi.",
    "vi": "Con chó và con mèo không ở trong vườn mà ở trên đường phố trước những ngôi nhà cũ.",
}  # fmt: skip


@pytest.mark.parametrize("code", TEXTS)
def test_languages_are_detected(code: str) -> None:
    found = detect_language(TEXTS[code])
    assert found is not None
    assert found.code == code


@pytest.mark.parametrize("text", ["", "Vizsla 3.1", "x = a + b * c", "12 34", "ACME GmbH", "\ud800", "😀😀😀😀😀"])
def test_a_text_without_sentences_has_no_language(text: str) -> None:
    assert detect_language(text) is None


@pytest.mark.parametrize("name", ["scifact", "nfcorpus"])
def test_english_documents_are_not_taken_for_others(name: str, request: pytest.FixtureRequest) -> None:
    dataset = vizsla.BeirDataset.open(request.getfixturevalue("data") / name)
    found = [detect_language(f"{d.get('title', '')}\n{d['text']}") for d in list(dataset.documents())[:1500]]
    others = [language for language in found if language is not None and language.code != "en"]
    assert len(others) <= 1  # a document of NFCorpus has a German abstract


def _documents(codes: str, times: int = 3) -> list[dict[str, str]]:
    return [{"id": f"{c}{i}", "text": TEXTS[c]} for i in range(times) for c in codes.split()]


def test_the_model_of_documents_follows_their_languages() -> None:
    assert detect_model(_documents("en")).model == vizsla.BM25()
    assert detect_model([]).model == vizsla.BM25()
    assert detect_model([{"text": "x"}]).remark == ""
    german = detect_model(_documents("de", 40) + _documents("en", 1))
    assert german.model == vizsla.BM25(analyzer="german")
    assert german.remark.startswith("40 of 41 documents looked at are German: analysed by german")
    both = detect_model(_documents("de en"))
    assert both.model.name == "multilingual(de, en)"
    assert detect_model([{"text": "x", "language": "pt-BR"}] * 3).languages[0].code == "pt"


def test_scores_of_several_languages_equal_those_of_separate_indexes(tmp_path: Path) -> None:
    codes, words = "de en ru zh th", ["Häuser", "houses", "домами", "老房子", "บ้านเก่า", "garden", "Hund"]
    together = vizsla.Index.create(tmp_path / "all", language="de,en,ru,zh,th")
    together.add(
        [{"id": f"{c}-{i}", "text": f"{t} {i * 'x '}"} for c, t in TEXTS.items() if c in codes for i in (1, 5)]
    )
    together.commit()
    for code in codes.split():
        alone = vizsla.Index.create(tmp_path / code, language=code)
        alone.add([{"id": f"{code}-{i}", "text": f"{TEXTS[code]} {i * 'x '}"} for i in (1, 5)])
        alone.commit()
        for word in words:
            expected = [(hit.id, hit.score) for hit in alone.search(word)]
            assert [(h.id, h.score) for h in together.search(word) if h.id.startswith(code)] == expected


@pytest.mark.parametrize("positions", [False, True])
def test_an_index_of_several_languages_does_what_others_do(tmp_path: Path, positions: bool) -> None:
    index = vizsla.Index.create(tmp_path / "index", language="de,en", positions=positions)
    index.add(_documents("de en", 2))
    index.commit()
    index.add([{"id": "new", "text": TEXTS["fr"]}, {"id": "named", "text": "Gift", "language": "English"}])
    index.commit()
    opened = vizsla.open(tmp_path / "index")
    assert {hit.id for hit in opened.search("Haus")} == {"de0", "de1"}
    assert {hit.id for hit in opened.search("house")} == {"en0", "en1"}
    assert {hit.id for hit in opened.search("maisons")} == {"new"}  # French has no part: it is among the others
    assert {hit.id for hit in opened.search('"alten Häusern"', syntax="lucene")} == {"de0", "de1"}
    assert {hit.id for hit in opened.search('"old houses"', syntax="lucene")} == {"en0", "en1"}
    assert {hit.id for hit in opened.search("gard*", syntax="lucene")} == {"en0", "en1"}
    english = index.model.parts[1].component
    assert {hit.id for hit in index.with_model(english).search("Gift Garten house")} == {"en0", "en1", "named"}
    assert opened.explain("Häuser", "de0").score == pytest.approx(opened.search("Häuser")[0].score)
    index.delete(["de0"])
    index.compact()
    assert {hit.id for hit in index.search("Haus")} == {"de1"}


def test_highlights_suggestions_and_similar_documents_follow_the_language(tmp_path: Path) -> None:
    index = vizsla.Index.create(tmp_path / "index", language="de,en,th")
    index.add(_documents("de en th fr", 2))
    index.commit()
    shown = index.highlighter("Haus house บ้านเก่า maisons")
    for doc_id, matches in {"de0": ["Häusern"], "en0": ["houses"], "fr0": ["maisons"]}.items():
        document = index.get(doc_id)
        assert document is not None
        snippet = shown.snippet(document)
        assert [snippet.text[a:z] for a, z in snippet.matches] == matches
    thai = index.get("th0")
    assert thai is not None
    assert "".join(shown.snippet(thai).text[a:z][0] for a, z in shown.snippet(thai).matches) == "บ้านเก"
    assert [(s.text, s.documents) for s in index.suggest("old gar")] == [("garden", 2), ("garten", 2)]
    assert [s.text for s in index.suggest("mais")] == ["mais", "maisons"]
    assert index.similar("de0", 1).ids == ["de1"]
    assert index.similar("fr0", 1).ids == ["fr1"]


def test_an_export_says_what_the_other_engine_lacks(tmp_path: Path, cli: Cli) -> None:
    with vizsla.Index.create(tmp_path / "index", language="de,en") as index:
        index.add(_documents("de en"))
        index.commit()
    code, _, said = cli("export", tmp_path / "index", "-o", tmp_path / "out.jsonl")
    assert code == 0
    assert "each document has terms of its own language" in said
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["vector"].keys() >= {"words-de:haus"}
    code, _, said = cli("export", tmp_path / "index", "-o", tmp_path / "out", "--format", "ciff")
    assert code == 2
    assert "posting lists can be exported of one sparse model" in said


def test_exported_weights_of_each_language_give_the_scores(tmp_path: Path, cli: Cli) -> None:
    with vizsla.Index.create(tmp_path / "index", language="de,en") as index:
        index.add(_documents("de en", 2))
        index.commit()
        index.add([{"id": "fr", "text": TEXTS["fr"]}])  # a language without a part
        index.commit()
        query = "alte Häuser old houses maisons"
        scores = {hit.id: hit.score for hit in index.search(query)}
    assert scores.keys() == {"de0", "de1", "en0", "en1", "fr"}
    assert cli("export", tmp_path / "index", "-o", tmp_path / "out.jsonl")[0] == 0
    vectors = {row["id"]: row["vector"] for row in map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())}
    for doc_id, part in {"de1": "words-de:", "en0": "words-en:", "fr": "words-other:"}.items():
        assert all(term.startswith(part) for term in vectors[doc_id])
    for format in ("elasticsearch", "opensearch"):
        code, _, said = cli("export", tmp_path / "index", "-o", tmp_path / format, "--format", format)
        assert (code, "each document has terms of its own language" in said) == (0, True)
        code, written, _ = cli("export", tmp_path / "index", "--format", format, "--query", query, "-o", "-")
        assert code == 0
        for term in ("haus", "hous", "maisons"):
            assert f'"{term}"' in written
    code, written, _ = cli("export", tmp_path / "index", "--format", "anserini", "--query", query, "-o", "-")
    assert code == 0
    assert {"words-de:haus", "words-en:hous"} <= set(written.split())


def test_languages_are_named_or_refused(tmp_path: Path) -> None:
    assert vizsla.Index.create(tmp_path / "a", language="German").model == vizsla.BM25(analyzer="german")
    for options in ({"language": "klingon"}, {"language": "auto"}, {"language": "de", "model": "bm25"}):
        with pytest.raises(VizslaError, match=r"unknown language|detected before|not both"):
            vizsla.Index.create(tmp_path / "b", **options)  # type: ignore[arg-type]
    assert vizsla.parse_model("multilingual(languages=de/en, k1=1.2)").namespaces[-1] == "words-other"


def test_the_command_line_says_what_it_found(tmp_path: Path, cli: Cli) -> None:
    source = tmp_path / "documents.jsonl"
    source.write_text("\n".join(json.dumps(d) for d in _documents("de", 5)) + "\n")
    code, _, said = cli("index", source, "-o", tmp_path / "index")
    assert code == 0
    assert "documents looked at are German: analysed by german" in said
    source.write_text("\n".join(json.dumps(d) for d in _documents("ru", 5)) + "\n")
    code, _, said = cli("add", tmp_path / "index", source)
    assert code == 0
    assert "Russian documents are added to an index of German" in said
    (tmp_path / "synonyms.txt").write_text("Hund, Köter\n")
    german = f"bm25-synonyms(analyzer=german, file={tmp_path / 'synonyms.txt'})"
    vizsla.Index.create(tmp_path / "synonyms", german).close()
    assert "Russian documents are added to an index of German" in cli("add", tmp_path / "synonyms", source)[2]
    code, _, said = cli("index", source, "-o", tmp_path / "other", "--language", "ru", "-m", "bm25")
    assert code == 2
    assert "not both" in said


def test_a_language_counts_by_the_words_of_the_query_that_it_knows(tmp_path: Path) -> None:
    index = vizsla.Index.create(tmp_path / "index", language="de,en")
    index.add(
        [
            {"id": "de", "text": "Rex ist der Hund von Anna.", "language": "de"},
            {"id": "en", "text": "Rex is the dog that Anna has.", "language": "en"},
            *({"id": f"x{i}", "text": "Rex Anna dog", "language": "en"} for i in range(5)),
        ]
    )
    index.commit()
    assert index.search("der Hund Rex")[0].id == "de"
    assert index.search("the dog Rex")[0].id != "de"
    assert {hit.id for hit in index.search("the dog Rex")} == {"de", "en", *(f"x{i}" for i in range(5))}
    german, english = (part.component for part in index.model.parts[:2])
    for part, query, share in ((german, "the dog Rex", 1 / 3), (english, "der dog Rex", 2 / 3), (english, "Kuh", 1)):
        alone = index.with_model(part)
        expected = {hit.id: share**4 * hit.score for hit in alone.search("Rex dog" if part is english else "Rex")}
        if query != "Kuh":
            assert {hit.id: hit.score for hit in alone.search(query)} == pytest.approx(expected)
            found = {hit.id: hit.score for hit in alone.search(query, syntax="lucene")}
            assert found == pytest.approx(expected)
        else:
            assert not alone.search(query)
    hit = index.search("the dog Rex", 10)[-1]
    assert index.explain("the dog Rex", hit.id).score == pytest.approx(hit.score)
    texts = [str(document["text"]) for document in index.get_many(["de", "en"]).values()]
    contents = [{"text": texts[0], "language": "de"}, {"text": texts[1], "language": "en"}]
    statistics = index.model.statistics(contents)
    scores = index.model.encode_queries(["the Hund Rex"], statistics).dot(index.model.encode_documents(contents))
    small = vizsla.Index.create(tmp_path / "small", index.model)
    small.add([{"id": str(i), **content} for i, content in enumerate(contents)])
    small.commit()
    assert {int(h.id): h.score for h in small.search("the Hund Rex")} == pytest.approx(dict(enumerate(scores[0])))


@pytest.mark.parametrize("positions", [False, True])
def test_near_words_prefixes_phrases_and_counts_of_several_languages(tmp_path: Path, positions: bool) -> None:
    index = vizsla.Index.create(tmp_path / "index", language="de,en,zh", positions=positions)
    index.add([{**document, "place": document["id"][:2]} for document in _documents("de en zh fr", 2)])
    index.commit()
    for query, found in {
        "hunt~1": "de", "haas~1": "de", "hoose~1": "en", "maisonz~1": "fr",  # by the terms of each language
        "haus*": "de", "hous*": "en", "gar*": "de en", "mais*": "fr", "jard* gard*": "en fr",
        '"alten Häusern"': "de", '"old house"': "en", '"vieilles maisons"': "fr", '"老房子"': "zh",
        '"alten old"': "", '"der Hund" -"old house"': "de", "+haus~1 -text:katze": "",
    }.items():  # fmt: skip
        expected = {f"{code}{i}" for code in found.split() for i in range(2)}
        assert {hit.id for hit in index.search(query, 20, syntax="lucene")} == expected, query
        assert index.count(query, syntax="lucene") == len(expected)
        counted = index.facets(["place"], query, syntax="lucene")["place"].values
        assert {value.value: value.count for value in counted} == dict.fromkeys(found.split(), 2)
    counted = index.facets(["place"], "Hund dog 老房子")["place"].values
    assert {value.value: value.count for value in counted} == {"de": 2, "en": 2, "zh": 2}
    assert {hit.id for hit in index.search("Hund dog chien", filter='place = "fr"')} == {"fr0", "fr1"}
    for query in ("Hunt", "hoose"):
        (best, *_) = index.search(query, typos="on")
        assert best.id == {"Hunt": "de0", "hoose": "en0"}[query]


def test_documents_in_a_new_language_are_added_through_clients_and_clusters(
    tmp_path: Path, qdrant_command: list[str]
) -> None:
    vizsla.Index.create(tmp_path / "i", language="de,en").close()
    with nodes(tmp_path / "nodes", command=qdrant_command) as (node,):
        cluster = QdrantIndex.create(address([node], "words"), language_model(["de", "en"]))
        settings = {"write": True, "state": str(tmp_path / "state")}
        with (
            served({"i": str(tmp_path / "i")}, **settings) as client,  # type: ignore[arg-type]
            vizsla.RemoteIndex(f"{client.url}/i") as remote,
        ):
            for documents in (_documents("de en", 2), _documents("fr ru", 1), [{"id": "de1", "text": TEXTS["it"]}]):
                for collection in (remote, cluster):
                    collection.add(documents)
                    collection.commit()
            for query in ("Häuser", "the old houses", "maisons", "домами", "città", "Hund dog chien"):
                found = {hit.id: hit.score for hit in remote.search(query)}
                assert found
                near = pytest.approx(found, rel=0.01)  # mean lengths of a cluster are those of its first commits
                assert {hit.id: hit.score for hit in cluster.search(query)} == near
            assert remote.search("città").ids == ["de1"]  # which is Italian now
            assert remote.search("Häuser").ids == ["de0"]
            assert remote.search('"vieilles maisons"', syntax="lucene").ids == ["fr0"]
            assert set(remote.search("gerden~1", syntax="lucene").ids) == {"en0", "en1"}
            assert remote.count("Hund dog") == 3
            assert remote.explain("maisons", "fr0").score == pytest.approx(remote.search("maisons")[0].score)
            assert cluster.similar("de0", 5).ids == remote.similar("de0", 5).ids


def test_clients_and_clusters_follow_the_language(tmp_path: Path, qdrant_command: list[str]) -> None:
    queries = ["Häuser", "the old houses", "บ้านเก่า", "der Hund und das Haus", "maisons"]
    with nodes(tmp_path / "nodes", command=qdrant_command) as (node,):
        local = vizsla.Index.create(tmp_path / "i", language="de,en,th")
        cluster = QdrantIndex.create(address([node], "words"), language_model(["de", "en", "th"]))
        for index in (local, cluster):
            index.add(_documents("de en th fr", 2))
            index.commit()
        for query in queries:
            expected = {hit.id: hit.score for hit in local.search(query)}
            assert expected
            assert {hit.id: hit.score for hit in cluster.search(query)} == pytest.approx(expected, rel=1e-5)
        assert cluster.explain("the old houses", "en0").score == pytest.approx(
            local.explain("the old houses", "en0").score, rel=1e-5
        )
    with served({"i": str(local.path)}) as client, vizsla.RemoteIndex(f"{client.url}/i") as remote:
        for query in queries:
            assert remote.search(query) == local.search(query)
        body = {"query": "the old houses", "highlight": True, "k": 1}
        (hit,) = client.post("/v1/i/search", body).data["results"][0]["hits"]
        shown = hit["highlights"]["text"]
        assert "houses" in [shown["text"][a:z] for a, z in shown["matches"]]
        assert [s.text for s in remote.suggest("gart")] == ["garten"]
        assert remote.similar("fr0", 1).ids == ["fr1"]
