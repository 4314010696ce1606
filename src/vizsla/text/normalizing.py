"""Letters in one form: marks, ligatures and spellings of a language that make no difference to a reader.

The normalisations of languages are Lucene's. They and the letters they concern are data; see NOTICE.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Literal

import numpy as np

from vizsla.errors import UnknownNameError

Normalize = Callable[[str], str]


def normalizations() -> tuple[str, ...]:
    """The languages and Unicode forms that words can be normalised for."""
    return tuple(_NORMALIZERS)


@cache
def normalizer(name: str) -> Normalize:
    """A function that writes words in one form.

    >>> normalizer("german")("häuser"), normalizer("german")("haeuser"), normalizer("nfkc")("ﬁne")
    ('hauser', 'hauser', 'fine')
    """
    if name not in _NORMALIZERS:
        raise UnknownNameError("normalization", name, normalizations())
    return _NORMALIZERS[name]()


def over_all(change: Normalize) -> Callable[[Sequence[str]], Sequence[str]]:
    """A function that changes many words at once, as the lines of one text, which is faster than one by one.

    `change` must be one of characters and their neighbours, so that no line has a part in what becomes of another.

    >>> over_all(str.upper)(["one", "two"])
    ['ONE', 'TWO']
    """

    def change_all(words: Sequence[str]) -> Sequence[str]:
        text = "\n".join(words)
        changed = change(text)
        if changed == text:
            return words
        lines = changed.split("\n")
        return lines if len(lines) == len(words) else [change(word) for word in words]  # a word with a line break

    return change_all


def _replacing(forms: Mapping[str, str]) -> Normalize:
    """A function that replaces characters, and before them strings of several."""
    if forms.keys().isdisjoint("".join(forms.values())):  # so they can be replaced one after the other
        pairs = sorted(forms.items(), key=lambda pair: len(pair[0]), reverse=True)
        assert sum(len(form) > 1 for form in forms) < 2  # else the first in a text would not come first
        return lambda text: text if text.isascii() else replaced(text, pairs)
    found = re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))))
    return lambda text: text if text.isascii() else found.sub(lambda m: forms[m[0]], text)


def replaced(text: str, pairs: Sequence[tuple[str, str]]) -> str:
    """A text with one string after the other replaced: for a few in a long text this is faster than a table.

    >>> replaced("aàoò", [("à", "a"), ("ò", "o")])
    'aaoo'
    """
    for old, new in pairs:
        text = text.replace(old, new)
    return text


def _pairs(text: str) -> dict[str, str]:
    """`abc` for "a and b become c", by spaces; `a>` for what is left out."""
    forms: dict[str, str] = {}
    for word in text.split():
        letters, _, new = word.partition(">")
        forms.update(dict.fromkeys(letters, new))
    return forms


_ARABIC = (
    "\u0622\u0623\u0625>\u0627 \u0649>\u064a \u0629>\u0647 \u0640\u064b\u064c\u064d\u064e\u064f\u0650\u0651\u0652>"
)
_PERSIAN = "\u06cc\u06d2>\u064a \u06a9>\u0643 \u06c0\u06c1>\u0647 \u0654>"
_HINDI = (
    "\u0901>\u0902 \u093c\u200d\u200c\u094d> \u0929>\u0928 \u0931>\u0930 \u0934>\u0933 \u0958>\u0915 \u0959>\u0916 "
    "\u095a>\u0917 \u095b>\u091c \u095c>\u0921 \u095d>\u0922 \u095e>\u092b \u095f>\u092f \u0945\u0946\u0948>\u0947 "
    "\u0949\u094a\u094c>\u094b \u090d\u090e\u0910>\u090f \u0911\u0912\u0914>\u0913 \u0972\u0906>\u0905 \u0908>\u0907 "
    "\u090a>\u0909 \u0960>\u090b \u0961>\u090c \u0940>\u093f \u0942>\u0941 \u0944>\u0943 \u0963>\u0962"
)
_TELUGU = (
    "\u0c00\u0c01>\u0c02 \u0c03\u200d\u200c> \u0c14>\u0c13 \u0c10>\u0c0f \u0c06>\u0c05 \u0c08>\u0c07 \u0c0a>\u0c09 "
    "\u0c40>\u0c3f \u0c42>\u0c41 \u0c47>\u0c46 \u0c4b>\u0c4a"
)
_TELUGU_PAIRS = {"\u0c46\u0c56": "\u0c48", "\u0c12\u0c55": "\u0c13", "\u0c12\u0c4c": "\u0c14"}


def _german() -> Normalize:
    umlaut = re.compile("e(?:(?<=[ao]e)|(?<=[^aeiouqyäöü]ue)|(?<=^ue))")
    letters = [("ä", "a"), ("ö", "o"), ("ü", "u"), ("ß", "ss")]
    return lambda text: replaced(umlaut.sub("", text), letters)


# Indic scripts: a vowel or consonant that may be typed in two characters becomes one

_BLOCKS = {"D": 0x0900, "B": 0x0980, "P": 0x0A00, "G": 0x0A80, "O": 0x0B00, "T": 0x0B80, "E": 0x0C00, "K": 0x0C80,
           "M": 0x0D00}  # fmt: skip
_INDIC = """05+3E+45=11:DG 05+3E+46=12:D 05+3E+47=13:DG 05+3E+48=14:DG 05+3E=06:DBPGO 05+45=72:D 05+45=0D:G 05+46=04:D
05+47=0F:G 05+48=10:PG 05+49=11:DG 05+4A=12:D 05+4B=13:DG 05+4C=14:DPG 06+45=11:DG 06+46=12:D 06+47=13:DG 06+48=14:DG
07+57=08:M 09+41=0A:D 09+57=0A:TM 0E+46=10:M 0F+45=0D:D 0F+46=0E:D 0F+47=10:D 0F+57=10:O 12+3E=13:M 12+4C=14:EK
12+55=13:E 12+57=14:TM 13+57=14:O 15+3C=58:D 16+3C=59:DP 17+3C=5A:DP 1C+3C=5B:DP 21+3C=5C:DBO 22+3C=5D:DBO
23+4D+ZWJ=7A:M 24+4D+ZWJ=4E:B 28+3C=29:D 28+4D+ZWJ=7B:M 2B+3C=5E:DP 2F+3C=5F:DB 2C+41+41=0B:E 30+3C=31:D
30+4D+ZWJ=7C:M 32+4D+ZWJ=7D:M 33+3C=34:D 33+4D+ZWJ=7E:M 35+41=2E:E 3E+45=49:DG 3E+46=4A:D 3E+47=4B:DG 3E+48=4C:DG
3F+55=40:K 41+41=42:P 46+3E=4A:TM 46+42+55=4B:K 46+42=4A:K 46+46=48:M 46+55=47:EK 46+56=48:EK 46+57=4C:TM 47+3E=4B:BOTM
47+57=4C:BO 4A+55=4B:K 72+3F=07:P 72+40=08:P 72+47=0F:P 73+41=09:P 73+42=0A:P 73+4B=13:P"""


def _indic() -> Normalize:
    forms: dict[str, str] = {}
    for rule in _INDIC.split():
        typed, _, rest = rule.partition("=")
        new, _, scripts = rest.partition(":")
        for script in scripts:
            base = _BLOCKS[script]
            key = "".join("\u200d" if c == "ZWJ" else chr(base + int(c, 16)) for c in typed.split("+"))
            forms.setdefault(key, chr(base + int(new, 16)))
    return _replacing_pairs(forms)


_INDIC_START, _INDIC_SIZE = 0x0900, 0x0480


def _replacing_pairs(forms: Mapping[str, str]) -> Normalize:
    """A function that replaces strings of two or three characters of Indic scripts, which few places of a text have."""
    begins = np.zeros((_INDIC_SIZE, _INDIC_SIZE), np.bool_)
    for form in forms:
        begins[ord(form[0]) - _INDIC_START, ord(form[1]) - _INDIC_START] = True

    def replace(text: str) -> str:
        if text.isascii():
            return text
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32) - np.uint32(_INDIC_START)
        places = np.flatnonzero(np.maximum(codes[:-1], codes[1:]) < _INDIC_SIZE)
        parts: list[str] = []
        at = 0
        for i in places[begins[codes[places], codes[places + 1]]].tolist():
            form = next((text[i : i + n] for n in (3, 2) if text[i : i + n] in forms), "")
            if form and i >= at:
                parts += (text[at:i], forms[form])
                at = i + len(form)
        return "".join((*parts, text[at:]))

    return replace


_BENGALI = str.maketrans("\u09c0\u09c2\u0999\u09b6\u09b7\u09a3\u09dc\u09dd\u09ce",
                         "\u09bf\u09c1\u0982\u09b8\u09b8\u09a8\u09b0\u09b0\u09a4", "\u0981")  # fmt: skip
_BENGALI_IN_CONTEXT = re.compile("[\u0995\u09af\u09ac\u0983]")
_KA, _KHA, _YA, _BA, _HA, _HASANTA, _VISARGA = "\u0995", "\u0996", "\u09af", "\u09ac", "\u09b9", "\u09cd", "\u0983"


def _bengali(word: str) -> str:
    """Bengali spelling by sound: A. Das' phonetic rules as in Lucene. What stands before and behind counts."""
    if not _BENGALI_IN_CONTEXT.search(word):
        return word.translate(_BENGALI)
    s, i = list(word), 0
    while i < len(s):
        c, before = s[i], s[i - 1] if i else ""
        if c == "\u0981":
            del s[i]
            continue
        if c == _KA and s[i + 1 : i + 3] == [_HASANTA, "\u09bf"]:
            s[i : i + 3] = [_KHA] if i == 0 else [_KA, _KHA]
        elif c == _YA and before == _HASANTA:
            if i == 2:
                s[1 : 4 if s[3:4] == ["\u09be"] else 3] = ["\u09c7"]
                i -= 1
            else:
                del s[i - 1 : i + 1]
                i -= 2
        elif c == _BA and before == _HASANTA:
            if i == 2 or (i >= 5 and s[i - 3] == _HASANTA):
                del s[i - 1 : i + 1]
                i -= 2
            elif i >= 2:
                s[i - 1 : i + 1] = [s[i - 2]]
                i -= 1
        elif c == _VISARGA:
            if i < len(s) - 1:
                s[i] = s[i + 1]
            elif len(s) <= 3:
                s[i] = _HA
            else:
                del s[i]
        else:
            s[i] = c.translate(_BENGALI)
        i += 1
    return "".join(s)


