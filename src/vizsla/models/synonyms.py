"""Synonyms from a file in Solr's format: words that a query finds documents by, besides its own."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.models.bm25 import BM25, BM25_OPTIONS, EXPANDERS, ExpandedBM25, QueryExpander
from vizsla.models.components import SearchContext
from vizsla.models.model import MODELS
from vizsla.models.statistics import Statistics
from vizsla.numbers import short
from vizsla.plain_data import fields_from_data
from vizsla.spec import Option
from vizsla.text import Analyzer

Terms = tuple[str, ...]
_MAX_TABLES = 64  # one for each analyzer of an index of several languages


class Rule(NamedTuple):
    """A line of a file of synonyms: what a query may say, and what it then stands for."""

    left: tuple[str, ...]
    right: tuple[str, ...]


class Match(NamedTuple):
    """Terms of a query, from `start` to `end`, that have synonyms."""

    start: int
    end: int
    keeps: bool
    """Whether the typed terms count as well, rather than being replaced."""
    synonyms: tuple[Terms, ...]


class Phrase(NamedTuple):
    """Terms and their places relative to the first."""

    terms: list[str]
    offsets: list[int]


class _Table(NamedTuple):
    """The rules as one analyzer reads them: the synonyms of terms, and how many terms have some together at most."""

    synonyms: Mapping[Terms, tuple[Terms, ...]]
    longest: int


@dataclass(frozen=True)
class Synonyms(QueryExpander):
    """Synonyms of a query's words, from a file.

    A typed word keeps its weight. A synonym weighs what the most frequent of the words weighs that stand for one
    another, so that a rare one does not count most; the words of a synonym of several words share its weight. A word
    that the query has anyway is not added again. Both sides of a rule are read by the analyzer of the index.

    >>> synonyms = Synonyms(parse_synonyms(["car, automobile, motor car", "teh => the"]))
    >>> analyzer = BM25().text_analyzer
    >>> [(match.keeps, match.synonyms) for match in synonyms.matches(analyzer("cars of Paris"), analyzer)]
    [(True, (('automobil',), ('motor', 'car')))]
    """

    rules: tuple[Rule, ...]
    name: str = "synonyms"
    _tables: dict[str, _Table] = field(default_factory=dict, init=False, repr=False, compare=False)

    kind: ClassVar[str] = "synonyms"

    @classmethod
    def read(cls, file: str | Path) -> Synonyms:
        """The synonyms in a file; a line that cannot be read is named."""
        try:
            text = Path(file).read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InputError("this file of synonyms is not text in UTF-8", file=str(file)) from None
        except OSError as e:
            raise InputError(f"the synonyms cannot be read ({e.strerror})", file=str(file)) from None
        return cls(parse_synonyms(text.replace("\r\n", "\n").split("\n"), str(file)))

    def matches(self, terms: Sequence[str], analyzer: Analyzer) -> list[Match]:
        """The terms that have synonyms, from left to right; of several that begin at one place the longest."""
        table, found, at = self._table(analyzer), [], 0
        while at < len(terms):
            for size in range(min(table.longest, len(terms) - at), 0, -1):
                own = tuple(terms[at : at + size])
                if (others := table.synonyms.get(own)) is not None:
                    found.append(Match(at, at + size, own in others, tuple(o for o in others if o != own)))
                    at += size
                    break
            else:
                at += 1
        return found

    def _table(self, analyzer: Analyzer) -> _Table:
        name = str(analyzer)
        table = self._tables.get(name)
        if table is None:
            if len(self._tables) >= _MAX_TABLES:
                self._tables.clear()
            table = self._tables[name] = self._read_by(analyzer)
        return table

    def _read_by(self, analyzer: Analyzer) -> _Table:
        """The rules as an analyzer reads them; a side without a term, such as a stop word, is left out."""
        found: dict[Terms, dict[Terms, None]] = {}
        for rule in self.rules:
            read = {text: tuple(analyzer(text)) for text in dict.fromkeys((*rule.left, *rule.right))}
            right = dict.fromkeys(read[text] for text in rule.right if read[text])
            for text in rule.left:
                if read[text] and right.keys() != {read[text]}:
                    found.setdefault(read[text], {}).update(right)
        synonyms = {left: tuple(right) for left, right in found.items() if right}
        return _Table(synonyms, max(map(len, synonyms), default=0))

    def query_terms(
        self, texts: Sequence[str], bm25: BM25, context: SearchContext | None = None
    ) -> list[dict[str, float]]:
        """The weighted terms of queries: their own, and their synonyms."""
        if context is None:
            raise VizslaError("how much a synonym weighs depends on how frequent it is, so synonyms need an index")
        analyzer, statistics, rows = bm25.text_analyzer, context.statistics_of(bm25), []
        for text in texts:
            terms = analyzer(text)
            weights = self.weights([(terms, 1.0)], bm25, statistics)
            norm = max(len(set(terms)), 1) ** bm25.query_norm
            rows.append(weights if norm == 1 else {term: weight / norm for term, weight in weights.items()})
        return rows

    def weights(
        self, sequences: Sequence[tuple[Sequence[str], float]], bm25: BM25, statistics: Statistics
    ) -> dict[str, float]:
        """What terms weigh before idf: those of some sequences of terms, each with its boost, and their synonyms."""
        found = [(terms, boost, self.matches(terms, bm25.text_analyzer)) for terms, boost in sequences]
        typed: dict[str, float] = {}
        for terms, boost, matches in found:
            replaced = {i for match in matches if not match.keeps for i in range(match.start, match.end)}
            for i, term in enumerate(terms):
                if i not in replaced:
                    typed[term] = typed.get(term, 0.0) + boost
        if not any(matches for _, _, matches in found):
            return typed
        groups = [(_group(terms, match), _adding(terms, match), b) for terms, b, own in found for match in own]
        rarity = _rarity({t for group, synonyms, _ in groups for t in chain(group, *synonyms)}, bm25, statistics)
        added: dict[str, float] = {}
        for group, synonyms, boost in groups:
            most_frequent = min((rarity[term] for term in group if term in rarity), default=math.inf)
            shares: dict[str, float] = {}
            for synonym in synonyms:
                for term in synonym:
                    share = _capped(rarity.get(term, 0.0), most_frequent) / len(synonym)
                    shares[term] = max(share, shares.get(term, 0.0))
            for term, share in shares.items():
                if term not in typed:
                    added[term] = added.get(term, 0.0) + boost * share
        return typed | added

    def words(self, terms: Sequence[str], analyzer: Analyzer) -> list[Phrase]:
        """What any of some terms may be met by: those that are not replaced, and the synonyms."""
        found: dict[Terms, None] = dict.fromkeys((term,) for term in terms)
        for match in self.matches(terms, analyzer):
            if not match.keeps:
                for term in terms[match.start : match.end]:
                    found.pop((term,), None)
            found |= dict.fromkeys(match.synonyms)
        return [Phrase(list(each), list(range(len(each)))) for each in found]

    def phrases(self, terms: Sequence[str], offsets: Sequence[int], analyzer: Analyzer) -> Iterator[Phrase]:
        """What a phrase may be: its terms and their offsets, and those with synonyms in the places of words.

        The phrase itself is the first, unless a word of it is replaced.
        """
        matches = self.matches(terms, analyzer)
        choices: list[list[Terms | None]] = [[*([None] if match.keeps else []), *match.synonyms] for match in matches]
        for chosen in product(*choices):
            yield _with_synonyms(terms, offsets, list(zip(matches, chosen, strict=True)))

    def places(self, text: str, bm25: BM25) -> Iterator[tuple[int, int]]:
        """Where words of a query begin and end that have synonyms.

        >>> list(Synonyms(parse_synonyms(["car, motor car"])).places("cars of Paris", BM25()))
        [(0, 4)]
        """
        tokens = bm25.tokens(text)
        for match in self.matches([token.term for token in tokens], bm25.text_analyzer):
            yield tokens[match.start].start, tokens[match.end - 1].end

    def reasons(self, text: str, bm25: BM25) -> dict[str, str]:
        tokens = bm25.tokens(text)
        terms = [token.term for token in tokens]
        found: dict[str, str] = {}
        for match in self.matches(terms, bm25.text_analyzer):
            typed = text[tokens[match.start].start : tokens[match.end - 1].end]
            for synonym in sorted(_adding(terms, match), key=len):
                of = f"synonym of {typed}" if len(synonym) == 1 else f"in {' '.join(synonym)}, synonym of {typed}"
                for term in synonym:
                    found.setdefault(term, of)
        return found

    def options(self, folder: Path) -> dict[str, Any]:
        """The synonyms as a file of their own."""
        folder.mkdir(parents=True, exist_ok=True)
        content = "".join(f"{line}\n" for line in format_synonyms(self.rules)).encode()
        file = folder / f"synonyms-{hashlib.sha256(content).hexdigest()[:12]}.txt"
        with file.open("wb") as written:
            written.write(content)
            written.flush()
            os.fsync(written.fileno())
        return {"file": file.name, "name": self.name}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Synonyms:
        values = fields_from_data(cls, options, ("rules",), file="str")
        return cls(cls.read(folder / values["file"]).rules, values["name"])


def _with_synonyms(
    terms: Sequence[str], offsets: Sequence[int], chosen: Sequence[tuple[Match, Terms | None]]
) -> Phrase:
    """A phrase with a synonym, or None for the typed terms, in the place of each match."""
    new_terms: list[str] = []
    new_offsets: list[int] = []
    at = moved = 0
    for match, synonym in chosen:
        if synonym is None:
            continue
        for i in range(at, match.start):
            new_terms.append(terms[i])
            new_offsets.append(offsets[i] + moved)
        first = offsets[match.start] + moved
        new_terms += synonym
        new_offsets += range(first, first + len(synonym))
        moved += len(synonym) - 1 - (offsets[match.end - 1] - offsets[match.start])
        at = match.end
    new_terms += terms[at:]
    new_offsets += [offset + moved for offset in offsets[at:]]
    return Phrase(new_terms, [offset - new_offsets[0] for offset in new_offsets])


def _group(terms: Sequence[str], match: Match) -> list[str]:
    """The single terms that stand for one another."""
    typed = list(terms[match.start : match.end]) if match.keeps and match.end == match.start + 1 else []
    return [*typed, *(synonym[0] for synonym in match.synonyms if len(synonym) == 1)]


def _adding(terms: Sequence[str], match: Match) -> list[Terms]:
    """The synonyms without those that have the typed terms in them, and so add no documents."""
    typed = set(terms[match.start : match.end]) if match.keeps else {None}
    return [synonym for synonym in match.synonyms if not typed <= set(synonym)]


def _rarity(terms: Iterable[str], bm25: BM25, statistics: Statistics) -> dict[str, float]:
    """The idf of terms, without those that no document has."""
    names = sorted(terms)
    frequencies = statistics.document_frequencies(names)
    known = np.flatnonzero(frequencies > 0)
    factors = bm25.term_factors(frequencies[known], statistics.documents)
    return {names[i]: factor for i, factor in zip(known.tolist(), factors.tolist(), strict=True)}


def _capped(rarity: float, most: float) -> float:
    """What a term counts, so that its weight with idf is at most that of another."""
    return 1.0 if rarity <= most or rarity == 0 else most / rarity


def parse_synonyms(lines: Iterable[str], file: str | None = None) -> tuple[Rule, ...]:
    r"""The rules in lines of Solr's format; `file` is for messages.

    >>> parse_synonyms(["# cars", "car, automobile", r"AT\,T, at and t", "teh => the"])[2]
    Rule(left=('teh',), right=('the',))
    >>> parse_synonyms(["car, automobile", "car => "], "my.txt")
    Traceback (most recent call last):
    ...
    vizsla.errors.InputError: my.txt:2: there is no word after =>; write a line as in: car, automobile or: teh => the
    """
    rules = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            rules.append(_rule(text))
        except ValueError as e:
            said = f"{e}; write a line as in: car, automobile or: teh => the"
            raise InputError(said, file=file, line=number) from None
    return tuple(rules)


def _rule(line: str) -> Rule:
    sides: list[list[str]] = [[""]]
    at = 0
    while at < len(line):
        sign = line[at]
        if sign == "\\":
            if at + 1 == len(line):
                raise ValueError("a backslash needs a character after it")
            sides[-1][-1] += line[at + 1]
            at += 2
        elif line.startswith("=>", at):
            sides.append([""])
            at += 2
        else:
            if sign == ",":
                sides[-1].append("")
            else:
                sides[-1][-1] += sign
            at += 1
    if len(sides) > 2:
        raise ValueError("a line can have => only once")
    read = [tuple(dict.fromkeys(text.strip() for text in side)) for side in sides]
    for side, place in zip(read, ("before", "after"), strict=False):
        if side == ("",):
            raise ValueError(f"there is no word {place} =>")
        if "" in side:
            raise ValueError("a word is missing beside a comma")
    if len(sides) == 1 and len(read[0]) == 1:
        raise ValueError(f"{short(read[0][0])} has no synonym in its line")
    return Rule(read[0], read[-1])


def format_synonyms(rules: Iterable[Rule]) -> Iterator[str]:
    """The lines of rules, as `parse_synonyms` reads them.

    >>> list(format_synonyms(parse_synonyms(["a,b", "teh => the"])))
    ['a, b', 'teh => the']
    """
    for left, right in rules:
        sides = [", ".join(map(_escaped, side)) for side in ((left,) if left == right else (left, right))]
        yield " => ".join(sides)


def _escaped(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace(",", "\\,").replace("=>", "\\=>")
    return f"\\{plain}" if plain.startswith("#") else plain


_FILE = Option("file", "str", "", "the file of synonyms, in Solr's format")


@EXPANDERS.register("synonyms", help="Synonyms from a file.", options=(_FILE,))
def open_synonyms(file: str = "") -> Synonyms:
    if not file:
        raise VizslaError("name a file of synonyms, as in synonyms(file=synonyms.txt)")
    return Synonyms.read(file)


@MODELS.register("bm25-synonyms", help="BM25 with synonyms from a file.", options=(_FILE, *BM25_OPTIONS))
def bm25_with_synonyms(file: str = "", **options: Any) -> ExpandedBM25:
    return BM25(**options).expand(open_synonyms(file)).with_name("bm25-synonyms")
