"""What one model teaches another: queries drawn from documents, and how the teacher ranks the documents for them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vizsla.datasets import Document, read_queries
from vizsla.errors import VizslaError
from vizsla.index import Index
from vizsla.models import Model
from vizsla.models.model import field_text
from vizsla.recipes.material import FIELDS, tokens_of
from vizsla.text import Analyzer
from vizsla.text.sentences import sentences_of

if TYPE_CHECKING:
    from vizsla.training import MinedPairs, TokenCorpus

_QUERIES = 20_000  # asked together
_SHORT = 3, 10  # words of a short query
_ASKED = 2, 8  # words of a sentence in what is asked as a question
_OPENING = 1, 3  # words that a question begins with


@dataclass(frozen=True)
class Teaching:
    """How the pupil's queries are drawn and the teacher's rankings are read; the defaults are those of SPAR.

    Of the i-th document with a title, so many of its sentences as there are over `thinning * (i + 1)`, but one at
    least. The teacher's first `positives` of `depth` documents are right, the last `negatives` wrong. `short`: the
    share of sentences of which only a few words are asked, as people ask. `questions`: files of questions, separated by
    commas, that are asked besides; `asked`: the share of sentences of which a few words are asked behind the first
    words of one of these, half of them with the document's title. `queries`: no more than so many are drawn, 0 for all.

    >>> Teaching().depth
    50
    """

    depth: int = 50
    positives: int = 10
    negatives: int = 5
    thinning: float = 1.2
    short: float = 0.0
    questions: str = ""
    asked: float = 0.0
    queries: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.positives < 1 or self.negatives < 1 or self.positives + self.negatives > self.depth:
            raise VizslaError(
                f"of {self.depth} documents {self.positives} cannot be right and {self.negatives} wrong; both are 1 or "
                "more, and together no more than the depth"
            )
        if not self.thinning > 0:
            raise VizslaError(f"thinning must be more than 0, not {self.thinning:g}")
        if not 0 <= self.short <= 1:
            raise VizslaError(f"the share of short queries goes from 0 to 1, not {self.short:g}")
        if not 0 <= self.asked <= 1 - self.short:
            raise VizslaError(f"the share asked as questions goes from 0 to {1 - self.short:g}, not {self.asked:g}")
        if self.asked and not self.questions:
            raise VizslaError("to ask as questions do, some are needed, as in --set teaching.questions=train.jsonl")


def read_asked(plan: Teaching) -> list[str]:
    """The questions of a plan's files; those of a file that is named twice come twice."""
    files = [Path(name.strip()) for name in plan.questions.split(",") if name.strip()]
    questions = [text for file in files for text in read_queries(file).values()]
    if files and not questions:
        raise VizslaError(f"there are no questions in {plan.questions}")
    return questions


def drawn_queries(documents: Iterable[Document], plan: Teaching, questions: Sequence[str] = ()) -> Iterator[str]:
    """Sentences of documents, fewer of those further down an article, which neighbours of one title are.

    Those that are asked as questions are begin as some of `questions`.
    """
    dice = np.random.default_rng(plan.seed)
    for _, article in groupby(documents, key=lambda d: d.content.get("title") or d.id):
        for place, document in enumerate(article):
            sentences = sentences_of(field_text(document.content, ("text",)))
            if not sentences:
                continue
            wanted = max(1, round(len(sentences) / (plan.thinning * (place + 1))))
            for chosen in dice.permutation(len(sentences))[:wanted].tolist():
                throw = dice.random() if plan.short or plan.asked else 1.0
                words = sentences[chosen].split()
                if throw < plan.short:
                    words = _scattered(words, _number(_SHORT, dice), dice)
                elif throw < plan.short + plan.asked:
                    words = _as_asked(words, field_text(document.content, ("title",)), questions, dice)
                yield " ".join(words)


def _as_asked(words: list[str], title: str, questions: Sequence[str], dice: np.random.Generator) -> list[str]:
    """A few words of a sentence, perhaps with a title, behind the first words of a question."""
    few = _number(_ASKED, dice)
    if dice.random() < 0.5:
        first = int(dice.integers(max(1, len(words) - few + 1)))
        about = words[first : first + few]
    else:
        about = _scattered(words, few, dice)
    if dice.random() < 0.5:
        name = re.sub(r"\(.*?\)", "", title).split()
        about = name + about if dice.random() < 0.5 else about + name
    opening = questions[int(dice.integers(len(questions)))].split()[: _number(_OPENING, dice)]
    return opening + about


def _scattered(words: list[str], few: int, dice: np.random.Generator) -> list[str]:
    return [words[i] for i in sorted(dice.permutation(len(words))[:few].tolist())]


def _number(span: tuple[int, int], dice: np.random.Generator) -> int:
    return int(dice.integers(span[0], span[1] + 1))


def taught_pairs(documents: Sequence[Document], teacher: Model, analyzer: Analyzer, plan: Teaching) -> MinedPairs:
    """Queries drawn from documents with what the teacher ranks first, and what it ranks last among its best.

    Queries for which the teacher finds fewer than `depth` documents are left out.
    """
    questions = read_asked(plan)
    drawn = list(drawn_queries(documents, plan, questions))
    if plan.queries and len(drawn) > plan.queries:
        chosen = np.random.default_rng((plan.seed, 1)).permutation(len(drawn))[: plan.queries]
        drawn = [drawn[i] for i in np.sort(chosen).tolist()]
    if teacher.needs_corpus_statistics:
        teacher = teacher.fit([d.content for d in documents])
    with (
        tempfile.TemporaryDirectory(prefix="vizsla-") as folder,
        Index.create(f"{folder}/index", teacher, store=False) as index,
    ):
        index.add(documents)
        index.commit()
        return pairs_of_rankings([*questions, *drawn], documents, index, analyzer, plan)


def pairs_of_rankings(
    queries: Sequence[str], documents: Sequence[Document], index: Index, analyzer: Analyzer, plan: Teaching
) -> MinedPairs:
    """Queries with what an index of the documents ranks first for them, and what last among its best."""
    from vizsla.training import MinedPairs, TokenCorpus

    places = {d.id: i for i, d in enumerate(documents)}
    encode = tokens_of(analyzer)
    asked: list[np.ndarray] = []
    right: list[np.ndarray] = []
    wrong: list[np.ndarray] = []
    for first in range(0, len(queries), _QUERIES):
        some = queries[first : first + _QUERIES]
        run = index.run({str(i): text for i, text in enumerate(some)}, plan.depth)
        for number, tokens in enumerate(encode(some)):
            found = run[str(number)].documents if str(number) in run else ()
            if len(found) < plan.depth or not len(tokens):
                continue
            ranked = np.array([places[d] for d in found], np.int64)
            asked.append(tokens)
            right.append(ranked[: plan.positives])
            wrong.append(ranked[-plan.negatives :])
    if not asked:
        raise VizslaError(
            f"for none of the sentences does {index.model.name} find {plan.depth} documents to learn from"
        )
    contents: TokenCorpus = TokenCorpus.of(encode([field_text(d.content, FIELDS) for d in documents]))
    return MinedPairs(TokenCorpus.of(asked), contents, TokenCorpus.of(right), TokenCorpus.of(wrong), group=2)
