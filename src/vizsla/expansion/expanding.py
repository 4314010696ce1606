"""Document expansion: a generator reads each document and writes queries for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from vizsla.errors import VizslaError
from vizsla.expansion.output import ExpansionFile, ExpansionSettings, line_start
from vizsla.models import field_text, text_problem
from vizsla.models.generator import Sampling, TextGenerator
from vizsla.runs import Document
from vizsla.runs.documents import refusal

PRESETS: dict[str, Sampling] = {
    "doct5query": Sampling(texts=40, top_k=10),
    "doc2query": Sampling(texts=10, top_k=10),
    "beir": Sampling(texts=40, top_k=10, top_p=0.95),
    "genq": Sampling(texts=5, top_k=25, top_p=0.95),
}
"""docT5query; doc2query before it; docT5query in BEIR: 40 queries as its paper says, top-k and top-p of its
example, which draws 3 queries; GenQ, which trains on the queries."""


TASK = "query"
BLOCK = 64
FIELDS = ("title", "text")


@dataclass
class ExpansionReport:
    """What an expansion has done so far; all numbers but `generated` are those of the whole file."""

    documents: int = 0
    queries: int = 0
    generated: int = 0
    """Documents that queries were generated for in this run."""
    resumed: int = 0
    """Documents that were in the file before this run."""
    without_text: int = 0
    cut: int = 0
    """Documents of more tokens than the generator reads."""
    length: int = 0
    """How many tokens of a document the generator reads."""


Progress = Callable[[ExpansionReport], None]
"""Is called after each block of documents."""


def expand(
    documents: Iterable[Document],
    output: str | Path,
    generator: TextGenerator,
    sampling: Sampling | None = None,
    *,
    fields: Sequence[str] = FIELDS,
    block: int = BLOCK,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> ExpansionReport:
    """Write documents with the queries that a generator writes for them, as JSON lines with a field `queries`.

    A file that an earlier run left unfinished is gone on with: its documents are compared with the source, and the
    result is the same, byte for byte, as that of one run. Generation is done in blocks of `block` documents by their
    position in the source, since rounding depends on the other texts of a call.
    """
    if generator.task != TASK:
        raise VizslaError(
            f"{generator.name} is trained to write the {generator.task} of a question, not queries for a document; "
            "name a generator of queries"
        )
    sampling = Sampling() if sampling is None else sampling
    settings = ExpansionSettings(generator.name, generator.digest, sampling, tuple(fields), block)
    report = ExpansionReport(length=generator.length)
    with ExpansionFile(Path(output), settings, overwrite=overwrite) as file:
        for some in _blocks(documents, block):
            _expand_block(_Block.of(some, settings.fields), file, generator, sampling, report)
            if progress is not None:
                progress(report)
        file.finish()
    return report


def count_documents(documents: Iterable[Document], fields: Sequence[str] = FIELDS) -> int:
    """The number of documents. One that cannot be expanded is an error now, not after hours of generation."""
    return sum(len(_Block.of([document], fields).ids) for document in documents)


@dataclass(frozen=True)
class _Block:
    """Documents that are written together: their ids, their lines up to the queries, and what a generator reads."""

    ids: list[str]
    starts: list[bytes]
    texts: list[str]

    @classmethod
    def of(cls, documents: Sequence[Document], fields: Sequence[str]) -> _Block:
        starts, texts = [], []
        for document in documents:
            content = document.with_fields(fields).content
            problem = text_problem(content, fields)
            if problem is not None:
                raise refusal(f"the document {document.id!r} {problem}", document.origin)
            starts.append(line_start(document))
            texts.append(field_text(content, fields))
        return cls([d.id for d in documents], starts, texts)


def _expand_block(
    block: _Block, file: ExpansionFile, generator: TextGenerator, sampling: Sampling, report: ExpansionReport
) -> None:
    with_text = [i for i, text in enumerate(block.texts) if text.strip()]
    counts: Iterable[int] = generator.token_counts([block.texts[i] for i in with_text]) if with_text else ()
    queries = file.holds(block.ids, block.starts)
    if queries is None:
        queries = [[] for _ in block.texts]
        for i, texts in zip(with_text, _generated(generator, sampling, block, with_text), strict=True):
            queries[i] = texts
        file.append(block.starts, queries)
        report.generated += len(with_text)
    else:
        report.resumed += len(queries)
    report.documents += len(block.texts)
    report.without_text += len(block.texts) - len(with_text)
    report.cut += sum(int(count) > generator.length for count in counts)
    report.queries += sum(map(len, queries))


def _generated(generator: TextGenerator, sampling: Sampling, block: _Block, which: Sequence[int]) -> list[list[str]]:
    """The queries of some documents of a block, each on one line."""
    if not which:
        return []
    made = generator.generate([block.texts[i] for i in which], sampling, [block.ids[i] for i in which])
    if len(made) != len(which) or any(len(texts) != sampling.texts for texts in made):
        raise VizslaError(f"{generator.name} must write {sampling.texts:,} texts for each of {len(which):,} documents")
    return [[" ".join(text.split()) for text in texts] for texts in made]


def _blocks(documents: Iterable[Document], size: int) -> Iterator[list[Document]]:
    stream = iter(documents)
    while some := list(islice(stream, size)):
        yield some
