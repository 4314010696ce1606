"""vizsla mcp: indexes as tools for an assistant."""

from __future__ import annotations

from typing import Annotated

import typer


def mcp(
    indexes: Annotated[
        list[str], typer.Argument(metavar="INDEX...", help="The folders of the indexes, each as FOLDER or NAME=FOLDER.")
    ],
) -> None:
    """Let an assistant search indexes: MCP over standard input and output.

    An assistant that knows the Model Context Protocol starts this command itself; name it in its settings. It can
    search, read documents and explain scores, and change nothing.
    """
