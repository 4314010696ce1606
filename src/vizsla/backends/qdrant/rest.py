"""Queries and points as JSON, many at a time: Qdrant's client would make an object of each.

At k = 100 these objects, and the garbage collector that goes through them, take longer than the servers do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from pydantic_core import from_json, to_json
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException

REQUEST_BYTES = 8_000_000
"""How much JSON is sent at once, unless a single point has more; a server takes 32 MB."""
MAX_POINTS = 500
"""How many points are sent at once, at most."""

Json: TypeAlias = dict[str, Any]


def as_json(condition: models.Filter) -> Json:
    """A filter as a request has it.

    >>> as_json(models.Filter(must=[models.FieldCondition(key="year", match=models.MatchValue(value=1999))]))
    {'must': [{'key': 'year', 'match': {'value': 1999}}]}
    """
    return condition.model_dump(mode="json", exclude_none=True)


def query_batch(client: QdrantClient, name: str, requests: list[Json]) -> list[list[Json]]:
    """The points that each of some requests finds, as the server tells them: `id`, `score`, `payload`.

    `requests`: bodies of Qdrant's "query points". A client without REST, as one in memory, is asked by its method.
    """
    rest = _rest(client)
    if rest is None:
        told = client.query_batch_points(name, [models.QueryRequest.model_validate(request) for request in requests])
        return [[point.model_dump() for point in answer.points] for answer in told]
    body = to_json({"searches": requests})
    try:
        return [one["points"] for one in _result(rest, "POST", "/points/query/batch", name, body)]
    except (KeyError, TypeError, ValueError) as e:
        raise ResponseHandlingException(e) from None


def bodies(points: Iterable[Json], *, most: int | None = None, count: int | None = None) -> Iterator[bytes]:
    """Bodies of requests for `upsert`, each with as many points as fit into `most` bytes, and at most `count`.

    `points`: each with `id`, `vector` and `payload`. `most`: by default `REQUEST_BYTES`; a single point may have more.
    `count`: by default `MAX_POINTS`.

    >>> list(bodies([{"id": 1}, {"id": 2}, {"id": 3}], count=2))
    [b'{"points":[{"id":1},{"id":2}]}', b'{"points":[{"id":3}]}']
    """
    most, count = REQUEST_BYTES if most is None else most, MAX_POINTS if count is None else count
    some: list[bytes] = []
    size = empty = len(_body([]))
    for row in map(to_json, points):
        if some and (size + len(row) > most or len(some) >= count):
            yield _body(some)
            some, size = [], empty
        some.append(row)
        size += len(row) + 1
    if some:
        yield _body(some)


def _body(rows: list[bytes]) -> bytes:
    return b'{"points":[%b]}' % b",".join(rows)


def upsert(client: QdrantClient, name: str, body: bytes, *, wait: bool = True) -> None:
    """Write points, given as the body of a request; see `bodies`."""
    rest = _rest(client)
    if rest is None:
        client.upsert(name, [models.PointStruct.model_validate(p) for p in from_json(body)["points"]], wait=wait)
        return
    try:
        _result(rest, "PUT", "/points", name, body, {"wait": "true"} if wait else {})
    except (KeyError, TypeError, ValueError) as e:
        raise ResponseHandlingException(e) from None


def _rest(client: QdrantClient) -> Any:
    """What sends requests by REST; None of a client in memory."""
    try:
        return client.http.client
    except NotImplementedError:
        return None


def _result(rest: Any, method: str, path: str, name: str, body: bytes, params: Json | None = None) -> Any:
    """What a server answers to a request that concerns a collection."""
    answer = rest.request(
        type_=Json,
        method=method,
        url="/collections/{collection_name}" + path,
        path_params={"collection_name": name},
        params=params or {},
        headers={"Content-Type": "application/json"},
        content=body,
    )
    return answer["result"]
