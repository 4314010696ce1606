r"""The query language, for users of Lucene and Elasticsearch: a text becomes a tree of clauses.

cats dogs              documents with one of the words; both count
+cats -dogs            must have, must not have
cats AND NOT dogs      the same; OR is the default between words
"big dogs"  "big dogs"~2   a phrase; with up to two words in between or moved
title:dogs  lang:en    a word in a field that the model reads; a value of any other field
dogs^2  (big dogs)^0.5 a word that counts twice as much, a group that counts half
retriev*  dgos~1       words with this prefix; words within one or two edits
title:(+big dogs)      parentheses make one clause of several
\+ \: \"               a backslash escapes a character

`typing` is another, for a query that is still being typed: plain words, the last of which may be half typed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

from vizsla.errors import UnknownNameError, VizslaError, kind_of
from vizsla.harmless import harmless

LUCENE, TYPING = SYNTAXES = ("lucene", "typing")
"""The names of query languages."""
MAX_CLAUSES = 1024  # as in Lucene
MAX_DEPTH = 50  # of parentheses in one another
MAX_SLOP = 1000
MAX_PHRASE = 256  # terms
MAX_BOOST = 1e6
_TOO_MUCH = f"a word counts at most {MAX_BOOST:,.0f} times as much"
SHOULD, MUST, MUST_NOT = "should", "must", "must_not"

_SIGNS = '()"^~*?:[]{}'
_OPERATOR = re.compile(r"(AND|OR)(?=[\s(\"]|$)|&&|\|\|")
_NOT = re.compile(r"NOT(?=[\s(\"]|$)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?|\.\d+")
_WHOLE = re.compile(r"\d+(?!\.?\d)")
_IN_QUOTES = re.compile(r'[^"\\]+')
_IN_A_WORD = re.compile(r'[^()"^~*?:\[\]{}\\\s]+')
_SHOWN = 60  # characters of a query around the place of a mistake


class QuerySyntaxError(VizslaError):
    """A query that cannot be parsed; the message shows where, and `position` is the character, counted from 0."""

    has_lines = True

    def __init__(self, problem: str, query: str, position: int) -> None:
        super().__init__(f"{problem}\n{_with_caret(query, position)}")
        self.problem = problem
        self.query = query
        self.position = position


@dataclass(frozen=True)
class Leaf:
    """What a clause looks for in the documents."""

    text: str
    """What was typed, without signs and backslashes."""
    position: int
    """Where it begins in the query."""
    field: str | None = None
    boost: float = 1.0

    def scaled(self, factor: float) -> Leaf:
        """The same with its boost multiplied by a factor."""
        return replace(self, boost=self.boost * factor)

    def within(self, field: str) -> Leaf:
        """The same in a field, unless it names one itself."""
        return self if self.field is not None else replace(self, field=field)


class Word(Leaf):
    """A word; the analyzer may make several terms of it, of which a document must have one."""


@dataclass(frozen=True)
class Phrase(Leaf):
    """Words in their order; they may be moved by at most `slop` positions in total."""

    slop: int = 0


class Prefix(Leaf):
    """All terms with a prefix, and the term of the prefix itself."""


class HalfTyped(Prefix):
    """A word that may go on: the most frequent terms with this prefix, and the term of the word itself."""


@dataclass(frozen=True)
class Fuzzy(Leaf):
    """All terms at most `edits` letters away: inserted, left out, replaced, or swapped with the next."""

    edits: int = 2


@dataclass(frozen=True)
class Clause:
    """A part of a query, and whether documents should, must or must not meet it."""

    occur: str
    node: Leaf | Group


@dataclass(frozen=True)
class Group:
    """Clauses. A document matches if it matches all `must` clauses, no `must_not` clause and, without `must` clauses,
    at least one `should` clause.
    """

    clauses: tuple[Clause, ...]

    def scaled(self, factor: float) -> Group:
        """The same with its boost multiplied by a factor."""
        return Group(tuple(replace(c, node=c.node.scaled(factor)) for c in self.clauses))

    def within(self, field: str) -> Group:
        """The same in a field, where none is named."""
        return Group(tuple(replace(c, node=c.node.within(field)) for c in self.clauses))

    def leaves(self) -> Iterator[Leaf]:
        """What counts for the score, from left to right: all that is not excluded."""
        for clause in self.clauses:
            if clause.occur != MUST_NOT:
                yield from clause.node.leaves() if isinstance(clause.node, Group) else [clause.node]

    @property
    def plain_text(self) -> str:
        """The words without signs, for models that read a query as a text.

        >>> parse_query('+"big dogs" -cats retriev*').plain_text
        'big dogs retriev'
        """
        return " ".join(leaf.text for leaf in self.leaves())


def check_syntax(name: object) -> str | None:
    """The name of a query language, or None for none; anything else is refused."""
    if name is None:
        return None
    if not isinstance(name, str):
        raise VizslaError(f"syntax is a text, as in 'lucene', not {kind_of(name)}")
    if name not in SYNTAXES:
        raise UnknownNameError("syntax", name, SYNTAXES)
    return name


_ONLY_A_PHRASE = re.compile(r'"([^"\\]*)"')  # nothing to parse, and often asked


def parse_query(text: str, syntax: str = LUCENE) -> Group:
    """The clauses of a query in one of the languages; a mistake is shown in its place.

    >>> [(c.occur, type(c.node).__name__, c.node.text) for c in parse_query('+cats "big dogs"~2 -title:fish').clauses]
    [('must', 'Word', 'cats'), ('should', 'Phrase', 'big dogs'), ('must_not', 'Word', 'fish')]
    >>> parse_query('cats (big dogs')
    Traceback (most recent call last):
    ...
    vizsla.runs.query_language.QuerySyntaxError: this parenthesis is not closed; add ) where the group ends
      cats (big dogs
           ^
    """
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise QuerySyntaxError("half a surrogate pair cannot be read; leave it out", text, e.start) from None
    if syntax == TYPING:
        return _half_typed(text)
    phrase = _ONLY_A_PHRASE.fullmatch(text)
    return _Parser(text).parse() if phrase is None else Group((Clause(SHOULD, Phrase(phrase[1], 0)),))


def _half_typed(text: str) -> Group:
    """Plain words, and the last one, unless something stands after it."""
    at = _start_of_last_word(text)
    leaves: list[Leaf] = [Word(text[:at], 0)] if text[:at].strip() or at == len(text) else []
    if at < len(text):
        leaves.append(HalfTyped(text[at:], at))
    return Group(tuple(Clause(SHOULD, leaf) for leaf in leaves))


def _start_of_last_word(text: str) -> int:
    """Where the word begins that a text ends in; its end if it ends in no word.

    >>> _start_of_last_word("big dogs'"), _start_of_last_word("dogs ")
    (4, 5)
    """
    at = len(text)
    while at and (text[at - 1] in "'\u2019" or unicodedata.category(text[at - 1])[0] in "LNM"):
        at -= 1
    while at < len(text) and not text[at].isalnum():  # a quote or an accent begins no word
        at += 1
    return at


class _Parser:
    """Reads a query from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._count = 0

    def parse(self) -> Group:
        group = self._group(0, 0)
        if group is None:
            self._fail("the query is empty; give at least one word", 0)
        for leaf in group.leaves():  # the boosts of groups multiply
            if leaf.boost > MAX_BOOST:
                self._fail(_TOO_MUCH, leaf.position)
        return group

    def _fail(self, problem: str, at: int | None = None) -> NoReturn:
        raise QuerySyntaxError(problem, self._text, self._at if at is None else at)

    def _skip_blanks(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    @property
    def _next(self) -> str:
        """The next character; empty at the end."""
        return self._text[self._at : self._at + 1]

    def _take(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]

    def _group(self, depth: int, start: int) -> Group | None:
        """Clauses up to the end, or to the parenthesis that closes them; None if there are none."""
        clauses: list[Clause] = []
        while True:
            self._skip_blanks()
            if not self._next or (self._next == ")" and depth):
                break
            before, operator = self._at, self._take(_OPERATOR)
            self._count += 1
            if self._count > MAX_CLAUSES:
                self._fail(f"a query has at most {MAX_CLAUSES:,} words, phrases and groups", before)
            if operator is not None:
                if not clauses:
                    self._fail(f"{operator} needs a word before it; put quotation marks around it to search it", before)
                self._skip_blanks()
                if not self._next or self._next == ")":
                    self._fail(f"{operator} needs a word after it", before)
            both = operator in ("AND", "&&")
            if both and clauses[-1].occur == SHOULD:
                clauses[-1] = replace(clauses[-1], occur=MUST)
            occur = self._modifier() or (MUST if both else SHOULD)
            clauses.append(Clause(occur, self._atom(depth)))
        if clauses and all(clause.occur == MUST_NOT for clause in clauses):
            self._fail("everything here is excluded; add what documents should have", start)
        return Group(tuple(clauses)) if clauses else None

    def _modifier(self) -> str | None:
        """What stands before a clause: +, -, ! or NOT."""
        start = self._at
        if self._next and self._next in "+-!":
            sign = self._next
            self._at += 1
            if not self._next or self._next.isspace() or self._next == ")":
                self._fail(
                    f"{sign} stands right before a word, a phrase or a group; write \\{sign} for a plain {sign}", start
                )
            return MUST if sign == "+" else MUST_NOT
        if self._take(_NOT) is None:
            return None
        self._skip_blanks()
        if not self._next or self._next == ")":
            self._fail("NOT needs a word after it", start)
        return MUST_NOT

    def _atom(self, depth: int, field: str | None = None) -> Leaf | Group:
        """A word, a phrase or a group, with its boost."""
        start, sign = self._at, self._next
        node: Leaf | Group
        if sign == "(":
            node = self._parenthesis(depth)
        elif sign == '"':
            node = self._phrase()
        elif sign in _SIGNS:
            self._fail_at_sign(sign)
        else:
            word = self._until(_IN_A_WORD)
            if self._next == ":" and field is None:
                return self._in_field(word, start, depth)
            node = self._suffixed(word, start)
        if field is not None:
            node = node.within(field)
        if self._next == "^":
            node = node.scaled(self._boost())
        if self._next and self._next in "^~*?:":
            self._fail_at_sign(self._next)
        return node

    def _in_field(self, name: str, start: int, depth: int) -> Leaf | Group:
        self._at += 1
        self._skip_blanks()
        if not self._next or self._next == ")":
            self._fail(f"{harmless(name)}: needs a word after it; write \\: for a plain colon", start)
        node = self._atom(depth, name)
        return replace(node, position=start) if isinstance(node, Leaf) else node

    def _fail_at_sign(self, sign: str) -> NoReturn:
        problems = {
            "[": "ranges are not supported in queries; give a filter, as in year >= 1999",
            ")": "this parenthesis closes nothing; remove it, or add ( before it",
            "*": "* stands at the end of a word and finds what begins with it",
            "?": "? is not supported; * at the end of a word finds what begins with it, and \\? is a plain ?",
            ":": "a colon stands between a field and one word; write \\: for a plain colon",
            "^": "^ stands once after a word, a phrase or a group, with a number, as in dogs^2",
            "~": "~ stands once after a word or a phrase, as in dgos~1",
        }
        problems |= dict.fromkeys("]{}", problems["["])
        self._fail(problems[sign])

    def _parenthesis(self, depth: int) -> Group:
        start = self._at
        if depth == MAX_DEPTH:
            self._fail(f"parentheses are at most {MAX_DEPTH} deep")
        self._at += 1
        group = self._group(depth + 1, start)
        if not self._next:
            self._fail("this parenthesis is not closed; add ) where the group ends", start)
        if group is None:
            self._fail("there is nothing between these parentheses", start)
        self._at += 1
        return group

    def _phrase(self) -> Phrase:
        start = self._at
        self._at += 1
        text = self._until(_IN_QUOTES)
        if not self._next:
            self._fail("this quotation mark is not closed; add another where the phrase ends", start)
        self._at += 1
        return Phrase(text, start, slop=self._slop())

    def _slop(self) -> int:
        if self._next != "~":
            return 0
        self._at += 1
        number = self._take(_WHOLE)
        if number is None:
            self._fail('~ after a phrase needs a whole number of steps, as in "big dogs"~2')
        if len(number) > 9 or int(number) > MAX_SLOP:
            self._fail(f"a phrase has at most {MAX_SLOP:,} steps", self._at - len(number))
        return int(number)

    def _suffixed(self, word: str, start: int) -> Leaf:
        """A word with what stands after it."""
        if self._next == "*":
            self._at += 1
            if self._next and not self._next.isspace() and self._next not in ")^":
                self._fail("* stands only at the end of a word", self._at - 1)
            return Prefix(word, start)
        if self._next != "~":
            return Word(word, start)
        self._at += 1
        number = self._take(_NUMBER)
        if number not in (None, "1", "2"):
            self._fail("a word is found at 1 or 2 edits, as in dgos~1", self._at - len(number or ""))
        return Fuzzy(word, start, edits=2 if number is None else int(number))

    def _boost(self) -> float:
        self._at += 1
        number = self._take(_NUMBER)
        if number is None:
            self._fail("^ needs a number after it, as in dogs^2")
        if float(number) > MAX_BOOST:
            self._fail(_TOO_MUCH, self._at - len(number))
        return float(number)

    def _until(self, plain: re.Pattern[str]) -> str:
        """The following plain and escaped characters, unescaped; `plain` matches those that need no backslash."""
        taken = [self._take(plain) or ""]
        while self._next == "\\":
            self._at += 1
            if not self._next:
                self._fail("a backslash escapes the character after it, and there is none", self._at - 1)
            taken.append(self._next)
            self._at += 1
            taken.append(self._take(plain) or "")
        return "".join(taken)


def _with_caret(query: str, position: int) -> str:
    """The query on one line, and below it a mark at a place; of a long one the part around it."""
    first = max(0, position - _SHOWN)
    front, back = "…" if first else "", "…" if position + _SHOWN < len(query) else ""
    before = front + harmless(query[first:position])
    blank = " " * sum(_columns(character) for character in before)
    return f"  {before}{harmless(query[position : position + _SHOWN])}{back}\n  {blank}^"


def _columns(character: str) -> int:
    """How many columns of a terminal a character takes."""
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
