"""Documents that are searched while training data are made."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from vizsla.datasets import Document
from vizsla.index import Index
from vizsla.models import Model


@contextmanager
def temporary_index(documents: Sequence[Document], model: Model) -> Iterator[Index]:
    """An index of documents that is deleted afterwards; a model that needs it is fitted to them."""
    if model.needs_corpus_statistics:
        model = model.fit([d.content for d in documents])
    with (
        tempfile.TemporaryDirectory(prefix="vizsla-") as folder,
        Index.create(f"{folder}/index", model, store=False) as index,
    ):
        index.add(documents)
        index.commit()
        yield index
