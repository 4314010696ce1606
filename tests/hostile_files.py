"""Damaged and hostile files by the thousand: each is read or refused in one sentence, in bounded time and memory.

    make hostile                      500 mutations of a file of each format, and the bombs
    make hostile OPTIONS="--times 50 --seed 7"

A mutation flips bits, cuts, repeats or removes pieces, or swaps numbers, of a file or of a part in its package. It
fails where something else than an `InputError` comes out, a file takes more than its limits, or the process that reads
has grown.
"""

from __future__ import annotations

import argparse
import io
import random
import resource
import tempfile
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import made_documents as made
from vizsla.datasets import Limits, Source
from vizsla.datasets.confined import ConfinedReader
from vizsla.datasets.files import InputFile
from vizsla.datasets.source_format import SOURCES, format_of
from vizsla.errors import InputError

LIMITS = Limits(seconds=20, memory=512 << 20)
HANGS = 2000
"""Seconds. On a busy machine two processes may each take ten times their 80, with those to start."""
NUMBERS = (b"0", b"-1", b"65536", b"4294967295", b"99999999999999999999")


def mutated(data: bytes, dice: random.Random) -> bytes:
    """A file with some of its bytes changed; of a package also one of its parts, packed again."""
    if data.startswith(b"PK") and dice.random() < 0.6:
        with zipfile.ZipFile(io.BytesIO(data)) as package:
            parts: dict[str, str | bytes] = {name: package.read(name) for name in package.namelist()}
        name = dice.choice(sorted(parts))
        parts[name] = mutated(bytes(parts[name]), dice)  # type: ignore[arg-type]
        return made.zipped(parts)
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 3, 20))):
        if not changed:
            break
        at, size = dice.randrange(len(changed)), dice.choice((1, 4, 50, 1000))
        match dice.randrange(6):
            case 0:
                changed[at] ^= 1 << dice.randrange(8)
            case 1:
                del changed[at : at + size]
            case 2:
                changed[at:at] = changed[at : at + size] * dice.choice((1, 3))
            case 3:
                changed[at : at + size] = dice.randbytes(min(size, len(changed) - at))
            case 4:
                del changed[at:]
            case 5:
                digit = next((i for i in range(at, len(changed)) if chr(changed[i]).isdigit()), None)
                if digit is not None:
                    changed[digit : digit + 1] = dice.choice(NUMBERS)
    return bytes(changed)


def zip_of(name: str, size: int) -> bytes:
    """An Office file with a part of very many equal bytes."""
    out = io.BytesIO(made.docx(made.word("x")))
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as package, package.open(name, "w", force_zip64=True) as part:
        for _ in range(size >> 20):
            part.write(bytes(1 << 20))
    return out.getvalue()


def overlapping() -> bytes:
    """A zip file whose directory names the same packed bytes a thousand times, under the names of slides."""
    slides = [f"ppt/slides/s{n}.xml" for n in range(1000)]
    base = made.zipped(
        {
            "_rels/.rels": made.relations(("officeDocument", "ppt/presentation.xml")),
            "ppt/_rels/presentation.xml.rels": made.relations(*(("slide", name[4:]) for name in slides)),
            "ppt/presentation.xml": '<p:p xmlns:p="p" xmlns:r="r">'
            + "".join(f'<p:sldId r:id="r{n}"/>' for n in range(1000))
            + "</p:p>",
        }
    )
    out = io.BytesIO(base)
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as package:
        package.writestr(slides[0], b"<a>" + b"x" * 3_000_000 + b"</a>")
        first = package.getinfo(slides[0])
        for name in slides[1:]:
            entry = zipfile.ZipInfo(slides[0])
            for key in ("header_offset", "CRC", "compress_size", "file_size", "compress_type"):
                setattr(entry, key, getattr(first, key))
            entry.filename = name
            package.filelist.append(entry)
    return out.getvalue()


def bombs(without: Collection[str] = ()) -> Iterator[tuple[str, bytes]]:
    """Files that were made to take all memory or time, to read other files or to fetch something."""
    for name, make in BOMBS.items():
        if name not in without:
            yield name, make()


def _laughs() -> str:
    entities = "".join(f'<!ENTITY {chr(98 + n)} "{("&" + chr(97 + n) + ";") * 10}">' for n in range(12))
    return f'<!DOCTYPE x [<!ENTITY a "ha">{entities}]><x>&m;</x>'


def _nested() -> bytes:
    nested = made.docx(made.word("x"))
    for _ in range(50):
        nested = made.zipped({"content.xml": nested, "word/document.xml": nested[:1000]})
    return nested


def _flate() -> bytes:
    """A page whose content is packed twice and unpacks to a gigabyte."""
    stream = zlib.compress(zlib.compress(bytes(1 << 30), 9), 9)
    head = b"<< /Filter [/FlateDecode /FlateDecode] /Length %d >>\nstream\n%s\nendstream\n<< /Length"
    return made.pdf([[(50, 700, 11, "x")]]).replace(b"<< /Length", head % (len(stream), stream), 1)


