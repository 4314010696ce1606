"""The tools for agents: what an assistant can ask of indexes by the Model Context Protocol, and its answers."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Any, NotRequired

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp_types import ToolAnnotations
from pydantic import ConfigDict, Field, ValidationError, with_config
from typing_extensions import TypedDict  # what pydantic reads before Python 3.12

from vizsla import __version__
from vizsla.errors import VizslaError
from vizsla.index import Highlighter
from vizsla.models import as_text, is_text
from vizsla.runs import Document, Explanation, Hit
from vizsla.server.hosting import Hosted, Hosting

TITLE, TEXT = "title", "text"
SNIPPET = 300
"""About how many characters of a document a search shows."""
MAX_SNIPPET = 2 * SNIPPET
"""A snippet ends between words; one of a text without word boundaries ends here."""
MAX_SHORT = 200
"""The longest field, in characters, that is shown in full; longer ones are read with `get_document`."""
_MAX_FIELDS = 20

_described = with_config(ConfigDict(use_attribute_docstrings=True))  # texts under fields are part of the schema

Scalar = str | int | float | bool | None
Fields = dict[str, Scalar | list[Scalar]]


@_described
class FoundDocument(TypedDict):
    """A document that a search found."""

    rank: int
    id: str
    score: float
    title: NotRequired[str]
    snippet: str
    """The part of the text that matches best; … marks where it was cut."""
    passage: NotRequired[int]
    """The number of the passage that was found, from 0, in an index of passages."""
    fields: NotRequired[Fields]
    """Short fields that are stored with the document, such as a year."""


@_described
class SearchAnswer(TypedDict):
    """The best documents for a query, best first."""

    index: str
    model: str
    results: list[FoundDocument]
    note: NotRequired[str]
    """What to do if nothing was found."""


@_described
class DocumentAnswer(TypedDict):
    """A page of a document's text."""

    index: str
    id: str
    title: NotRequired[str]
    text: str
    """The text from `offset` on."""
    offset: int
    characters: int
    """How many characters the whole text has."""
    next_offset: NotRequired[int]
    """Where the next page begins; missing on the last page."""
    fields: NotRequired[Fields]
    note: NotRequired[str]


@_described
class ExplainedTerm(TypedDict):
    """What one term of the query adds to a score."""

    term: str
    score: float
    why: str


@_described
class ExplainedPart(TypedDict):
    """What one part of the model adds to a score."""

    name: str
    score: float
    weight: NotRequired[float]
    why: NotRequired[str]
    terms: NotRequired[list[ExplainedTerm]]
    """By score, the largest first."""


@_described
class ExplainAnswer(TypedDict):
    """Why a document has its score: the scores of the parts add up to it."""

    index: str
    id: str
    model: str
    score: float
    parts: list[ExplainedPart]


@_described
class IndexFacts(TypedDict):
    """An index that can be searched."""

    name: str
    documents: NotRequired[int]
    model: NotRequired[str]
    """What it is searched with, unless a search names another model."""
    text_fields: NotRequired[list[str]]
    """The fields that searches read."""
    filter_fields: NotRequired[Fields]
    """Other fields that documents have, each with an example of its value; a filter may name them."""
    unavailable: NotRequired[str]
    """Why it cannot be searched now; then the rest is missing."""


@_described
class IndexesAnswer(TypedDict):
    """All indexes that can be searched."""

    indexes: list[IndexFacts]


def found_document(hit: Hit, snippet: str, text_fields: Sequence[str]) -> FoundDocument:
    """A hit with its snippet and its short fields, without its whole text."""
    found: FoundDocument = {"rank": hit.rank, "id": hit.id, "score": hit.score, "snippet": snippet}
    if title := title_of(hit.document):
        found["title"] = _cut(title)
    if hit.passage is not None:
        found["passage"] = hit.passage
    if fields := short_fields(hit.document.content, text_fields):
        found["fields"] = fields
    return found


def title_of(document: Document) -> str:
    """The title of a document; empty if it has none."""
    title = document.get(TITLE)
    return title if isinstance(title, str) else ""


