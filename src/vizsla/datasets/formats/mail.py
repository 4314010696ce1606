"""Mail: single messages (EML) and mailboxes (mbox). Attachments are named and not read, and nothing is fetched."""

from __future__ import annotations

import email
import hashlib
from collections.abc import Iterator
from datetime import UTC
from email.header import decode_header
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import IO, Any

from vizsla.datasets.files import DAMAGE, InputFile, opened
from vizsla.datasets.formats.html import Page
from vizsla.datasets.source_format import SOURCES, DocumentFormat, Extracted, Limits, TextBuilder

_MAX_PARTS = 200  # of a message; a forwarded message is a part of another
_MAX_NAMED = 20
_MAX_LINE = 1 << 20


@SOURCES.register("eml", help="A message of mail: its subject, its text, and the names of its attachments.")
class Eml(DocumentFormat):
    """A message."""

    endings = (".eml",)
    confined = True

    def read(self, file: InputFile, limits: Limits) -> Iterator[Extracted]:  # noqa: ARG002
        with opened(file) as (stream, _):
            data = _bounded(stream, file)
        message = email.message_from_bytes(data)
        if not message.keys():
            raise file.refusal("this is no message: it has no headers")
        yield _extracted(message, file)


@SOURCES.register("mbox", help="A mailbox: each message is a document, with its message id as id.")
class Mbox(DocumentFormat):
    """A mailbox."""

    endings = (".mbox", ".mbx")
    confined = True

    def read(self, file: InputFile, limits: Limits) -> Iterator[Extracted]:  # noqa: ARG002
        with opened(file) as (stream, _):
            try:
                for line, data in _messages(stream, file):
                    message = email.message_from_bytes(data)
                    yield _extracted(message, file, _id(message, data), line)
            except DAMAGE as e:
                raise file.refusal(f"the file is damaged or not what its name says ({e})") from None


def _bounded(stream: IO[bytes], file: InputFile) -> bytes:
    """The bytes of a message. Attachments are not text, so there may be more of them than of a document."""
    most = 4 * file.max_document
    try:
        data = stream.read(most + 1)
    except DAMAGE as e:
        raise file.refusal(f"the file is damaged or not what its name says ({e})") from None
    if len(data) > most:
        raise file.too_large(1)
    return data


def _messages(stream: IO[bytes], file: InputFile) -> Iterator[tuple[int, bytes]]:
    """The messages of a mailbox with the numbers of their first lines; one that is too large is cut."""
    lines: list[bytes] = []
    size, start, number, is_blank = 0, 0, 0, True
    while line := stream.readline(_MAX_LINE):
        number += 1
        if is_blank and line.startswith(b"From "):
            if start:
                yield start, b"".join(lines)
            lines, size, start = [], 0, number
        elif not start:
            if line.strip():
                raise file.refusal("this is no mailbox: expected a line that begins with 'From '", number)
        elif size < 4 * file.max_document:
            lines.append(line[1:] if line.startswith(b">From ") else line)
            size += len(line)
        is_blank = not line.strip()
    if start:
        yield start, b"".join(lines)


def _id(message: Message, data: bytes) -> str:
    found = _header(message, "message-id").strip("<> ")
    return found or hashlib.blake2b(data, digest_size=16).hexdigest()


def _extracted(message: Message, file: InputFile, doc_id: str = "", line: int = 1) -> Extracted:
    text = TextBuilder(file.max_document)
    body, attachments = _body(message)
    if body is not None and body.get_content_type() == "text/html":
        Page(_content(body)).add_to(text)
    elif body is not None:
        for paragraph in _content(body).replace("\r\n", "\n").split("\n\n"):
            text.lines(paragraph)
    fields = {"from": _header(message, "from"), "to": _header(message, "to"), "date": _date(message)}
    return text.extracted(_header(message, "subject"), {**fields, "attachments": attachments}, id=doc_id, line=line)


def _body(message: Message) -> tuple[Message | None, list[str]]:
    """The part to read, plain text before HTML, and the names of attachments."""
    plain = html = None
    named: list[str] = []
    for number, part in enumerate(message.walk()):
        if number > _MAX_PARTS:
            break
        if part.is_multipart():
            continue
        name = _decoded(part.get_filename() or "")
        if name or part.get_content_disposition() == "attachment":
            named += [name] if name and len(named) < _MAX_NAMED else []
        elif part.get_content_type() == "text/plain":
            plain = plain or part
        elif part.get_content_type() == "text/html":
            html = html or part
    return plain or html, named


def _content(part: Message) -> str:
    data: Any = part.get_payload(decode=True)
    if not isinstance(data, bytes):
        return ""
    for charset in (part.get_content_charset(), "utf-8"):
        try:
            return data.decode(charset or "utf-8")
        except (LookupError, UnicodeDecodeError, ValueError):
            continue
    return data.decode("latin-1")


def _header(message: Message, name: str) -> str:
    return " ".join(_decoded(str(message.get(name, ""))).split())[:2000]


def _decoded(value: str) -> str:
    """A header with its encoded words decoded."""
    try:
        pieces = decode_header(value[:10_000])
        found = [data if isinstance(data, str) else data.decode(charset or "latin-1") for data, charset in pieces]
    except (ValueError, LookupError):  # binascii's error is a ValueError
        return value
    return "".join(found)


def _date(message: Message) -> str:
    try:
        date = parsedate_to_datetime(str(message.get("date", "")))
        return (date.astimezone(UTC) if date.tzinfo else date).isoformat()
    except (ValueError, TypeError, OverflowError, IndexError):
        return ""
