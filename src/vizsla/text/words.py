"""Where words begin and end: the segmenters of Vizsla, each a table of character classes and an automaton.

`standard` follows Unicode's word boundaries (UAX #29) with emoji sequences (UTS #51) exactly as Lucene's
StandardTokenizer does, whose rules differ from the annex in a few points: underscores may lead a word only when
a letter or digit follows, runs of Thai, Lao, Khmer and Burmese stay whole, and no word exceeds 255 UTF-16 units.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from vizsla.lazy import cached_property
from vizsla.text.automaton import Automaton, Expression, Symbol, compile_expression

CODE_POINTS = 0x110000
PLAIN = 128
"""Code points below it, those of ASCII, have a table of their own."""
LUCENE_LONGEST_WORD = 255
ENDLESS = 1 << 40

_PLAIN_MARKS = ("Extend", "ComplexExtend", "Joiner", "Keycap", "EmojiModifier", "Tag", "TagEnd")
MARKS = (*_PLAIN_MARKS, "TextSelector", "EmojiSelector")
"""The classes of characters that belong to the character before them."""


@dataclass(frozen=True, eq=False)
class Segmenter:
    """Cuts text into the longest pieces an automaton accepts; whatever fits none is skipped.

    `classes[code point]` is the class of a character; a piece is at most `longest` UTF-16 units long.
    """

    classes: np.ndarray
    automaton: Automaton
    longest: int

    @cached_property
    def plain(self) -> np.ndarray:
        """`plain[state, code point]` is the next state, for code points below PLAIN."""
        return np.ascontiguousarray(self.automaton.transitions[:, self.classes[:PLAIN]])


@cache
def word_classes() -> tuple[np.ndarray, dict[str, int]]:
    """Each code point's class for the standard rules, and the classes' numbers by name (0: breaks words)."""
    table = np.zeros(CODE_POINTS, dtype=np.uint8)
    numbers: dict[str, int] = {}
    source = resources.files("vizsla.text").joinpath("data/word_classes.txt").read_text("ascii")
    for line in source.splitlines():
        if line.startswith("#"):
            continue
        name, *ranges = line.split()
        numbers[name] = len(numbers) + 1
        for part in ranges:
            first, _, last = part.partition("-")
            table[int(first, 16) : int(last or first, 16) + 1] = numbers[name]
    return table, numbers


@cache
def standard() -> Segmenter:
    """Words as Lucene's StandardTokenizer finds them."""
    table, numbers = word_classes()
    expression = _standard_rules(numbers)
    return Segmenter(table, compile_expression(expression, len(numbers) + 1), LUCENE_LONGEST_WORD)


@cache
def persian() -> Segmenter:
    """Words of the standard rules, cut at a zero-width non-joiner, which stands between parts of Persian words."""
    plain = standard()
    classes = plain.classes.copy()
    classes[0x200C] = 0
    return Segmenter(classes, plain.automaton, plain.longest)


def _has_class(*names: str) -> np.ndarray:
    """For each class whether it is one of these."""
    numbers = word_classes()[1]
    found = np.zeros(len(numbers) + 1, np.bool_)
    found[[numbers[name] for name in names]] = True
    return found


@cache
def is_unspaced_class() -> np.ndarray:
    """For each class of characters whether it is of a script without spaces: Thai, Lao, Khmer or Burmese."""
    return _has_class("Complex", "ComplexExtend")


@cache
def is_cjk_class() -> np.ndarray:
    """For each class of characters whether it is of a Chinese, Japanese or Korean script."""
    return _has_class("Han", "Hiragana", "Katakana", "Hangul")


def is_unspaced(word: str) -> bool:
    """Whether a word of the standard rules is a run of a script without spaces."""
    return bool(is_unspaced_class()[word_classes()[0][ord(word[0])]])


