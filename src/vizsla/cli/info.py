"""vizsla info: what an index holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vizsla.cli import console


def info(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the index.")],
    terms: Annotated[str | None, typer.Option("--terms", help="How common the terms of this text are.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Show what an index holds: documents, terms, sizes, the model."""
    from vizsla.index import Index

    with Index.open(folder) as index:
        facts = index.info()
        if terms is not None:
            facts["terms"] = [t._asdict() for t in index.term_statistics(terms)]
    if as_json:
        console.print_json(facts)
        return
    rows = [("model", facts["model"])]
    unit = "document" if facts["passages"] is None else "passage"
    passages = "" if facts["passages"] is None else f" in {console.count(facts['passages'], 'passage')}"
    gone = f"{facts['deleted']:,} deleted" if unit == "document" else f"{console.count(facts['deleted'], unit)} deleted"
    deleted = f" ({gone} or replaced, not yet compacted away)" if facts["deleted"] else ""
    rows.append(("documents", f"{facts['documents']:,}{passages}{deleted}"))
    for name, namespace in facts["namespaces"].items():
        terms, average = namespace["terms"], namespace["average_length"]
        numbers = f", {namespace['dimensions']} numbers each" if namespace["dimensions"] else ""
        rows.append((f"namespace {name}", f"{terms:,} tokens, {average:.1f} a {unit} on average{numbers}"))
    rows.append(("postings", f"{facts['postings']:,} in {console.count(facts['segments'], 'segment')}"))
    if facts["dense"] is not None:
        rows.append(("dense vectors", _dense(facts["dense"])))
    rows.append(("index", console.size(facts["index_bytes"])))
    rows.append(("stored documents", console.size(facts["document_bytes"])))
    rows.append(("created", f"{facts['created']} by vizsla {facts['vizsla']}"))
    for t in facts.get("terms", []):
        there = f"in {console.count(t['documents'], unit)}, {t['occurrences']:,g} times in all"
        rows.append((f"{t['namespace']}: {t['term']}", there))
    console.show_table((), rows)


def _dense(facts: dict[str, Any]) -> str:
    """How dense vectors are kept and searched, on one line."""
    told = f"{facts['kind']}, {console.size(facts['vector_bytes'])} in {facts['store']}"
    small, built = facts["exact_segments"], facts["built_segments"]
    if built:
        told += f"; {', '.join(facts['built'])} in {console.count(built, 'segment')}, "
        told += console.size(facts["structure_bytes"])
    if built or facts["kind"].startswith(("hnsw", "ivf", "pq")):
        told += f"; {console.count(small, 'segment')} too small for it, searched exactly" if small else ""
    return told
