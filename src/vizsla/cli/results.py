"""What `vizsla search` shows beside plain results: documents like one, and the values of fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vizsla.cli import console
from vizsla.cli.opening import searched_here
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.index import Facets
    from vizsla.runs import Hit, Hits, Retriever


def hit_as_json(hit: Hit) -> dict[str, Any]:
    """A hit as plain data."""
    passage = {} if hit.passage is None else {"passage": hit.passage}
    return {"rank": hit.rank, "id": hit.id, "score": hit.score, **passage, "document": dict(hit.document.content)}


def show_similar(retriever: Retriever, doc_id: str, k: int, filter: str | None, *, as_json: bool) -> None:
    """Print the documents that are most like one."""
    from vizsla.cli.show import show_hits

    query, hits = _similar(retriever, doc_id, k, filter)
    if as_json:
        console.print_json({"like": doc_id, "model": retriever.name, "results": [hit_as_json(hit) for hit in hits]})
    elif hits:
        show_hits(retriever, query, hits, filter)
    else:
        console.remark("nothing found: no other document is like this one")


def _similar(retriever: Retriever, doc_id: str, k: int, filter: str | None) -> tuple[str, Hits]:
    """The query that a document makes, where it is known, and what it finds."""
    from vizsla.index import CollectionView

    if not isinstance(retriever, CollectionView):
        raise VizslaError(f"{retriever.name} is not an index, so --like finds nothing there; search for words")
    here = searched_here(retriever)
    return "" if here is None else here.similar_query(doc_id), retriever.similar(doc_id, k, filter)


def _facets(retriever: Retriever, fields: str, query: str, filter: str | None) -> Facets:
    from vizsla.index import CollectionView

    names = [name.strip() for name in fields.split(",") if name.strip()]
    if not isinstance(retriever, CollectionView):
        raise VizslaError(f"{retriever.name} is not an index, so --facets has nothing to count; leave it out")
    return retriever.facets(names, query, filter)


def facets_as_json(retriever: Retriever, fields: str, query: str, filter: str | None) -> dict[str, Any]:
    """The values of fields over all documents that match, as plain data."""
    counted = _facets(retriever, fields, query, filter)
    return {
        name: {
            "values": [{"value": v.value, "count": v.count} for v in own.values],
            "distinct": own.distinct,
            "missing": own.missing,
        }
        for name, own in counted.fields.items()
    }


def show_facets(retriever: Retriever, fields: str, query: str, filter: str | None) -> None:
    """Print the values of fields over all documents that match, the most frequent first."""
    from rich.text import Text

    for name, own in _facets(retriever, fields, query, filter).fields.items():
        shown = [f"{console.safe(str(v.value))} ({v.count:,})" for v in own.values]
        more = [f"{own.distinct - len(shown):,} more"] if own.distinct > len(shown) else []
        console.out.print(Text().append(console.safe(name), style="bold").append(f"  {', '.join(shown + more)}"))
