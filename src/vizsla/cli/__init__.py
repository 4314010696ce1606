"""The command line: arguments to calls. A command imports what it needs when it runs."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit. From here on Ctrl-C prints no traceback, not even while modules are imported."""
    try:
        from vizsla.cli.app import run

        code = run()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
