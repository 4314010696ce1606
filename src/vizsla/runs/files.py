"""Lines of text files, plain or compressed, with their numbers for error messages."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from vizsla.errors import InputError

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
_MOST_CHARACTERS = 1 << 20  # of a line, which has a few ids and numbers


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers from 1."""
    try:
        with _OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8-sig") as file:
            for number, line in enumerate(iter(partial(file.readline, _MOST_CHARACTERS), ""), 1):
                if len(line) >= _MOST_CHARACTERS:
                    message = f"this line has more than {_MOST_CHARACTERS:,} characters; expected a few ids and numbers"
                    raise InputError(message, file=str(path), line=number)
                if not line.isspace():
                    yield number, line
    except FileNotFoundError:
        raise InputError("this file does not exist", file=str(path)) from None
    except IsADirectoryError:
        raise InputError("this is a folder, not a file", file=str(path)) from None
    except UnicodeDecodeError:
        raise InputError("this is not a UTF-8 text file", file=str(path)) from None
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as e:
        raise InputError(f"this file cannot be decompressed ({e})", file=str(path)) from None


def check_no_whitespace(*ids: str) -> None:
    """Refuse ids with blanks: TREC's formats separate columns by blanks."""
    for one in ids:
        if one.split() != [one]:
            raise InputError(f"TREC's format cannot hold an id that is empty or contains whitespace ({one!r})")


def check_no_tabs(*ids: str) -> None:
    """Refuse ids with tabs or line ends, which tab-separated columns cannot hold."""
    for one in ids:
        if not one.strip() or any(c in one for c in "\t\r\n"):
            raise InputError(f"tab-separated columns cannot hold an id that is empty or contains tabs ({one!r})")
