"""vizsla mcp: indexes as tools for an assistant."""

from __future__ import annotations

from typing import Annotated

import typer

from vizsla.cli import console


def mcp(
    indexes: Annotated[list[str], typer.Argument(metavar="DIR...", help="Folders of indexes; NAME=DIR names one.")],
) -> None:
    """Let an assistant search indexes, by MCP on standard input.

    An assistant that knows the Model Context Protocol starts this command itself: name it in its settings. It can
    search, read documents and explain scores, and it can change nothing. It sees new commits.
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
