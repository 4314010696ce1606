"""vizsla export: documents and queries for other engines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vizsla.cli import console, options
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vizsla.index import Index

_ENGINES = ("elasticsearch", "opensearch")
_TEXT_FORMATS = ("jsonl", "anserini")
_FORMATS_OF_QUERIES = ("ciff", "anserini", *_ENGINES)


def export(
    index: options.IndexFolder,
    output: Annotated[
        Path | None,
        options.output("The file to write, - is standard output; a folder for elasticsearch and opensearch."),
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="jsonl, arrays (numpy: dense and token vectors), ciff (Common Index File Format), "
            "anserini (JsonVectorCollection of integer weights), elasticsearch or opensearch (bulk files).",
        ),
    ] = "jsonl",
    quantise: Annotated[
        str | None,
        typer.Option(
            "--quantise", metavar="METHOD", help="Round weights to whole numbers: minmax:8 or range:5:256:ceil."
        ),
    ] = None,
    no_texts: Annotated[
        bool, typer.Option("--no-texts", help="elasticsearch, opensearch: leave the fields of documents out.")
    ] = False,
    query: Annotated[
        str | None, typer.Option("--query", metavar="TEXT", help="Write this query for the engine, not documents.")
    ] = None,
    queries: options.QueriesOrNone = None,
    k: Annotated[int | None, options.top_k("elasticsearch, opensearch: how many results a query asks for.")] = None,
) -> None:
    """Export vectors and queries to Anserini, Elasticsearch, numpy.

    Documents become vectors of terms (with idf) or dense vectors. --query and --queries write queries that fit them.
    """
    from vizsla.backends import FORMATS
    from vizsla.index import Index

    console.check_name("export format", format, FORMATS)
    _check(format, quantise, no_texts, query, queries, k)
    if query is not None or queries is not None:
        target = output or (console.STANDARD_OUTPUT if query is not None else None)
        console.check_output(_named(target), *([queries] if queries else []))
        with Index.open(index) as opened:
            _write_queries(opened, format, query, queries, _named(target), k or 10)
        return
    target = _named(output)
    if format in _ENGINES:
        console.check_folder(target, f"the output of {format}")
    else:
        console.check_output(target)
    if format not in _TEXT_FORMATS and target == console.STANDARD_OUTPUT:
        raise VizslaError(f"only {' and '.join(_TEXT_FORMATS)} can go to standard output; {format} needs files")
    with Index.open(index) as opened, console.output_file(target) as file:
        from vizsla.backends import export_vectors
        from vizsla.models import LanguageBM25

        count = export_vectors(opened, format, file, quantise, texts=not no_texts)
        if any(isinstance(part.component, LanguageBM25) for part in opened.model.parts):
            console.remark(
                "each document has terms of its own language, after the name of its namespace; the other engine "
                "analyses none of these languages, so write queries with --query or --queries"
            )
    console.remark(f"{console.count(count, 'vector')} written to {console.output_name(target)}")


def _check(
    format: str, quantise: str | None, no_texts: bool, query: str | None, queries: Path | None, k: int | None
) -> None:
    """Refuse options that do not go together, before anything is opened."""
    with_queries = query is not None or queries is not None
    if query is not None and queries is not None:
        raise VizslaError("give either --query TEXT or --queries FILE, not both")
    if with_queries and format not in _FORMATS_OF_QUERIES:
        raise VizslaError(f"queries are written as {', '.join(_FORMATS_OF_QUERIES)}, not as {format}")
    if with_queries and quantise is not None:
        raise VizslaError("--quantise is for the weights of documents; leave it out with --query and --queries")
    if no_texts and (with_queries or format not in _ENGINES):
        raise VizslaError("--no-texts is for the documents of elasticsearch and opensearch")
    if k is not None and (not with_queries or format not in _ENGINES):
        raise VizslaError("-k is for queries of elasticsearch and opensearch")
    if k is not None and k < 1:
        raise VizslaError(f"-k, the number of documents to retrieve, must be 1 or more, not {k}")


def _named(output: Path | None) -> Path:
    if output is None:
        raise VizslaError("name the output with -o")
    return output


def _write_queries(index: Index, format: str, query: str | None, queries: Path | None, output: Path, k: int) -> None:
    """Write topics for term-based engines, or bodies of search requests; that of a single query is pretty-printed."""
    import json

    from vizsla.backends import search_bodies, write_bodies, write_topics
    from vizsla.datasets import read_queries
    from vizsla.runs.retriever import query_with_words

    texts: Mapping[str, str]
    texts = {"1": query_with_words(query)} if queries is None else read_queries(queries)
    with console.output_file(output) as file:
        if format not in _ENGINES:
            write_topics(index, texts, file)
        elif queries is not None:
            write_bodies(index, format, texts, file, k)
        else:
            ((_, body),) = search_bodies(index, format, texts, k)
            file.write_text(json.dumps(body, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    if output != console.STANDARD_OUTPUT:
        console.remark(f"{console.count(len(texts), 'query')} written to {console.output_name(output)}")
