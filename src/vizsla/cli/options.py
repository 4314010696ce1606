"""Arguments and options that several verbs take: each has one name and one help text.

Where the help depends on the verb, the verb gives it: `output("The TREC run to write.")`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

DEFAULT_MEMORY = "1GB"
DEFAULT_MAX_DOCUMENT = "16MB"


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
    """The option --model of a verb that takes several models."""
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
    """The argument INDEX of a verb that searches or reads, and so takes anything that can be opened."""
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
    typer.Option("--filter", metavar="CONDITION", help='Search only some documents: year >= 1999 and lang = "en".'),
]
Expand = Annotated[
    str | None,
    typer.Option(
        "--expand", metavar="EXPANDER", help="Query expansion for BM25: rm3, general, or the folder of a trained one."
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
        "--syntax", metavar="NAME", help='lucene: read queries as +dogs "big cats"~2 -title:fish retriev* dgos~1.'
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
Offset = Annotated[int, typer.Option("--offset", metavar="N", help="Leave out the first N results.")]
Sort = Annotated[
    str | None, typer.Option("--sort", metavar="FIELD", help="Sort all results by a field: year, or -year.")
]
Collapse = Annotated[
    str | None, typer.Option("--collapse", metavar="FIELD", help="Only the best result of each value of a field.")
]
MinScore = Annotated[
    float | None, typer.Option("--min-score", metavar="X", help="Only results with this score or a higher one.")
]
Facets = Annotated[
    str | None, typer.Option("--facets", metavar="FIELD,...", help="Count the values of fields over all matches.")
]
Like = Annotated[str | None, typer.Option("--like", metavar="ID", help="Instead of a query: documents like this one.")]
Threads = Annotated[
    int | None, typer.Option("--threads", metavar="N", help="With --queries: how many threads; default: all.")
]
Precision = Annotated[
    str | None, typer.Option("--precision", metavar="TYPE", help="int8 or float32; default: int8 unless a GPU is used.")
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
    int, typer.Option("--pool-depth", metavar="N", help="Consistency: how deep the reference run is looked into.")
]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The folder with data sets; default: $VIZSLA_DATA.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

# Writing an index

Memory = Annotated[str, typer.Option("--memory", metavar="SIZE", help="About how much memory to use, as in 512MB.")]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        help="How many threads or processes analyse documents; default: as many as are of use.",
    ),
]
Passages = Annotated[
    int | None, typer.Option("--passages", metavar="WORDS", help="Split texts into passages of so many words.")
]
Overlap = Annotated[int, typer.Option("--overlap", metavar="WORDS", help="By how many words passages overlap.")]
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
    typer.Option("--positions/--no-positions", help="Store where words stand, so that phrases are found fast."),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="Format of the sources: jsonl, csv, tsv, parquet, trec or text; default: by ending.",
    ),
]
IdField = Annotated[str | None, typer.Option("--id-field", metavar="NAME", help="The field that holds the id.")]
TextField = Annotated[str | None, typer.Option("--text-field", metavar="NAME", help="The field that holds the text.")]
TitleField = Annotated[
    str | None, typer.Option("--title-field", metavar="NAME", help="The field that holds the title.")
]
Delimiter = Annotated[
    str | None, typer.Option("--delimiter", metavar="CHAR", help="What separates columns of csv or tsv; else guessed.")
]
ColumnTypes = Annotated[
    str | None,
    typer.Option(
        "--types", metavar="NAME=TYPE,...", help="Types of csv or tsv columns: text, int, float, bool or date."
    ),
]
MaxDocument = Annotated[
    str, typer.Option("--max-document", metavar="SIZE", help="The largest line or document allowed, as in 64MB.")
]
AllowEmpty = Annotated[bool, typer.Option("--allow-empty", help="Accept sources without documents.")]
