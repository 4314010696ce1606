"""vizsla search, explain and analyze: a query, a prompt or a file of queries; why a score; the terms of a text."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vizsla.cli import console, options
from vizsla.cli.options import open_retriever, search_with_suggestion, searched_with
from vizsla.cli.results import facets_as_json, hit_as_json, show_facets, show_similar
from vizsla.errors import InputError, VizslaError

if TYPE_CHECKING:
    from vizsla.models import Reranker
    from vizsla.runs import Hits, PageOptions, Retriever, Run

SHOWN, IN_A_BUDGET, IN_A_RUN = 10, 100, 1000  # default numbers of results
RECALL_SAMPLE = 100  # queries that the recall of an approximate search is measured on


@dataclass(frozen=True)
class _Search:
    """What is searched and how: the same for one query and for a file of queries."""

    retriever: Retriever
    filter: str | None
    reranker: Reranker | None
    depth: int
    page: PageOptions

    def hits(self, query: str, k: int) -> Hits:
        """The top k of a query; with a reranker, of the `depth` documents that it reranks."""
        if self.reranker is None:
            return search_with_suggestion(self.retriever, query, k, self.filter, self.page)
        page: PageOptions = {**self.page}
        max_tokens = page.pop("max_tokens", None)
        found = search_with_suggestion(self.retriever, query, self.depth, self.filter, page)
        from vizsla.retrievers import rerank_hits

        best = rerank_hits(found, found.corrected or query, self.reranker)[:k]
        said = best.with_spelling(did_you_mean=found.did_you_mean, corrected=found.corrected)
        counted = said.with_total(found.total)
        return counted if max_tokens is None else counted.within(max_tokens)


@options.spread
def search(
    *,
    index: options.Location,
    query: Annotated[str | None, typer.Argument(metavar="[QUERY]", help="The query; without it, a prompt.")] = None,
    k: Annotated[int | None, options.top_k("How many results; default: 10, or 1000 with --queries.")] = None,
    filter: options.Filter = None,
    as_json: options.Json = False,
    queries: options.QueriesOrNone = None,
    output: Annotated[
        Path | None, options.output("With --queries: the TREC run to write; - is standard output.")
    ] = None,
    model: Annotated[
        str | None,
        options.model("Search with other parameters or weights than the index has, or with a part of its model."),
    ] = None,
    expand: options.Expand = None,
    rerank: Annotated[bool, typer.Option("--rerank", help="Rerank the results with ms-marco-MiniLM-L-12-v2.")] = False,
    reranker: Annotated[
        str | None, typer.Option("--reranker", metavar="MODEL", help="Rerank the results with another cross-encoder.")
    ] = None,
    depth: Annotated[int, options.depth("How many documents of a query are reranked.")] = 100,
    combine: options.Combine = None,
    search_params: options.SearchParams = None,
    syntax: options.Syntax = None,
    language: options.Language = None,
    results: options.ResultOptions,
    context: options.Context = False,
    facets: options.Facets = None,
    like: options.Like = None,
    threads: options.Threads = None,
    approximate: Annotated[
        float | None,
        typer.Option(
            "--approximate", metavar="X", help="With --queries: faster, may miss documents; 0 is fastest, 1 is exact."
        ),
    ] = None,
) -> None:
    """Search an index: a query, a file of queries, or a prompt."""
    started = time.perf_counter()
    page, reranks = results.page, rerank or reranker is not None
    shown = (IN_A_BUDGET if "max_tokens" in page else SHOWN) if k is None else k
    _check(query, queries, output, reranks, depth, threads, approximate)
    _check_results(query, page, facets, like, reranks, context=context, as_json=as_json)
    cross_encoder = _cross_encoder(reranker) if reranks else None
    with open_retriever(index) as opened:
        retriever = searched_with(
            opened, model=model, expand=expand, combine=combine, search_params=search_params,
            approximate=approximate, threads=threads, syntax=syntax, language=language,
        )  # fmt: skip
        chosen = _Search(retriever, filter, cross_encoder, depth, page)
        if like is not None:
            show_similar(retriever, like, shown, filter, as_json=as_json)
        elif queries is not None and output is not None:
            _write_run(chosen, queries, output, IN_A_RUN if k is None else k)
        elif query is None:
            prompt(retriever, shown, filter)
        elif context:
            _print_context(chosen, query, shown)
        elif as_json:
            _print_json(chosen, query, shown, facets, started)
        else:
            _show(chosen, query, shown, facets)


def _cross_encoder(name: str | None) -> Reranker:
    from vizsla.models.reranker import Reranker, default_reranker

    return Reranker.open(name or default_reranker())


def _check(
    query: str | None, queries: Path | None, output: Path | None, reranks: bool, depth: int,
    threads: int | None, approximate: float | None,
) -> None:  # fmt: skip
    """Refuse options that do not go together, before anything is opened."""
    if (queries is None) != (output is None):
        raise VizslaError("--queries and --output go together: a file of queries in, a TREC run out")
    if queries is not None and query is not None:
        raise VizslaError("give either a query or --queries FILE, not both")
    if queries is None and (threads is not None or approximate is not None):
        raise VizslaError("--threads and --approximate are for many queries: give them with --queries FILE")
    if reranks and query is None and queries is None:
        raise VizslaError("the prompt does not rerank; with --rerank or --reranker give a query, or --queries FILE")
    if depth < 1:
        raise VizslaError(f"--depth, how many documents are reranked, must be 1 or more, not {depth}")
    console.check_output(output, *([queries] if queries else []))


def _check_results(
    query: str | None, page: PageOptions, facets: str | None, like: str | None, reranks: bool, *,
    context: bool, as_json: bool,
) -> None:  # fmt: skip
    """Refuse options of results that do not go together."""
    names = [f"--{name.replace('_', '-')}" for name in page] + (["--facets"] if facets is not None else [])
    names += ["--context"] if context else []
    if like is not None and (query is not None or reranks or names):
        raise VizslaError("--like replaces the query; leave out the query, --rerank and options of its results")
    if names and query is None:
        raise VizslaError(f"{names[0]} is for the results of one query; give a query")
    if reranks and ("sort" in page or "min_score" in page):
        raise VizslaError("a reranker orders results by its own scores; leave out --sort and --min-score, or --rerank")
    if context and (as_json or facets is not None):
        raise VizslaError("--context prints texts alone; leave out --json and --facets, or --context")


def _print_context(search: _Search, query: str, k: int) -> None:
    """Print the texts of the results, for a language model."""
    from vizsla.cli.results import nothing_found

    hits = search.hits(query, k)
    if hits:
        for line in hits.context.split("\n"):
            console.line(line)
    else:
        console.remark(nothing_found(search.retriever, hits.corrected or query, search.filter))


def _show(search: _Search, query: str, k: int, facets: str | None) -> None:
    """Print the results of a query, and facets if they are asked for."""
    from vizsla.cli.results import nothing_found, remark_spelling, show_hits

    hits = search.hits(query, k)
    searched = hits.corrected or query
    if hits:
        show_hits(search.retriever, searched, hits, search.filter)
    elif search.page.keys() - {"typos", "total"}:
        console.remark("nothing found: no result is left on this page")
    else:
        console.remark(nothing_found(search.retriever, searched, search.filter))
    if "total" in search.page and hits.total is not None:
        shown = f"{hits[0].rank:,} to {hits[-1].rank:,} of " if hits else ""
        console.remark(f"{shown}{console.count(hits.total, 'result')}")
    remark_spelling(hits)
    if facets is not None:
        show_facets(search.retriever, facets, searched, search.filter)


def _print_json(search: _Search, query: str, k: int, facets: str | None, began: float) -> None:
    """Print the results of a query as JSON: `milliseconds` is the time of the search, `loading_milliseconds` that
    from when the command `began` to the search.
    """
    search.retriever.search(query, 1, search.filter)  # warm up: a first search loads what later ones reuse
    loading, started = time.perf_counter() - began, time.perf_counter()
    hits = search.hits(query, k)
    milliseconds = 1000 * (time.perf_counter() - started)
    times = {"milliseconds": round(milliseconds, 3), "loading_milliseconds": round(loading * 1000, 3)}
    spelling = {"did_you_mean": hits.did_you_mean, "corrected": hits.corrected}
    said = {name: text for name, text in spelling.items() if text is not None}
    known = {} if hits.total is None else {"total": hits.total}
    answer = {
        "query": query,
        **said,
        **known,
        "model": search.retriever.name,
        **times,
        "results": [hit_as_json(hit) for hit in hits],
    }
    if facets is not None:
        answer["facets"] = facets_as_json(search.retriever, facets, hits.corrected or query, search.filter)
    console.print_json(answer)


def _write_run(search: _Search, queries: Path, output: Path, k: int) -> None:
    """Search for all queries of a file and write a TREC run."""
    from vizsla.datasets import read_queries

    texts = read_queries(queries)
    started = time.perf_counter()
    run = search.retriever.run(texts, k, search.filter).untied()
    if search.reranker is not None:
        run = _reranked(search, run, texts)
    seconds = time.perf_counter() - started
    with console.output_file(output) as file:
        run.write(file, tag=search.retriever.name.replace(" ", ""))
    empty = sum(not ranking for ranking in run.values())
    without_results = f"; {console.count(empty, 'query')} found nothing" if empty else ""
    console.remark(
        f"{len(texts):,} queries in {seconds:.1f} s, written to {console.output_name(output)}{without_results}"
    )
    _remark_recall(search, run, texts, k)


def _reranked(search: _Search, run: Run, texts: dict[str, str]) -> Run:
    from vizsla.retrievers import rerank

    assert search.reranker is not None
    with console.progress("Reranking", len(texts), "pairs") as advance:
        return rerank(search.retriever, run, texts, search.reranker, search.depth, advance).untied(by_id=False)


def _remark_recall(search: _Search, run: Run, texts: dict[str, str], k: int) -> None:
    """Say what share of the exact top k an approximate search has found; reranking does not change it."""
    from vizsla.index import IndexView

    view = search.retriever
    if not isinstance(view, IndexView) or view.options.approximate is None:
        return
    sample = dict(islice(texts.items(), 0, None, max(len(texts) // RECALL_SAMPLE, 1)))
    exact = replace(view, options=view.options._replace(approximate=None, threads=None)).run(sample, k, search.filter)
    recall = recall_of(run, exact)
    console.remark(f"Approximate: {recall:.1%} of the exact top {k}, measured on {len(sample):,} of the queries")


def recall_of(run: Run, exact: Run) -> float:
    """The share of the exact rankings' documents that a run has: the mean over queries with any results."""
    retrieved = {q: set(run[q].documents) for q in exact}
    shares = [sum(d in retrieved[q] for d, _ in ranking) / len(ranking) for q, ranking in exact.items() if ranking]
    return sum(shares) / len(shares) if shares else 1.0


