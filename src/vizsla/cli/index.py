"""vizsla index: documents from files to a new index."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla import compiling
from vizsla.cli import console

if TYPE_CHECKING:
    from vizsla.datasets import Document, RawLines, Source, Splitter
    from vizsla.index import Added, Index
    from vizsla.models import Model

Memory = Annotated[str, typer.Option("--memory", help="About how much memory to take, as in 512MB.")]
Workers = Annotated[int, typer.Option("--workers", help="Analyse documents in so many processes.")]
Format = Annotated[str | None, typer.Option("--format", help="jsonl, csv, tsv, parquet, trec or text; else by ending.")]
IdField = Annotated[str | None, typer.Option("--id-field", help="What the id is called there.")]
TextField = Annotated[str | None, typer.Option("--text-field", help="What the text is called there.")]
TitleField = Annotated[str | None, typer.Option("--title-field", help="What the title is called there.")]
Delimiter = Annotated[
    str | None, typer.Option("--delimiter", help="What separates columns of csv or tsv; else guessed.")
]
ColumnTypes = Annotated[
    str | None,
    typer.Option("--types", metavar="NAME=TYPE,...", help="Columns of csv or tsv: text, int, float, bool or date."),
]
MaxDocument = Annotated[
    str, typer.Option("--max-document", metavar="SIZE", help="The most text of one line or document, as in 64MB.")
]
AllowEmpty = Annotated[bool, typer.Option("--allow-empty", help="A source without documents is no error.")]
Dense = Annotated[
    str | None,
    typer.Option("--dense", metavar="KIND", help="Dense vectors: exact, float16, sq8, hnsw, ivf(nlist=1024), pq."),
]


def index(
    sources: Annotated[
        list[str], typer.Argument(help="Files (also .gz, .xz, .zst) or folders of documents; - is standard input.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder of the new index.")],
    model: Annotated[
        str, typer.Option("--model", "-m", help='A name, a saved model, or a sum: "bm25 + 0.5 * bm25-wp".')
    ] = "bm25",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an index that is there.")] = False,
    memory: Memory = "1GB",
    workers: Workers = 1,
    format: Format = None,
    id_field: IdField = None,
    text_field: TextField = None,
    title_field: TitleField = None,
    delimiter: Delimiter = None,
    types: ColumnTypes = None,
    max_document: MaxDocument = "16MB",
    allow_empty: AllowEmpty = False,
    passages: Annotated[
        int | None, typer.Option("--passages", help="Cut texts into passages of so many words.")
    ] = None,
    overlap: Annotated[int, typer.Option("--overlap", help="By how many words passages overlap.")] = 0,
    store: Annotated[bool, typer.Option("--store/--no-store", help="Keep the texts, to be shown.")] = True,
    dense: Dense = None,
) -> None:
    """Index documents: JSON lines, csv, tsv, Parquet, TREC SGML, a BEIR folder, or a folder of text files."""
    from vizsla.datasets import Splitter
    from vizsla.index import Index, replace_index
    from vizsla.models import parse_model

    console.check_folder(output, "an index")
    chosen = parse_model(model)
    options = source_options(id_field, text_field, title_field, delimiter, types, max_document, allow_empty)
    found = find_sources(sources, format, fields=chosen.fields, **options)
    size = console.parse_size(memory)
    splitter = Splitter(passages, overlap) if passages is not None else None
    started = time.perf_counter()
    if chosen.needs_corpus_statistics:
        console.remark(
            f"{chosen.name} freezes the statistics of all documents: they are read twice, and held in memory"
        )
        chosen = chosen.fit(_readable(found, chosen, splitter))
    with (
        replace_index(output, overwrite=overwrite) as building,
        Index.create(building, chosen, memory=size, passages=splitter, store=store, dense=dense or "exact") as new,
    ):
        added = new.add(watched(found, "Indexing", workers), workers=workers)
        new.commit()
    with Index.open(output) as done:
        report(done, added, time.perf_counter() - started)


def _readable(sources: list[Source], model: Model, splitter: Splitter | None) -> list[Mapping[str, Any]]:
    """What an index of the sources will hold; what cannot be read is told when it is added."""
    documents = (d for source in sources for d in source.documents())
    readable = (d for d in documents if model.problem(d.with_fields(model.fields).content) is None)
    parts = readable if splitter is None else (p for d in readable for p in splitter.passages(d))
    return [part.with_fields(model.fields).content for part in parts]


def source_options(
    id_field: str | None, text_field: str | None, title_field: str | None,
    delimiter: str | None, types: str | None, max_document: str, allow_empty: bool,
) -> dict[str, Any]:  # fmt: skip
    """What was said of how sources are to be read, as `Source.find` takes it."""
    from vizsla.datasets import FieldNames, parse_types

    return {
        "names": FieldNames(id_field, text_field, title_field),
        "delimiter": "\t" if delimiter == "\\t" else delimiter,
        "types": parse_types(types) if types is not None else {},
        "max_document": console.parse_size(max_document),
        "allow_empty": allow_empty,
    }


def find_sources(sources: list[str], format: str | None, **options: Any) -> list[Source]:
    """The sources at these paths; what was guessed, inferred or passed over is told."""
    from vizsla.datasets import Source

    found = [Source.find(source, format, **options) for source in sources]
    for source in found:
        for remark in source.remarks():
            console.remark(f"{console.safe(source.name)}: {console.safe(remark, most=2000)}")
    return found


def watched(sources: list[Source], title: str, workers: int = 1) -> Iterator[Document | RawLines]:
    """The documents of sources, behind a progress bar over their bytes; for several workers, lines to be read."""
    from vizsla.datasets import RawLines

    total = sum(s.bytes for s in sources)
    before, done, position = 0, 0, 0

    def move(to: int) -> None:
        nonlocal position
        position = to

    with console.progress(title, total, "documents") as advance:
        for source in sources:
            raw = source.raw_lines(move) if workers > 1 else None
            for item in source.documents(move) if raw is None else raw:
                yield item
                done += len(item.lines) if isinstance(item, RawLines) else 1
                if raw is not None or done % 500 == 0:
                    advance(before + position, done)
            before, position = before + source.bytes, 0


def report(index: Index, added: Added, seconds: float) -> None:
    report_empty(added)
    facts = index.info()
    seconds -= compiling.seconds
    rate = added.documents / seconds if seconds else 0
    replaced = f", {added.replaced:,} of them replacing others" if added.replaced else ""
    console.remark(
        f"{console.count(added.documents, 'document')} in {seconds:.1f} s ({rate:,.0f}/s){replaced}: "
        f"index {console.size(facts['index_bytes'])}, documents {console.size(facts['document_bytes'])}"
    )
    console.remark(f"Search it with: vizsla search {index.path}")


def report_empty(added: Added) -> None:
    """Name the first document that no query can find, and count the others."""
    if not added.empty:
        return
    first = added.empty[0]
    place = f"{first.origin.file}:{first.origin.line}: " if first.origin else ""
    others = f" ({console.count(len(added.empty), 'such document')})" if len(added.empty) > 1 else ""
    console.remark(f"{place}the document {first.id!r} has no words to be found by{others}; it is stored all the same")
