"""vizsla encode: one shard of a source, as many machines as one likes beside each other."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vizsla.cli import console, options
from vizsla.cli.sources import check_outside, find_sources, read_with_progress, source_options
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.index import EncodingReport, Shard


def encode(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Files (also .gz, .xz, .zst) or folders; - is standard input."),
    ],
    output: Annotated[Path, options.output("The part to write, .parquet; a stopped run goes on where it was.")],
    model: Annotated[str, options.model('A name, a saved model, or a sum: "bm25 + 0.5 * minilm".')] = "bm25",
    shard: Annotated[
        str, typer.Option("--shard", metavar="I/N", help="Which shard, as in 3/20; every machine reads all sources.")
    ] = "1/1",
    batch: Annotated[
        int | None,
        typer.Option("--batch", metavar="N", help="Documents that are encoded together; default: as index does."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the part, even an unfinished one.")] = False,
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
) -> None:
    """Encode a shard of documents for an index.

    Run it on many machines, each with another shard of the same sources, and put the parts together with vizsla index
    --from. A run that was stopped goes on with the same command.
    """
    from vizsla.datasets import Document, Splitter
    from vizsla.index import Shard, encode_shard
    from vizsla.models import parse_model

    console.need("pyarrow", "parquet")
    if output == console.STANDARD_OUTPUT:
        raise VizslaError("- is standard output, and a stopped run goes on with a file; name one")
    console.check_output(output)
    which = Shard.parse(shard)
    parsed = parse_model(model)
    reading = source_options(id_field, text_field, title_field, delimiter, types, max_document, allow_empty)
    found = find_sources(sources, format, fields=parsed.fields, **reading)
    check_outside(output, found)
    splitter = Splitter(passages, overlap) if passages is not None else None
    started = time.perf_counter()
    documents = (item for item in read_with_progress(found, "Encoding") if isinstance(item, Document))
    report = encode_shard(
        documents, output, parsed, which, name=model, passages=splitter, batch=batch, overwrite=overwrite
    )
    _report(report, output, which, time.perf_counter() - started)


def _report(report: EncodingReport, output: Path, shard: Shard, seconds: float) -> None:
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
