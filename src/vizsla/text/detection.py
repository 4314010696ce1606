"""Which language a text is written in: by its script, and by stop words where several languages share one.

This is meant for documents, which have sentences. A text without enough of them has no answer, rather than a guess.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache, lru_cache

import numpy as np

from vizsla.errors import VizslaError
from vizsla.text.filters import has_stop_words, stop_words
from vizsla.text.languages import LANGUAGES, Language, parse_language
from vizsla.text.scan import code_points

_READ = 800  # characters of a text that are looked at
_SCRIPTS = """latin 41-5A,61-7A,C0-D6,D8-F6,F8-24F,1E00-1EFF|greek 370-3FF,1F00-1FFF|cyrillic 400-52F|hy 531-58F
he 5D0-5EA|arabic 620-64A,66E-6D3,6FA-6FF,750-77F,FB50-FDFF,FE70-FEFC|devanagari 904-963,971-97F|bn 980-9E5,9F0-9FF
pa A00-A7F|gu A80-AFF|or B00-B7F|ta B80-BFF|te C00-C7F|kn C80-CFF|ml D00-D7F|si D80-DFF|th E01-E4E
lo E81-EDF|my 1000-109F|ka 10A0-10FF
hangul 1100-11FF,AC00-D7A3|km 1780-17D3|kana 3041-3096,30A1-30FA,FF66-FF9D
han 3400-4DBF,4E00-9FFF,F900-FAFF,20000-3FFFF"""
_DENSE = ("han", "hangul", "kana")  # a character says about as much as three letters
_DIFFERENT = 3  # stop words that a text must have, unless it is English
_FEWEST = 4
"""The letters of a script that a text must have."""
_WORDS = re.compile(r"[^\s\d.,;:!?()\"“”«»।॥،؛؟…/\\\[\]{}<>|=+*–—-]+")
_SHARED = {  # languages that share a script, the most likely first
    "latin": "en es fr de it pt nl pl ro tr id sv no da fi hu cs ca vi sw et eu lt ga yo",
    "cyrillic": "ru uk bg sr", "arabic": "ar fa ur", "devanagari": "hi mr ne",
}  # fmt: skip
_LETTER_WORDS = frozenset("bcdfghjklmnpqrstvwxz")
"""Left over from elisions; in a formula they are names."""
_LETTERS = {
    "uk": "іїєґ",
    "sr": "јљњђћџ",
    "ur": "ٹڈڑںےہھ",
    "fa": "پچژگکی",
    "vi": "ăđơưạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ",
}
"""Letters of a language that others of its script do not have, or not as many of."""


@cache
def _table() -> tuple[list[str], np.ndarray, np.ndarray]:
    """The names of scripts, where ranges of code points begin, and the script of each range (0: none)."""
    names, marks = [""], {0: 0}
    for entry in _SCRIPTS.replace("\n", "|").split("|"):
        name, ranges = entry.split()
        names.append(name)
        for part in ranges.split(","):
            first, last = (int(x, 16) for x in part.split("-"))
            marks[first] = len(names) - 1
            marks.setdefault(last + 1, 0)
    starts = sorted(marks)
    return names, np.array(starts, np.uint32), np.array([marks[s] for s in starts])


@cache
def _owners(script: str) -> dict[str, tuple[str, ...]]:
    """The languages of a script that have a word among their stop words."""
    owners: dict[str, set[str]] = {}
    for code in _SHARED[script].split():
        for name in filter(has_stop_words, LANGUAGES[code].lists):
            for word in stop_words(name) - _LETTER_WORDS:
                owners.setdefault(word, set()).add(code)
    return {word: tuple(codes) for word, codes in owners.items()}


@lru_cache(4096)
def _detect(text: str) -> str:
    names, starts, scripts = _table()
    codes = code_points(text)
    counts = np.bincount(scripts[np.searchsorted(starts, codes, side="right") - 1], minlength=len(names))
    letters = {name: int(n) * (3 if name in _DENSE else 1) for name, n in zip(names[1:], counts[1:], strict=True) if n}
    if not letters:
        return ""
    script = max(letters, key=lambda name: letters[name])
    east_asian = sum(letters.get(name, 0) for name in _DENSE)
    if east_asian >= letters[script]:
        return _east_asian(letters, east_asian)
    if letters[script] < _FEWEST or letters[script] < sum(letters.values()) / 2:
        return ""
    if script in _SHARED:
        return _by_words(text.lower(), script, letters[script])
    return {"greek": "el"}.get(script, script)


def _east_asian(letters: dict[str, int], total: int) -> str:
    if letters.get("hangul", 0) > total / 3:
        return "ko"
    return "ja" if letters.get("kana", 0) > total / 10 else "zh"


def _by_words(text: str, script: str, letters: int) -> str:
    """The language of a script whose stop words a text has."""
    owners, words = _owners(script), _WORDS.findall(text)
    points, hits, different = defaultdict[str, float](float), Counter[str](), Counter[str]()
    for word, count in Counter(words).items():
        found = owners.get(word) or owners.get(word.strip("'’"), ())
        different.update(found)
        for code in found:
            hits[code] += count
            points[code] += count / len(found)
    for code, own in _LETTERS.items():
        if code in _SHARED[script]:
            points[code] += 100 * sum(map(text.count, own)) / letters * len(words) / 40
    ranked = sorted(points.items(), key=lambda item: -item[1])[:2]
    likely = "" if script == "latin" else _SHARED[script].split()[0]
    if not ranked:
        return likely
    (best, most), second = ranked[0], ranked[1][1] if len(ranked) > 1 else 0
    if most < max(2.5, 0.06 * len(words)) or most < 1.4 * second:
        return likely
    if likely or best in ("en", "vi"):
        return best
    if different[best] < _DIFFERENT:  # "dog" is a stop word of Danish, and some English texts repeat it
        return ""
    return best if hits[best] >= max(0.16 * len(words), 1.5 * hits["en"]) else ""


def detect_language(text: str) -> Language | None:
    """The language of a text, from its first 800 characters; None where there is not enough to tell.

    >>> detect_language("Der Hund und die Katze sind nicht im Garten, sondern auf der Straße.").name
    'german'
    >>> detect_language("吾輩は猫である。").name, detect_language("Vizsla 3.1") is None
    ('japanese', True)
    """
    code = _detect(text[:_READ])
    return LANGUAGES[code] if code else None


def document_language(declared: object, text: str) -> Language | None:
    """The language that a document names in its field `language`, else the one of its text."""
    if isinstance(declared, str) and declared.strip():
        try:
            return parse_language(declared)
        except VizslaError:
            pass
    return detect_language(text)


_KNOWS, _LACKS = 0.9, 0.75
"""The share of a language's stop words that a vocabulary with the language has at least, and one without it at most."""
_MARKED = re.compile("^(?:##|[▁Ġ])|</w>$")
_OTHER_SCRIPTS = 2000  # words that are not Latin; BERT's English vocabulary has some 600


