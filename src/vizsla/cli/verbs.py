"""The verbs of the command line, in the groups that the help shows."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer
import typer.core

Verb = Callable[..., None] | typer.Typer

GROUPS: dict[str, dict[str, str]] = {
    "First steps": {"demo": "demo.demo"},
    "Collections": {
        "index": "index.index",
        "encode": "encode.encode",
        "upload": "upload.upload",
        "add": "add.add",
        "delete": "delete.delete",
        "info": "info.info",
        "compact": "compact.compact",
        "fit": "fit.fit",
        "reweigh": "reweigh.reweigh",
        "revert": "revert.revert",
        "verify": "verify.verify",
        "trust": "trust.trust",
        "export": "export.export",
    },
    "Search": {
        "search": "search.search",
        "explain": "explain.explain",
        "rerank": "rerank.rerank",
        "fuse": "fuse.fuse",
        "analyze": "analyze.analyze",
        "models": "models.models",
    },
    "Document expansion": {"expand": "expand.expand", "queries": "queries.app"},
    "Serving": {"serve": "serve.serve", "mcp": "mcp.mcp"},
    "Evaluation": {
        "eval": "evaluate.evaluate",
        "compare": "compare.compare",
        "tune": "tune.tune",
        "datasets": "datasets.app",
        "recipes": "recipes.app",
    },
    "Analysis": {
        "overlap": "overlap.overlap",
        "interleave": "interleave.interleave",
        "word-order": "word_order.word_order",
        "qrels": "qrels.app",
        "ann-recall": "ann_recall.ann_recall",
    },
    "Training": {"train": "train.train", "adapt": "adapt.adapt", "average": "average.average"},
    "Sharing models": {"save-model": "save_model.save_model", "push": "push.push"},
}
"""By group, then by name: the function or the typer application of each verb, as module and name in this folder."""


class GroupedVerbs(typer.core.TyperGroup):
    """A group of verbs whose help lists them under headings, each with one line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the headings and the verbs."""
        names = max(len(name) for verbs in GROUPS.values() for name in verbs)
        limit = formatter.width - names - 6
        for heading, verbs in GROUPS.items():
            commands = ((name, self.get_command(ctx, name)) for name in verbs)
            rows = [(name.ljust(names), command.get_short_help_str(limit)) for name, command in commands if command]
            with formatter.section(heading):
                formatter.write_dl(rows)


def register(app: typer.Typer, wanted: str | None = None) -> None:
    """Give an application the verb that is wanted; all verbs if no verb has this name.

    A command so imports what belongs to its verb and no other.
    """
    places = {name: place for verbs in GROUPS.values() for name, place in verbs.items()}
    if wanted in places:
        places = {wanted: places[wanted]}
    for name, place in places.items():
        verb = _load(place)
        if isinstance(verb, typer.Typer):
            app.add_typer(verb, name=name)
        else:
            app.command(name)(verb)


def _load(place: str) -> Verb:
    module, _, name = place.rpartition(".")
    verb: Verb = getattr(import_module(f"vizsla.cli.{module}"), name)
    return verb
