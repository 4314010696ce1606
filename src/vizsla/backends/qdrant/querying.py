"""Batches of queries, as JSON: Qdrant's client would make an object of every point that is found.

At k = 100 these objects, and the garbage collector that goes through them, take longer than the servers do.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic_core import to_json
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException

Json: TypeAlias = dict[str, Any]
_PATH = "/collections/{collection_name}/points/query/batch"
_HEADERS = {"Content-Type": "application/json"}


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
    try:
        rest = client.http.client
    except NotImplementedError:
        told = client.query_batch_points(name, [models.QueryRequest.model_validate(request) for request in requests])
        return [[point.model_dump() for point in answer.points] for answer in told]
    body = to_json({"searches": requests})
    try:
        answer = rest.request(
            type_=Json, method="POST", url=_PATH, path_params={"collection_name": name}, headers=_HEADERS, content=body
        )
        return [one["points"] for one in answer["result"]]
    except (KeyError, TypeError, ValueError) as e:
        raise ResponseHandlingException(e) from None
