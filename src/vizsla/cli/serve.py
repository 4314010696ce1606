"""vizsla serve and vizsla mcp: indexes behind a URL with an API and a page, and as tools for an assistant."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vizsla.cli import console, options
from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.server.settings import Settings


@dataclass(frozen=True)
class ServerOptions:
    """How a server runs, and what it allows."""

    host: Annotated[str | None, typer.Option(help="Where to listen; default: 127.0.0.1, only this machine.")] = None
    port: Annotated[int | None, typer.Option(help="Default: 8080; 0 takes a free one.")] = None
    workers: Annotated[int | None, typer.Option(help="Number of worker processes; default: 1.")] = None
    write: Annotated[bool | None, typer.Option("--write", help="Let requests change the indexes.")] = None
    keys: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file of API keys, one a line: read, judge, write or admin, and the KEY."),
    ] = None
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", metavar="NAME=MODEL", help="A model that requests may name; repeatable."),
    ] = None
    expander: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=EXPANDER", help="Query expansion that requests may name; repeatable."),
    ] = None
    reranker: Annotated[
        list[str] | None, typer.Option(metavar="NAME=MODEL", help="A reranker that requests may name; repeatable.")
    ] = None
    cors: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="A site whose pages may call the API; repeatable.")
    ] = None
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A host name of this server; repeatable.")
    ] = None
    collections: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Let requests create and delete indexes in this folder.")
    ] = None
    collection_model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=MODEL", help="A model that such an index may have; repeatable; default: bm25."),
    ] = None
    quotas: Annotated[
        str | None,
        typer.Option(metavar="NAME=N,...", help="How many such collections, and documents and bytes of each."),
    ] = None
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where judgements and staged documents are kept.")
    ] = None
    limits: Annotated[
        str | None, typer.Option(metavar="NAME=N,...", help="Limits of one request, as in k=100,seconds=5.")
    ] = None
    no_judging: Annotated[bool, typer.Option("--no-judging", help="Accept no judgements.")] = False
    no_mcp: Annotated[bool, typer.Option("--no-mcp", help="No tools for agents at /mcp.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not log requests.")] = False
    log_texts: Annotated[bool | None, typer.Option("--log-texts", help="Also log queries and ids.")] = None
    log_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="text, or json: one object per line; default: text.")
    ] = None
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings in a TOML file.")] = None

    def settings(self, indexes: list[str]) -> Settings:
        """The settings of a server: these options, the environment, and what a file says."""
        from vizsla.server.settings import index_names, named_values, read_settings

        flags = {
            "indexes": index_names(indexes),
            "host": self.host,
            "port": self.port,
            "workers": self.workers,
            "write": self.write,
            "keys": self.keys and str(self.keys),
            "models": named_values(self.model or [], "--model"),
            "expanders": named_values(self.expander or [], "--expander"),
            "rerankers": named_values(self.reranker or [], "--reranker"),
            "cors": self.cors,
            "hosts": self.allow_host,
            "collections": self.collections and str(self.collections),
            "collection_models": named_values(self.collection_model or [], "--collection-model"),
            "quotas": _numbers("--quotas", self.quotas),
            "state": self.state and str(self.state),
            "limits": _numbers("--limits", self.limits),
            "judging": False if self.no_judging else None,
            "mcp": False if self.no_mcp else None,
            "access_log": False if self.quiet else None,
            "log_texts": self.log_texts,
            "log_format": self.log_format,
        }
        return read_settings(flags, None if self.config is None else str(self.config), os.environ)


@options.spread
def serve(
    *,
    indexes: Annotated[
        list[str] | None, typer.Argument(metavar="[DIR]...", help="Folders of indexes; NAME=DIR names one.")
    ] = None,
    given: ServerOptions,
) -> None:
    """Serve indexes: an HTTP API, and a page to search with."""
    console.need("fastapi", "server")
    _run(given.settings(indexes or []))


def _numbers(option: str, given: str | None) -> dict[str, float]:
    from vizsla.server.settings import named_values

    found: dict[str, float] = {}
    for name, text in named_values(given.split(",") if given else [], option).items():
        try:
            found[name] = float(text) if name == "seconds" else int(text)
        except ValueError:
            raise VizslaError(f"{option}: {name} takes a number, not {text!r}") from None
    return found


def _run(settings: Settings) -> None:
    from vizsla.server.hosting import check_hosting
    from vizsla.server.logs import json_line
    from vizsla.server.running import bind, serve, url_of

    def say(text: str, **facts: object) -> None:
        if settings.log_format == "json":
            typer.echo(json_line("info", {"message": text, **facts}), err=True)
        else:
            console.remark(text)

    facts = check_hosting(settings)
    opened = bind(settings.host, settings.port)
    url = url_of(opened)

    def announce() -> None:
        for name, info in facts.items():
            say(f"{name}: {console.count(info['documents'], 'document')}, {info['model']}", index=name)
        say(f"Serving {url}  (API: {url}/docs; stop with Ctrl-C)", url=url)

    with opened:
        serve(settings, opened, announce)
    say("Stopped.")


def mcp(
    indexes: Annotated[list[str], typer.Argument(metavar="DIR...", help="Folders of indexes; NAME=DIR names one.")],
) -> None:
    """Let an assistant search indexes through MCP on standard input.

    An assistant that supports the Model Context Protocol starts this command itself: add it to its settings. It can
    search, read documents and explain scores, but not change anything. It sees new commits.
    """
    console.need("mcp", "mcp")
    from vizsla.server.hosting import Hosting, check_hosting
    from vizsla.server.mcp import mcp_server, serve_stdio
    from vizsla.server.settings import Settings, index_names

    settings = Settings(index_names(indexes))
    check_hosting(settings)
    hosting = Hosting(settings)
    hosting.open()
    try:
        serve_stdio(mcp_server(hosting, polls=True))
    finally:
        hosting.close()
