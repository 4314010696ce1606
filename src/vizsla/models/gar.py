"""GAR: text that a generator writes for a question is searched together with the question.

Generation-Augmented Retrieval (Mao and others, 2021) has three generators: for the answer, for a sentence that contains
it, and for the titles of passages that contain it. Each generated text is appended to the question for BM25.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from vizsla.cache import file_digest
from vizsla.errors import InputError, VizslaError
from vizsla.models.bm25 import BM25, BM25_OPTIONS, EXPANDERS, ExpandedBM25, QueryExpander
from vizsla.models.components import SearchContext
from vizsla.models.generator import Sampling, TextGenerator, open_generator
from vizsla.models.model import MODELS
from vizsla.neural.checkpoints.generator import NGRAMS
from vizsla.neural.once import once
from vizsla.numbers import short
from vizsla.plain_data import from_data, parse_json
from vizsla.spec import options_of


@dataclass(frozen=True)
class GAR(QueryExpander):
    """Text that was generated for a question, appended to it; BM25 searches the question and the text.

    `generator`: the folder or name of a generator that writes the likeliest text for each question. `file`: previously
    generated texts, either JSON lines with the question as `text` and the generated texts as a list in `field`, or
    lines with an id, a tab, and the question followed by its text. The latter need `questions`, a file with the
    questions in the same order. A question that is not in the file is an error.

    >>> GAR(file="answers.jsonl").name
    'gar'
    """

    generator: str = ""
    file: str = ""
    questions: str = ""
    field: str = "generated"
    max_tokens: int = 64

    kind: ClassVar[str] = "gar"
    name = "gar"

    def __post_init__(self) -> None:
        if bool(self.generator) == bool(self.file):
            raise VizslaError("gar needs a generator or a file of generated texts, as in gar(file=answers.jsonl)")
        if self.max_tokens < 1:
            raise VizslaError(f"gar writes 1 token or more for a question, not {self.max_tokens}")

    def query_terms(
        self, texts: Sequence[str], bm25: BM25, context: SearchContext | None = None
    ) -> Sequence[dict[str, float]]:
        """The terms of each question and of the text that was generated for it."""
        return bm25.query_terms(self.augmented(texts), context)

    def augmented(self, texts: Sequence[str]) -> list[str]:
        """Each question with the text that was generated for it."""
        if self.generator:
            sampling = Sampling(texts=1, temperature=0.0, max_tokens=self.max_tokens)
            written = self._generator.generate(texts, sampling)
            return [" ".join([text, *some]) for text, some in zip(texts, written, strict=True)]
        missing = [text for text in texts if text.strip() not in self._given]
        if missing:
            raise InputError(
                f"there is no text for the question {short(missing[0])} here; generate texts for all questions",
                file=self.file,
            )
        return [self._given[text.strip()] for text in texts]

    @once
    def _generator(self) -> TextGenerator:
        generator = open_generator(self.generator)
        if generator.task in ("query", NGRAMS):
            what = "reads a document" if generator.task == "query" else "writes n-grams, not texts"
            raise InputError(f"this generator {what}, and gar needs one that reads a question", file=self.generator)
        return generator

    @once
    def _given(self) -> dict[str, str]:
        """Each question with its text, by the question."""
        file = Path(self.file)
        if self.questions:
            return _read_topics(file, Path(self.questions))
        return {text.strip(): " ".join([text, *more]) for text, more in _read_generated(file, self.field)}

    def options(self, folder: Path) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in ("generator", "field", "max_tokens")}
        return values | {name: _kept(getattr(self, name), folder) for name in ("file", "questions")}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> GAR:
        made = from_data(cls, options)
        files = {name: getattr(made, name) and str(folder / getattr(made, name)) for name in ("file", "questions")}
        return cls(**{**vars(made), **files})


GAR_OPTIONS = options_of(
    GAR,
    generator="folder or name of a generator that reads a question",
    file="texts that were generated before: JSON lines, or lines of id, tab, question and text",
    questions="the questions of a file with tabs, in the same order",
    field="the field of JSON lines that has the generated texts",
    max_tokens="tokens that the generator writes at most",
)
EXPANDERS.register("gar", help="Text that a generator writes for the question.", options=GAR_OPTIONS)(GAR)


@MODELS.register("bm25-gar", help="BM25 of a question and a generated text.", options=(*GAR_OPTIONS, *BM25_OPTIONS))
def bm25_gar(
    generator: str = "", file: str = "", questions: str = "", field: str = "generated", max_tokens: int = 64,
    **options: Any,
) -> ExpandedBM25:  # fmt: skip
    return BM25(**options).expand(GAR(generator, file, questions, field, max_tokens)).with_name("bm25-gar")


def _kept(file: str, folder: Path) -> str:
    """The name of a copy of a file in a folder."""
    if not file:
        return ""
    source = Path(file)
    name = f"{file_digest(source)[:12]}{source.suffix}"
    if (folder / name).resolve() != source.resolve():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / name)
    return name


def _read_generated(file: Path, field: str) -> Iterator[tuple[str, list[str]]]:
    """The questions of JSON lines, each with its texts."""
    for number, line in _lines(file):
        try:
            record = parse_json(line)
            text, written = record["text"], record[field]
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"expected a JSON object with a question as 'text' and generated texts as {field!r}; lines of id, tab "
                "and text need the questions, too, as in gar(file=FILE, questions=FILE)",
                file=str(file), line=number,
            ) from None  # fmt: skip
        texts = [written] if isinstance(written, str) else written
        if not isinstance(text, str) or not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
            raise InputError("the question or a generated text is not a text", file=str(file), line=number)
        yield text, texts


def _read_topics(file: Path, questions: Path) -> dict[str, str]:
    """Each question with its text, from lines of an id and both, in the order of the questions."""
    texts, topics = [text for _, text in _questions(questions)], list(_tabbed(file))
    if len(texts) != len(topics):
        raise InputError(f"there are {len(topics):,} lines and {len(texts):,} questions in {questions}", file=str(file))
    for (number, topic), text in zip(topics, texts, strict=True):
        if not _letters(topic).startswith(_letters(text)):
            raise InputError(f"this line is not about the question {short(text)}", file=str(file), line=number)
    return {text.strip(): topic for text, (_, topic) in zip(texts, topics, strict=True)}


def _questions(file: Path) -> Iterator[tuple[int, str]]:
    if ".jsonl" not in file.name:
        yield from _tabbed(file)
        return
    for number, line in _lines(file):
        try:
            yield number, str(parse_json(line)["text"])
        except (ValueError, KeyError, TypeError):
            message = "expected a JSON object with a question as 'text'"
            raise InputError(message, file=str(file), line=number) from None


def _tabbed(file: Path) -> Iterator[tuple[int, str]]:
    for number, line in _lines(file):
        _, tab, text = line.partition("\t")
        if not tab:
            raise InputError("expected an id, a tab and a text", file=str(file), line=number)
        yield number, text


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not empty, with their numbers."""
    try:
        with file.open(encoding="utf-8", errors="replace", newline="\n") as opened:
            for number, line in enumerate(opened, 1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except FileNotFoundError:
        raise InputError("this file does not exist", file=str(file)) from None


def _letters(text: str) -> str:
    """The letters and digits of a text; files differ in blanks and quotes."""
    return "".join(c for c in text.casefold() if c.isalnum())
