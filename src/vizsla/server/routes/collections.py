"""Creating, changing and deleting collections, for servers that were started with --collections."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from vizsla.server.collections import CollectionSettings, Making
from vizsla.server.gate import check_admin, no_deadline
from vizsla.server.hosting import Hosted
from vizsla.server.routes import InService, answer
from vizsla.server.schemas import CollectionAnswer, CollectionBody, DeletedAnswer, SettingsBody, documented
from vizsla.server.service import Service


async def may_administer(request: Request, service: InService, index: str) -> None:
    """Refuse requests that create or delete, unless the server and the key allow it."""
    service.hosting.created(index)
    check_admin(request.scope)
    no_deadline(request.scope)


router = APIRouter(tags=["Collections"], dependencies=[Depends(may_administer)])


@router.put(
    "/v1/{index}",
    response_model=None,
    responses={201: {"model": CollectionAnswer}, **documented(CollectionAnswer)},
)
async def create(body: CollectionBody, service: InService, index: str) -> Response:
    """Create a collection: an index that is empty. One that was created in the same way is left as it is."""
    collections = service.hosting.created(index)
    model = next(iter(collections.models)) if body.model is None else body.model
    making = Making(model, body.passages, body.store, body.positions)
    settings = CollectionSettings(body.description, body.read_only, body.documents, body.bytes)
    is_new = await service.write(collections.create, index, making, settings)
    hosted = await _seen(service, index)
    return answer({**_facts(hosted), "created": is_new}, 201 if is_new else 200)


@router.patch("/v1/{index}", response_model=None, responses=documented(CollectionAnswer))
async def change(body: SettingsBody, service: InService, index: str) -> Response:
    """Change settings of a collection; those that are left out stay."""
    collections = service.hosting.created(index)
    changes = {name: getattr(body, name) for name in body.model_fields_set}
    await service.write(collections.change, index, changes)
    return answer(_facts(await _seen(service, index)))


@router.delete("/v1/{index}", response_model=None, responses=documented(DeletedAnswer))
async def delete(service: InService, index: str) -> Response:
    """Delete a collection with all that belongs to it, when nobody writes to it."""
    collections = service.hosting.created(index)
    await service.write(collections.delete, index, service.settings.limits.seconds)
    await service.read(service.hosting.look, index)
    return answer({"index": index, "deleted": True})


async def _seen(service: Service, index: str) -> Hosted:
    """A collection as this worker sees it now."""
    await service.read(service.hosting.look, index)
    return service.hosting[index]


def _facts(hosted: Hosted) -> dict[str, Any]:
    assert hosted.collection is not None
    return {"index": hosted.name, "generation": hosted.generation, "collection": hosted.collection.record.public()}
