"""Analyzers with a name, most of them for a language: the pipeline of each.

Those that begin with `lucene-` give the tokens of Lucene's analyzer of the language. Those with the name of a language
alone also take letters and accents that are typed apart as one (NFC); on other text they give the same tokens.
"""

from __future__ import annotations

from typing import NamedTuple

from vizsla.errors import UnknownNameError

LUCENE_ENGLISH = "standard | possessive | lower | stop:lucene-english | porter"


def _plain(language: str) -> str:
    return f"standard | lower | stop:lucene-{language} | stem:{language}"


_LUCENE = {
    "arabic": "standard | lower | digits | stop:lucene-arabic | normalize:arabic | stem:arabic",
    "bengali": "standard | lower | digits | normalize:indic | normalize:bengali | stop:lucene-bengali | stem:bengali",
    "cjk": "standard | width | lower | bigrams | stop:lucene-cjk",
    "danish": _plain("danish"),
    "dutch": _plain("dutch"),
    "english": LUCENE_ENGLISH,
    "finnish": _plain("finnish"),
    "french": "standard | elision:french | lower | stop:lucene-french | stem:french",
    "german": "standard | lower | stop:lucene-german | normalize:german | stem:german",
    "greek": "standard | lower:greek | stop:lucene-greek | stem:greek",
    "hindi": "standard | lower | digits | normalize:indic | normalize:hindi | stop:lucene-hindi | stem:hindi",
    "hungarian": _plain("hungarian"),
    "indonesian": _plain("indonesian"),
    "italian": "standard | elision:italian | lower | stop:lucene-italian | stem:italian",
    "norwegian": _plain("norwegian"),
    "persian": "standard:persian | lower | digits | normalize:arabic | normalize:persian | stop:lucene-persian"
    " | stem:persian",
    "portuguese": _plain("portuguese"),
    "romanian": "standard | lower | stop:lucene-romanian | normalize:romanian | stem:romanian",
    "russian": _plain("russian"),
    "spanish": _plain("spanish"),
    "swedish": _plain("swedish"),
    "telugu": "standard | digits | normalize:indic | normalize:telugu | stop:lucene-telugu | stem:telugu",
    "turkish": "standard | apostrophe | lower:turkish | stop:lucene-turkish | stem:turkish",
    "whitespace": "whitespace:lucene",
}


_CJK = "standard | width | lower | bigrams | stop:lucene-english"


def _composed(pipeline: str) -> str:
    tokenizer, _, rest = pipeline.partition(" | ")
    return f"{tokenizer} | normalize:nfc | {rest}"


PIPELINES = {
    "lucene-english": LUCENE_ENGLISH,
    **{name: _composed(pipeline) for name, pipeline in _LUCENE.items() if name not in ("cjk", "english", "whitespace")},
    "cjk": _CJK,
    "east-asian": _composed(_CJK),
    "code": "identifiers | normalize:nfkc | lower | stop:lucene-english",
    **{f"lucene-{name}": pipeline for name, pipeline in _LUCENE.items() if name != "english"},
}


class Language(NamedTuple):
    """A language: its code (ISO 639-1), its name, its analyzer, and the stop words it is known by."""

    code: str
    name: str
    analyzer: str
    lists: tuple[str, ...] = ()


GENERAL = _composed("standard:trigrams | width | lower | digits")
"""The analyzer of languages without one of their own: words as Unicode defines them, Thai and the like in trigrams."""

_WITH_LUCENE = (
    "ar arabic,bn bengali,da danish,de german,el greek,en english,es spanish,fa persian,fi finnish,fr french,hi hindi,"
    "hu hungarian,id indonesian,it italian,nl dutch,no norwegian,pt portuguese,ro romanian,ru russian,sv swedish,"
    "te telugu,tr turkish"
)
_WITH_SNOWBALL = (
    "ca catalan,cs czech,et estonian,eu basque,ga irish,hy armenian,lt lithuanian,ne nepali,pl polish,sr serbian,"
    "ta tamil"
)
_BIGRAMS = "ja japanese,ko korean,zh chinese"
_OTHERS = (
    "bg bulgarian,gu gujarati,he hebrew,ka georgian,km khmer,kn kannada,lo lao,ml malayalam,mr marathi,my burmese,"
    "or odia,pa punjabi,si sinhala,sw swahili,th thai,uk ukrainian,ur urdu,vi vietnamese,yo yoruba"
)


def _languages() -> dict[str, Language]:
    found = []
    for names, analyzer in (
        (_WITH_LUCENE, ""),
        (_WITH_SNOWBALL, "snowball-"),
        (_BIGRAMS, "east-asian"),
        (_OTHERS, GENERAL),
    ):
        for pair in names.split(","):
            code, name = pair.split()
            own = analyzer if names in (_BIGRAMS, _OTHERS) else analyzer + name
            found.append(Language(code, name, own, (name, f"lucene-{name}")))
    known = {language.code: language for language in found}
    known["en"] = known["en"]._replace(analyzer="lucene-english")  # the default, as published figures have it
    known["he"] = known["he"]._replace(analyzer="standard | lower | fold")
    return {code: known[code] for code in sorted(known)}


LANGUAGES = _languages()
"""The languages by code that can be named and detected."""


def parse_language(text: str) -> Language:
    """A language by its code, with or without a region, or by its English name.

    >>> parse_language("de").analyzer, parse_language("pt-BR").name, parse_language("German").code
    ('german', 'portuguese', 'de')
    """
    wanted = text.strip().lower()
    code = wanted.replace("_", "-").partition("-")[0]
    for language in LANGUAGES.values():
        if language.code == code or language.name == wanted:
            return language
    raise UnknownNameError("language", text.strip(), tuple(LANGUAGES))


PROBE = """The dogs' houses were running Don't 3,000 naïve cafe\u0301 CAFÉ http://example.org/a_b C++ 12.5% straße ﬁne
والكتابات المدرسون مكتبة أَحْمَد ٣٤ کتاب‌هایشان می‌روند বাংলাদেশের শিক্ষকেরা করিতেছিলেন পুস্তকগুলি kvindernes husene
kvinnornas arbetslöst hundarna kvinnenes fiskerne boekenkasten lopen kinderen talossanikin kirjastoissamme juoksemme
nationalisation chanteuses chevaux l'avion heureusement Häuser gegangen Übungen Straßen αυτοκίνητα παιδιών ΟΔΟΣ
किताबों लड़कियाँ विद्यालयों házakban könyveimet mempelajari berjalan pemerintahan nazioni bellissime dell'arte ragazzi
corações mulheres nacionais oamenilor cărților frumoasă книгами красивейшая бегущие canciones felizmente luces పుస్తకాలు
విద్యార్థులు kitaplarımızdan İstanbul'un ILIK 中文信息检索 日本語のテキスト ﾃｷｽﾄ ＡＢＣ 한국어의 문서 ภาษาไทย
ພາສາລາວ ភាសាខ្មែរ မြန်မာ
książkami psów ёлка knihovnách שָׁלוֹם ספרים 😀 👨\u200d👩\u200d👧 fetchUserData http_client HTTPServer2"""
"""A text whose terms tell whether an analyzer is the one an index was built with."""
