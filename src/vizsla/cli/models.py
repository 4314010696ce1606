"""vizsla models: what can be named, with its options; models saved, averaged, and fitted to an index."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console, options
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vizsla.models import Model
    from vizsla.spec import Entry, Option, Registry

KINDS = {
    "model": "vizsla.models:MODELS",
    "expander": "vizsla.models:EXPANDERS",
    "fusion": "vizsla.runs.fusion:FUSIONS",
    "vector-index": "vizsla.engine:VECTOR_INDEXES",
    "tokenizer": "vizsla.text.tokenizers:TOKENIZERS",
    "token-filter": "vizsla.text.filters:TOKEN_FILTERS",
    "head": "vizsla.neural.heads:HEADS",
    "trained-kind": "vizsla.training.kind:TRAINED_KINDS",
    "location": "vizsla.retrievers.locations:LOCATIONS",
    "source": "vizsla.datasets:SOURCES",
}
"""The registry of each kind of thing that has a name and options."""


_RECOMMENDED = (
    "Which one: bm25 to begin with; vizsla-sparse is better and comes with Vizsla; hybrid gains the most on "
    "average and needs the weights of bge-small (docs/choosing.md)."
)

Kind = Annotated[str, typer.Option("--kind", metavar="KIND", help=f"What to list: {', '.join(KINDS)}.")]


def models(context: typer.Context, kind: Kind = "model", as_json: options.Json = False) -> None:
    """List the models by name; with --kind, other things that have names and options."""
    if context.invoked_subcommand is not None:
        return
    registry = _registry(kind)
    list_entries(list(registry), registry.what, as_json=as_json)
    if not as_json:
        flag = "" if kind == "model" else f" --kind {kind}"
        others = ", ".join(other for other in KINDS if other != kind)
        if kind == "model":
            console.remark(_RECOMMENDED)
        console.remark(f"Options of one: vizsla models show NAME{flag}. Others by --kind: {others}.")


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A model by name, as vizsla models lists them.")],
    kind: Kind = "model",
    as_json: options.Json = False,
) -> None:
    """Show the options of a model.

    With --kind, those of a fusion, a vector index, a token filter and the like.
    """
    registry = _registry(kind)
    if name not in registry:
        _check_other_kinds(name, kind)
    show_entry(registry[name], registry.what, registry.usage(name), as_json=as_json)


def _check_other_kinds(name: str, kind: str) -> None:
    """Raise an error that names the right kind, if a name is of another kind."""
    for other in KINDS:
        with suppress(VizslaError):
            found = name in _registry(other)
            if found and other != kind:
                break
    else:
        return
    raise VizslaError(f"{name} is not a {kind}; see: vizsla models show {name} --kind {other}")


def list_entries(entries: Sequence[Entry[Any]], what: str, *, as_json: bool = False) -> None:
    """Print the entries of a registry: names, what each is, and what must be installed."""
    if as_json:
        console.print_json({"kind": what, "entries": [_as_json(entry) for entry in entries]})
        return
    rows = [(entry.name, entry.help, _missing(entry)) for entry in entries]
    console.show_table((what, "what it is", ""), rows)


def show_entry(entry: Entry[Any], what: str, usage: str, *, as_json: bool = False) -> None:
    """Print one entry of a registry: its options with types, defaults and help, and what it needs."""
    if as_json:
        console.print_json({"kind": what, **_as_json(entry)})
        return
    console.line(f"{entry.name}: {entry.help}", "bold")
    if entry.needs:
        missing = _missing(entry)
        console.line(f"needs {_packages(entry.needs)}" + (f" ({missing})" if missing else ""))
    if not entry.options:
        console.line("It has no options.")
        return
    console.line()
    rows = [(option.name, option.expected, _default(option), option.help) for option in entry.options]
    console.show_table(("option", "value", "default", "what it does"), rows)
    console.remark(f"Write it as in: {usage}")


def split_models(names: Sequence[str]) -> list[str]:
    """The models of several --model options; each may name several, separated by commas outside brackets."""
    from vizsla.spec import split_options

    split = split_options(",".join(names), ",")
    twice = next((name for name in split if split.count(name) > 1), None)
    if twice:
        raise VizslaError(f"the model {twice!r} is named twice")
    return split


def _registry(kind: str) -> Registry[Any]:
    console.check_name("kind", kind, KINDS)
    module, _, name = KINDS[kind].partition(":")
    try:
        registry: Registry[Any] = getattr(import_module(module), name)
        list(registry)  # some are filled when they are first looked at
    except ImportError as e:
        raise VizslaError(f"listing each {kind} needs more packages ({e}); install vizsla[train]") from None
    return registry


def _as_json(entry: Entry[Any]) -> dict[str, Any]:
    listed = [{"name": o.name, "type": o.type, "default": _plain(o.default), "help": o.help} for o in entry.options]
    return {"name": entry.name, "help": entry.help, "needs": list(entry.needs), "options": listed}


def _plain(value: object) -> object:
    """A default as JSON has it."""
    if isinstance(value, tuple):
        return list(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _default(option: Option) -> str:
    from vizsla.spec.notation import format_value

    return "" if option.default is None else format_value(option.default)


def _packages(needs: Sequence[str]) -> str:
    return " and ".join(need.replace("|", " or ") for need in needs)


def _missing(entry: Entry[Any]) -> str:
    """Which packages have to be installed first."""
    return f"not installed: {_packages(entry.missing)}" if entry.missing else ""


def save(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A name, a folder, hf:org/name, or a sum of models.")],
    output: Annotated[Path, options.output("The folder to write.")],
    as_json: options.Json = False,
) -> None:
    """Save a model to a folder.

    The folder gets its networks and a model card. A SPLADE or a uniCOIL is also written in the layout of
    sentence-transformers' SparseEncoder.
    """
    from vizsla.models import parse_model
    from vizsla.models.saving import save_model

    console.check_folder(output, "a saved model")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise VizslaError(f"{output}: this exists and is not an empty folder; name another")
    parsed = parse_model(model)
    opens = save_model(parsed, output)
    if as_json:
        console.print_json({"folder": str(output), "model": parsed.name, "sparse_encoder": opens})
        return
    also = "; SparseEncoder can open it as well" if opens else ""
    console.remark(f"{console.safe(parsed.name)} written to {console.safe(str(output))}{also}")


_SAMPLE = 1000  # documents, of which a few dozen are used


@options.spread
def average(
    *,
    models: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of models that differ in the seed alone.")
    ],
    corpus: Annotated[
        list[str],
        typer.Option("--corpus", metavar="SOURCE", help="Some documents to calibrate the 8-bit quantisation with."),
    ],
    output: Annotated[Path, options.output("The folder of the new model.")],
    as_json: options.Json = False,
    reading: options.FileOptions,
) -> None:
    """Average the weights of learned sparse models of several seeds.

    The mean of seeds is often better than any one of them, and costs no more (arxiv.org/abs/2203.05482).
    """
    console.check_folder(output, "a model")
    documents = (document for source in reading.find(corpus) for document in source.documents())
    from vizsla.training.averaging import average_models

    average_models(models, islice(documents, _SAMPLE), output)
    if as_json:
        console.print_json({"model": str(output), "models": [str(model) for model in models]})
        return
    console.remark(f"Written: {output}. Use it with: vizsla index SOURCE -o DIR --model {output}")


def fit(index: options.IndexFolder) -> None:
    """Fit the weights of a sum to the documents of an index.

    No queries or judgements are needed, and nothing is indexed again. auto(bm25, minilm) is fitted to the first
    documents of an index; fit it again after adding many others. To choose weights on judged queries, see vizsla tune.
    """
    from vizsla.index import Index

    with Index.open(index) as opened:
        before = _weights(opened.model)
        after = _weights(opened.fit_weights())
    console.remark(f"before: {before}")
    console.remark(f"now:    {after}" if after != before else "the weights have not changed")


def _weights(model: Model) -> str:
    """The parts of a sum with their weights, and the norms of queries where there are some."""
    terms = []
    for weight, component in model.parts:
        norm = getattr(component, "query_norm", 0.0)
        terms.append(f"{weight:g} * {component.name}" + (f" (query_norm {norm:g})" if norm else ""))
    return " + ".join(terms)
