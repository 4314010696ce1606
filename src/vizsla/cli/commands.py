"""The commands, under the headings that the help shows, and those that belong together in groups, as `vizsla run fuse`.

A command is a function in this folder. It imports what it needs when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
import typer.core

from vizsla.cli.options import on_device
from vizsla.errors import VizslaError


@dataclass(frozen=True)
class Group:
    """Commands with a first word in common: its help, their places, and what the first word does alone."""

    help: str
    commands: dict[str, str]
    alone: str | None = None


COMMANDS: dict[str, dict[str, str | Group]] = {
    "First steps": {"demo": "demo.demo"},
    "Indexes": {
        "index": "index.index",
        "add": "index.add",
        "update": "collection.update",
        "delete": "collection.delete",
        "info": "collection.info",
        "compact": "collection.compact",
        "verify": "collection.verify",
        "export": "export.export",
        "backup": "backup.backup",
        "restore": "backup.restore",
    },
    "Search": {"search": "search.search", "explain": "search.explain", "analyze": "search.analyze"},
    "Serving": {"serve": "serve.serve", "mcp": "serve.mcp"},
    "Evaluation": {
        "eval": "evaluate.evaluate",
        "compare": "compare.compare",
        "tune": "tune.tune",
        "run": Group(
            "Combine (fuse), rerank and inspect the runs of any systems.",
            {
                "fuse": "fuse.fuse",
                "rerank": "rerank.rerank",
                "overlap": "overlap.overlap",
                "interleave": "interleave.interleave",
                "word-order": "word_order.word_order",
            },
        ),
        "qrels": Group(
            "Find unjudged documents to judge; evaluate with new judgements.",
            {"pool": "qrels.pool", "eval": "qrels.evaluate_with"},
        ),
        "datasets": Group(
            "List, download, prepare and count data sets.",
            {
                "show": "datasets.show",
                "fetch": "datasets.fetch",
                "prepare": "datasets.prepare",
                "mine": "datasets.mine",
                "stats": "datasets.stats",
            },
            alone="datasets.datasets",
        ),
        "recipes": Group(
            "List named systems; check that they reach their figures.",
            {"check": "recipes.check"},
            alone="recipes.recipes",
        ),
        "reproduce": "reproduce.reproduce",
    },
    "Models": {
        "models": Group(
            "List models and options; save or fit one, average several.",
            {
                "show": "models.show",
                "save": "models.save",
                "average": "models.average",
                "fit": "models.fit",
            },
            alone="models.models",
        ),
        "train": "train.train",
        "adapt": "train.adapt",
        "queries": Group(
            "Queries for documents: generate (docT5query), filter, draw.",
            {
                "generate": "queries.generate",
                "filter": "queries.filter",
                "draw": "queries.draw",
            },
        ),
    },
    "Large collections": {
        "encode": "index.encode",
        "qdrant": Group(
            "Copy documents to a Qdrant cluster, or undo that (revert).",
            {"upload": "qdrant.upload", "reweigh": "qdrant.reweigh", "revert": "qdrant.revert"},
        ),
        "vectors": Group(
            "Recall of approximate vector search; allow a faiss index.",
            {"recall": "vectors.recall", "trust": "vectors.trust"},
        ),
    },
}
"""By heading, then by name: each command as module and name in this folder, or the group that has this name."""


RUN_NETWORKS = {
    *("index.index", "index.add", "index.encode", "qdrant.upload", "vectors.recall"),
    *("search.search", "search.explain", "serve.serve", "serve.mcp"),
    *("evaluate.evaluate", "compare.compare", "tune.tune", "rerank.rerank", "interleave.interleave", "recipes.check"),
    "reproduce.reproduce",
    *("models.save", "models.fit", "train.train", "train.adapt", "queries.generate", "queries.filter"),
}
"""The commands that run networks, and so take --device; where they are, as in COMMANDS."""


def command_names() -> Iterator[str]:
    """Every command as it is typed: 'search', 'run fuse'.

    >>> names = list(command_names())
    >>> "search" in names, "run" in names, "run fuse" in names
    (True, True, True)
    """
    for commands in COMMANDS.values():
        for name, place in commands.items():
            yield name
            if isinstance(place, Group):
                yield from (f"{name} {inner}" for inner in place.commands)


class CommandGroup(typer.core.TyperGroup):
    """Commands of which one is called; one that does not exist is refused in a sentence that names the closest."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that arguments name."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            raise VizslaError(_no_command(ctx.command_path.partition(" ")[2], args[0]))
        return super().resolve_command(ctx, args)


class AllCommands(CommandGroup):
    """All commands; the help lists them under headings, each with one line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the headings and the commands."""
        width = max(len(name) for commands in COMMANDS.values() for name in commands)
        limit = formatter.width - width - 6
        for heading, names in COMMANDS.items():
            commands = ((name, self.get_command(ctx, name)) for name in names)
            rows = [(name.ljust(width), command.get_short_help_str(limit)) for name, command in commands if command]
            with formatter.section(heading):
                formatter.write_dl(rows)


def _no_command(group: str, name: str) -> str:
    """What is said about a command that does not exist.

    >>> _no_command("", "fuse")
    "there is no command 'fuse'; did you mean 'vizsla run fuse'?"
    >>> _no_command("", "nonsense")
    "there is no command 'nonsense'; 'vizsla --help' lists all"
    >>> _no_command("run", "fuze"), _no_command("qdrant", "xyzzy")  # doctest: +NORMALIZE_WHITESPACE
    ("there is no command 'run fuze'; did you mean 'vizsla run fuse'?",
     "there is no command 'qdrant xyzzy'; 'vizsla qdrant' has upload, reweigh and revert")
    """
    from difflib import get_close_matches

    inside = f"{group} " if group else ""
    by_last_word = {
        full.rpartition(" ")[2]: full for full in reversed(list(command_names())) if full.startswith(inside)
    }
    said = f"there is no command {inside + name!r}"
    if close := get_close_matches(name, by_last_word, n=1):
        return f"{said}; did you mean 'vizsla {by_last_word[close[0]]}'?"
    if not group:
        return f"{said}; 'vizsla --help' lists all"
    *others, last = reversed(by_last_word)
    return f"{said}; 'vizsla {group}' has {', '.join(others)}{' and ' if others else ''}{last}"


def register(app: typer.Typer, arguments: Sequence[str] = ()) -> None:
    """Give an application the command that arguments begin with; all commands if they begin with none.

    A command so imports what belongs to it and to no other.
    """
    places = {name: place for commands in COMMANDS.values() for name, place in commands.items()}
    wanted, inner = [*arguments[:2], "", ""][:2]
    for name, place in {wanted: places[wanted]}.items() if wanted in places else places.items():
        if isinstance(place, Group):
            app.add_typer(_group(place, inner if name == wanted else ""), name=name)
        else:
            app.command(name)(_load(place))


def _group(group: Group, wanted: str) -> typer.Typer:
    """The application of a group: with the command that is wanted alone, if the group has it."""
    app = typer.Typer(help=group.help, cls=CommandGroup, rich_markup_mode=None, no_args_is_help=group.alone is None)
    if group.alone is not None:
        app.callback(invoke_without_command=True, help=group.help)(_load(group.alone))
    for name, place in group.commands.items():
        if name == wanted or wanted not in group.commands:
            app.command(name)(_load(place))
    return app


def _load(place: str) -> Callable[..., None]:
    module, _, name = place.rpartition(".")
    command: Callable[..., None] = getattr(import_module(f"vizsla.cli.{module}"), name)
    return on_device(command) if place in RUN_NETWORKS else command
