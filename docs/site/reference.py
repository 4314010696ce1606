"""The pages of the reference: the commands, from their own help, and the Python API, from docstrings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

API = {
    "indexes": (
        "Indexes",
        "A collection on disk: make it, change it, search it. [Collections](../collections.md) shows how.",
        [
            "vizsla.index.Collection",
            "vizsla.index.Index",
            "vizsla.index.AsyncCollection",
            "vizsla.index.AsyncIndex",
            "vizsla.index.Writer",
            "vizsla.index.IndexView",
            "vizsla.index.Highlighter",
            "vizsla.index.Snippet",
            "vizsla.index.Facets",
            "vizsla.index.FieldFacets",
            "vizsla.index.FacetValue",
            "vizsla.index.Suggestion",
            "vizsla.index.TermStatistics",
            "vizsla.index.document_vectors",
            "vizsla.index.measure_recall",
            "vizsla.index.verify",
            "vizsla.index.backup",
            "vizsla.index.list_backups",
            "vizsla.index.restore",
            "vizsla.index.trust_vector_indexes",
            "vizsla.index.encode_shard",
            "vizsla.index.build_from_parts",
            "vizsla.engine.VectorIndex",
            "vizsla.backends.qdrant.QdrantIndex",
        ],
    ),
    "models": (
        "Models",
        "Text to vectors. A model is a weighted sum of components; [Models](../models.md) lists their names.",
        [
            "vizsla.models.parse_model",
            "vizsla.neural.device.use_device",
            "vizsla.models.Model",
            "vizsla.models.Sum",
            "vizsla.models.AutoWeightedSum",
            "vizsla.models.Component",
            "vizsla.models.SparseComponent",
            "vizsla.models.DenseComponent",
            "vizsla.models.TokenComponent",
            "vizsla.models.TokenMatchComponent",
            "vizsla.models.BM25",
            "vizsla.models.LearnedSparse",
            "vizsla.models.Dense",
            "vizsla.models.Spar",
            "vizsla.models.Sketch",
            "vizsla.models.ColBERT",
            "vizsla.models.Coil",
            "vizsla.models.ExpandedBM25",
            "vizsla.models.QueryExpander",
            "vizsla.models.RM3",
            "vizsla.models.Synonyms",
            "vizsla.models.Augmenter",
            "vizsla.models.Reranker",
            "vizsla.models.PrecomputedVectors",
        ],
    ),
    "retrievers": (
        "Retrievers",
        "Whatever can be searched: an index, a server, a cluster, a fusion, a reranker over another.",
        [
            "vizsla.retrievers.open",
            "vizsla.runs.Retriever",
            "vizsla.retrievers.FusedRetriever",
            "vizsla.retrievers.RerankedRetriever",
            "vizsla.retrievers.rerank",
            "vizsla.retrievers.remote.RemoteIndex",
            "vizsla.retrievers.remote.AsyncRemoteIndex",
        ],
    ),
    "runs": (
        "Runs and judgements",
        "Documents, hits, rankings, judgements, measures, filters and fusion, as data.",
        [
            "vizsla.runs.Document",
            "vizsla.runs.Hit",
            "vizsla.runs.Hits",
            "vizsla.runs.Run",
            "vizsla.runs.Ranking",
            "vizsla.runs.read_run",
            "vizsla.runs.Qrels",
            "vizsla.runs.Measure",
            "vizsla.runs.parse_measures",
            "vizsla.runs.Filter",
            "vizsla.runs.Explanation",
            "vizsla.runs.fuse",
            "vizsla.runs.Fusion",
        ],
    ),
    "evaluation": (
        "Evaluation",
        "Runs to measures and comparisons. [Evaluating](../evaluating.md) shows how.",
        [
            "vizsla.evaluation.evaluate",
            "vizsla.evaluation.evaluate_retriever",
            "vizsla.evaluation.evaluate_model",
            "vizsla.evaluation.Evaluation",
            "vizsla.evaluation.systems.compare",
            "vizsla.evaluation.Comparison",
            "vizsla.evaluation.Difference",
            "vizsla.evaluation.Convention",
            "vizsla.recipes.load_recipe",
            "vizsla.recipes.Recipe",
            "vizsla.reports.write_report",
        ],
    ),
    "datasets": (
        "Data sets",
        "Files to documents, queries and judgements. [Data sets](../datasets.md) lists the formats.",
        [
            "vizsla.datasets.read_documents",
            "vizsla.datasets.read_queries",
            "vizsla.datasets.BeirDataset",
            "vizsla.datasets.FieldNames",
            "vizsla.datasets.Splitter",
            "vizsla.datasets.open_datasets",
            "vizsla.datasets.known_datasets",
        ],
    ),
    "text": (
        "Text and vectors",
        "Text to terms, and the vectors that models make. [Analyzers](../analyzers.md) lists the names.",
        [
            "vizsla.text.Analyzer",
            "vizsla.text.Token",
            "vizsla.text.analyzer_names",
            "vizsla.text.count_tokens",
            "vizsla.text.register_filter",
            "vizsla.vectors.SparseVectors",
            "vizsla.vectors.DenseVectors",
            "vizsla.vectors.TokenVectors",
            "vizsla.vectors.Vocabulary",
            "vizsla.vectors.Quantiser",
        ],
    ),
    "training": (
        "Training and expansion",
        "Text to models, which needs torch, and queries that a generator writes for documents.",
        [
            "vizsla.training.train",
            "vizsla.training.load_training_recipe",
            "vizsla.training.TrainingRecipe",
            "vizsla.training.TrainingInputs",
            "vizsla.training.TrainingResult",
            "vizsla.training.TrainedKind",
            "vizsla.expansion.expand",
            "vizsla.expansion.ExpansionSettings",
            "vizsla.expansion.ExpansionReport",
            "vizsla.expansion.filter_queries",
            "vizsla.expansion.draw_queries",
            "vizsla.expansion.DrawingSettings",
        ],
    ),
    "adapters": (
        "Adapters",
        "A retriever or a collection in another framework. [In other frameworks](../integrations.md) shows each.",
        [
            "vizsla.adapters.langchain.VizslaRetriever",
            "vizsla.adapters.langchain.VizslaVectorStore",
            "vizsla.adapters.llama_index.VizslaRetriever",
            "vizsla.adapters.llama_index.VizslaVectorStore",
            "vizsla.adapters.haystack.VizslaRetriever",
            "vizsla.adapters.haystack.VizslaDocumentStore",
            "vizsla.adapters.pyterrier.VizslaRetriever",
            "vizsla.adapters.pyterrier.VizslaIndexer",
            "vizsla.adapters.mteb.VizslaSearch",
            "vizsla.adapters.beir.VizslaSearch",
        ],
    ),
    "errors": (
        "Errors",
        "Every error that a user can cause is a `VizslaError`, whose text is one sentence.",
        [
            "vizsla.errors.VizslaError",
            "vizsla.errors.InputError",
            "vizsla.errors.UnknownNameError",
            "vizsla.errors.MissingPackageError",
            "vizsla.errors.UnsupportedError",
            "vizsla.errors.CannotExplainError",
            "vizsla.errors.CollectionError",
            "vizsla.errors.UncommittedChangesWarning",
        ],
    ),
}
"""The pages of the API by file: title, what it is for, names."""
WITH_INHERITED = (
    "vizsla.index.Index",
    "vizsla.backends.qdrant.QdrantIndex",
    "vizsla.retrievers.remote.RemoteIndex",
)
"""Classes that people call, whose methods stand partly in a class above; elsewhere that class is described once."""


def api_pages() -> Iterator[tuple[str, str]]:
    """The file and the Markdown of each page of the API; mkdocstrings fills in what stands after `:::`."""
    for file, (title, purpose, names) in API.items():
        yield f"reference/{file}.md", "\n\n".join([f"# {title}", purpose, *map(_entry, names)]) + "\n"


def _entry(name: str) -> str:
    """What mkdocstrings replaces by the docstrings of a name."""
    return f"::: {name}" + ("\n    options:\n      inherited_members: true" if name in WITH_INHERITED else "")


def commands_page() -> str:
    """All commands with their arguments and options, in Markdown."""
    import typer

    from vizsla.cli.app import application
    from vizsla.cli.commands import COMMANDS

    group = typer.main.get_command(application())
    lines = ["# Commands", "", "`vizsla COMMAND --help` prints the same in a terminal.", ""]
    for heading, names in COMMANDS.items():
        lines += [f"## {heading}", ""]
        for name in names:
            lines += _command(f"vizsla {name}", group.commands[name])  # type: ignore[attr-defined]
    return "\n".join(lines)


def _command(name: str, command: Any) -> Iterator[str]:
    """A command and those below it."""
    inner = getattr(command, "commands", {})
    yield from (f"### {name}", "", *_paragraphs(command.help))
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    if not inner:
        parts = [name, *(p.make_metavar(command.make_context(name, [], resilient_parsing=True)) for p in arguments)]
        yield from ("```text", " ".join([*parts, "[OPTIONS]"] if options else parts), "```", "")
    rows = [(f"`{_metavar(p)}`", p.help) for p in arguments if getattr(p, "help", None)]
    rows += [(_option(p), p.help) for p in options if not p.hidden]
    if rows:
        yield from ("| | |", "|---|---|")
        yield from (f"| {left} | {_cell(right)} |" for left, right in rows)
        yield ""
    for below, each in inner.items():
        yield from _command(f"{name} {below}", each)


def _paragraphs(text: str | None) -> Iterator[str]:
    for paragraph in (text or "").split("\n\n"):
        if paragraph.strip():
            yield from (" ".join(paragraph.replace("\b", "").split()), "")


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _option(parameter: Any) -> str:
    names = [*parameter.opts, *parameter.secondary_opts]
    value = "" if parameter.is_flag else f" {parameter.metavar or parameter.type.name.upper()}"
    return ", ".join(f"`{name}{value}`" for name in names)


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|").replace("<", "&lt;")
