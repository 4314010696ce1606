"""vizsla index: documents from files to a new index."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vizsla.cli import console

if TYPE_CHECKING:
    from vizsla.datasets import Document
    from vizsla.index import Added, Index


def index(
    sources: Annotated[list[str], typer.Argument(help="Files of JSON lines (also .gz, .xz, .zst) or BEIR folders.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder of the new index.")],
    model: Annotated[
        str, typer.Option("--model", "-m", help='A name, a saved model, or a sum: "bm25 + 0.5 * bm25-wp".')
    ] = "bm25",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an index that is there.")] = False,
    memory: Annotated[str, typer.Option("--memory", help="About how much memory to take, as in 512MB.")] = "1GB",
) -> None:
    """Index documents: every line a JSON object with an id ("_id" or "id"), a "text", perhaps a "title"."""
    from vizsla.datasets import source_file
    from vizsla.index import Index, replace_index

    files = [source_file(source) for source in sources]
    size = console.parse_size(memory)
    started = time.perf_counter()
    with replace_index(output, overwrite=overwrite) as building, Index.create(building, model, memory=size) as new:
        added = new.add(watched(files, "Indexing"))
        new.commit()
    with Index.open(output) as done:
        report(done, added, time.perf_counter() - started)


def watched(files: list[Path], title: str) -> Iterator[Document]:
    """The documents of files, behind a progress bar over their bytes."""
    from vizsla.datasets import read_documents

    total = sum(f.stat().st_size for f in files)
    before, done, position = 0, 0, 0

    def move(to: int) -> None:
        nonlocal position
        position = to

    with console.progress(title, total, "documents") as advance:
        for file in files:
            for document in read_documents(file, move):
                yield document
                done += 1
                if done % 500 == 0:
                    advance(before + position, done)
            before, position = before + file.stat().st_size, 0


def report(index: Index, added: Added, seconds: float) -> None:
    report_empty(added)
    facts = index.info()
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
