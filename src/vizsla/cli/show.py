"""How results look in a terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vizsla.cli import console
from vizsla.harmless import harmless

if TYPE_CHECKING:
    from rich.text import Text

    from vizsla.index import Explanation, Hit, Index, Snippet

MATCH = "bold yellow"
_WIDE = 1000  # columns where nobody has told how many there are


def count_documents(index: Index) -> str:
    """How many documents an index has, and in how many passages where it has those."""
    passages = index.info()["passages"]
    within = "" if passages is None else f" in {console.count(passages, 'passage')}"
    return console.count(len(index), "document") + within


def show_results(index: Index, query: str, k: int, filter: str | None = None) -> list[str]:
    """Print the results of a query; gives their ids."""
    hits = index.search(query, k, filter)
    if hits:
        show_hits(index, query, hits, filter)
    else:
        console.remark(nothing_found(index, query, filter))
    return [hit.id for hit in hits]


def show_hits(index: Index, query: str, hits: list[Hit], filter: str | None = None) -> None:
    """Each hit with title, score, id and the passage that answers best, matches marked."""
    from rich.text import Text

    highlighter = index.highlighter(query, filter)
    for hit in hits:
        head = Text().append(f"{hit.rank:>3}. ", style="dim")
        title = hit.document.get("title")
        if isinstance(title, str) and title:
            marked = _marked(highlighter.snippet(hit.document, "title", width=120), "bold")
            head.append_text(marked).append(f"  {console.safe(hit.id)}" if title != hit.id else "", style="cyan")
        else:
            head.append(console.safe(hit.id), style="bold cyan")
        head.append(f"  {hit.score:.4f}", style="dim")
        console.out.print(head)
        snippet = highlighter.snippet(hit.document)
        if snippet.text.strip():
            console.print_indented(_marked(snippet, ""), 5)


def _marked(snippet: Snippet, style: str) -> Text:
    """A snippet on one line, its matches marked."""
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
    """White space as single blanks, and nothing that could move a terminal's cursor."""
    return harmless(re.sub(r"\s+", " ", text))


def nothing_found(index: Index, query: str, filter: str | None = None) -> str:
    """Why a query found nothing."""
    if not len(index):
        return "nothing found: the index has no documents"
    statistics = index.term_statistics(query)
    terms = list(dict.fromkeys(t.term for t in statistics))
    if not terms and any(part.component.dimensions for part in index.asked.parts):
        if filter is not None and index.search(query, 1):
            return "nothing found: no document meets the filter"
        return f"nothing found: {console.safe(index.asked.name)} knows no word of the query"
    if not terms:
        return "nothing found: after analysis no word of the query is left (stop words and punctuation are dropped)"
    if any(t.documents for t in statistics):
        return "nothing found: no document that meets the filter has any of the query's words"
    shown = ", ".join(console.safe(t) for t in terms[:8]) + (f" and {len(terms) - 8} more" if len(terms) > 8 else "")
    return f"nothing found: no document has any of these words: {shown}"


def show_explanation(explanation: Explanation, doc_id: str) -> None:
    """The tree of a score."""
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    head = Text().append(f"{explanation.score:.4f}", style="bold")
    tree = Tree(head.append(f"  {console.safe(explanation.name)} for {console.safe(doc_id)}"), guide_style="dim")
    _grow(tree, explanation)
    if console.out.is_terminal:
        console.out.print(tree)
    else:  # a tree is cut at the width of its console
        Console(file=console.out.file, width=_WIDE).print(tree)


def _grow(tree: object, explanation: Explanation) -> None:
    from rich.text import Text
    from rich.tree import Tree

    assert isinstance(tree, Tree)
    if explanation.note:
        tree.add(Text(explanation.note, style="dim"))
    for part in sorted(explanation.parts, key=lambda p: -p.score):
        line = Text().append(f"{part.score:.4f}", style="bold" if part.score else "dim")
        if "term" in part.facts:
            tree.add(line.append(f"  {console.safe(part.name)}", style=MATCH).append(f"  {part.note}", style="dim"))
        else:  # a model of a sum
            _grow(tree.add(line.append(f"  {console.safe(part.name)}{part.weight_note}")), part)