def snippet_fields(document: Document, text_fields: Sequence[str]) -> list[str]:
    """The fields to cut a snippet from: `text` first, then what else the model reads; the title only if it is alone."""
    filled = [f for f in text_fields if is_text(value := document.get(f)) and as_text(value).strip()]
    texts = sorted((field for field in filled if field != TITLE), key=lambda field: field != TEXT)
    return texts or filled or [TEXT]


def short_fields(content: Mapping[str, Any], text_fields: Sequence[str]) -> Fields:
    """The fields beside title and texts that are short enough to be shown with every result."""
    names = [name for name in content if name not in (TITLE, *text_fields) and not _is_long(content[name])]
    return {name: _plain(content[name]) for name in names[:_MAX_FIELDS]}


def whole_text(document: Document, text_fields: Sequence[str]) -> str:
    """The long fields of a document, which `short_fields` leaves out; several fields get their names as headings."""
    content = document.content
    texts = {
        name: as_text(value) if is_text(value) else json.dumps(value, ensure_ascii=False)
        for name, value in content.items()
        if name != TITLE and value not in (None, "", []) and (name in text_fields or _is_long(value))
    }
    if len(texts) == 1:
        return next(iter(texts.values()))
    return "\n\n".join(f"{name}: {text}" for name, text in texts.items())


def explained(explanation: Explanation) -> list[ExplainedPart]:
    """The tree of an explanation as a list of parts, each with its terms."""
    has_parts = any("term" not in part.facts for part in explanation.parts)
    return [_part(part) for part in (explanation.parts if has_parts else (explanation,))]


def _part(explanation: Explanation) -> ExplainedPart:
    part: ExplainedPart = {"name": explanation.name, "score": explanation.score}
    if explanation.facts.get("weight", 1) != 1:
        part["weight"] = float(explanation.facts["weight"])
    others = [f"{leaf.name}: {leaf.note}" for leaf in explanation.parts if "term" not in leaf.facts]
    if why := "; ".join(filter(None, (explanation.note, *others))):
        part["why"] = why
    terms = sorted((leaf for leaf in explanation.parts if "term" in leaf.facts), key=lambda leaf: -leaf.score)
    if terms:
        part["terms"] = [{"term": leaf.name, "score": leaf.score, "why": leaf.note} for leaf in terms]
    return part


def _is_long(value: object) -> bool:
    if isinstance(value, str):
        return len(value) > MAX_SHORT
    return isinstance(value, list | dict) and len(json.dumps(value, ensure_ascii=False)) > MAX_SHORT


def _plain(value: Any) -> Scalar | list[Scalar]:
    """A value of a field as it is shown; objects as their JSON."""
    if isinstance(value, list):
        return [_scalar(item) for item in value]
    return _scalar(value)


def _scalar(value: Any) -> Scalar:
    return value if isinstance(value, str | int | float | bool | None) else json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHORT else f"{text[: MAX_SHORT - 1]}…"


MAX_K = 100
PAGE, MAX_PAGE = 4000, 50_000  # characters of a document that one answer has
MAX_QUERY = 4096
_NOT_STORED = "this index does not store the texts of its documents"
_SAMPLE = 50  # documents that are looked at for fields to filter by

INSTRUCTIONS = """\
These tools search collections of documents. Start with search; its results have short snippets. Read a document with
get_document before you rely on what it says, and cite documents by their ids. list_indexes says what there is to
search, and which fields a filter may name. explain says why a document ranks where it does."""

_SEARCH = """\
Find the documents that best match a query. Use this first whenever a question may be answered by the collection.
Results come best first, each with an id, a score, a title and a short snippet; read the whole text with get_document.
Give the words that a good document would contain. If little is found, try other words. Narrow the search with a
filter on the fields that list_indexes names."""
_GET = """\
Read the text of one document, by the id that search gave. Long texts come in pages: if the answer has next_offset, call
again with that offset to read on."""
_EXPLAIN = """\
Say why a document has its score for a query: what each word of the query adds. Use this to find out why a document
ranks high or low, not to read it."""
_LIST = """\
List the indexes that can be searched: names, numbers of documents, and the fields a filter may name, with examples.
Use this before the first search if there may be several indexes, or before you write a filter."""

