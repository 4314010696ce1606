"""What commands take: shared arguments and options, and the sources, indexes and runs that they name, opened.

An option has one name and one help text. Where the help depends on the command, the command gives it:
`output("The TREC run to write.")`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, cast, get_type_hints

import typer

from vizsla.cli import console
from vizsla.errors import InputError, UnsupportedError, VizslaError

if TYPE_CHECKING:
    from vizsla.datasets import BeirDataset, Document, RawLines, Source, Splitter
    from vizsla.index import Added, Index, IndexView
    from vizsla.index.searchable import SearchableCollection
    from vizsla.models import Model
    from vizsla.runs import Hits, PageOptions, Retriever, Run

DEFAULT_MEMORY = "1GB"


def output(help: str) -> Any:
    """The option --output."""
    return typer.Option("-o", "--output", metavar="PATH", help=help)


def top_k(help: str) -> Any:
    """The option --k."""
    return typer.Option("-k", "--k", metavar="N", help=help)


def model(help: str) -> Any:
    """The option --model."""
    return typer.Option("-m", "--model", metavar="MODEL", help=help)


def several_models(help: str) -> Any:
    """The option --model of a command that takes several models."""
    return typer.Option("-m", "--model", metavar="MODEL,...", help=f"{help} Separate models by commas, or repeat it.")


def run(help: str) -> Any:
    """The option --run."""
    return typer.Option("--run", metavar="FILE", help=help)


def depth(help: str) -> Any:
    """The option --depth."""
    return typer.Option("--depth", metavar="N", help=help)


def split(help: str) -> Any:
    """The option --split."""
    return typer.Option("--split", metavar="SPLIT", help=help)


def measures(help: str = "Measures in the notation of ir_measures, separated by blanks.") -> Any:
    """The option --measures."""
    return typer.Option("--measures", metavar="MEASURES", help=help)


def measure(help: str = "The measure to maximise.") -> Any:
    """The option --measure, where there can be only one."""
    return typer.Option("--measure", metavar="MEASURE", help=help)


def report(endings: str) -> Any:
    """The option --report."""
    return typer.Option("--report", metavar="FILE", help=f"Also write a report: {endings}. Repeat it for several.")


def index_option(help: str) -> Any:
    """The option --index."""
    return typer.Option("--index", metavar="INDEX", help=help)


def location(help: str) -> Any:
    """The argument INDEX of a command that searches or reads, and so takes anything that can be opened."""
    return typer.Argument(metavar="INDEX", help=help)


# An index, documents and queries

IndexFolder = Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of the index.")]
Location = Annotated[str, location("The index to search: its folder, or the address of a server or a cluster.")]
Writable = Annotated[str, location("The folder of the index, or the address of a collection in Qdrant.")]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="TREC run files.")]
Dataset = Annotated[
    str, typer.Argument(metavar="DATASET", help="A data set: its name, its folder in BEIR's layout, or irds:NAME.")
]
Datasets = Annotated[
    list[str], typer.Argument(metavar="DATASET...", help="Data sets: names, folders in BEIR's layout, or irds:NAME.")
]
QuestionSets = Annotated[
    list[str], typer.Argument(metavar="DATASET...", help="Data sets, or files of questions with answers.")
]
_QUERIES = typer.Option(
    "--queries", metavar="FILE", help="A file of queries: JSON lines, id TAB text, or DPR's questions."
)
Queries = Annotated[Path, _QUERIES]
QueriesOrNone = Annotated[Path | None, _QUERIES]

# Searching

Filter = Annotated[
    str | None,
    typer.Option(
        "--filter", metavar="CONDITION", help='The documents that meet a condition: year >= 1999 and lang = "en".'
    ),
]
Expand = Annotated[
    str | None,
    typer.Option(
        "--expand",
        metavar="EXPANDER",
        help="Query expansion for BM25: rm3, general, a file of synonyms, or the folder of a trained one.",
    ),
]
Combine = Annotated[
    str | None,
    typer.Option(
        "--combine",
        metavar="METHOD",
        help="How the models of a sum become one ranking: sum (exact), union, candidates, rrf, linear.",
    ),
]
Syntax = Annotated[
    str | None,
    typer.Option(
        "--syntax",
        metavar="NAME",
        help='lucene: read queries as +dogs "big cats"~2 -title:fish retriev* dgos~1.',
    ),
]
Language = Annotated[
    str | None,
    typer.Option(
        "--language",
        metavar="CODE,...",
        help="If the index has several languages: that of the query, as in de; default: all of them.",
    ),
]
SearchParams = Annotated[
    str | None,
    typer.Option(
        "--search-params",
        metavar="PARAMS",
        help="How dense vectors are searched: exact, or as in ef_search=200.",
    ),
]
Context = Annotated[
    bool, typer.Option("--context", help="Print only the texts, with headings and pages, for a language model.")
]
Facets = Annotated[
    str | None,
    typer.Option(
        "--facets",
        metavar="FIELD,...",
        help="Count values over all matches; year(..1900,1900..): ranges; day(month): dates.",
    ),
]
Like = Annotated[str | None, typer.Option("--like", metavar="ID", help="Find documents similar to this one.")]
Threads = Annotated[
    int | None, typer.Option("--threads", metavar="N", help="With --queries: how many threads; default: all.")
]
Precision = Annotated[
    str | None, typer.Option("--precision", metavar="TYPE", help="int8 or float32; default: int8 unless a GPU is used.")
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="Where networks run: cpu, cuda, cuda:1; default: $VIZSLA_DEVICE, or a GPU that torch sees.",
    ),
]

# Evaluation

Split = Annotated[str | None, split("Which judgements of a data set; default: the split its figures are published on.")]
Convention = Annotated[
    str,
    typer.Option(
        "--convention", metavar="NAME", help="How measures are computed: as anserini, beir or trec_eval (trec) does."
    ),
]
Test = Annotated[str, typer.Option("--test", metavar="NAME", help="The significance test: t-test or randomisation.")]
Correction = Annotated[
    str, typer.Option("--correction", metavar="NAME", help="For several comparisons: holm, bonferroni, bh or none.")
]
Regex = Annotated[bool, typer.Option("--regex", help="Answers are regular expressions, as in CuratedTREC.")]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", help="Use only the first N questions of each file or data set.")
]
PoolDepth = Annotated[
    int, typer.Option("--pool-depth", metavar="N", help="Consistency: how many documents of the reference run count.")
]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The folder with data sets; default: $VIZSLA_DATA.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

# Writing an index

Memory = Annotated[str, typer.Option("--memory", metavar="SIZE", help="How much memory to use, 128MB or more.")]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        help="How many threads or processes analyse documents; default: as many as are useful.",
    ),
]
VectorIndex = Annotated[
    str | None,
    typer.Option(
        "--vector-index",
        metavar="KIND",
        help="How vectors are stored and searched: exact, float16, sq8, hnsw, ivf, pq; plaid for token vectors.",
    ),
]
Store = Annotated[bool, typer.Option("--store/--no-store", help="Store the texts, to show, rerank or export them.")]
Positions = Annotated[
    bool | None,
    typer.Option("--positions/--no-positions", help="Store the positions of words, so that phrase queries are fast."),
]

# Files of documents, described once for all commands that read them

Sources = Annotated[
    list[str],
    typer.Argument(metavar="SOURCE...", help="Files (also .gz, .xz, .zst) or folders; - is standard input."),
]


@dataclass(frozen=True)
class FileOptions:
    """How files of documents are read: their format, and the fields that hold id, text and title."""

    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Format of the sources, as vizsla models --kind source lists them; default: by ending.",
        ),
    ] = None
    id_field: Annotated[str | None, typer.Option("--id-field", metavar="NAME", help="The field that holds the id.")] = (
        None
    )
    text_field: Annotated[
        str | None, typer.Option("--text-field", metavar="NAME", help="The field that holds the text.")
    ] = None
    title_field: Annotated[
        str | None, typer.Option("--title-field", metavar="NAME", help="The field that holds the title.")
    ] = None

    def find(self, paths: list[str], fields: Sequence[str] = ()) -> list[Source]:
        """The sources at these paths; prints what was guessed, inferred or skipped."""
        from vizsla.datasets import Source

        reading = self._reading()
        sources = [Source.find(path, self.format, fields=fields, **reading) for path in paths]
        for source in sources:
            for remark in source.remarks():
                console.remark(f"{console.safe(source.name)}: {console.safe(remark, max_length=2000)}")
        return sources

    def _reading(self) -> dict[str, Any]:
        """The options as `Source.find` takes them."""
        from vizsla.datasets import FieldNames

        return {"names": FieldNames(self.id_field, self.text_field, self.title_field)}


@dataclass(frozen=True)
class SourceOptions(FileOptions):
    """How sources are read that are indexed, encoded or expanded."""

    delimiter: Annotated[
        str | None,
        typer.Option("--delimiter", metavar="CHAR", help="The separator of csv or tsv; default: guessed."),
    ] = None
    types: Annotated[
        str | None,
        typer.Option(
            "--types", metavar="NAME=TYPE,...", help="Types of csv or tsv columns: text, int, float, bool or date."
        ),
    ] = None
    max_document: Annotated[
        str, typer.Option("--max-document", metavar="SIZE", help="The largest line or document allowed, as in 64MB.")
    ] = "16MB"
    allow_empty: Annotated[bool, typer.Option("--allow-empty", help="Accept sources without documents.")] = False
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out what cannot be read, and list it at the end.")
    ] = False
    ocr: Annotated[
        bool, typer.Option("--ocr", help="Recognise characters in the pages of a PDF that are pictures (slow).")
    ] = False

    @contextmanager
    def naming_skip_bad(self, paths: Sequence[str]) -> Iterator[None]:
        """Adds to an error about one of many files or lines how to leave it out.

        If the first record of a file cannot be read, perhaps none can be.
        """
        try:
            yield
        except InputError as e:
            in_a_folder = e.file is not None and any(e.file != path and e.file.startswith(path) for path in paths)
            of_many = in_a_folder or (e.line or 0) > 1
            if self.skip_bad or not of_many:
                raise
            raise InputError(f"{e.problem}; --skip-bad leaves it out", file=e.file, line=e.line) from None

    def _reading(self) -> dict[str, Any]:
        from vizsla.datasets import parse_types

        return {
            **super()._reading(),
            "delimiter": "\t" if self.delimiter == "\\t" else self.delimiter,
            "types": parse_types(self.types) if self.types is not None else {},
            "max_document": console.parse_size(self.max_document),
            "allow_empty": self.allow_empty,
            "skip_bad": self.skip_bad,
            "ocr": self.ocr,
        }


@dataclass(frozen=True)
class ResultOptions:
    """Which results of a query are shown, and how much text of each."""

    typos: Annotated[
        str | None,
        typer.Option(
            "--typos",
            metavar="WAY",
            help="suggest: print the corrected query (the default); on: search for it; off: neither.",
        ),
    ] = None
    offset: Annotated[int, typer.Option("--offset", metavar="N", help="Leave out the first N results.")] = 0
    sort: Annotated[
        str | None, typer.Option("--sort", metavar="FIELD", help="Sort all results by a field: year, or -year.")
    ] = None
    collapse: Annotated[
        str | None, typer.Option("--collapse", metavar="FIELD", help="Only the best result of each value of a field.")
    ] = None
    min_score: Annotated[
        float | None, typer.Option("--min-score", metavar="X", help="Only results with this score or a higher one.")
    ] = None
    total: Annotated[bool, typer.Option("--total", help="Count all results exactly, and say how many there are.")] = (
        False
    )
    passages: Annotated[
        int, typer.Option("--passages", metavar="N", help="In an index of passages: up to N of each document.")
    ] = 1
    window: Annotated[
        str,
        typer.Option(
            "--window", metavar="N", help="Show N passages before and after each as one text; document: all of them."
        ),
    ] = "0"
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", metavar="N", help="The best results whose texts have N tokens together, about."),
    ] = None

    @property
    def page(self) -> PageOptions:
        """Those that were given, as a search takes them."""
        given = {o.name: getattr(self, o.name) for o in fields(self) if getattr(self, o.name) != o.default}
        if self.window.isdecimal() and "window" in given:
            given["window"] = int(self.window)
        if self.typos is not None:
            from vizsla.runs.hits import check_typos

            given["typos"] = check_typos(self.typos)
        return cast("PageOptions", given)


@dataclass(frozen=True)
class PassageOptions:
    """How documents are split into passages, if they are."""

    passages: Annotated[
        int | None, typer.Option("--passages", metavar="N", help="Split texts into passages of at most N words.")
    ] = None
    overlap: Annotated[
        int, typer.Option("--overlap", metavar="N", help="By how many words passages overlap, at most.")
    ] = 0
    unit: Annotated[
        str, typer.Option("--unit", metavar="UNIT", help="What --passages and --overlap count: words, or tokens.")
    ] = "words"
    cut_at: Annotated[
        str,
        typer.Option(
            "--cut-at", metavar="WAY", help="sentences: end passages at headings, paragraphs, sentences; or words."
        ),
    ] = "sentences"
    headings: Annotated[
        bool, typer.Option("--headings/--no-headings", help="Whether models read the headings above a passage.")
    ] = True

    @property
    def splitter(self) -> Splitter | None:
        """What splits documents."""
        from vizsla.datasets import Splitter

        if self.passages is None:
            if unused := [name for name in given_options(self) if name != "--overlap"]:
                raise VizslaError(f"{unused[0]} says how passages are cut; say how long they are with --passages")
            return None
        return Splitter(self.passages, self.overlap, self.unit, self.cut_at, self.headings)


def given_options(*groups: Any) -> list[str]:
    """The options of groups that differ from their defaults, as they are typed.

    >>> given_options(FileOptions(id_field="docno"), PassageOptions())
    ['--id-field']
    """
    return [
        f"--{field.name.replace('_', '-')}"
        for group in groups
        for field in fields(group)
        if getattr(group, field.name) != field.default
    ]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes each option of a group by itself, where the function has a parameter for the group.

    A group is a dataclass of options: `def add(*, reading: SourceOptions)` becomes a command with --format, --id-field
    and so on.
    """
    taken = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {p.name: p.annotation for p in taken if is_dataclass(p.annotation)}
    parameters: list[inspect.Parameter] = []
    for p in taken:
        if p.name in groups:
            types = get_type_hints(p.annotation, include_extras=True)
            options = fields(p.annotation)
            parameters += [p.replace(name=o.name, default=o.default, annotation=types[o.name]) for o in options]
        else:
            parameters.append(p)

    @wraps(command)
    def called(**values: Any) -> None:
        made = {name: kind(**{o.name: values.pop(o.name) for o in fields(kind)}) for name, kind in groups.items()}
        command(**values, **made)

    keyword_only = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    called.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called


