"""vizsla info: what an index holds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from vizsla.cli import console, options
from vizsla.cli.opening import open_writable


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
    """The facts about a collection in Qdrant as people read them."""
    rows = [("model", facts["model"]), ("documents", f"{facts['documents']:,}")]
    for name, namespace in facts["namespaces"].items():
        count, average = namespace["tokens"], namespace["average_length"]
        dimensions = f", {namespace['dimensions']} dimensions" if namespace["dimensions"] else ""
        rows.append((f"namespace {name}", f"{count:,} tokens, {average:.1f} a document on average{dimensions}"))
        if not namespace["dimensions"]:
            frozen, drift = namespace["frozen_average_length"], namespace["drift"]
            rows.append(("", f"weights are made with {frozen:.1f}; it has moved by {drift:+.2%}"))
    rows.append(
        ("collection", f"{facts['collection']}, {console.count(facts['shards'], 'shard')} x {facts['replicas']}")
    )
    if facts["kept"]:
        rows.append(("kept", f"{', '.join(facts['kept'])}; vizsla revert goes back, --drop-old of upload removes them"))
    who = facts["writer"]
    writer = "" if who is None else f", process {who['process']} on {who['host']} writes since {who['since']}"
    rows.append(("status", facts["status"] + writer))
    rows.append(("created", f"{facts['created']} by vizsla {facts['vizsla']}"))
    return rows + _term_rows(facts, "document")


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The facts as people read them."""
    rows = [("model", facts["model"])]
    unit = "document" if facts["passages"] is None else "passage"
    passages = "" if facts["passages"] is None else f" in {console.count(facts['passages'], 'passage')}"
    gone = f"{facts['deleted']:,} deleted" if unit == "document" else f"{console.count(facts['deleted'], unit)} deleted"
    deleted = f" ({gone} or replaced, not yet compacted away)" if facts["deleted"] else ""
    rows.append(("documents", f"{facts['documents']:,}{passages}{deleted}"))
    for name, namespace in facts["namespaces"].items():
        count, average = namespace["tokens"], namespace["average_length"]
        dimensions = f", {namespace['dimensions']} dimensions" if namespace["dimensions"] else ""
        rows.append((f"namespace {name}", f"{count:,} tokens, {average:.1f} a {unit} on average{dimensions}"))
    rows.append(("postings", f"{facts['postings']:,} in {console.count(facts['segments'], 'segment')}"))
    if (lists := facts["vector_postings"]) is not None:
        rows.append(("vector postings", f"{lists['vectors']:,}, {console.size(lists['bytes'])} in {lists['store']}"))
    if facts["dense"] is not None:
        rows.append(("dense vectors", _vectors(facts["dense"])))
    if (tokens := facts["token_vectors"]) is not None:
        rows.append(("token vectors", _token_vectors(tokens)))
    rows.append(("index", console.size(facts["index_bytes"])))
    rows.append(("stored documents", console.size(facts["document_bytes"])))
    rows.append(("created", f"{facts['created']} by vizsla {facts['vizsla']}"))
    return rows + _term_rows(facts, unit)


def _term_rows(facts: dict[str, Any], unit: str) -> list[tuple[str, str]]:
    """How common the terms are that were asked for."""
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
        text += f"{console.size(facts['structure_bytes'])}; recall not measured (vizsla ann-recall)"
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
