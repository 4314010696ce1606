"""The tools for agents: what an assistant can ask of indexes, by the Model Context Protocol."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp_types import ToolAnnotations
from pydantic import Field, ValidationError

from vizsla import __version__
from vizsla.errors import UnknownNameError, VizslaError
from vizsla.index import Index
from vizsla.models import Model
from vizsla.runs import Hit
from vizsla.server.errors import without_paths
from vizsla.server.mcp_results import (
    MAX_SNIPPET,
    SNIPPET,
    DocumentAnswer,
    ExplainAnswer,
    Fields,
    IndexesAnswer,
    IndexFacts,
    SearchAnswer,
    explained,
    found_document,
    main_field,
    short_fields,
    title_of,
    whole_text,
)

MAX_K = 100
PAGE, MAX_PAGE = 4000, 50_000  # characters of a document that one answer has
MAX_QUERY = 4096
_NOT_STORED = "this index does not store the texts of its documents"
_SAMPLE = 50  # documents that are looked at for fields to filter by

IndexSource = Index | Callable[[], Index]
"""An index, or what gives it when a tool is called: it may have been opened again since the last call."""
ModelOf = Callable[[Index, str], Model]
"""The model that a text of a request stands for; refuses what a request must not name, such as files."""

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
    """The tools over some indexes, without the protocol around them."""

    def __init__(self, indexes: Mapping[str, IndexSource], model_of: ModelOf) -> None:
        self._indexes = dict(indexes)
        self._model_of = model_of
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
        with self._opened(index) as (name, opened):
            chosen = self._model(opened, model)
            hits = opened.search(query, k, filter, model=chosen)
            used, fields = (chosen or opened.model), opened.model.fields
            highlighter = opened.highlighter(query, filter, model=chosen) if hits else None

            def snippet(hit: Hit) -> str:
                assert highlighter is not None
                cut = highlighter.snippet(hit.document, main_field(hit.document, fields), SNIPPET)
                whole = cut.at_end and len(cut.text) <= MAX_SNIPPET
                return f"{'' if cut.at_start else '… '}{cut.text[:MAX_SNIPPET]}{'' if whole else ' …'}"

            answer: SearchAnswer = {
                "index": name,
                "model": used.name,
                "results": [found_document(hit, snippet(hit), fields) for hit in hits],
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
        with self._opened(index) as (name, opened):
            document = opened.get(id)
            if document is None:
                raise VizslaError(f"there is no document with the id {id[:200]!r} in {name}")
            text = whole_text(document, opened.model.fields)
            if offset > len(text):
                raise VizslaError(f"the text of {id[:200]!r} has {len(text):,} characters, so none from {offset:,} on")
            end = offset + max_characters
            answer: DocumentAnswer = {
                "index": name,
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
        with self._opened(index) as (name, opened):
            explanation = opened.explain(query, id, filter, model=self._model(opened, model))
            return {
                "index": name,
                "id": id,
                "model": explanation.name,
                "score": explanation.score,
                "parts": explained(explanation),
            }

    def list_indexes(self) -> IndexesAnswer:
        """The indexes, and what a filter may name."""
        return {"indexes": [self._facts(name) for name in self._indexes]}

    def _facts(self, wanted: str) -> IndexFacts:
        with self._opened(wanted) as (name, opened):
            facts = opened.info()
            return {
                "name": name,
                "documents": facts["documents"],
                "model": facts["model"],
                "text_fields": list(opened.model.fields),
                "filter_fields": self._examples(name, opened, facts["generation"]),
            }

    def _examples(self, name: str, opened: Index, generation: int) -> Fields:
        """A value of each short field of the first documents."""
        known = self._filter_fields.get(name)
        if known is None or known[0] != generation:
            found: Fields = {}
            for document in islice(opened.documents(), _SAMPLE):
                for field, value in short_fields(_flat(document.content), opened.model.fields).items():
                    if value is not None and value not in ("", []):
                        found.setdefault(field, value)
            known = self._filter_fields[name] = generation, found
        return known[1]

    def _model(self, opened: Index, text: str | None) -> Model | None:
        return None if text is None else self._model_of(opened, text)

    @contextmanager
    def _opened(self, name: str | None) -> Iterator[tuple[str, Index]]:
        """An index by name. What goes wrong with it reaches the assistant as one sentence without a path."""
        try:
            chosen = self._name(name)
            source = self._indexes[chosen]
        except VizslaError as e:
            raise ToolError(str(e)) from None
        opened: Index | None = None
        try:
            opened = source if isinstance(source, Index) else source()
            yield chosen, opened
        except VizslaError as e:
            raise ToolError(without_paths(str(e), chosen, None if opened is None else opened.path)) from None

    def _name(self, name: str | None) -> str:
        if name is None and len(self._indexes) == 1:
            return next(iter(self._indexes))
        if name is None:
            raise VizslaError(f"there are several indexes; name one of them: {', '.join(self._indexes)}")
        if name not in self._indexes:
            raise UnknownNameError("index", name[:200], tuple(self._indexes))
        return name


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


def make_server(indexes: Mapping[str, IndexSource], model_of: ModelOf) -> MCPServer[Any]:
    """A server with the tools over these indexes."""
    tools = Tools(indexes, model_of)
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
    """Undo what the constructor of the SDK's server does to the root logger, which is not its own."""
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