def on_device(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the option --device besides its own: where the networks run that it opens."""
    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("device", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Device)

    @wraps(command)
    def called(*, device: str | None = None, **values: Any) -> None:
        if device is None:
            command(**values)
            return
        from vizsla.neural.device import device_of_process

        with device_of_process(device):
            command(**values)

    called.__signature__ = signature.replace(parameters=[*signature.parameters.values(), option])  # type: ignore[attr-defined]
    called.__annotations__ = {name: one.annotation for name, one in called.__signature__.parameters.items()}  # type: ignore[attr-defined]
    return called


def check_outside(output: Path, sources: list[Source]) -> None:
    """Refuse an output that is a file of a source, or would be one in the next run."""
    for source in sources:
        folder = Path(source.name)
        console.check_output(output, *(part.file.path for part in source.parts))
        only_corpus = len(source.parts) == 1 and source.parts[0].file.path.name.startswith("corpus.jsonl")
        if folder.is_dir() and not only_corpus and output.resolve().is_relative_to(folder.resolve()):
            raise VizslaError(f"{output}: this file is inside the source {folder}; write it elsewhere")


def passes_lines(model: Model, workers: int | None) -> bool:
    """Whether JSON lines are passed on unparsed, because several workers or a kernel parse them."""
    return model.counts_words or (workers or 1) > 1


def dataset_documents(dataset: BeirDataset) -> Iterator[Document | RawLines]:
    """The documents of a data set, with a progress bar."""
    from vizsla.datasets import Source

    if dataset.with_queries:
        return dataset.documents()  # of two files, which one bar cannot show
    return read_with_progress([Source.find(dataset.folder)], f"Indexing {dataset.name}")


def read_with_progress(sources: list[Source], title: str, *, raw: bool = False) -> Iterator[Document | RawLines]:
    """The documents of sources, or with `raw` unparsed JSON lines, with a progress bar over their bytes."""
    from vizsla.datasets import RawLines

    total = sum(s.bytes for s in sources)
    before, done, position = 0, 0, 0

    def move(to: int) -> None:
        nonlocal position
        position = to

    with console.progress(title, total, "documents") as advance:
        for source in sources:
            lines = source.raw_lines(move) if raw else None
            for item in source.documents(move) if lines is None else lines:
                yield item
                done += item.count if isinstance(item, RawLines) else 1
                if lines is not None or done % 500 == 0:
                    advance(before + position, done)
            before, position = before + source.bytes, 0


_LISTED, _REASONS = 20, 5  # of what was left out


def report_skipped(sources: list[Source], added: Added | None = None) -> None:
    """List what was left out, with file, line and reason, and count it."""
    from vizsla.datasets import Skipped

    skipped = Skipped()
    for source in sources:
        skipped.merge(source.skipped)
    if added is not None:
        skipped.merge(added.skipped)
    for error in skipped.errors[:_LISTED]:
        console.remark(f"left out: {console.safe(str(error), max_length=1000)}")
    if skipped.count > _LISTED:
        reasons = "; ".join(
            f"{count:,} x {console.safe(reason)}" for reason, count in skipped.reasons.most_common(_REASONS)
        )
        console.remark(f"left out in all: {skipped.count:,}, most often: {reasons}")
    elif skipped.count:
        console.remark(f"left out in all: {skipped.count:,}")
    if added is not None and added.repeated:
        console.remark(f"{console.count(added.repeated, 'document')} left out, since a later one has the same id")


class SearchChoices(TypedDict):
    """How an index is searched; None means the index's default."""

    combine: str | None
    search_params: str | None


def open_retriever(location: str | Path) -> Retriever:
    """Whatever can be searched at a location: a folder with an index, or an address with a registered scheme."""
    from vizsla.retrievers import open

    return open(location)


def open_index(location: str | Path) -> Index:
    """The index at a location; any other retriever is refused."""
    retriever = open_retriever(location)
    index = index_of(retriever)
    if index is None:
        raise VizslaError(f"{location}: this needs an index in a folder, but {retriever.name} is something else")
    return index


def index_of(retriever: Retriever) -> Index | None:
    """The index behind a retriever, for features that only an index has; None for any other retriever."""
    from vizsla.index import Index, IndexView

    searched = retriever.index if isinstance(retriever, IndexView) else retriever
    return searched if isinstance(searched, Index) else None


def open_writable(location: str, memory: int | None = None) -> SearchableCollection:
    """The writable index at a location: an index in a folder, or a collection in Qdrant.

    `memory`: how many bytes writing to an index in a folder may take.
    """
    from vizsla.index import Index
    from vizsla.index.searchable import SearchableCollection

    if not location.lower().startswith(("qdrant://", "qdrants://")):
        return Index.open(location) if memory is None else Index.open(location, memory=memory)
    opened = open_retriever(location)
    assert isinstance(opened, SearchableCollection)
    return opened


def searched_here(retriever: Retriever) -> SearchableCollection | IndexView | None:
    """The retriever if it searches with a model in this process, which also finds the words to highlight; else None."""
    from vizsla.index import IndexView
    from vizsla.index.searchable import SearchableCollection

    return retriever if isinstance(retriever, SearchableCollection | IndexView) else None


def searched_with(
    retriever: Retriever,
    *,
    model: str | None = None,
    expand: str | None = None,
    combine: str | None = None,
    search_params: str | None = None,
    approximate: float | None = None,
    threads: int | None = None,
    syntax: str | None = None,
    language: str | None = None,
) -> Retriever:
    """A retriever with another model, query expansion or search parameters; unchanged if none is given."""
    from vizsla.index import IndexView

    choices = (model, expand, combine, search_params, approximate, threads, syntax, language)
    if all(choice is None for choice in choices):
        return retriever
    here = searched_here(retriever)
    if here is None:
        from vizsla.retrievers.remote import RemoteView

        if not isinstance(retriever, RemoteView):
            raise VizslaError(f"{retriever.name} is not an index, so its model and search parameters are fixed")
        if approximate is not None or threads is not None:
            raise VizslaError(f"{retriever.address}: a server takes neither --approximate nor --threads")
        return retriever.with_model(
            model, expand=expand, combine=combine, search_params=search_params, syntax=syntax, language=language
        )
    index = here.index if isinstance(here, IndexView) else here
    return index.with_model(
        _expanded(index.with_model(model).model, expand),
        combine=combine, search_params=search_params, approximate=approximate, threads=threads, syntax=syntax,
        language=language,
    )  # fmt: skip


def search_page(retriever: Retriever, query: str, k: int, filter: str | None, page: PageOptions) -> Hits:
    """The results of a query that are on a page; a retriever without pages is refused."""
    if not page:
        return retriever.search(query, k, filter)
    from vizsla.index import CollectionView

    if not isinstance(retriever, CollectionView):
        option = next(iter(page)).replace("_", "-")
        raise VizslaError(f"{retriever.name} is not an index, so --{option} has no meaning for it")
    return retriever.search(query, k, filter, **page)


def search_with_suggestion(retriever: Retriever, query: str, k: int, filter: str | None, page: PageOptions) -> Hits:
    """The same; a collection that can also says what may be meant by words that it does not have."""
    from vizsla.index import CollectionView

    if "typos" not in page and isinstance(retriever, CollectionView):
        try:
            return search_page(retriever, query, k, filter, {**page, "typos": "suggest"})
        except UnsupportedError:  # a collection in a cluster
            pass
    return search_page(retriever, query, k, filter, page)


def _expanded(model: Model, expand: str | None) -> Model:
    from vizsla.models import parse_expander, with_expansion

    return model if expand is None else with_expansion(model, parse_expander(expand))


def named_file(text: str) -> tuple[str, str, Path]:
    """The system, the data set (or an empty text) and the file; without a name, the system is the stem of the file.

    >>> system, dataset, path = named_file("bm25@nq=a.trec")
    >>> system, dataset, path.name
    ('bm25', 'nq', 'a.trec')
    """
    name, equals, file = text.partition("=")
    if not equals or Path(text).is_file():
        path = Path(text)
        name = path.stem
    else:
        path = Path(file)
    system, _, dataset = name.partition("@")
    if not system or not path.name:
        raise VizslaError(f"{text!r} does not name a run; expected FILE or NAME=FILE")
    return system, dataset, path


def read_named(given: Sequence[str]) -> dict[str, dict[str, Run]]:
    """Runs by data set, then by system; runs without a data set are under the empty text."""
    from vizsla.runs import Run

    runs: dict[str, dict[str, Run]] = {}
    for text in given:
        system, dataset, path = named_file(text)
        by_system = runs.setdefault(dataset, {})
        if system in by_system:
            raise VizslaError(f"two runs are called {system!r}; write NAME=FILE")
        by_system[system] = Run.read(path)
    return runs
