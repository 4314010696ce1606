"""vizsla models: what can be named on the command line, with its options."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vizsla.cli import console, options
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
}
"""Everything that has a name and options: where its registry is."""


def models(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show the options of this one.")] = None,
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help=f"What to list: {', '.join(KINDS)}.")] = "model",
    as_json: options.Json = False,
) -> None:
    """List the models by name, or show the options of one.

    --kind lists other things that have names and options, such as fusions, vector indexes and token filters.
    """
    console.check_name("kind", kind, KINDS)
    try:
        registry = _registry(kind)
        entries = list(registry)
    except ImportError as e:
        raise VizslaError(f"listing each {kind} needs more packages ({e}); install vizsla[train]") from None
    if name is not None and name not in registry:
        _check_other_kinds(name, kind)
    if name is not None:
        show_entry(registry[name], registry.what, registry.usage(name), as_json=as_json)
        return
    list_entries(entries, registry.what, as_json=as_json)
    if not as_json:
        flag = "" if kind == "model" else f" --kind {kind}"
        others = ", ".join(other for other in KINDS if other != kind)
        console.remark(f"Options of one: vizsla models NAME{flag}. Others by --kind: {others}.")


def _check_other_kinds(name: str, kind: str) -> None:
    """Say so if a name is of another kind."""
    for other in KINDS:
        with suppress(ImportError):
            if other != kind and name in _registry(other):
                raise VizslaError(f"{name} is not a {kind}; see: vizsla models {name} --kind {other}")


def list_entries(entries: Sequence[Entry[Any]], what: str, *, as_json: bool = False) -> None:
    """Print the entries of a registry: names, what each is, and what must be installed."""
    if as_json:
        console.print_json({"kind": what, "entries": [_as_json(entry) for entry in entries]})
        return
    rows = [(entry.name, entry.help, _missing(entry.needs)) for entry in entries]
    console.show_table((what, "what it is", ""), rows)


def show_entry(entry: Entry[Any], what: str, usage: str, *, as_json: bool = False) -> None:
    """Print one entry of a registry: its options with types, defaults and help, and what it needs."""
    if as_json:
        console.print_json({"kind": what, **_as_json(entry)})
        return
    console.line(f"{entry.name}: {entry.help}", "bold")
    if entry.needs:
        missing = _missing(entry.needs)
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
    module, _, name = KINDS[kind].partition(":")
    registry: Registry[Any] = getattr(import_module(module), name)
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


def _missing(needs: Sequence[str]) -> str:
    """Which packages have to be installed first."""
    missing = [need for need in needs if not any(map(_is_installed, need.split("|")))]
    return f"not installed: {_packages(missing)}" if missing else ""


def _is_installed(package: str) -> bool:
    return find_spec(package) is not None