# Accents and forms of Unicode

_LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "ł": "l", "ŧ": "t", "þ": "th",
     "Æ": "AE", "Œ": "OE", "Ø": "O", "Đ": "D", "Ð": "D", "Ħ": "H", "Ł": "L", "Ŧ": "T", "Þ": "TH", "ẞ": "SS", "ς": "σ"}
)  # fmt: skip
_FOLDED_MARKS = re.compile("[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a"
                           "\u064b-\u065f\u0670]")  # fmt: skip


def fold(word: str) -> str:
    """Latin, Greek and Cyrillic letters without accents, Hebrew without points, Arabic without vowel signs.

    >>> [fold(word) for word in ("Café", "cafe\u0301", "straße", "Łódź", "ёлка", "й")]
    ['Cafe', 'cafe', 'strasse', 'Lodz', 'елка', 'й']
    """
    if word.isascii():
        return word
    apart = unicodedata.normalize("NFD", word).replace("\u0438\u0306", "\u0439").replace("\u0418\u0306", "\u0419")
    return unicodedata.normalize("NFC", _FOLDED_MARKS.sub("", apart).translate(_LETTERS))


_MAY_CHANGE = re.compile(
    "[^\x00-\u02ff\u0370-\u0373\u0375-\u037d\u0388-\u0482\u048a-\u0590\u05d0-\u05ea\u0620-\u064a\u0660-\u066f"
    "\u0671-\u06d3\u3041-\u3096\u30a1-\u30ff\u4e00-\u9fff\uac00-\ud7a3]"
)
"""What NFC may change or join to the character before: all but those that surely stay, in the most frequent scripts."""