def is_english_vocabulary(pieces: Iterable[str]) -> bool:
    """Whether a vocabulary was made for English: its stop words are whole pieces, those of others are not.

    >>> is_english_vocabulary(["the", "##ing"])  # too few words to tell
    False
    """
    words = {_MARKED.sub("", piece).lower() for piece in pieces if not piece.startswith("##")}
    if _share(words, "english") < _KNOWS:
        return False
    _, starts, scripts = _table()
    first = code_points("".join(word[0] for word in words if word))
    found = scripts[np.searchsorted(starts, first, side="right") - 1]
    others = [name for language in LANGUAGES.values() if language.code != "en" for name in language.lists]
    few = np.count_nonzero(found > 1) < _OTHER_SCRIPTS  # Latin is the first script
    return bool(few) and all(_share(words, name) < _LACKS for name in filter(has_stop_words, others))


def _share(words: set[str], language: str) -> float:
    """The share of a language's stop words that are among some words."""
    stops = [word for word in stop_words(language) if len(word) > 1]
    return sum(word in words for word in stops) / len(stops)


def count_languages(languages: Iterable[Language | None]) -> Counter[str]:
    """How many documents are in each language, by code; those that cannot be told are left out.

    >>> count_languages([LANGUAGES["de"], None, LANGUAGES["de"]])
    Counter({'de': 2})
    """
    return Counter(language.code for language in languages if language is not None)
