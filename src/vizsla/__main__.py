"""python -m vizsla: the command line, for those who start it through another program."""

from __future__ import annotations

from vizsla.cli import main

main()