_TOGETHER = 32


def nfc(words: Sequence[str]) -> Sequence[str]:
    """Words in NFC. Few words change; of the others, many are looked at together.

    >>> nfc(["cafe\u0301", "café"])
    ['café', 'café']
    """
    found: list[str] = []
    for first in range(0, len(words), _TOGETHER):
        some = words[first : first + _TOGETHER]
        if _MAY_CHANGE.search("\n".join(some)):
            some = [word if word.isascii() else unicodedata.normalize("NFC", word) for word in some]
        found += some
    return found


def _unicode(form: Literal["NFC", "NFKC"]) -> Callable[[], Normalize]:
    def make() -> Normalize:
        return lambda word: word if word.isascii() else unicodedata.normalize(form, word)

    return make


_NORMALIZERS: dict[str, Callable[[], Normalize]] = {
    "arabic": lambda: _replacing(_pairs(_ARABIC)),
    "bengali": lambda: lambda text: "\n".join(map(_bengali, text.split("\n"))),
    "german": _german,
    "hindi": lambda: _replacing({**_pairs(_HINDI), "\u0928\u094d": "\u0902"}),
    "indic": _indic,
    "persian": lambda: _replacing(_pairs(_PERSIAN)),
    "romanian": lambda: _replacing(_pairs("ş>ș ţ>ț Ş>Ș Ţ>Ț")),
    "telugu": lambda: _replacing({**_pairs(_TELUGU), **_TELUGU_PAIRS}),
    "nfc": _unicode("NFC"),
    "nfkc": _unicode("NFKC"),
}


