"""Documents to a part: one shard of a source is encoded, and written so that any machine can do it alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vizsla.datasets import Document, Splitter
from vizsla.errors import VizslaError
from vizsla.index.parts.finished import ENDING, TERMS_ENDING, FinishedPart, PartFacts, write_part
from vizsla.index.parts.settings import PartSettings, Shard
from vizsla.index.parts.tables import table_of
from vizsla.index.parts.unfinished import UnfinishedPart, short_digest
from vizsla.index.writing.analysis import Analyst, batches
from vizsla.models import Model, check_model, parse_model


@dataclass
class EncodingReport:
    """What an encoding has done."""

    documents: int = 0
    """Documents of the part."""
    resumed: int = 0
    """Those of them that were in the file before."""
    source_documents: int = 0
    """Documents of the whole source."""


def encode_shard(
    documents: Iterable[Document],
    output: str | Path,
    model: str | Model,
    shard: str | Shard = "1/1",
    *,
    name: str | None = None,
    passages: Splitter | int | None = None,
    batch: int | None = None,
    overwrite: bool = False,
) -> EncodingReport:
    """Encode one shard of the documents and write it as a part, a Parquet file; `build_from_parts` reads all parts.

    Every machine is given all documents in the same order and encodes its share of their batches, see `Shard`. The
    same call resumes a stopped run; the result is byte-identical to that of an uninterrupted run.

    `name`: the name by which `build_from_parts` can open the model, if it is not the model's own name.
    `passages`: as for an index. `batch`: how many documents are encoded at once; by default as many as an index does,
    so that vectors are rounded in the same way.
    """
    part = Path(output)
    if not part.name.endswith(ENDING) or part.name.endswith(TERMS_ENDING):
        raise VizslaError(f"{part}: a part is a Parquet file; name one that ends in {ENDING}, but not {TERMS_ENDING}")
    chosen = parse_model(model) if isinstance(model, str) else check_model(model)
    named = name or (model if isinstance(model, str) else chosen.name)
    which = Shard.parse(shard) if isinstance(shard, str) else shard
    splitter = None if passages is None else Splitter.of(passages)
    settings = PartSettings.of(chosen, named, which, splitter, batch)
    finished = None if overwrite else _finished(part, settings)
    if finished is not None:
        return finished
    with UnfinishedPart(part, settings, overwrite=overwrite) as file:
        report = None if overwrite else _finished(part, settings)  # another process may have been faster
        if report is None:
            report = _encode(documents, file, chosen, settings)
        file.remove()
    return report


def _finished(part: Path, settings: PartSettings) -> EncodingReport | None:
    """The report of a part that is finished; None if it is not there, and one with other settings is refused."""
    if not part.exists():
        return None
    finished = FinishedPart(part)
    other = finished.settings.difference(settings)
    if other is None and finished.settings.shard != settings.shard:
        other = f"the shard {finished.settings.which}", f"{settings.which}"
    if other is not None:
        raise VizslaError(
            f"{part}: this part was encoded with {other[0]}, and now it is {other[1]}; write to another file, or "
            "replace it with --overwrite"
        )
    facts = finished.facts
    return EncodingReport(facts.documents, facts.documents, facts.source_documents)


def _encode(
    documents: Iterable[Document], file: UnfinishedPart, model: Model, settings: PartSettings
) -> EncodingReport:
    """Encode the batches that the file does not hold, and finish the part."""
    report, source = EncodingReport(), hashlib.sha256()
    splitter, shard = settings.splitter, settings.which
    fields: set[str] = set()
    for number, some in enumerate(batches(documents, settings.batch)):
        assert isinstance(some, list)
        digest = _digest(some)
        source.update(digest)
        if shard.has(number):
            fields |= {name for name in model.fields if any(name in d.with_fields(model.fields).content for d in some)}
            if file.holds(report.source_documents, digest):
                report.resumed += len(some)
            else:
                # A new analyst for each batch: its terms do not depend on the batches that this process has encoded.
                analysed = Analyst(model, splitter, store=True, max_bytes=0).analyse(some)
                passages = splitter is not None
                table = table_of(analysed, model.namespaces, report.source_documents, passages=passages)
                file.append(report.source_documents, digest, table)
            report.documents += len(some)
        report.source_documents += len(some)
    file.check_complete()
    facts = PartFacts(
        settings, report.source_documents, source.hexdigest(), report.documents, file.batches, tuple(sorted(fields))
    )
    schemas = [table.schema for table in file.tables()]
    write_part(file.part.resolve(), facts, model.namespaces, file.tables(), schemas)
    return report


def _digest(documents: list[Document]) -> bytes:
    rows = [[d.id, d.content] for d in documents]
    return short_digest(json.dumps(rows, default=str).encode())
