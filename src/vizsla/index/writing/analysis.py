"""Analysis of documents for a writer: they are checked, cut into passages and encoded, batch by batch.

An analyst has its own numbers for terms and sends only the texts of new terms, so that processes exchange little data.
The writer takes batches in order and gives the terms the numbers of the index.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

from vizsla.datasets import Document, Origin, RawLines, Splitter, document_of
from vizsla.datasets.raw_lines import PlainLines
from vizsla.index.writing.namespaces import NamespaceBatch, NamespaceEncoder
from vizsla.models import Model, as_text, is_text
from vizsla.runs.documents import refusal

BATCH_CHARACTERS = 4_000_000
BYTES_PER_TERM = 250  # the memory of an encoder for a term: its forms, its text, its number

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode

Batch = list[Document] | RawLines
"""Documents that are analysed together."""


@dataclass(frozen=True, eq=False)
class AnalysedBatch:
    """An analysed batch: ids and origins of its documents, and the rows to store for each document or passage."""

    analyst: int
    fresh: bool
    """Whether the analyst has forgotten all terms of earlier batches."""
    ids: list[str]
    origins: Sequence[Origin | None]
    stored: list[tuple[str, str | None, str | None]]
    """Id, metadata (None if empty) and fields (None if they are not stored)."""
    namespaces: list[NamespaceBatch]
    fields: frozenset[str]
    """Which fields of the model the documents have."""


class Analyst:
    """Analyses batches for a model; it remembers terms up to `max_bytes`, then forgets them all and starts again."""

    def __init__(self, model: Model, splitter: Splitter | None, store: bool, max_bytes: int) -> None:
        self._model = model
        self._splitter = splitter
        self._store = store
        self._max_terms = max(max_bytes // BYTES_PER_TERM, 1)
        self._finished: Sequence[NamespaceEncoder] | None = None
        self._begin()

    def _begin(self) -> None:
        self._encoders = [NamespaceEncoder.of(part.component) for part in self._model.parts]

    def analyse(self, batch: Batch) -> AnalysedBatch:
        """Check and encode a batch of documents."""
        encoders = self.next_encoders()
        return self.finish(self.encode(batch, encoders), encoders)

    def can_share(self, batch: object) -> bool:
        """Whether several threads analyse batches like this one faster than one does: they seldom need the GIL."""
        shared = self._splitter is None and all(encoder.is_shared for encoder in self._encoders)
        return shared and isinstance(batch, RawLines) and self._plain(batch) is not None

    def next_encoders(self) -> list[NamespaceEncoder]:
        """The encoders for the next batch: new ones if the others remember too many terms."""
        if sum(encoder.terms for encoder in self._encoders) > self._max_terms:
            self._begin()
        return self._encoders

    def encode(self, batch: Batch, encoders: Sequence[NamespaceEncoder]) -> AnalysedBatch:
        """Check and encode a batch, in any thread; `finish` puts the terms in order."""
        plain = None
        if isinstance(batch, RawLines) and self._splitter is None and all(encoder.is_shared for encoder in encoders):
            plain = self._plain(batch)
        if plain is not None:
            return self._encode_lines(plain, encoders)
        documents = batch.documents() if isinstance(batch, RawLines) else batch
        fields = self._model.fields
        for document in documents:
            problem = self._model.problem(document.with_fields(fields).content)
            if problem is not None:
                raise refusal(f"the document {document.id!r} {problem}", document.origin)
        stored = documents
        if self._splitter is not None:
            stored = [p for d in documents for p in self._splitter.passages(d)]
        stored = [d.with_fields(fields) for d in stored]
        return AnalysedBatch(
            os.getpid(),
            False,
            [d.id for d in documents],
            [d.origin for d in documents],
            [self._row(d) for d in stored],
            [encoder.encode(stored) for encoder in encoders],
            frozenset(name for name in fields if any(name in d.content for d in stored)),
        )

    def finish(self, batch: AnalysedBatch, encoders: Sequence[NamespaceEncoder]) -> AnalysedBatch:
        """Put the terms of an encoded batch in order. Call it for one batch after the other, as they were read."""
        fresh, self._finished = self._finished is not encoders, encoders
        namespaces = [encoder.finish(rows) for encoder, rows in zip(encoders, batch.namespaces, strict=True)]
        return replace(batch, fresh=fresh, namespaces=namespaces)

    def _plain(self, batch: RawLines) -> PlainLines | None:
        groups = [part.component.fields for part in self._model.parts]
        return batch.plain(self._model.fields, groups, lambda content: self._model.problem(content) is None)

    def _encode_lines(self, lines: PlainLines, encoders: Sequence[NamespaceEncoder]) -> AnalysedBatch:
        """As `encode`, without an object for each document."""
        ids = lines.ids
        texts = lines.objects() if self._store else repeat(None, len(ids))
        return AnalysedBatch(
            os.getpid(),
            False,
            ids,
            lines.origins,
            list(zip(ids, lines.metadata, texts, strict=True)),
            [encoder.encode_lines(lines) for encoder in encoders],
            frozenset(lines.places),
        )

    def _row(self, document: Document) -> tuple[str, str | None, str | None]:
        """The row of a document: id, metadata and fields as JSON; half a surrogate pair is refused."""
        content = document.content
        fields = {f: content[f] for f in self._model.fields if f in content}
        metadata = {key: value for key, value in content.items() if key not in fields} if content != fields else {}
        try:
            row = document.id, _JSON(metadata) if metadata else None, _JSON(fields) if self._store else None
            texts = (
                row if self._store else (*row[:2], *(v if isinstance(v, str) else _JSON(v) for v in fields.values()))
            )
            for text in texts:
                text is None or text.isascii() or text.encode("utf-8")
        except (TypeError, ValueError, RecursionError) as e:
            doc_id = document.id if self._splitter is None else document_of(document.id)
            name = doc_id.encode("utf-8", "replace").decode()
            raise refusal(f"the document {name!r} cannot be stored as JSON ({e})", document.origin) from None
        return row


def batches(items: Iterable[Document | RawLines], max_size: int) -> Iterator[Batch]:
    """Batches of at most `max_size` documents, and of a limited number of characters; raw lines are passed through."""
    stream = iter(items)
    for item in stream:
        if isinstance(item, RawLines):
            yield item
            continue
        batch, size = [item], _size(item)
        for following in stream:
            if isinstance(following, RawLines):
                stream = chain([following], stream)
                break
            batch.append(following)
            size += _size(following)
            if len(batch) >= max_size or size >= BATCH_CHARACTERS:
                break
        yield batch


def _size(document: Document) -> int:
    return sum(len(as_text(v)) for v in document.content.values() if is_text(v))
