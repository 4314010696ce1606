"""HTML: the main text of a page, without navigation."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vizsla.datasets.confined import Limits
from vizsla.datasets.extracted import Extracted
from vizsla.datasets.files import DAMAGE, InputFile, opened
from vizsla.datasets.html import Page
from vizsla.datasets.source_format import SOURCES, DocumentFormat, builder

_CHARSET = re.compile(
    rb"""<(?:meta\s[^>]{0,200}charset\s*=\s*["']?|\?xml\s[^>]{0,100}encoding=["'])([A-Za-z0-9_:.-]{2,40})"""
)


@SOURCES.register("html", help="HTML: the main text of a page, without navigation.")
class Html(DocumentFormat):
    """A page."""

    endings = (".html", ".htm", ".xhtml")

    def read(self, file: InputFile, limits: Limits) -> Iterator[Extracted]:  # noqa: ARG002
        with opened(file) as (stream, _):
            try:
                data = stream.read(file.max_document + 1)
            except DAMAGE as e:
                raise file.refusal(f"the file is damaged or not what its name says ({e})") from None
        if len(data) > file.max_document:
            raise file.too_large(1)
        page = Page(file.decoded(data, charset(data)))
        text = builder(file)
        page.add_to(text)
        yield text.extracted(page.title, page.fields)


def charset(data: bytes) -> str | None:
    """The encoding that a page says it has."""
    found = _CHARSET.search(data[:4096])
    return found[1].decode("ascii") if found else None
