"""vizsla index, add and encode: documents from files into a new index, an index that is there, or a part of one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from vizsla.cli import console, options
from vizsla.cli.options import (
    check_outside,
    open_writable,
    passes_lines,
    read_with_progress,
    report_skipped,
)
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.datasets import Source, Splitter
    from vizsla.index import Added, Collection, EncodingReport, Shard
    from vizsla.models import Model


class _Kept(TypedDict):
    """How an index is written, and what it keeps."""

    memory: int
    store: bool
    vector_index: str
    positions: bool


@options.spread
def index(
    *,
    output: Annotated[Path, options.output("The folder of the new index.")],
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE...", help="Files (also .gz, .xz, .zst) or folders; - is standard input."),
    ] = None,
    parts: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Combine the parts that encode wrote to this folder.")
    ] = None,
    model: Annotated[
        str | None, options.model('A name, a saved model, or a sum: "bm25 + 0.5 * minilm"; default: bm25.')
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            "--language",
            metavar="CODE,...",
            help="The language of the documents, as in de, or several, the main one first; default: detected, auto.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the index in this folder.")] = False,
    memory: options.Memory = options.DEFAULT_MEMORY,
    workers: options.Workers = None,
    reading: options.SourceOptions,
    passages: options.PassageOptions,
    store: options.Store = True,
    vector_index: options.VectorIndex = None,
    positions: options.Positions = None,
) -> None:
    """Build an index from files of documents.

    As in: vizsla index documents.jsonl -o my.index

    Sources are JSON lines, csv, tsv, Parquet, TREC SGML, a folder in BEIR's layout, or folders of PDF, Word, mail,
    HTML, Markdown, source code and text files.
    """
    from vizsla.models import parse_model

    console.check_folder(output, "an index")
    kept = _Kept(
        memory=console.parse_size(memory), store=store, vector_index=vector_index or "exact", positions=bool(positions)
    )
    if parts is not None:
        unused = ["a source"] if sources else ["--workers"] if workers else options.given_options(reading, passages)
        unused = unused or (["--language"] if language else [])
        if unused:
            raise VizslaError(f"--from takes documents that vizsla encode has read; leave out {unused[0]}")
        _index_parts(parts, output, model, overwrite, kept)
        return
    if not sources:
        raise VizslaError("name the files or folders to index, or a folder of parts with --from")
    if model is not None and language is not None:
        raise VizslaError("name a model or the language of the documents, not both: a model says how text is analysed")
    parsed = parse_model("bm25" if model is None else model)
    with reading.naming_skip_bad(sources):
        found = reading.find(sources, parsed.fields)
        if model is None:
            parsed = _model_of_language(language or "auto", found)
        _index_sources(found, output, parsed, passages.splitter, overwrite, kept, workers, skip_bad=reading.skip_bad)


def _index_sources(
    sources: list[Source], output: Path, model: Model, splitter: Splitter | None, overwrite: bool, kept: _Kept,
    workers: int | None, *, skip_bad: bool,
) -> None:  # fmt: skip
    """Build an index from sources."""
    from vizsla.index import Index, replace_index

    started = time.perf_counter()
    if model.needs_corpus_statistics:
        console.remark(
            f"{model.name} needs the statistics of all documents first: they are read twice, and held in memory"
        )
        model = model.fit(_readable(sources, model, splitter))
    with (
        replace_index(output, overwrite=overwrite) as building,
        Index.create(building, model, passages=splitter, **kept) as new,
    ):
        documents = read_with_progress(sources, "Indexing", raw=passes_lines(model, workers))
        added = new.add(documents, workers=workers, skip_bad=skip_bad)
        new.commit()
    report_skipped(sources, added)
    with Index.open(output) as built:
        report(built, added, time.perf_counter() - started)


def _model_of_language(language: str, sources: list[Source]) -> Model:
    """BM25 for a language, for several, for those that some of the documents are in, or for source code."""
    from vizsla.models import BM25, detect_model, language_model, languages_named

    if language != "auto":
        return language_model(languages_named(language))
    formats = [part.format for source in sources for part in source.parts]
    if 2 * formats.count("code") > len(formats):
        of = f"{formats.count('code'):,} of {len(formats):,} files are source code"
        console.remark(f"{of}: analysed by code, names by their parts; --language or --model changes this")
        return BM25(analyzer="code")
    detected = detect_model(document.content for source in sources for document in source.sample())
    if detected.remark:
        console.remark(detected.remark)
    return detected.model


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
    """The contents of the future index. Documents that cannot be read are skipped here and refused when added."""
    documents = (d for source in sources for d in source.documents())
    readable = (d for d in documents if model.problem(d.with_fields(model.fields).content) is None)
    parts = readable
    if splitter is not None:
        parts = (p for d in readable for p in splitter.read(d, list(splitter.passages(d))))
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
    """Name the first document without searchable words, and count the others."""
    if not added.empty:
        return
    first = added.empty[0]
    place = f"{first.origin.file}:{first.origin.line}: " if first.origin else ""
    others = f" ({console.count(len(added.empty), 'such document')})" if len(added.empty) > 1 else ""
    console.remark(f"{place}the document {first.id!r} has no searchable words{others}; it is stored anyway")


@options.spread
def add(
    *,
    index: options.Writable,
    sources: options.Sources,
    memory: options.Memory = options.DEFAULT_MEMORY,
    workers: options.Workers = None,
    reading: options.SourceOptions,
) -> None:
    """Add documents to an index, or replace those with the same id.

    All documents are added, or none if one of them cannot be read.
    """
    from vizsla.models import mismatch

    with open_writable(index, console.parse_size(memory)) as opened:
        with reading.naming_skip_bad(sources):
            found = reading.find(sources, opened.model.fields)
            sample = (document.content for source in found for document in source.sample())
            foreign = mismatch(opened.model, sample)
        if foreign:
            console.remark(foreign)
        started = time.perf_counter()
        documents = read_with_progress(found, "Adding", raw=passes_lines(opened.model, workers))
        with reading.naming_skip_bad(sources):
            added = opened.add(documents, workers=workers, skip_bad=reading.skip_bad)
        opened.commit()
        report_skipped(found, added)
        report(opened, added, time.perf_counter() - started)


@options.spread
def encode(
    *,
    sources: options.Sources,
    output: Annotated[Path, options.output("The part to write, .parquet; an interrupted run continues.")],
    model: Annotated[str, options.model('A name, a saved model, or a sum: "bm25 + 0.5 * minilm".')] = "bm25",
    shard: Annotated[
        str, typer.Option("--shard", metavar="I/N", help="Which shard, as in 3/20; every machine reads all sources.")
    ] = "1/1",
    batch: Annotated[
        int | None,
        typer.Option("--batch", metavar="N", help="Documents that are encoded together; default: as index does."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the part, even an unfinished one.")] = False,
    reading: options.SourceOptions,
    passages: options.PassageOptions,
) -> None:
    """Encode documents for index --from or qdrant upload.

    Run it on many machines, each with another shard of the same sources, and combine the parts with vizsla index
    --from. The same command continues an interrupted run.
    """
    from vizsla.datasets import Document
    from vizsla.index import Shard, encode_shard
    from vizsla.models import parse_model

    console.need("pyarrow", "parquet")
    if output == console.STANDARD_OUTPUT:
        raise VizslaError("- is standard output, but an interrupted run can only continue a file; name one")
    console.check_output(output)
    which = Shard.parse(shard)
    parsed = parse_model(model)
    found = reading.find(sources, parsed.fields)
    check_outside(output, found)
    if reading.skip_bad:
        raise VizslaError("--skip-bad is for index and add: shards must agree on what there is")
    started = time.perf_counter()
    documents = (item for item in read_with_progress(found, "Encoding") if isinstance(item, Document))
    report = encode_shard(
        documents, output, parsed, which, name=model, passages=passages.splitter, batch=batch, overwrite=overwrite
    )
    _report_encoding(report, output, which, time.perf_counter() - started)


def _report_encoding(report: EncodingReport, output: Path, shard: Shard, seconds: float) -> None:
    done = report.documents - report.resumed
    size = console.size(output.stat().st_size)
    documents = f"{report.documents:,} of {console.count(report.source_documents, 'document')}"
    held = f"{output}: shard {shard} has {documents}, {size}"
    if report.documents and not done:
        console.remark(f"{held}; it was finished")
    else:
        resumed = f", after {report.resumed:,} of an earlier run" if report.resumed else ""
        console.remark(f"{held}; {done:,} in {seconds:.1f} s ({done / seconds:,.0f}/s){resumed}")
    if not report.documents:
        console.remark("there are fewer batches of documents than shards, so this part is empty; it is needed as well")
    console.remark(f"Index all parts with: vizsla index --from {output.parent} -o INDEX")
