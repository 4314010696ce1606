"""vizsla analyze: the tokens of a text."""

from __future__ import annotations

from typing import Annotated

import typer

from vizsla.cli import console, options


def analyze(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text; - reads standard input.")],
    analyzer: Annotated[
        str,
        typer.Option(
            "-a", "--analyzer", metavar="ANALYZER", help='A name, or a pipeline: "standard | lower | snowball:german".'
        ),
    ] = "lucene-english",
    as_json: options.Json = False,
) -> None:
    """Show the terms an analyzer makes of a text, with offsets."""
    from vizsla.text import Analyzer

    source = console.read_input() if text == "-" else text
    tokens = Analyzer.parse(analyzer).tokens(source)
    if as_json:
        offsets = [[t.start, t.end] for t in tokens]
        console.print_json({"tokens": [t.term for t in tokens], "offsets": offsets})
        return
    for t in tokens:
        console.line(f"{t.start:>6}-{t.end:<6} {t.term}")
