"""Results of a search, in a terminal and as JSON: hits with snippets, facets, explanations, why nothing was found."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vizsla.cli import console
from vizsla.cli.options import search_with_suggestion, searched_here
from vizsla.errors import VizslaError
from vizsla.harmless import harmless

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.text import Text

    from vizsla.index import Facets, IndexView, Snippet
    from vizsla.index.searchable import SearchableCollection
    from vizsla.runs import Document, Explanation, Hit, Hits, Retriever

MATCH = "bold yellow"
TITLE_WIDTH, TEXT_WIDTH = 120, 240  # characters
_WIDE = 1000  # columns of an output that is not a terminal
_MAX_TERMS = 8
_FACET = re.compile(r"""(?:`[^`]*`|\((?:"(?:[^"\\]|\\.)*"|[^()"])*\)|[^,])+""")  # commas in parentheses do not separate


def count_documents(retriever: Retriever) -> str:
    """The number of documents, and of passages if the index has passages, in words."""
    from vizsla.index import CollectionView

    passages = retriever.info()["passages"] if isinstance(retriever, CollectionView) else None
    in_passages = "" if passages is None else f" in {console.count(passages, 'passage')}"
    return console.count(len(retriever), "document") + in_passages


def show_results(retriever: Retriever, query: str, k: int, filter: str | None = None) -> list[str]:
    """Print the results of a query and return their ids."""
    hits = search_with_suggestion(retriever, query, k, filter, {})
    if hits:
        show_hits(retriever, query, hits, filter)
    else:
        console.remark(nothing_found(retriever, query, filter))
    remark_spelling(hits)
    return hits.ids


def remark_spelling(hits: Hits) -> None:
    """Say what may be meant, or what was searched instead of what was typed."""
    if hits.did_you_mean is not None:
        console.remark(f"Did you mean: {console.safe(hits.did_you_mean)}")
    if hits.corrected is not None:
        console.remark(f"Results for: {console.safe(hits.corrected)} (--typos off searches for what was typed)")


def show_hits(retriever: Retriever, query: str, hits: Hits, filter: str | None = None) -> None:
    """Print each hit with title, id, score and its best snippet, matches highlighted."""
    from rich.text import Text

    snippet = _snippets(retriever, query, filter)
    for hit in hits:
        head = Text().append(f"{hit.rank:>3}. ", style="dim")
        title = hit.document.get("title")
        if isinstance(title, str) and title:
            highlighted = _highlighted(snippet(hit.document, "title", TITLE_WIDTH), "bold")
            head.append_text(highlighted).append(f"  {console.safe(hit.id)}" if title != hit.id else "", style="cyan")
        else:
            head.append(console.safe(hit.id), style="bold cyan")
        if place := _place(hit):
            head.append(f"  {console.safe(place)}")
        head.append(f"  {hit.score:.4f}", style="dim")
        console.out.print(head)
        best = snippet(hit.document, "text", TEXT_WIDTH)
        if best.text.strip():
            console.print_indented(_highlighted(best, ""), 5)


def _place(hit: Hit) -> str:
    """The headings and pages that a passage stands under and on, in words."""
    place = hit.place
    title = hit.document.get("title")
    below = place.breadcrumb[1:] if place.breadcrumb[:1] == (title,) else place.breadcrumb
    return "" if hit.passage is None else str(replace(place, breadcrumb=below))


def _snippets(retriever: Retriever, query: str, filter: str | None) -> Callable[[Document, str, int], Snippet]:
    """A function that cuts a snippet from a field of a document; only an index can find the matching words."""
    here = searched_here(retriever)
    return _beginning if here is None else here.highlighter(query, filter).snippet


def _beginning(document: Document, field: str, width: int) -> Snippet:
    from vizsla.index import Snippet

    text = document.get(field)
    text = text if isinstance(text, str) else ""
    return Snippet(text[:width], (), True, len(text) <= width)


def _highlighted(snippet: Snippet, style: str) -> Text:
    """A snippet on one line, with highlighted matches."""
    from rich.text import Text

    text = Text(style=style)
    at = 0
    for start, end in snippet.matches:
        if start < at:
            continue
        text.append(_one_line(snippet.text[at:start]))
        text.append(_one_line(snippet.text[start:end]), style=MATCH)
        at = end
    text.append(_one_line(snippet.text[at:]))
    front, back = "" if snippet.at_start else "… ", "" if snippet.at_end else " …"
    return Text(front).append_text(text).append(back)


def _one_line(text: str) -> str:
    """A text with single blanks as white space, and with control characters escaped."""
    return harmless(re.sub(r"\s+", " ", text))


def nothing_found(retriever: Retriever, query: str, filter: str | None = None) -> str:
    """A message that says why a query found nothing."""
    if not len(retriever):
        return "nothing found: the index has no documents"
    from vizsla.index import IndexView

    here = searched_here(retriever)
    if here is None:
        return "nothing found"
    if isinstance(here, IndexView) and here.options.language is not None:
        return f"nothing found: no document in {console.safe(here.options.language)} matches the query"
    if isinstance(here, IndexView) and here.options.syntax is not None:
        return "nothing found: no document matches the query"
    return _why_nothing(here, query, filter)


def _why_nothing(index: SearchableCollection | IndexView, query: str, filter: str | None) -> str:
    from vizsla.models import SparseComponent, TokenMatchComponent

    model, statistics = index.model, index.term_statistics(query)
    terms = list(dict.fromkeys(t.term for t in statistics))
    if not terms and not all(isinstance(part.component, SparseComponent) for part in model.parts):
        if filter is not None and index.search(query, 1):
            return "nothing found: no document matches the filter"
        if any(isinstance(part.component, TokenMatchComponent) for part in model.parts):
            return f"nothing found: no document has a word of the query that {console.safe(model.name)} knows"
        return f"nothing found: {console.safe(model.name)} does not know any word of the query"
    if not terms:
        return "nothing found: the query has no words after analysis (stop words and punctuation are removed)"
    if any(t.documents for t in statistics):
        return "nothing found: no document that matches the filter has any word of the query"
    more = f" and {len(terms) - _MAX_TERMS} more" if len(terms) > _MAX_TERMS else ""
    shown = ", ".join(console.safe(t) for t in terms[:_MAX_TERMS]) + more
    return f"nothing found: no document has any of these words: {shown}"


def show_explanation(explanation: Explanation, doc_id: str) -> None:
    """Print the explanation of a score as a tree of its summands."""
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    head = Text().append(f"{explanation.score:.4f}", style="bold")
    tree = Tree(head.append(f"  {console.safe(explanation.name)} for {console.safe(doc_id)}"), guide_style="dim")
    _add_parts(tree, explanation)
    if console.out.is_terminal:
        console.out.print(tree)
    else:  # rich cuts a tree at the width of its console
        Console(file=console.out.file, width=_WIDE).print(tree)


def _add_parts(tree: object, explanation: Explanation) -> None:
    from rich.text import Text
    from rich.tree import Tree

    assert isinstance(tree, Tree)
    if explanation.note:
        tree.add(Text(explanation.note, style="dim"))
    for part in sorted(explanation.parts, key=lambda p: -p.score):
        line = Text().append(f"{part.score:.4f}", style="bold" if part.score else "dim")
        if "term" in part.facts:
            tree.add(
                line.append(f"  {console.safe(part.name)}", style=MATCH).append(
                    f"  {console.safe(part.note)}", style="dim"
                )
            )
        else:  # a model of a sum
            _add_parts(tree.add(line.append(f"  {console.safe(part.name)}{part.weight_note}")), part)


def hit_as_json(hit: Hit) -> dict[str, Any]:
    """A hit as plain data."""
    passage = {} if hit.passage is None else {"passage": hit.passage}
    place = {} if hit.passage is None else {"place": hit.place.as_dict()}
    found = {"rank": hit.rank, "id": hit.id, "score": hit.score, **passage, **place}
    return found | {"document": dict(hit.document.content)}


def show_similar(retriever: Retriever, doc_id: str, k: int, filter: str | None, *, as_json: bool) -> None:
    """Print the documents that are most like one."""

    query, hits = _similar(retriever, doc_id, k, filter)
    if as_json:
        console.print_json({"like": doc_id, "model": retriever.name, "results": [hit_as_json(hit) for hit in hits]})
    elif hits:
        show_hits(retriever, query, hits, filter)
    else:
        console.remark("nothing found: no other document is like this one")


def _similar(retriever: Retriever, doc_id: str, k: int, filter: str | None) -> tuple[str, Hits]:
    """The query that was built from a document, if it is known, and the similar documents."""
    from vizsla.index import CollectionView

    if not isinstance(retriever, CollectionView):
        raise VizslaError(f"{retriever.name} is not an index, so --like finds nothing there; search for words")
    here = searched_here(retriever)
    return "" if here is None else here.similar_query(doc_id), retriever.similar(doc_id, k, filter)


def _count_facets(retriever: Retriever, fields: str, query: str, filter: str | None) -> Facets:
    from vizsla.index import CollectionView

    names = [name.strip() for name in _FACET.findall(fields) if name.strip()]
    if not isinstance(retriever, CollectionView):
        raise VizslaError(f"{retriever.name} is not an index, so --facets has nothing to count; leave it out")
    return retriever.facets(names, query, filter)


def facets_as_json(retriever: Retriever, fields: str, query: str, filter: str | None) -> dict[str, Any]:
    """The values of fields over all documents that match, as plain data."""
    from vizsla.index.search.facets import value_as_json

    counted = _count_facets(retriever, fields, query, filter)
    return {
        name: {
            "values": [value_as_json(v) for v in own.values],
            "distinct": own.distinct,
            "missing": own.missing,
        }
        for name, own in counted.fields.items()
    }


def show_facets(retriever: Retriever, fields: str, query: str, filter: str | None) -> None:
    """Print the values of fields over all documents that match, the most frequent first."""
    from rich.text import Text

    for name, own in _count_facets(retriever, fields, query, filter).fields.items():
        shown = [f"{console.safe(str(v.value))} ({v.count:,})" for v in own.values]
        more = [f"{own.distinct - len(shown):,} more"] if own.distinct > len(shown) else []
        console.out.print(Text().append(console.safe(name), style="bold").append(f"  {', '.join(shown + more)}"))
