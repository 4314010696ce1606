"""The command line: one file a verb, thin. What a verb needs is imported when it runs."""

from __future__ import annotations

from vizsla.cli.app import main

__all__ = ["main"]
