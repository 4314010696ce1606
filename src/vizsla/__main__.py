"""Run the command line with `python -m vizsla`."""

from __future__ import annotations

from vizsla.cli import main

main()
