"""vizsla info, delete, compact and verify: what an index holds, and how it is looked after."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from vizsla.cli import console, options
from vizsla.cli.options import open_writable
from vizsla.errors import InputError, VizslaError
from vizsla.harmless import harmless


def info(
    index: options.Writable,
    terms: Annotated[
        str | None, typer.Option("--terms", metavar="TEXT", help="Also show how common the terms of this text are.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show what an index holds: documents, terms, model, sizes."""
    with open_writable(index) as opened:
        facts = opened.info()
        if terms is not None:
            facts["terms"] = [t._asdict() for t in opened.term_statistics(terms)]
    if as_json:
        console.print_json(facts)
    else:
        console.show_table((), _cluster_rows(facts) if "shards" in facts else _rows(facts))


def _cluster_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The facts about a collection in Qdrant, formatted for people."""
    rows = [("model", facts["model"]), ("documents", f"{facts['documents']:,}")]
    for name, namespace in facts["namespaces"].items():
        count, average = namespace["tokens"], namespace["average_length"]
        dimensions = f", {namespace['dimensions']} dimensions" if namespace["dimensions"] else ""
        rows.append((f"namespace {name}", f"{count:,} tokens, {average:.1f} a document on average{dimensions}"))
        if not namespace["dimensions"]:
            frozen, drift, error = (namespace[key] for key in ("frozen_average_length", "drift", "score_error"))
            rows.append(
                ("", f"document weights use {frozen:.1f}; drift {drift:+.2%}, scores off by {error:.2%} at most")
            )
    rows.append(
        ("collection", f"{facts['collection']}, {console.count(facts['shards'], 'shard')} x {facts['replicas']}")
    )
    if facts["kept"]:
        rows.append(
            ("kept", f"{', '.join(facts['kept'])}; vizsla qdrant revert goes back, upload --drop-old removes them")
        )
    who = facts["writer"]
    writer = "" if who is None else f", process {who['process']} on {who['host']} writes since {who['since']}"
    rows.append(("status", facts["status"] + writer))
    rows.append(("created", f"{facts['created']} by vizsla {facts['vizsla']}"))
    return rows + _term_rows(facts, "document")


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The facts, formatted for people."""
    rows = [("model", facts["model"])]
    unit = "document" if facts["passages"] is None else "passage"
    passages = "" if facts["passages"] is None else f" in {console.count(facts['passages'], 'passage')}"
    gone = f"{facts['deleted']:,} deleted" if unit == "document" else f"{console.count(facts['deleted'], unit)} deleted"
    deleted = f" ({gone} or replaced, not yet compacted away)" if facts["deleted"] else ""
    rows.append(("documents", f"{facts['documents']:,}{passages}{deleted}"))
    for name, namespace in facts["namespaces"].items():
        count, average = namespace["tokens"], namespace["average_length"]
        dimensions = f", {namespace['dimensions']} dimensions" if namespace["dimensions"] else ""
        own = f"{count:,} tokens, {average:.1f} a {namespace['unit']} on average{dimensions}"
        rows.append((f"namespace {name}", own))
    rows.append(("postings", f"{facts['postings']:,} in {console.count(facts['segments'], 'segment')}"))
    if (lists := facts["vector_postings"]) is not None:
        rows.append(("vector postings", f"{lists['vectors']:,}, {console.size(lists['bytes'])} in {lists['store']}"))
    if (ngrams := facts["ngrams"]) is not None:
        rows.append(("n-grams", f"of {ngrams['tokens']:,} tokens, {console.size(ngrams['bytes'])}"))
    if facts["dense"] is not None:
        rows.append(("dense vectors", _vectors(facts["dense"])))
    if (tokens := facts["token_vectors"]) is not None:
        rows.append(("token vectors", _token_vectors(tokens)))
    rows.append(("index", console.size(facts["index_bytes"])))
    rows.append(("stored documents", console.size(facts["document_bytes"])))
    rows.append(("created", f"{facts['created']} by vizsla {facts['vizsla']}"))
    return rows + _term_rows(facts, unit)


def _term_rows(facts: dict[str, Any], unit: str) -> list[tuple[str, str]]:
    """The frequencies of the given terms."""
    return [
        (
            f"{t['namespace']}: {t['term']}",
            f"in {console.count(t['documents'], unit)}, {t['occurrences']:,g} times in all",
        )
        for t in facts.get("terms", [])
    ]


def _token_vectors(facts: dict[str, Any]) -> str:
    """How token vectors are stored and searched, on one line."""
    text = f"{facts['vectors']:,}, {console.size(facts['vector_bytes'])} in {facts['store']}"
    if facts["kind"] == "exact":
        return text
    text += f"; {facts['kind']}"
    if facts["built_segments"]:
        text += f", {facts['centroids']:,} centroids in {console.count(facts['built_segments'], 'segment')}, "
        text += f"{console.size(facts['structure_bytes'])}; recall not measured (vizsla vectors recall)"
    if small := facts["exact_segments"]:
        text += f"; {console.count(small, 'segment')} too small for it, searched exactly"
    return text


