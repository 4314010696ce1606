"""Adding, replacing and deleting documents, for servers that were started with --write."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import IO

from fastapi import APIRouter, Depends, Request, Response

from vizsla.server import writes
from vizsla.server.errors import RequestError
from vizsla.server.gate import check_write, no_deadline
from vizsla.server.hosting import Hosted
from vizsla.server.quotas import ByteQuota
from vizsla.server.routes import InIndex, InService, answer
from vizsla.server.schemas import DeleteBody, WriteAnswer, documented
from vizsla.server.service import Service
from vizsla.server.writes import cannot_write


async def is_writable(service: InService) -> None:
    """Refuse requests that change something, unless the server was started for it."""
    if not service.settings.write:
        raise RequestError("this server is read-only; start it with --write", 403)


async def may_write(request: Request, hosted: InIndex) -> None:
    """Refuse requests that change something, unless the key and the index allow it."""
    check_write(request.scope)
    if hosted.collection is not None and hosted.collection.record.settings.read_only:
        raise RequestError(f"the collection {hosted.name} is read-only; one with an admin key can change that", 403)
    no_deadline(request.scope)  # a commit may take long, and must not be reported as failed while it is running


router = APIRouter(tags=["Documents"], dependencies=[Depends(is_writable), Depends(may_write)])
_RECORDS = {
    "requestBody": {
        "content": {
            "application/x-ndjson": {"schema": {"type": "string"}},
            "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
        },
        "required": True,
    }
}


@router.post("/v1/{index}/documents", response_model=None, responses=documented(WriteAnswer), openapi_extra=_RECORDS)
async def add(
    request: Request, service: InService, hosted: InIndex, commit: bool = True, skip_bad: bool = False
) -> Response:
    """Add documents, or replace those with the same ids. The body is JSON, each document with `id` and `text`.

    It has a document a line, or it is an array. With `skip_bad=true` lines that hold no document are left out and
    listed in `skipped`; otherwise the first of them is an error and nothing is added. With `commit=false` documents
    are staged on disk for a later commit. Otherwise they are committed, after all staged ones.
    """
    staging, limits = service.staging(hosted), service.settings.limits
    with staging.incoming() as file:
        await _receive(request, service, file, await service.read(ByteQuota, hosted))
        if commit:
            call = partial(writes.commit, skip_bad=skip_bad)
            return answer(await service.write(call, hosted, staging, limits, Path(file.name)))
        stage = partial(writes.stage_documents, skip_bad=skip_bad)
        counts = await service.read(stage, file, hosted, staging, limits)
    return answer({"index": hosted.name, **counts, "generation": hosted.generation, "committed": False})


@router.patch("/v1/{index}/documents", response_model=None, responses=documented(WriteAnswer), openapi_extra=_RECORDS)
async def update(request: Request, service: InService, hosted: InIndex, commit: bool = True) -> Response:
    """Change fields of documents: the given ones change, the others stay, and null removes a field.

    The body is JSON as for adding, each record with an `id`. Ids without a document are listed in `missing`, and
    nothing is added for them.
    """
    await service.read(writes.check_updates, hosted)
    staging, limits = service.staging(hosted), service.settings.limits
    with staging.incoming() as file:
        await _receive(request, service, file, await service.read(ByteQuota, hosted))
        if commit:
            call = partial(writes.commit, updates=True)
            return answer(await service.write(call, hosted, staging, limits, Path(file.name)))
        counts = await service.read(writes.stage_update, file, hosted, staging, limits)
    return answer({"index": hosted.name, **counts, "generation": hosted.generation, "committed": False})


async def _receive(request: Request, service: Service, file: IO[bytes], quota: ByteQuota) -> None:
    """Write the body to a file, so that it takes little memory and a slow client holds no lock."""
    try:
        async for chunk in request.stream():
            quota.take(len(chunk))
            await service.read(file.write, chunk)
        await service.read(file.flush)
    except OSError as e:
        raise cannot_write(e) from e


@router.post("/v1/{index}/delete", response_model=None, responses=documented(WriteAnswer))
async def delete(body: DeleteBody, service: InService, hosted: InIndex, commit: bool = True) -> Response:
    """Delete documents by id or by filter; unknown ids are ignored."""
    return await _delete(service, hosted, body, commit)


@router.delete("/v1/{index}/doc/{docid:path}", response_model=None, responses=documented(WriteAnswer))
async def delete_one(docid: str, service: InService, hosted: InIndex, commit: bool = True) -> Response:
    """Delete a document; an unknown id is not an error."""
    return await _delete(service, hosted, DeleteBody(ids=[docid], filter=None), commit)


async def _delete(service: Service, hosted: Hosted, body: DeleteBody, commit: bool) -> Response:
    staging, limits = service.staging(hosted), service.settings.limits
    deletion, count = await service.read(writes.check_deletion, hosted, staging, limits, body.ids, body.filter)
    if commit:
        return answer(await service.write(writes.commit, hosted, staging, limits, None, deletion))
    await service.read(staging.keep_deletion, deletion)
    staged = {"staged": 1, "deleted": count, "generation": hosted.generation, "committed": False}
    return answer({"index": hosted.name, **staged})


@router.post("/v1/{index}/commit", response_model=None, responses=documented(WriteAnswer))
async def commit_staged(service: InService, hosted: InIndex) -> Response:
    """Commit all staged changes."""
    return answer(await service.write(writes.commit, hosted, service.staging(hosted), service.settings.limits))


@router.post("/v1/{index}/rollback", response_model=None, responses=documented(WriteAnswer))
async def discard_staged(service: InService, hosted: InIndex) -> Response:
    """Discard all staged changes."""
    staging = service.staging(hosted)
    changes = await service.read(staging.changes)
    await service.write(staging.discard, changes)
    return answer({"index": hosted.name, "discarded": len(changes), "generation": hosted.generation})


@router.post("/v1/{index}/compact", response_model=None, responses=documented(WriteAnswer))
async def compact(service: InService, hosted: InIndex) -> Response:
    """Rewrite the index as one segment, without deleted and replaced documents."""
    return answer(await service.write(writes.compact, hosted, service.settings.limits))
