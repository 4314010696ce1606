"""How much of a document's text comes right: PDFs of Debian packages beside their text, files that pandoc makes.

    python bench/documents.py FOLDER

FOLDER holds unpacked Debian packages (`apt-get download NAME; dpkg -x NAME*.deb FOLDER`): debian-policy, maint-guide,
debmake-doc, developers-reference, dbconfig-common, sgml-base-doc, gnu-standards, bash-doc with bash. Each has a PDF
beside the same text as plain text or HTML. poppler's pdftotext is measured beside it, if it is installed, and if pandoc
is, the texts are also written as DOCX, PPTX, ODT and EPUB and read again.

Words: the F1 of the words of both texts, counted. Order: the F1 of runs of three words, so that mixed columns, divided
words and headers between two pages show. Time: of processor, a page, with the start of the process that reads.
"""

from __future__ import annotations

import gzip
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from pathlib import Path

from vizsla.datasets import Outline, Source

PAIRS = (
    ("debian-policy/policy.pdf.gz", "debian-policy/policy.txt.gz"),
    ("debian-policy/fhs/fhs-3.0.pdf.gz", "debian-policy/fhs/fhs-3.0.txt.gz"),
    ("maint-guide/maint-guide.en.pdf", "maint-guide/maint-guide.en.txt.gz"),
    ("debmake-doc/debmake-doc.en.pdf", "debmake-doc/debmake-doc.en.txt.gz"),
    ("debmake-doc/debmake-doc.de.pdf", "debmake-doc/debmake-doc.de.txt.gz"),
    ("debmake-doc/debmake-doc.ru.pdf", "debmake-doc/debmake-doc.ru.txt.gz"),
    ("../developers-reference/developers-reference.pdf", "../developers-reference/developers-reference.txt.gz"),
    ("dbconfig-common/dbconfig-common.pdf.gz", "dbconfig-common/dbconfig-common.txt.gz"),
    ("dbconfig-common/dbapp-policy.pdf.gz", "dbconfig-common/dbapp-policy.txt.gz"),
    ("sgml-base-doc/sgml_layout.pdf.gz", "sgml-base-doc/sgml_layout.txt.gz"),
    ("gnu-standards/standards.pdf.gz", "gnu-standards/standards.html"),
    ("gnu-standards/maintain.pdf.gz", "gnu-standards/maintain.html"),
    ("bash/bash.pdf", "bash-doc/bash.html"),
    ("bash/bashref.pdf", "bash-doc/bashref.html"),
)
MADE = ("docx", "odt", "epub", "pptx")


class _Stripped(HTMLParser):
    """All text of a page, by other code than the one that is measured."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.pieces.append(data)


def reference(path: Path) -> str:
    """The text that a PDF should have."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = data.decode("utf-8", "replace")
    if ".htm" not in path.name:
        return text
    page = _Stripped()
    page.feed(text)
    return "".join(page.pieces)


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())


def f1(found: Iterable[object], expected: Iterable[object]) -> float:
    """The harmonic mean of precision and recall of what was found, as a bag."""
    a, b = Counter(found), Counter(expected)
    common = (a & b).total()
    return 2 * common / max(a.total() + b.total(), 1)


def scores(found: str, expected: str) -> tuple[float, float]:
    """F1 of words, and of runs of three."""
    a, b = words(found), words(expected)
    return f1(a, b), f1(zip(a, a[1:], a[2:], strict=False), zip(b, b[1:], b[2:], strict=False))


def processor_time() -> float:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def by_pdftotext(pdf: Path, folder: Path) -> tuple[str, float]:
    plain = folder / "plain.pdf"
    plain.write_bytes(gzip.decompress(pdf.read_bytes()) if pdf.suffix == ".gz" else pdf.read_bytes())
    start = processor_time()
    done = subprocess.run(["pdftotext", str(plain), "-"], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace"), processor_time() - start


def measure_pdfs(root: Path, folder: Path) -> None:
    rows = []
    for pdf, text in PAIRS:
        file, beside = root / pdf, root / text
        if not file.exists() or not beside.exists():
            print(f"{file} or its text is missing")
            continue
        expected = reference(beside)
        start = processor_time()
        (document,) = Source.find(file).documents()
        seconds = processor_time() - start
        outline = Outline.of(document.get("outline")) or Outline()
        pages = max(len(outline.pages), 1)
        ours = scores(document["text"], expected)
        theirs, other = (0.0, 0.0), 0.0
        if shutil.which("pdftotext"):
            other_text, other = by_pdftotext(file, folder)
            theirs = scores(other_text, expected)
        rows.append((*ours, *theirs, 1000 * seconds / pages, 1000 * other / pages))
        print(line(f"{file.name} ({pages} pages, {len(outline.headings)} headings)", rows[-1]), flush=True)
    if rows:
        print(line("mean", [sum(column) / len(rows) for column in zip(*rows, strict=True)]))


def line(name: str, row: Sequence[float]) -> str:
    words_here, order_here, words_there, order_there, ms_here, ms_there = row
    return (
        f"{name:58} words {words_here:.4f} order {order_here:.4f}   pdftotext {words_there:.4f} {order_there:.4f}   "
        f"{ms_here:.1f} / {ms_there:.1f} ms a page"
    )


def measure_made(root: Path, folder: Path) -> None:
    """Files that pandoc makes of Markdown, read again."""
    sources = sorted(root.glob("debian-policy/policy.html/_sources/*.rst.txt"))
    for kind in MADE:
        results, seconds = [], 0.0
        for source in sources:
            made, plain = folder / f"{source.stem}.{kind}", folder / "plain.txt"
            written = [
                subprocess.run(
                    ["pandoc", "-f", "rst", "-t", kind if target == made else "plain", str(source), "-o", str(target)],
                    check=False, capture_output=True,
                ).returncode
                for target in (made, plain)
            ]  # fmt: skip
            if any(written):  # pandoc finds no pictures for some slides
                continue
            start = processor_time()
            (document,) = Source.find(made).documents()
            seconds += processor_time() - start
            results.append(scores(document["text"], plain.read_text("utf-8")))
        if results:
            means = [sum(column) / len(results) for column in zip(*results, strict=True)]
            worst = min(results)
            print(
                f"{kind}: {len(results)} files, words {means[0]:.4f} order {means[1]:.4f}, "
                f"the worst {worst[0]:.4f} {worst[1]:.4f}, {1000 * seconds / len(results):.0f} ms a file"
            )


def main() -> None:
    root = Path(sys.argv[1]) / "usr/share/doc"
    with tempfile.TemporaryDirectory() as folder:
        measure_pdfs(root, Path(folder))
        if shutil.which("pandoc"):
            measure_made(root, Path(folder))


if __name__ == "__main__":
    main()