def _vectors(facts: dict[str, Any]) -> str:
    """How dense vectors are stored and searched, on one line."""
    text = f"{facts['kind']}, {console.size(facts['vector_bytes'])} in {facts['store']}"
    small, built = facts["exact_segments"], facts["built_segments"]
    if built:
        text += f"; {', '.join(facts['built'])} in {console.count(built, 'segment')}, "
        text += console.size(facts["structure_bytes"])
    if built or facts["kind"].startswith(("hnsw", "ivf", "pq")):
        text += f"; {console.count(small, 'segment')} too small for it, searched exactly" if small else ""
    return text


def delete(
    index: options.Writable,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="The ids of the documents.")] = None,
    ids_file: Annotated[
        Path | None, typer.Option("--ids", metavar="FILE", help="A file with one id per line; - is standard input.")
    ] = None,
    filter: options.Filter = None,
) -> None:
    """Delete documents by id, or those that meet a filter."""
    to_delete = [*(ids or []), *(_read_ids(ids_file) if ids_file is not None else [])]
    if not to_delete and filter is None:
        raise VizslaError("say which documents to delete: ids, a file of ids with --ids, or --filter")
    if filter is not None and (ids or ids_file is not None):
        raise VizslaError("give ids or --filter, not both")
    with open_writable(index) as opened:
        deleted = opened.delete(to_delete) if filter is None else opened.delete(filter=filter)
        opened.commit()
    missing = len(set(to_delete)) - deleted if filter is None else 0
    not_there = f"; {missing:,} of the ids {'was' if missing == 1 else 'were'} not there" if missing else ""
    console.remark(f"{console.count(deleted, 'document')} deleted{not_there}")


def update(
    index: options.Writable,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="JSON: a record a line, or an array; - is standard input.")
    ],
) -> None:
    """Change fields of documents.

    A record has the id of a document and the fields that change, as in {"id": "7", "year": 1999}; the others stay, and
    null removes a field. Either all changes are made, or none if one of them cannot be.
    """
    from vizsla.datasets import changed_fields

    with open_writable(index) as opened:
        updated = opened.update(change for file in files for change in changed_fields(file))
        opened.commit()
    missing = ""
    if updated.missing:
        shown = ", ".join(map(repr, updated.missing[:3]))
        more = "" if len(updated.missing) <= 3 else ", ..."
        missing = f"; there is no document for {len(updated.missing):,} of the ids: {harmless(shown)}{more}"
    console.remark(f"{console.count(updated.documents, 'document')} changed{missing}")


def _read_ids(file: Path) -> list[str]:
    """The ids in a file, one per line."""
    try:
        text = console.read_input() if str(file) == "-" else file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError("this file does not exist", file=str(file)) from None
    except IsADirectoryError:
        raise InputError("this is a folder, not a file", file=str(file)) from None
    except UnicodeDecodeError:
        raise InputError("this is not a UTF-8 text file", file=str(file)) from None
    return [line for line in text.replace("\r\n", "\n").split("\n") if line]  # ids may contain other line separators


def compact(
    index: options.IndexFolder,
    memory: options.Memory = options.DEFAULT_MEMORY,
    vector_index: options.VectorIndex = None,
    positions: options.Positions = None,
) -> None:
    """Rewrite an index without deleted documents, as one segment.

    --vector-index also changes how dense vectors are stored and searched from now on, --positions whether the index
    stores the positions of words.
    """
    from vizsla.index import Index

    started = time.perf_counter()
    with Index.open(index, memory=console.parse_size(memory)) as opened:
        before = opened.info()["index_bytes"]
        opened.compact(vector_index, positions=positions)
        after = opened.info()["index_bytes"]
    seconds = time.perf_counter() - started
    console.remark(f"from {console.size(before)} to {console.size(after)} in {seconds:.1f} s")


_DAMAGED = 1


def verify(index: options.IndexFolder, as_json: options.Json = False) -> None:
    """Check that no file of an index is damaged.

    Every file is compared with its hash, and with the others. Exits with 1 if something is wrong.
    """
    from vizsla.cli.results import count_documents
    from vizsla.index import Index
    from vizsla.index import verify as verify_index

    if not index.is_dir():
        raise InputError("this folder does not exist", file=str(index))
    problems = verify_index(index)
    if as_json:
        console.print_json({"path": str(index), "problems": problems})
    elif problems:
        for problem in problems:
            console.line(problem)
    else:
        with Index.open(index) as opened:
            console.remark(f"no damage found: {count_documents(opened)}, all checksums match")
    if problems:
        raise typer.Exit(_DAMAGED)
