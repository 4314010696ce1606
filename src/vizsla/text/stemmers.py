"""Stemmers of languages, each as Lucene's analyzer of the language has it.

Most are lists of endings and what becomes of them: the light stemmers of J. Savoy (UniNE), L. Larkey's light10 for
Arabic, F. Tala's for Indonesian. Russian, Hungarian, Romanian, Turkish and Dutch are PyStemmer's, which gives what
Lucene gives. Danish, Norwegian, Swedish and Finnish are Snowball's as of version 2; PyStemmer has newer ones.

A character beyond the basic plane counts as two letters, as it does in Java.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import cache
from importlib import resources

import numpy as np

from vizsla.errors import UnknownNameError
from vizsla.kernels import njit
from vizsla.text.normalizing import over_all, replaced
from vizsla.text.units import changed_units

Stemmer = Callable[[str], str]
StemAll = Callable[[Sequence[str]], list[str]]


def stem_languages() -> tuple[str, ...]:
    """The languages that have a stemmer here."""
    return tuple(sorted([*_BY_RULES, *_STEMMERS, *_SNOWBALL]))


def language_stemmer(language: str) -> StemAll:
    """A function that stems words of a language.

    >>> language_stemmer("german")(["hauser", "kindern"]), language_stemmer("spanish")(["perros", "luces"])
    (['haus', 'kind'], ['perr', 'luz'])
    """
    if language in _SNOWBALL:
        return _by_letters(_snowball(language))
    if language in _BY_RULES:
        return _BY_RULES[language]()
    if language not in _STEMMERS:
        raise UnknownNameError("stemmer", language, stem_languages())
    stem = _STEMMERS[language]()
    return _by_letters(lambda words: [stem(word) for word in words])


_PRIVATE = 0xE000 - 0xD800
"""From a surrogate to a character of private use, which is no part of any word."""


def _by_letters(stem: StemAll) -> StemAll:
    """Characters beyond the basic plane are two letters to the stemmer."""

    def stem_letters(words: Sequence[str]) -> list[str]:
        joined = "".join(words)
        if joined.isascii() or 2 * len(joined) == len(joined.encode("utf-16-le", "surrogatepass")):
            return stem(words)
        return [_whole(s) for s in stem([_halves(word) for word in words])]

    return stem_letters


def _halves(word: str) -> str:
    units = word.encode("utf-16-le", "surrogatepass")
    codes = (units[i] | units[i + 1] << 8 for i in range(0, len(units), 2))
    return "".join(chr(c + _PRIVATE if 0xD800 <= c < 0xE000 else c) for c in codes)


def _whole(word: str) -> str:
    codes = (ord(c) for c in word)
    units = (c - _PRIVATE if 0xE000 <= c < 0xE800 else c for c in codes)
    return b"".join(c.to_bytes(2, "little") for c in units).decode("utf-16-le", "surrogatepass")


# Snowball stemmers that PyStemmer has

_SNOWBALL = {
    "dutch": "dutch_porter", "hungarian": "hungarian", "romanian": "romanian", "russian": "russian",
    "turkish": "turkish",
}  # fmt: skip
_DUTCH_WORDS = {"fiets": "fiets", "bromfiets": "bromfiets", "ei": "eier", "kind": "kinder"}


def _snowball(language: str) -> StemAll:
    import Stemmer as library

    stem = library.Stemmer(_SNOWBALL[language], 0).stemWords
    if language != "dutch":
        return lambda words: list(stem(list(words)))
    return lambda words: [_DUTCH_WORDS.get(w, s) for w, s in zip(words, stem(list(words)), strict=True)]


# Lists of endings


@cache
def _lines() -> tuple[tuple[str, str], ...]:
    source = resources.files("vizsla.text").joinpath("data/endings.txt").read_text("utf-8")
    lines = (line.partition(" ") for line in source.splitlines() if not line.startswith("#"))
    return tuple((name, rest) for name, _, rest in lines)


def _listed(name: str) -> list[str]:
    return [word for key, rest in _lines() if key == name for word in rest.split()]


def _longest(endings: Collection[str], left: int = 2) -> _Rules:
    """Takes off the longest of some endings that leaves enough letters."""
    longest_first = sorted(endings, key=len, reverse=True)
    return _Rules(" ".join(f"{ending}>{len(ending) + left - 1}" for ending in longest_first))


class _Rules:
    """Rules in order, as text: `ending>8=new` for an ending of a word of more than 8 letters and what it becomes, or
    `^beginning>8`.

    The first one that fits is the last that is applied, but one with `+` at its end lets those behind it follow. One
    word is changed in Python, many by `_apply_rules`.
    """

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule] = []
        for place, rule in enumerate(text.split(), 1):
            condition, _, new = rule.removesuffix("+").partition("=")
            ending, _, longer = condition.partition(">")
            then = place if rule.endswith("+") else 0
            self._rules.append((place, ending, int(longer or 0), new, then))
        self._by_tail: dict[str, tuple[_Rule, ...]] = {}

    def __call__(self, word: str, after: int = 0) -> str:
        tail = word[-2:]
        rules = self._by_tail.get(tail)
        for place, ending, longer, new, then in self._rules_of(tail) if rules is None else rules:
            if place > after and word.endswith(ending) and len(word) > longer:
                word = word[: -len(ending)] + new
                return self(word, then) if then else word
        return word

    def _rules_of(self, tail: str) -> tuple[_Rule, ...]:
        """The rules that may fit words with these two last letters; kept, since words share few of them."""
        rules = tuple(rule for rule in self._rules if rule[1].endswith(tail) or tail.endswith(rule[1]))
        if len(self._by_tail) < _MOST_TAILS:
            self._by_tail[tail] = rules
        return rules

    @property
    def rows(self) -> np.ndarray:
        """The rules as rows of numbers, for `_apply_rules`."""
        rows = np.zeros((len(self._rules), _LETTERS + 2 * _LONGEST), np.uint16)
        for row, (_, ending, longer, new, then) in zip(rows, self._rules, strict=True):
            text = ending.removeprefix("^")
            row[:_LETTERS] = ending != text, len(text), longer, len(new), then > 0
            row[_LETTERS : _LETTERS + len(text)] = list(map(ord, text))
            row[_LETTERS + _LONGEST : _LETTERS + _LONGEST + len(new)] = list(map(ord, new))
        return rows


_Rule = tuple[int, str, int, str, int]
_MOST_TAILS = 10_000
_LETTERS, _LONGEST = 5, 14
"""Where the letters of a rule begin in its row, and how many it has at most."""


def _by_rules(*steps: _Rules) -> StemAll:
    """A function that applies one list of rules after the other to many words."""
    tables = [step.rows for step in steps]
    rules, ends = np.concatenate(tables), np.cumsum([len(table) for table in tables])
    return lambda words: changed_units(words, lambda *arrays: _apply_rules(rules, ends, *arrays))


@njit("const uint16[:,:], const int64[:], const uint16[:], const int64[:], uint16[:], uint16[:], int64[:]")
def _apply_rules(rules, ends, letters, lengths, word, out, out_lengths):
    """Put words after all steps of rules, the last of which end at `ends`, into `out`, and their lengths.

    Returns how many letters they have. `word`: memory for the longest word and two letters more.
    """
    at = 0
    to = 0
    for i in range(lengths.size):
        n = lengths[i]
        for x in range(n):
            word[x] = letters[at + x]
        at += n
        r = 0
        for step in range(ends.size):
            while r < ends[step]:
                size = np.int64(rules[r, 1])
                first = 0 if rules[r, 0] != 0 else n - size
                if size <= n and n > np.int64(rules[r, 2]) and _has(word, first, size, rules, r):
                    n = _replaced(word, n, first, size, rules, r)
                    if rules[r, 4] == 0:
                        break
                r += 1
            r = ends[step]
        for x in range(n):
            out[to + x] = word[x]
        to += n
        out_lengths[i] = n
    return to


@njit
def _has(word, first, size, rules, r):
    """Whether the letters of a rule stand at a place of a word."""
    for x in range(size - 1, -1, -1):
        if word[first + x] != rules[r, _LETTERS + x]:
            return False
    return size > 0


@njit
def _replaced(word, n, first, size, rules, r):
    """Replace the letters of a rule in a word; returns its new length. What is taken off in front is not replaced."""
    if rules[r, 0] != 0:
        for x in range(size, n):
            word[x - size] = word[x]
        return n - size
    new = np.int64(rules[r, 3])
    for x in range(new):
        word[first + x] = rules[r, _LETTERS + _LONGEST + x]
    return first + new


def _folds(text: str) -> dict[int, str]:
    """A translation table from words such as `aàáâ`: the letters behind the first become the first."""
    return {ord(c): word[0] for word in text.split() for c in word[1:]}


_ROMANCE = "aàáâä oòóôö eèéêë uùúûü iìíîï"


def _german() -> StemAll:
    letters = "bdfghklmnt"
    first = _Rules("ern>5 em>4 en>4 er>4 es>4 e>3 " + " ".join(f"{c}s>3={c}" for c in letters))
    second = _Rules("est>5 er>4 en>4 " + " ".join(f"{c}st>4={c}" for c in letters))
    return _folded("aäàáâ oöòóô iïìíî uüùúû", _by_rules(first, second))


def _folded(letters: str, stem: StemAll, longer: int = 0) -> StemAll:
    """A stemmer to which some letters are one, of words of more than so many letters; see `_folds`."""
    pairs = [(chr(c), new) for c, new in _folds(letters).items()]
    fold = over_all(lambda text: text if text.isascii() else replaced(text, pairs))

    def stem_all(words: Sequence[str]) -> list[str]:
        stems = stem(fold(words))
        return [new if len(word) > longer else word for word, new in zip(words, stems, strict=True)]

    return _by_letters(stem_all)


def _portuguese() -> Stemmer:
    folds = _folds("aàáâäã oòóôöõ eèéêë uùúûü iìíîï cç")
    plural = _Rules(
        "res>4=r ses>4=s les>4=l zes>4=z ns>3=m eis>4=el éis>4=el ais>4=al óis>4=ol is>4=il ões>3=ão ães>3=ão "
        "mente>6 s>3"
    )
    feminine = _Rules(
        "inha>7=inho iaca>7=iaco eira>7=eiro osa>6=oso ica>6=ico ida>6=ido ada>6=ado iva>6=ivo ama>6=amo ona>6=ão "
        "ora>6=or esa>6=ês na>6=no"
    )
    vowels = _Rules("e>4 a>4 o>4")
    return lambda word: vowels(feminine(plural(word))).translate(folds) if len(word) > 3 else word


_FRENCH = """issement>9=ir issant>8=ir ivement>7=if ement>6=e ficatrice>11=fier ficateur>10=fier catrice>9=quer
cateur>8=quer atrice>8=er ateur>7=er trice>6=teur+ ième>5 teuse>7=ter teur>6=ter euse>5=eu ère>8=er ive>7=if folle>4=fou
molle>4=mou nnelle>9=n nnel>9=n ète>4=et+ ique>8+ esse>8=e inage>7=in ualisation>12=uel isation>9 isateur>9 ation>8
ition>8"""


def _french() -> Stemmer:
    plural, rules, folds = _Rules("s>3"), _Rules(_FRENCH), _folds("aàáâ oô eèéê uùû iî cç")

    def stem(word: str) -> str:
        if len(word) > 5 and word[-1] == "x":
            word = word[:-2] + "l" if word[-3:-1] == "au" and word[-4] != "e" else word[:-1]
        if len(word) > 3 and word[-1] == "x":
            word = word[:-1]
        word = rules(plural(word))
        if len(word) <= 4:
            return word
        word = _without_doubles(word.translate(folds))
        if len(word) > 4 and word.endswith("ie"):
            word = word[:-2]
        if len(word) <= 4:
            return word
        word = word.removesuffix("r").removesuffix("e").removesuffix("e")
        return word[:-1] if word[-1] == word[-2] and word[-1].isalpha() else word

    return stem


_DOUBLE = re.compile(r"([^\W\d_])\1+")


def _without_doubles(word: str) -> str:
    return _DOUBLE.sub(lambda m: m[1] if m[1].isalpha() else m[0], word)


_ARABIC_PREFIXES = ("ال", "وال", "بال", "كال", "فال", "لل", "و")
_ARABIC_SUFFIXES = ("ها", "ان", "ات", "ون", "ين", "يه", "ية", "ه", "ة", "ي")
_PERSIAN_SUFFIXES = ("ات", "ان", "ترين", "تر", "يي", "ي", "ها", "\u200c")


def _one_by_one(suffixes: Sequence[str]) -> _Rules:
    """Takes off suffixes, each at most once and in this order, if two letters are left."""
    return _Rules(" ".join(f"{suffix}>{len(suffix) + 1}+" for suffix in suffixes))


def _arabic() -> StemAll:
    prefixes = _Rules(" ".join(f"^{prefix}>{max(len(prefix) + 1, 3)}" for prefix in _ARABIC_PREFIXES))
    return _by_rules(prefixes, _one_by_one(_ARABIC_SUFFIXES))


# Greek


class _GreekStep:
    """A line of the table: an ending is taken off, and put back in part behind some stems."""

    def __init__(self, line: str) -> None:
        endings, back, known, condition = ([*(p.strip() for p in line.split(";")), "", "", ""])[:4]
        self._endings = []
        for text in endings.split():
            ending, _, new = text.removeprefix("^").partition(">")
            self._endings.append((ending, new, len(ending) + (text[0] != "^")))
        self.suffixes = tuple(ending for ending, *_ in self._endings)
        self._back = back
        words = known.split()
        self._words = {w for w in words if w[0] not in "!-"}
        self._tails = tuple(w[1:] for w in words if w[0] == "-")
        self._never = {w[1:] for w in words if w[0] == "!" and w[1] != "-"}
        self._never_tails = tuple(w[2:] for w in words if w[:2] == "!-")
        self._vowels = {"vowel": "αεηιουω", "vowel-not-υ": "αεηιοω"}.get(condition, "")
        self._otherwise = condition == "otherwise"
        self._whole_word = condition == "word"

    def __call__(self, word: str) -> str:
        if self._whole_word and word not in self.suffixes:
            return word
        for ending, new, shortest in self._endings:
            if word.endswith(ending) and len(word) >= shortest:
                stem = word[: len(word) - len(ending)] + new
                return stem + self._back if self._put_back(stem) else stem
        return word

    def _put_back(self, stem: str) -> bool:
        fits = stem in self._words or stem.endswith(self._tails) or (stem != "" and stem[-1] in self._vowels)
        if self._never or self._never_tails:
            fits = fits and stem not in self._never and not stem.endswith(self._never_tails)
        return fits != self._otherwise


def _greek() -> Stemmer:
    steps = [_GreekStep(rest) for key, rest in _lines() if key == "greek"]
    suffixes = tuple({ending for step in steps for ending in step.suffixes})
    common = _longest([*_listed("greek-endings"), *"αεηιουω"], left=1)
    degrees = _longest(_listed("greek-degrees"), left=0)

    def stem(word: str) -> str:
        if len(word) < 4:
            return word
        stemmed = word
        for step in steps:
            if not stemmed.endswith(suffixes):
                break
            stemmed = step(stemmed)
        return degrees(common(stemmed) if len(stemmed) == len(word) else stemmed)

    return stem


# Indonesian

_KE, _PENG, _DI, _MENG, _TER, _BER, _PE = (1 << n for n in range(7))
_FIRST_PREFIXES = (
    # prefix, the letter it leaves before a vowel (None: none is needed), and what it says about suffixes
    ("meng", None, _MENG), ("meny", "s", _MENG), ("men", None, _MENG), ("mem", None, _MENG), ("me", None, _MENG),
    ("peng", None, _PENG), ("peny", "s", _PENG), ("peny", None, _PENG), ("pen", "t", _PENG), ("pen", None, _PENG),
    ("pem", None, _PENG), ("di", None, _DI), ("ter", None, _TER), ("ke", None, _KE),
)  # fmt: skip


def _indonesian_first(word: str) -> tuple[str, int]:
    for prefix, letter, flag in _FIRST_PREFIXES:
        if word.startswith(prefix):
            rest = word[len(prefix) :]
            if letter is None:
                return rest, flag
            if rest[:1] in tuple("aeiou"):
                return letter + rest, flag
    return word, 0


_BER_FORM = re.compile("be[^aeiou]er", re.DOTALL)


def _indonesian_second(word: str) -> tuple[str, int]:
    if word.startswith("ber") or word == "belajar":
        return word[3:], _BER
    if _BER_FORM.match(word):
        return word[2:], _BER
    if word.startswith("per") or word == "pelajar":
        return word[3:], 0
    return (word[2:], _PE) if word.startswith("pe") else (word, 0)


def _indonesian_suffix(word: str, flags: int) -> str:
    if word.endswith("kan") and not flags & (_KE | _PENG | _PE):
        return word[:-3]
    if word.endswith("an") and not flags & (_DI | _MENG | _TER):
        return word[:-2]
    if word.endswith("i") and not word.endswith("si") and not flags & (_BER | _KE | _PENG):
        return word[:-1]
    return word


def _indonesian() -> Stemmer:
    particles, pronouns = _Rules("kah lah pun"), _Rules("ku mu nya")

    def stem(word: str) -> str:
        left = sum(map(word.count, "aeiou")) - 2  # affixes that may go: each counts as one syllable
        for step in (particles, pronouns):
            if left > 0:
                left -= len(word) - len(word := step(word)) > 0
        if left <= 0:
            return word
        stemmed, flags = _indonesian_first(word)
        if stemmed != word:
            left, before = left - 1, stemmed
            if left > 0:
                stemmed = _indonesian_suffix(stemmed, flags)
            left -= stemmed != before
            return _indonesian_second(stemmed)[0] if stemmed != before and left > 0 else stemmed
        stemmed, flags = _indonesian_second(word)
        return _indonesian_suffix(stemmed, flags) if left - (stemmed != word) > 0 else stemmed

    return stem


# Snowball 2.0: Danish, Norwegian, Swedish, Finnish


def _region(word: str, vowels: str, start: int = 0) -> int:
    """Where the letters begin that stand behind a vowel and then a consonant."""
    n = len(word)
    while start < n and word[start] not in vowels:
        start += 1
    while start < n and word[start] in vowels:
        start += 1
    return min(start + 1, n)


def _in_region(endings: Collection[str]) -> Callable[[str, int], str]:
    """A function that finds the longest of some endings that lies in the region of a word."""
    sizes = sorted(set(map(len, endings)), reverse=True)
    known = frozenset(endings)

    def find(word: str, region: int) -> str:
        for n in sizes:
            if len(word) - n >= region and word[len(word) - n :] in known:
                return word[len(word) - n :]
        return ""

    return find


def _scandinavian(
    endings: str, s_letters: str, pairs: str, others: str, shortened: Sequence[str] = (), *, k: bool = False
) -> tuple[Callable[[str, int], str], Callable[[str, int], str], Callable[[str, int], str]]:
    """The three steps of Danish, Norwegian and Swedish: main endings, pairs of consonants, other endings."""
    main, pair, other = (_in_region(e.split()) for e in (endings + " s", pairs, others))

    def main_ending(word: str, region: int) -> str:
        found = main(word, region)
        if found == "s":
            before = word[-2:-1]
            fits = before != "" and before in s_letters
            fits = fits or (k and before == "k" and word[-3:-2] not in ("", *_NORDIC_VOWELS))
            return word[:-1] if fits else word
        if found in ("erte", "ert") and k:
            return word[: -len(found)] + "er"
        return word[: len(word) - len(found)]

    def pair_of_consonants(word: str, region: int) -> str:
        return word[:-1] if pair(word, region) else word

    def other_ending(word: str, region: int) -> str:
        found = other(word, region)
        return word[:-1] if found in shortened and found else word[: len(word) - len(found)]

    return main_ending, pair_of_consonants, other_ending


_NORDIC_VOWELS = "aeiouyæåø"
_DANISH = """hed ethed ered e erede ende erende ene erne ere en heden eren er heder erer heds es endes erendes enes
ernes eres ens hedens erens ers ets erets et eret"""
_NORWEGIAN = """a e ede ande ende ane ene hetene en heten ar er heter as es edes endes enes hetenes ens hetens ers ets
et het ast erte ert"""
_SWEDISH = """a arna erna heterna orna ad e ade ande arne are aste en anden aren heten ern ar er heter or as arnas ernas
ornas es ades andes ens arens hetens erns at andet het ast"""


def _nordic_region(word: str, vowels: str) -> int:
    return max(_region(word, vowels), 3) if len(word) >= 3 else len(word)


def _danish() -> Stemmer:
    main, pair, other = _scandinavian(_DANISH, "abcdfghjklmnoprtvyzå", "gd dt gt kt", "ig lig elig els løst", ["løst"])

    def stem(word: str) -> str:
        region = _nordic_region(word, _NORDIC_VOWELS)
        word = pair(main(word, region), region)
        if word.endswith("igst"):
            word = word[:-2]
        shorter = other(word, region)
        if shorter != word and not word.endswith("løst"):
            shorter = pair(shorter, region)
        last = shorter[-1:]
        doubled = len(shorter) > max(region, 1) and last in "bcdfghjklmnpqrstvwxz" and shorter[-2] == last
        return shorter[:-1] if doubled else shorter

    return stem


def _norwegian() -> Stemmer:
    main, pair, other = _scandinavian(
        _NORWEGIAN, "bcdfghjlmnoprtvyz", "dt vt", "leg eleg ig eig lig elig els lov elov slov hetslov", k=True
    )

    def stem(word: str) -> str:
        region = _nordic_region(word, _NORDIC_VOWELS)
        return other(pair(main(word, region), region), region)

    return stem


def _swedish() -> Stemmer:
    main, pair, other = _scandinavian(
        _SWEDISH, "bcdfghjklmnoprtvy", "dd gd nn dt gt kt tt", "lig ig els öst fullt", ["öst", "fullt"]
    )

    def stem(word: str) -> str:
        region = _nordic_region(word, "aeiouyäåö")
        word = pair(main(word, region), region)
        return word if word.endswith("öst") and word[-4:-3] not in tuple("iklnprtuv") else other(word, region)

    return stem


_FINNISH_LONG = ("aa", "ee", "ii", "oo", "uu", "ää", "öö")
_FINNISH_I = tuple(f"{v}i" for v in "aeiouäö")
_FINNISH_ILLATIVES = {"han": "a", "hen": "e", "hin": "i", "hon": "o", "hän": "ä", "hön": "ö"}
_FINNISH_POSSESSIVES = {
    "an": ("ta", "ssa", "sta", "lla", "lta", "na"), "än": ("tä", "ssä", "stä", "llä", "ltä", "nä"),
    "en": ("lle", "ine"),
}  # fmt: skip
_FINNISH_CASES = """n a ä tta ttä ta tä ssa ssä sta stä lla llä lta ltä lle na nä ksi ine han hen hin hon hän hön"""
_FINNISH_GUARDED = {"siin": _FINNISH_I, "tten": _FINNISH_I, "seen": _FINNISH_LONG, "den": _FINNISH_I}


class _Finnish:
    _vowels, _consonants = "aeiouyäö", "bcdfghjklmnpqrstvwxz"

    def __init__(self) -> None:
        self._particle = _in_region(["kin", "kaan", "kään", "ko", "kö", "han", "hän", "pa", "pä", "sti"])
        self._possessive = _in_region(["si", "ni", "nsa", "nsä", "mme", "nne", "an", "än", "en"])
        self._case = _in_region(_FINNISH_CASES.split())
        self._other = _in_region(
            ["mpi", "mpa", "mpä", "mmi", "mma", "mmä", "impi", "impa", "impä", "immi", "imma", "immä", "eja", "ejä"]
        )
        self._plural = _in_region(["mma", "imma"])

    def __call__(self, word: str) -> str:
        p1 = _region(word, self._vowels)
        p2 = _region(word, self._vowels, p1)
        word = self._without_possessive(self._without_particle(word, p1, p2), p1)
        shorter = self._without_case(word, p1)
        case_removed = shorter != word
        word = self._without(shorter, self._other(shorter, p2))
        word = self._without_i(word, p1) if case_removed else self._without_t(word, p1, p2)
        return self._tidy(word, p1)

    def _without(self, word: str, ending: str) -> str:
        """Without an ending, unless po- stands before a form of -mma or -mpa."""
        if ending[:1] == "m" and word[: len(word) - len(ending)].endswith("po"):
            return word
        return word[: len(word) - len(ending)]

    def _without_particle(self, word: str, p1: int, p2: int) -> str:
        found = self._particle(word, p1)
        stem = word[: len(word) - len(found)]
        if found == "sti":
            return stem if len(stem) >= p2 else word
        return stem if stem[-1:] in tuple(self._vowels + "nt") else word

    def _without_possessive(self, word: str, p1: int) -> str:
        found = self._possessive(word, p1)
        stem = word[: len(word) - len(found)]
        if found == "si":
            return word if stem.endswith("k") else stem
        if found == "ni":
            return stem[:-3] + "ksi" if stem.endswith("kse") else stem
        if found in _FINNISH_POSSESSIVES:
            return stem if stem.endswith(_FINNISH_POSSESSIVES[found]) else word
        return stem

    def _without_case(self, word: str, p1: int) -> str:
        for ending, guard in _FINNISH_GUARDED.items():
            stem = word[: -len(ending)]
            if word.endswith(ending) and len(stem) >= p1 and stem.endswith(guard):
                return stem
        found = self._case(word, p1)
        stem = word[: len(word) - len(found)]
        if found in _FINNISH_ILLATIVES:
            return stem if stem.endswith(_FINNISH_ILLATIVES[found]) else word
        if found == "n":
            return stem[:-1] if stem.endswith((*_FINNISH_LONG, "ie")) else stem
        if found in ("a", "ä"):
            fits = len(stem) > 1 and stem[-1] in self._vowels and stem[-2] in self._consonants
            return stem if fits else word
        if found in ("tta", "ttä"):
            return stem if stem.endswith("e") else word
        return stem

    def _without_i(self, word: str, p1: int) -> str:
        return word[:-1] if len(word) > p1 and word[-1] in "ij" else word

    def _without_t(self, word: str, p1: int, p2: int) -> str:
        if len(word) - 1 > p1 and word[-1] == "t" and word[-2] in self._vowels:
            word = word[:-1]
            return self._without(word, self._plural(word, p2))
        return word

    def _tidy(self, word: str, p1: int) -> str:
        if len(word) < p1:
            return word
        if len(word) - 2 >= p1 and word.endswith(_FINNISH_LONG):
            word = word[:-1]
        if len(word) - 2 >= p1 and word[-1] in "aäei" and word[-2] in self._consonants:
            word = word[:-1]
        if len(word) - 2 >= p1 and word.endswith(("oj", "uj")):
            word = word[:-1]
        if len(word) - 2 >= p1 and word.endswith("jo"):
            word = word[:-1]
        last = len(word.rstrip(self._vowels)) - 1
        if last > 0 and word[last] in self._consonants and word[last - 1] == word[last]:
            word = word[:last] + word[last + 1 :]
        return word


_STEMMERS: dict[str, Callable[[], Stemmer]] = {
    "danish": _danish, "finnish": _Finnish, "french": _french, "greek": _greek, "indonesian": _indonesian,
    "norwegian": _norwegian, "portuguese": _portuguese, "swedish": _swedish,
}  # fmt: skip
_BY_RULES: dict[str, Callable[[], StemAll]] = {
    "arabic": _arabic,
    "bengali": lambda: _by_rules(_longest(_listed("bengali"))),
    "german": _german,
    "hindi": lambda: _by_rules(_longest(_listed("hindi"))),
    "italian": lambda: _folded(_ROMANCE, _by_rules(_Rules("ie he e hi ii i ia a io o")), 5),
    "persian": lambda: _by_rules(_one_by_one(_PERSIAN_SUFFIXES)),
    "spanish": lambda: _folded(_ROMANCE, _by_rules(_Rules("o a e eses=es ces=z os as es")), 4),
    "telugu": lambda: _by_rules(_longest(_listed("telugu"))),
}
"""Stemmers that are lists of endings and nothing else."""
