"""Draw docs/demo.svg, the picture in the README, from what the commands really print.

python docs/picture.py
"""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path

from rich.console import Console

from vizsla.cli import console
from vizsla.cli.demo import QUERIES, _docstrings
from vizsla.cli.results import show_explanation, show_results
from vizsla.index import Index

PICTURE = Path(__file__).parent / "demo.svg"


def main() -> None:
    screen = Console(record=True, force_terminal=True, width=100, highlight=False, file=io.StringIO())
    console.out = screen
    with tempfile.TemporaryDirectory() as folder, Index.create(Path(folder) / "python.index") as index:
        index.add(_docstrings())
        index.commit()
        for query in QUERIES[:2]:
            screen.print(f"[bold green]$[/] vizsla search python.index {query!r} -k 2")
            show_results(index, query, 2)
            screen.print()
        found = index.search(QUERIES[1], 1)[0].id
        screen.print(f"[bold green]$[/] vizsla explain python.index {QUERIES[1]!r} {found}")
        show_explanation(index.explain(QUERIES[1], found), found)
    picture = screen.export_svg(title="vizsla", font_aspect_ratio=0.6)
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)  # no fonts from elsewhere
    PICTURE.write_text(picture)


if __name__ == "__main__":
    main()