def _standard_rules(numbers: dict[str, int]) -> Expression:
    def any_of(*names: str) -> Symbol:
        return Symbol(frozenset(numbers[name] for name in names))

    extended = any_of(*MARKS).star()  # rule WB4 of the annex
    extended_unselected = any_of(*_PLAIN_MARKS).star()

    letter_like = any_of("Letter", "HebrewLetter", "Hangul", "EmojiLetter") + extended
    hebrew = any_of("HebrewLetter") + extended
    number_like = any_of("Digit", "Numeric") + extended
    katakana = any_of("Katakana") + extended
    between_letters = any_of("MidLetter", "MidNumLet", "SingleQuote") + extended
    between_numbers = any_of("MidNum", "MidNumLet", "SingleQuote") + extended
    connector = any_of("ExtendNumLet") + extended
    single_quote, double_quote = any_of("SingleQuote") + extended, any_of("DoubleQuote") + extended

    run = (katakana + (connector.star() + katakana).star()) | (
        (hebrew + (single_quote | (double_quote + hebrew)))
        | (number_like + ((connector.star() | between_numbers) + number_like).star())
        | (letter_like + ((connector.star() | between_letters) + letter_like).star())
    ).plus()
    word = connector.star() + run + (connector.plus() + run).star() + connector.star()

    complex_run = (any_of("Complex", "ComplexExtend") + extended).plus()
    ideograph = any_of("Han", "Hiragana") + extended

    joiner, emoji_selector = any_of("Joiner"), any_of("EmojiSelector")
    emoji_character = any_of("Emoji", "EmojiLetter") + extended_unselected
    modifier = any_of("EmojiModifier") + extended_unselected
    emoji = (joiner.star() + emoji_character + emoji_selector.maybe()) | (
        (joiner.star() + emoji_character).maybe() + modifier
    )
    emoji_sequence = emoji + ((joiner + emoji).star() | (any_of("Tag").plus() + any_of("TagEnd")))
    keycap = any_of("Digit", "KeycapBase") + extended_unselected + emoji_selector.maybe()
    keycap = keycap + any_of("Keycap") + extended_unselected
    flag_half = any_of("RegionalIndicator") + extended
    return word | complex_run | ideograph | emoji_sequence | keycap | (flag_half + flag_half)


@cache
def identifiers() -> Segmenter:
    """Names in source code: letters and digits, joined by underscores, or by a hyphen between letters.

    Other words are as in the standard rules, but a full stop or an apostrophe ends one: `user.fetchData` is two.
    """
    plain, numbers = word_classes()
    classes = plain.copy()
    letters = {numbers[name] for name in ("Letter", "HebrewLetter", "EmojiLetter", "Hangul", "Katakana")}
    hyphen = len(numbers) + 1
    classes[ord("-")] = hyphen

    def any_of(*names: str) -> Symbol:
        return Symbol(frozenset(numbers[name] for name in names))

    extended = any_of(*MARKS).star()
    letter = Symbol(frozenset(letters)) + extended
    character = Symbol(frozenset({*letters, numbers["Digit"], numbers["Numeric"]})) + extended
    name = character + (any_of("ExtendNumLet").star() + character).star()
    named = letter + (any_of("ExtendNumLet").star() + character).star()
    rules = name + (Symbol(frozenset({hyphen})) + named).star()
    rules = rules | (any_of("Han", "Hiragana") + extended) | (any_of("Complex", "ComplexExtend") + extended).plus()
    return Segmenter(classes, compile_expression(rules, hyphen + 1), LUCENE_LONGEST_WORD)


@cache
def whitespace() -> Segmenter:
    """Runs of anything that Python does not count as white space."""
    table = np.zeros(CODE_POINTS, dtype=np.uint8)
    table[[c for c in range(0x3001) if chr(c).isspace()]] = 1
    return Segmenter(table, compile_expression(Symbol(frozenset([0])).plus(), 2), ENDLESS)


@cache
def java_whitespace() -> Segmenter:
    """Runs of anything that Java does not count as white space, at most 255 units long."""
    plain = whitespace()
    classes = plain.classes.copy()
    classes[[0x85, 0xA0, 0x2007, 0x202F]] = 0
    return Segmenter(classes, plain.automaton, LUCENE_LONGEST_WORD)


_WITH_ACCENT = {";": "\u037e", "`": "\u1fef", "=": "\u2260", "<": "\u226e", ">": "\u226f"}
"""What becomes ASCII punctuation where accents are taken off."""


@cache
def bert_pieces(openers: frozenset[str] = frozenset("[")) -> Segmenter:
    """Pieces whose word pieces do not depend on their neighbours, for tokenizers of BERT's kind.

    Cut at ASCII white space and around ASCII punctuation. From an opener on, a piece runs to the next white space,
    because an added token such as [SEP] must reach the tokenizer whole. A character that becomes an opener when accents
    are removed is treated alike, but there is no cut before it, since it may also belong to the word.
    """
    other, space, punctuation, opener, accented = range(5)
    table = np.zeros(CODE_POINTS, dtype=np.uint8)
    table[[ord(c) for c in " \t\n\r"]] = space
    table[[c for c in range(33, 127) if not chr(c).isalnum()]] = punctuation
    table[[ord(c) for c in openers]] = opener
    table[[ord(c) for plain, c in _WITH_ACCENT.items() if plain in openers]] = accented
    table[0xD800:0xE000] = table[ord("?")]  # which lone surrogates are replaced by
    word, rest = Symbol(frozenset([other])), Symbol(frozenset([other, punctuation, opener, accented])).star()
    rules = (
        (word.plus() + (Symbol(frozenset([accented])) + rest).maybe())
        | Symbol(frozenset([punctuation]))
        | (Symbol(frozenset([opener, accented])) + rest)
    )
    return Segmenter(table, compile_expression(rules, 5), ENDLESS)