# Lower case of languages, digits, elided articles


def lower(text: str) -> str:
    """Lower case character by character: no Greek final sigma, and I with a dot becomes a plain i."""
    return text.lower() if text.isascii() else text.replace("\u0130", "i").replace("\u03a3", "\u03c3").lower()


_GREEK_VOWELS = str.maketrans("\u03c2άέήίϊΐύϋΰόώ", "σαεηιιιυυυοω")


def lower_greek(text: str) -> str:
    """Greek lower case without accents and without a final sigma."""
    return lower(text).translate(_GREEK_VOWELS)


def lower_turkish(text: str) -> str:
    """Turkish lower case: I becomes ı, İ becomes i, and so does I with a dot of its own above it."""
    return lower(_with_turkish_i(text) if "I" in text else text)


def _with_turkish_i(word: str) -> str:
    first, *parts = word.split("I")
    letters = [first]
    for part in parts:
        marks = next((n for n, c in enumerate(part) if unicodedata.category(c) != "Mn"), len(part))
        dotted = "\u0307" in part[:marks]
        letters += ["i" if dotted else "\u0131", part[:marks].replace("\u0307", ""), part[marks:]]
    return "".join(letters)


_DIGITS = re.compile(r"[^\x00-\x7f\D]")


def digits(text: str) -> str:
    """Decimal digits of any script as 0 to 9."""
    return text if text.isascii() else _DIGITS.sub(lambda m: str(unicodedata.decimal(m[0])), text)


_ARTICLES = {
    "french": "l m t qu n s j d c jusqu quoiqu lorsqu puisqu",
    "italian": "c l all dall dell nell sull coll pell gl agl dagl degl negl sugl un m t s v d",
}
_APOSTROPHE = re.compile("['\u2019]")


def elision(language: str) -> Callable[[Sequence[str]], list[str]]:
    """A function that takes off an article before an apostrophe, as in l'avion.

    >>> elision("french")(["l'avion", "aujourd'hui"])
    ['avion', "aujourd'hui"]
    """
    if language not in _ARTICLES:
        raise UnknownNameError("language with elided articles", language, tuple(_ARTICLES))
    articles = set(_ARTICLES[language].split())

    def without_article(word: str) -> str:
        found = _APOSTROPHE.search(word)
        return word[found.end() :] if found and word[: found.start()].lower() in articles else word

    return lambda words: [without_article(w) for w in words]


def before_apostrophe(words: Sequence[str]) -> list[str]:
    """What stands before the first apostrophe: Turkish suffixes of names begin there."""
    return [_APOSTROPHE.split(w, maxsplit=1)[0] for w in words]
