"""SEAL: a generator writes n-grams that the collection has, and documents are scored by those that they contain.

Autoregressive search engines (Bevilacqua and others, 2022): beam search, constrained by a suffix array, gives n-grams
of passages and whole titles that are likely for a question. The weight of an n-gram is how much likelier it is after
the question than in the collection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.cache import file_digest
from vizsla.engine import CollectionNgrams, NgramQuery
from vizsla.engine.suffix_array import BREAK, FIRST, LONGEST
from vizsla.engine.suffix_array import TITLE as TITLE_MARK
from vizsla.errors import InputError, VizslaError
from vizsla.models.components import NgramComponent
from vizsla.models.fields import Fields, check_fields, field_text
from vizsla.models.generator import TextGenerator, generator_folder, open_generator
from vizsla.models.model import MODELS
from vizsla.neural.checkpoints.generator import GeneratorCheckpoint
from vizsla.neural.once import once
from vizsla.spec import options_of

TITLE = "title"
_TITLE_LENGTH = 32  # tokens of a title that are generated at most
_WIDEST = 1000  # a wider beam would take gigabytes for the states of its texts
_SUREST = 1 - 1e-6  # a probability of 1 would have infinite odds


class OpenedGenerator:
    """A generator that is opened when it is needed; models that differ in other options share it."""

    def __init__(self, which: str) -> None:
        self.which = which

    @once
    def checkpoint(self) -> GeneratorCheckpoint:
        """Its files: the tokenizer and the settings."""
        checkpoint = GeneratorCheckpoint.read(generator_folder(self.which))
        if checkpoint.settings.task == "query":
            raise InputError(
                "this generator reads a document, and seal needs one that reads a question", file=self.which
            )
        return checkpoint

    @once
    def tokenizer(self) -> str:
        """A hash of its tokenizer."""
        return file_digest(self.checkpoint.tokens_file)

    @once
    def generator(self) -> TextGenerator:
        """The network, which reads questions."""
        return open_generator(self.which)


@dataclass(frozen=True)
class Seal(NgramComponent):
    """N-grams that a generator writes for a question, among those of the collection; documents with them are found.

    `generator`: the folder or name of a generator that reads a question. One of the task ngrams writes n-grams and
    titles; one of titles writes titles alone, and one of answers or sentences n-grams alone. `beam`: how many n-grams
    of each length are kept. `ngram_length`: the longest n-gram, in tokens. `exponent` and `overlap`: an n-gram weighs
    its log-odds against the collection to the power of `exponent`, and up to the share `overlap` less if heavier
    n-grams of the document have its tokens. `titles`: whether whole titles are generated, too.

    The index holds token sequences with a suffix array. So it can be searched with other options and with other
    generators that have the same tokenizer.
    """

    generator: str
    beam: int = 15
    ngram_length: int = 10
    exponent: float = 2.0
    overlap: float = 0.8
    titles: bool = True
    fields: tuple[str, ...] = (TITLE, "text")
    namespace: str = "seal"
    name: str = "seal"
    opened: OpenedGenerator | None = field(default=None, repr=False, compare=False)

    kind: ClassVar[str] = "seal"
    expression_options: ClassVar[tuple[str, ...]] = (
        "beam", "ngram_length", "exponent", "overlap", "titles", "fields", "namespace",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if not self.generator:
            raise VizslaError(
                "no generator of n-grams comes with Vizsla; train one, as in: vizsla train seal --dataset NAME -o DIR, "
                'and name it: "seal(generator=DIR)"'
            )
        if self.opened is None or self.opened.which != self.generator:
            object.__setattr__(self, "opened", OpenedGenerator(self.generator))
        check_fields(self.fields)
        if not 1 <= self.beam <= _WIDEST or not 1 <= self.ngram_length <= LONGEST:
            raise VizslaError(
                f"seal needs a beam of 1 to {_WIDEST} and n-grams of 1 to {LONGEST} tokens, not {self.beam} and "
                f"{self.ngram_length}"
            )
        if not 0 < self.exponent < math.inf or not 0 <= self.overlap <= 1:
            raise VizslaError(
                f"seal needs an exponent above 0 and an overlap from 0 to 1, not {self.exponent} and {self.overlap}"
            )

    @property
    def _opened(self) -> OpenedGenerator:
        assert self.opened is not None
        return self.opened

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return self.kind, self._opened.tokenizer, self._opened.checkpoint.seq2seq, self.fields

    # Documents

    @property
    def token_numbers(self) -> int:
        return FIRST + int(self._opened.checkpoint.tokenizer.get_vocab_size())

    def document_rows(self, documents: Sequence[Fields]) -> list[np.ndarray]:
        texts, owners = [], []
        for number, document in enumerate(documents):
            for name in self.fields:
                if text := field_text(document, (name,)).strip():
                    texts.append(text)
                    owners.append((number, name == TITLE))
        rows: list[list[int]] = [[] for _ in documents]
        for (number, is_title), tokens in zip(owners, self._opened.checkpoint.tokens(texts), strict=True):
            mark = [TITLE_MARK] if is_title else []
            rows[number] += [*mark, *(FIRST + token for token in tokens), BREAK]
        return [np.array(row, np.int64) for row in rows]

    # Queries

    def query_ngrams(self, texts: Sequence[str], ngrams: CollectionNgrams) -> list[NgramQuery]:
        asked = [i for i, text in enumerate(texts) if text.strip()]
        weights: list[dict[tuple[int, ...], float]] = [{} for _ in texts]
        if asked and ngrams.tokens:
            for titles in (False, True):
                if titles and not (self.titles and TITLE in self.fields and self._opened.generator.writes_titles):
                    continue
                if not titles and not self._opened.generator.writes_ngrams:
                    continue
                rule = _NgramRule(ngrams, self._opened.checkpoint.ends[0], titles=titles)
                steps = _TITLE_LENGTH if titles else self.ngram_length
                found = self._opened.generator.search([texts[i] for i in asked], rule, self.beam, steps, titles=titles)
                for i, written in zip(asked, found, strict=True):
                    for text in written:
                        if rule.is_complete(text.state) or not titles:
                            ngram, place = text.state
                            weights[i][ngram] = self._weight(math.exp(text.score), ngrams.count(place), ngrams.tokens)
        return [_query(some, self.overlap) for some in weights]

    def _weight(self, probability: float, count: int, tokens: int) -> float:
        """The log-odds of an n-gram after the question against those in the collection, to a power; 0 if negative."""
        after, before = min(probability, _SUREST), min(count / tokens, _SUREST)
        odds = math.log(max(after, 1e-300) / (1 - after)) - math.log(before / (1 - before))
        return float(max(odds, 0.0) ** self.exponent)

    def ngram_text(self, ngram: Sequence[int]) -> str:
        tokens = [token - FIRST for token in ngram if token >= FIRST]
        (text,) = self._opened.checkpoint.texts([tokens])
        return f"title: {text}" if ngram[0] == TITLE_MARK else text or "(white space)"

    # Saving

    def options(self, folder: Path) -> dict[str, Any]:  # noqa: ARG002 (the generator stays where it is)
        place = Path(self.generator)
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "opened"}
        return values | ({"generator": str(place.resolve())} if place.is_dir() else {})


def _query(weights: dict[tuple[int, ...], float], overlap: float) -> NgramQuery:
    kept = {ngram: weight for ngram, weight in weights.items() if weight > 0}
    return NgramQuery.of(list(kept), list(kept.values()), overlap)


_State = tuple[tuple[int, ...], tuple[Any, ...]]
"""An n-gram, and where it occurs."""


class _NgramRule:
    """Lets a generator write n-grams of a collection alone, or its titles, which the token `end` ends."""

    def __init__(self, ngrams: CollectionNgrams, end: int, *, titles: bool) -> None:
        self._ngrams, self._end, self._titles = ngrams, end, titles
        first = (TITLE_MARK,) if titles else ()
        self.start: _State = first, ngrams.find(first)

    def allowed(self, state: _State, size: int) -> np.ndarray:
        marked = self._ngrams.next_tokens(state[1], FIRST + size)
        allowed = np.array(marked[FIRST:])
        if self._end < size:
            allowed[self._end] = self._titles and bool(marked[BREAK])
        return allowed

    def after(self, state: _State, token: int) -> _State:
        ngram, place = state
        number = BREAK if token == self._end else FIRST + token
        return (*ngram, number), self._ngrams.find([number], place)

    def is_complete(self, state: _State) -> bool:
        return state[0][-1:] == (BREAK,)


SEAL_OPTIONS = options_of(
    Seal,
    generator="folder or name of a generator that reads a question",
    beam="how many n-grams of each length are kept",
    ngram_length="the longest n-gram, in tokens",
    exponent="an n-gram weighs its log-odds to this power",
    overlap="what an n-gram loses if heavier ones have its tokens, from 0 to 1",
    titles="whether whole titles are generated, too",
    fields="the fields it reads, separated by /",
    namespace="keeps its n-grams apart from those of other parts of a sum",
)


@MODELS.register(
    "seal",
    help="SEAL: n-grams of the collection that a generator writes for the question. You train the generator.",
    options=SEAL_OPTIONS,
    needs=("onnxruntime|torch",),
)
def seal(generator: str = "", **options: Any) -> Seal:
    return Seal(generator, **options)