def explain(
    index: options.Location,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The query.")],
    doc_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the document.")],
    model: Annotated[
        str | None,
        options.model("Search with other parameters or weights than the index has, or with a part of its model."),
    ] = None,
    filter: options.Filter = None,
    expand: options.Expand = None,
    syntax: options.Syntax = None,
    language: options.Language = None,
    as_json: options.Json = False,
) -> None:
    """Explain a document's score: what each query term adds.

    Give the same --filter as in the search: rm3 expands a query from the documents that match it.
    """
    from vizsla.cli.results import show_explanation

    with open_retriever(index) as opened:
        view = searched_with(opened, model=model, expand=expand, syntax=syntax, language=language)
        explanation = view.explain(query, doc_id, filter)
    if as_json:
        console.print_json({"query": query, "id": doc_id, **explanation.as_dict()})
    else:
        show_explanation(explanation, doc_id)


PROMPT_HELP = """Type a query, or
  :explain N   why result N has its score
  :show N      the whole document of result N
  :k N         show N results from now on
  :quit        leave (or press Ctrl-D)"""


def prompt(retriever: Retriever, k: int, filter: str | None = None) -> None:
    """Search for each line of the terminal or of standard input, until its end."""
    from vizsla.cli.results import count_documents

    interactive = sys.stdin.isatty()
    history = _load_history() if interactive else None
    if interactive:
        console.remark(f"{count_documents(retriever)}, {retriever.name}. Type a query, or :help")
    session = _Session(retriever, k, filter)
    try:
        while True:
            try:
                line = input("vizsla> " if interactive else "")
                line.encode()  # in some locales bytes that are not UTF-8 come in as surrogates
            except EOFError:
                break
            except UnicodeError:
                raise InputError("this is not UTF-8 text", file="standard input") from None
            except KeyboardInterrupt:
                print(file=sys.stderr)
                continue
            if line.strip() in (":q", ":quit", ":exit"):
                break
            session.answer(line.strip())
    finally:
        if history is not None:
            _save_history(history)