_Query = Annotated[str, Field(description="What to look for: words or a question.", max_length=MAX_QUERY)]
_Id = Annotated[
    str, Field(description="The id of a document, as search gave it.", max_length=MAX_QUERY, coerce_numbers_to_str=True)
]
_IndexName = Annotated[
    str | None, Field(description="The index, as list_indexes names it; may be left out if there is one.")
]
_Filter = Annotated[
    str | dict[str, Any] | None,
    Field(description='A condition on fields, as in: year >= 1999 and lang = "en"', examples=["year >= 1999"]),
]
_Model = Annotated[
    str | None, Field(description="Another model than the index's own, as in bm25(k1=1.2).", max_length=MAX_QUERY)
]


class Tools:
    """The tools over the indexes of a server, without the protocol around them.

    `polls`: whether to look for new commits before each call, where nobody else does.
    """

    def __init__(self, hosting: Hosting, polls: bool) -> None:
        self._hosting = hosting
        self._polls = polls
        self._filter_fields: dict[str, tuple[int, Fields]] = {}  # by index, with the generation they are of

    def search(
        self,
        query: _Query,
        index: _IndexName = None,
        k: Annotated[int, Field(description="How many documents.", ge=1, le=MAX_K)] = 10,
        filter: _Filter = None,
        model: _Model = None,
    ) -> SearchAnswer:
        """The best documents for a query, with snippets."""
        with self._hosted(index) as hosted:
            opened, chosen = hosted.index, hosted.models.model(model)
            hits = opened.search(query, k, filter, model=chosen)
            fields = opened.model.fields
            highlighter = opened.highlighter(query, filter, model=chosen) if hits else None
            answer: SearchAnswer = {
                "index": hosted.name,
                "model": (chosen or opened.model).name,
                "results": [found_document(hit, _snippet(highlighter, hit.document, fields), fields) for hit in hits],
            }
            if not hits:
                filtered = ", or without the filter" if filter else ""
                answer["note"] = f"nothing was found; try other words{filtered}"
            elif not any(found["snippet"] for found in answer["results"]) and not opened.info()["stored"]:
                answer["note"] = _NOT_STORED
            return answer

    def get_document(
        self,
        id: _Id,
        index: _IndexName = None,
        offset: Annotated[int, Field(description="Where to begin, in characters.", ge=0)] = 0,
        max_characters: Annotated[
            int, Field(description="How many characters of the text at most.", ge=1, le=MAX_PAGE)
        ] = PAGE,
    ) -> DocumentAnswer:
        """A page of the text of a document."""
        with self._hosted(index) as hosted:
            opened = hosted.index
            document = opened.get(id)
            if document is None:
                raise VizslaError(f"there is no document with the id {id[:200]!r} in {hosted.name}")
            text = whole_text(document, opened.model.fields)
            if offset > len(text):
                raise VizslaError(f"the text of {id[:200]!r} has {len(text):,} characters, so none from {offset:,} on")
            end = offset + max_characters
            answer: DocumentAnswer = {
                "index": hosted.name,
                "id": document.id,
                "text": text[offset:end],
                "offset": offset,
                "characters": len(text),
            }
            if end < len(text):
                answer["next_offset"] = end
            if title := title_of(document):
                answer["title"] = title[:PAGE]
            if fields := short_fields(document.content, opened.model.fields):
                answer["fields"] = fields
            if not text and not opened.info()["stored"]:
                answer["note"] = _NOT_STORED
            return answer

    def explain(
        self,
        query: _Query,
        id: _Id,
        index: _IndexName = None,
        filter: _Filter = None,
        model: _Model = None,
    ) -> ExplainAnswer:
        """Why a document has its score for a query."""
        with self._hosted(index) as hosted:
            explanation = hosted.index.explain(query, id, filter, model=hosted.models.model(model))
            return {
                "index": hosted.name,
                "id": id,
                "model": explanation.name,
                "score": explanation.score,
                "parts": explained(explanation),
            }

    def list_indexes(self) -> IndexesAnswer:
        """The indexes, and what a filter may name."""
        return {"indexes": [self._facts(name) for name in self._hosting.indexes]}

    def _facts(self, name: str) -> IndexFacts:
        with self._hosted(name) as hosted:
            if not hosted.is_open:
                return {"name": name, "unavailable": hosted.problem or "it is not open yet"}
            facts, model = hosted.index.info(), hosted.index.model
            return {
                "name": name,
                "documents": facts["documents"],
                "model": model.name,
                "text_fields": list(model.fields),
                "filter_fields": self._examples(hosted),
            }

    def _examples(self, hosted: Hosted) -> Fields:
        """A value of each short field of the first documents."""
        generation, known = hosted.generation, self._filter_fields.get(hosted.name)
        if known is None or known[0] != generation:
            found: Fields = {}
            for document in islice(hosted.index.documents(), _SAMPLE):
                for field, value in short_fields(_flat(document.content), hosted.index.model.fields).items():
                    if value is not None and value not in ("", []):
                        found.setdefault(field, value)
            known = self._filter_fields[hosted.name] = generation, found
        return known[1]

    @contextmanager
    def _hosted(self, name: str | None) -> Iterator[Hosted]:
        """An index by name. Its errors reach the assistant as one sentence without a path."""
        names = list(self._hosting.indexes)
        if name is None and len(names) > 1:
            raise ToolError(f"there are several indexes; name one of them: {', '.join(names)}")
        try:
            hosted = self._hosting[name if name is not None else names[0]]
        except VizslaError as e:
            raise ToolError(str(e)) from None
        if self._polls:
            hosted.poll()
        try:
            yield hosted
        except VizslaError as e:
            raise ToolError(hosted.sentence(e)) from None


