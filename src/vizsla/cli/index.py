"""vizsla index: documents from files to a new index."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from vizsla.cli import console, options
from vizsla.cli.sources import find_sources, passes_lines, read_with_progress, source_options
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.datasets import Source, Splitter
    from vizsla.index import Added, Collection
    from vizsla.models import Model


class _Kept(TypedDict):
    """How an index is written, and what it keeps."""

    memory: int
    store: bool
    vector_index: str
    positions: bool


def index(
    output: Annotated[Path, options.output("The folder of the new index.")],
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE...", help="Files (also .gz, .xz, .zst) or folders; - is standard input."),
    ] = None,
    parts: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Take all parts in a folder, which encode wrote.")
    ] = None,
    model: Annotated[
        str | None, options.model('A name, a saved model, or a sum: "bm25 + 0.5 * minilm"; default: bm25.')
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the index in this folder.")] = False,
    memory: options.Memory = options.DEFAULT_MEMORY,
    workers: options.Workers = None,
    format: options.Format = None,
    id_field: options.IdField = None,
    text_field: options.TextField = None,
    title_field: options.TitleField = None,
    delimiter: options.Delimiter = None,
    types: options.ColumnTypes = None,
    max_document: options.MaxDocument = options.DEFAULT_MAX_DOCUMENT,
    allow_empty: options.AllowEmpty = False,
    passages: options.Passages = None,
    overlap: options.Overlap = 0,
    store: options.Store = True,
    vector_index: options.VectorIndex = None,
    positions: options.Positions = None,
) -> None:
    """Build an index of documents.

    Sources are JSON lines, csv, tsv, Parquet, TREC SGML, a folder in BEIR's layout, or a folder of text files.
    """
    from vizsla.datasets import Splitter
    from vizsla.index import Index, replace_index
    from vizsla.models import parse_model

    console.check_folder(output, "an index")
    kept = _Kept(
        memory=console.parse_size(memory), store=store, vector_index=vector_index or "exact", positions=bool(positions)
    )
    if parts is not None:
        _check_unused({
            "a source": bool(sources), "--workers": workers, "--format": format, "--id-field": id_field,
            "--text-field": text_field, "--title-field": title_field, "--delimiter": delimiter, "--types": types,
            "--passages": passages, "--overlap": overlap, "--allow-empty": allow_empty,
            "--max-document": max_document != options.DEFAULT_MAX_DOCUMENT,
        })  # fmt: skip
        _index_parts(parts, output, model, overwrite, kept)
        return
    if not sources:
        raise VizslaError("name the files or folders to index, or a folder of parts with --from")
    parsed = parse_model("bm25" if model is None else model)
    reading = source_options(id_field, text_field, title_field, delimiter, types, max_document, allow_empty)
    found = find_sources(sources, format, fields=parsed.fields, **reading)
    splitter = Splitter(passages, overlap) if passages is not None else None
    started = time.perf_counter()
    if parsed.needs_corpus_statistics:
        console.remark(
            f"{parsed.name} needs the statistics of all documents first: they are read twice, and held in memory"
        )
        parsed = parsed.fit(_readable(found, parsed, splitter))
    with (
        replace_index(output, overwrite=overwrite) as building,
        Index.create(building, parsed, passages=splitter, **kept) as new,
    ):
        added = new.add(read_with_progress(found, "Indexing", raw=passes_lines(parsed, workers)), workers=workers)
        new.commit()
    with Index.open(output) as built:
        report(built, added, time.perf_counter() - started)


def _check_unused(given: Mapping[str, object]) -> None:
    """Refuse options that have no meaning for parts."""
    name = next((name for name, value in given.items() if value), None)
    if name is not None:
        raise VizslaError(f"--from takes documents that vizsla encode has read; leave out {name}")


def _index_parts(folder: Path, output: Path, model: str | None, overwrite: bool, kept: _Kept) -> None:
    """Build an index from parts."""
    from vizsla.index import Index, PartSet, build_from_parts

    started = time.perf_counter()
    parts = PartSet(folder)
    with console.progress("Indexing", parts.rows, "documents") as advance:
        added = build_from_parts(parts, output, model, overwrite=overwrite, progress=advance, **kept)
    with Index.open(output) as built:
        report(built, added, time.perf_counter() - started)


def _readable(sources: list[Source], model: Model, splitter: Splitter | None) -> list[Mapping[str, Any]]:
    """The contents the index will hold. Documents that cannot be read are left out here and refused when added."""
    documents = (d for source in sources for d in source.documents())
    readable = (d for d in documents if model.problem(d.with_fields(model.fields).content) is None)
    parts = readable if splitter is None else (p for d in readable for p in splitter.passages(d))
    return [part.with_fields(model.fields).content for part in parts]


def report(index: Collection, added: Added, seconds: float) -> None:
    """Say what was added, how fast, and how large an index in a folder is."""
    _report_empty(added)
    facts = index.info()
    rate = added.documents / seconds if seconds else 0
    replaced = f", {added.replaced:,} of them replacing others" if added.replaced else ""
    sizes, place = "", facts.get("address")
    if place is None:
        place = facts["path"]
        sizes = f": index {console.size(facts['index_bytes'])}, documents {console.size(facts['document_bytes'])}"
    console.remark(f"{console.count(added.documents, 'document')} in {seconds:.1f} s ({rate:,.0f}/s){replaced}{sizes}")
    console.remark(f"Search it with: vizsla search {place}")


def _report_empty(added: Added) -> None:
    """Name the first document without a word to search for, and count the others."""
    if not added.empty:
        return
    first = added.empty[0]
    place = f"{first.origin.file}:{first.origin.line}: " if first.origin else ""
    others = f" ({console.count(len(added.empty), 'such document')})" if len(added.empty) > 1 else ""
    console.remark(f"{place}the document {first.id!r} has no words to be found by{others}; it is stored anyway")