def _parts() -> bytes:
    parts = "".join(f"--X\nContent-Type: multipart/mixed; boundary=X{n}\n\n" for n in range(20_000))
    return made.message("x", parts, Content_Type="multipart/mixed; boundary=X")


def _with_document(xml: str) -> bytes:
    return made.docx("", **{"word/document.xml": xml})


BOMBS: dict[str, Callable[[], bytes]] = {
    "laughs.docx": lambda: _with_document(_laughs()),
    "laughs.odt": lambda: made.zipped({"content.xml": _laughs()}),
    "quadratic.odt": lambda: made.zipped(
        {"content.xml": f'<!DOCTYPE x [<!ENTITY a "{"x" * 100_000}">]><x>{"&a;" * 10_000}</x>'}
    ),
    "secret.docx": lambda: _with_document(
        '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><w:p xmlns:w="w"><w:r><w:t>&a;</w:t></w:r></w:p>'
    ),
    "remote.docx": lambda: _with_document('<!DOCTYPE x SYSTEM "http://127.0.0.1:9/x.dtd"><x/>'),
    "deep.docx": lambda: made.docx("<w:p>" * 200_000),
    "deep.epub": lambda: made.epub(["<div>" * 1_000_000 + "x"]),
    "zeros.docx": lambda: zip_of("word/document.xml.more", 300 << 20),
    "zeros2.docx": lambda: made.docx("", **{"word/styles.xml": bytes(600 << 20)}),
    "overlapping.pptx": overlapping,
    "many.odt": lambda: made.zipped({f"{n}": b"" for n in range(30_000)}),
    "nested.odt": _nested,
    "flate.pdf": _flate,
    "pages.pdf": lambda: made.pdf([[]]).replace(b"/Count 1", b"/Count 2000000000"),
    "circle.pdf": lambda: made.pdf([[(50, 700, 11, "x")]]).replace(b"/Kids [5 0 R]", b"/Kids [2 0 R]"),
    "brackets.pdf": lambda: b"%PDF-1.4\n1 0 obj\n" + b"[" * 3_000_000 + b"\nendobj\ntrailer << /Root 1 0 R >>",
    "large.pdf": lambda: made.pdf([[(50, 700, 11, "x" * 60_000)]] * 100),
    "parts.eml": _parts,
    "header.eml": lambda: made.message("=?utf-8?q?" + "=C3=B6" * 500_000 + "?=", "x", To="<" * 200_000),
    "bomb.pdf.gz": lambda: zlib.compress(b"", 9) + bytes(10),
    "nested.ipynb": lambda: b'{"cells": ' + b"[" * 500_000,
}


def check(name: str, data: bytes, folder: Path, reader: ConfinedReader) -> str:
    """Read a file; gives `read`, or the first words of why it is refused."""
    path = folder / name
    path.write_bytes(data)
    format = format_of(path)
    assert format is not None
    start = time.monotonic()
    try:
        if getattr(SOURCES[format].make, "confined", False):
            texts = [one.text for one in reader.read(format, InputFile.of(path), LIMITS)]
        else:
            texts = [document["text"] for document in Source.find(path).documents()]
    except InputError as e:
        outcome = e.problem
    else:
        assert all(len(text) <= 16_000_000 for text in texts)
        assert not any("root:" in text for text in texts)
        outcome = "read"
    assert "\n" not in outcome, outcome
    assert time.monotonic() - start < HANGS, f"{name} took too long"
    return outcome


def run(times: int, seed: int, folder: Path) -> Counter[str]:
    """Mutate and read; gives how often there was which outcome."""
    outcomes: Counter[str] = Counter()
    with ConfinedReader() as reader:
        for name, data in made.examples().items():
            for number in range(times):
                dice = random.Random(f"{seed} {name} {number}")
                outcome = check(f"{number}{name[1:]}", mutated(data, dice), folder, reader)
                (folder / f"{number}{name[1:]}").unlink()
                outcomes[f"{name}: {outcome[:60]}"] += 1
            assert check(name, data, folder, reader) == "read"  # the next good file is read as ever
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run(chosen.times, chosen.seed, Path(folder))
        for outcome, count in sorted(outcomes.items()):
            print(f"{count:5} {outcome}")
        with ConfinedReader() as reader:
            for name, data in bombs():
                start = time.monotonic()
                outcome = check(name, data, Path(folder), reader)
                print(
                    f"{name:18} {len(data):>10,} bytes  {time.monotonic() - start:5.1f} s  {outcome[:90]}", flush=True
                )
    own, children = (
        resource.getrusage(who).ru_maxrss >> 10 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print(f"most memory: {own} MB here, {children} MB in a process that reads")
    assert children < (LIMITS.memory >> 20) + 300


if __name__ == "__main__":
    main()