def _snippet(highlighter: Highlighter | None, document: Document, text_fields: Sequence[str]) -> str:
    """The part of a document that matches best, from the first field with a matching word."""
    assert highlighter is not None
    cuts = [highlighter.snippet(document, field, SNIPPET) for field in snippet_fields(document, text_fields)]
    cut = next((cut for cut in cuts if cut.matches), cuts[0])
    whole = cut.at_end and len(cut.text) <= MAX_SNIPPET
    return f"{'' if cut.at_start else '… '}{cut.text[:MAX_SNIPPET]}{'' if whole else ' …'}"


def _flat(content: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by the names that filters know: those of an object inside of a field have a dot."""
    flat = {}
    for name, value in content.items():
        flat.update({f"{name}.{inner}": v for inner, v in value.items()} if isinstance(value, dict) else {name: value})
    return flat


class _Server(MCPServer[Any]):
    """A server whose errors are one sentence each, without the name of the tool before it."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Call a tool; see `MCPServer`."""
        try:
            return await super().call_tool(name, arguments, context)
        except UnexpectedToolError:
            raise
        except ToolError as e:
            raise ToolError(_sentence(e)) from e.__cause__


def make_server(hosting: Hosting, polls: bool) -> MCPServer[Any]:
    """A server with the tools over these indexes."""
    tools = Tools(hosting, polls)
    with _logging_left_alone():
        server = _Server("vizsla", instructions=INSTRUCTIONS, version=__version__, subscriptions=False)
    only_reads = ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )
    server.add_tool(tools.search, title="Search", description=_SEARCH, annotations=only_reads)
    server.add_tool(tools.get_document, title="Read a document", description=_GET, annotations=only_reads)
    server.add_tool(tools.explain, title="Explain a score", description=_EXPLAIN, annotations=only_reads)
    server.add_tool(tools.list_indexes, title="List indexes", description=_LIST, annotations=only_reads)
    return server


@contextmanager
def _logging_left_alone() -> Iterator[None]:
    """Undo the changes that the constructor of the SDK's server makes to the root logger."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def _sentence(error: ToolError) -> str:
    """What an error says: our own sentence, or what is wrong with the arguments."""
    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return str(cause if isinstance(cause, ToolError) else error)
    problems = {str(e["loc"][0]) if e["loc"] else "the arguments": e["msg"] for e in cause.errors(include_url=False)}
    return "; ".join(f"{argument}: {problem}" for argument, problem in problems.items())