class _Session:
    """The state of the prompt: the number of results to show, the last query, and the ids of its results."""

    def __init__(self, retriever: Retriever, k: int, filter: str | None) -> None:
        self._retriever = retriever
        self._k = k
        self._filter = filter
        self._query = ""
        self._ids: list[str] = []

    def answer(self, line: str) -> None:
        """Search for a line, or run it if it is a command; an error is printed as one sentence."""
        from vizsla.cli.results import show_results

        try:
            if line.startswith(":"):
                self._command(line[1:].split())
            elif line:
                self._query, self._ids = line, show_results(self._retriever, line, self._k, self._filter)
        except VizslaError as e:
            console.remark(f"vizsla: {e}", lines=e.has_lines)

    def _command(self, words: list[str]) -> None:
        from vizsla.cli.results import show_explanation

        verb = words[0] if words else ""
        number = int(words[1]) if len(words) == 2 and words[1].isdigit() else 0
        if verb == "k" and number:
            self._k = number
            console.remark(f"{console.count(number, 'result')} from now on")
        elif verb in ("explain", "show") and number:
            if number > len(self._ids):
                raise VizslaError(f"result {number} does not exist; the last query has {len(self._ids)}")
            doc_id = self._ids[number - 1]
            if verb == "explain":
                show_explanation(self._retriever.explain(self._query, doc_id, self._filter), doc_id)
            else:
                document = self._retriever.get(doc_id)
                assert document is not None
                console.print_json({"id": document.id, **document.content})
        else:
            if verb not in ("", "help"):
                console.remark(f"':{console.safe(' '.join(words))}' is not a command.")
            console.remark(PROMPT_HELP, lines=True)


def _load_history() -> Path | None:
    """Turn on line editing with the saved history, if the system supports it, and return the history file."""
    try:
        import readline
    except ImportError:
        return None
    root = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    file = Path(root) / "vizsla" / "history"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        readline.set_history_length(1000)
        if file.exists():
            readline.read_history_file(file)
    except OSError:
        return None
    return file


def _save_history(file: Path) -> None:
    import readline

    try:
        readline.write_history_file(file)
    except OSError:
        console.remark(f"vizsla: the history could not be written to {file}")


def analyze(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text; - reads standard input.")],
    analyzer: Annotated[
        str,
        typer.Option(
            "-a", "--analyzer", metavar="ANALYZER", help='A name, or a pipeline: "standard | lower | snowball:german".'
        ),
    ] = "lucene-english",
    as_json: options.Json = False,
) -> None:
    """Show how an analyzer splits a text into terms, with offsets."""
    from vizsla.text import Analyzer

    source = console.read_input() if text == "-" else text
    tokens = Analyzer.parse(analyzer).tokens(source)
    if as_json:
        offsets = [[t.start, t.end] for t in tokens]
        console.print_json({"tokens": [t.term for t in tokens], "offsets": offsets})
        return
    for t in tokens:
        console.line(f"{t.start:>6}-{t.end:<6} {t.term}")
