"""A stand-in for a Qdrant server, for machines that there is none for: the same REST calls, everything in memory.

    QDRANT__SERVICE__HTTP_PORT=6333 python tests/qdrant_stand_in.py

Qdrant's own client has an engine in Python, `QdrantClient(":memory:")`, which compares every vector and passes every
filter as a server does. This program puts the REST calls that Vizsla sends in front of it. It takes the settings that
`qdrant_server.Node` gives a server in its environment: a port and a key. Where there is a real server, the same tests
run with both, so a difference between them is a test that fails. It has no cluster and no disk.
"""

from __future__ import annotations

import os
import threading
import traceback
import warnings
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
from pydantic import ValidationError
from pydantic_core import from_json, to_json
from qdrant_client import QdrantClient, models
from qdrant_client.local import local_collection, payload_filters, payload_value_extractor

_check_values_count = payload_filters.check_values_count


def _values_count(condition: models.ValuesCount, values: list[Any] | None) -> bool:
    """In a server, a field that is not there has no count, not even 0."""
    return values is not None and _check_values_count(condition, values)


payload_filters.check_values_count = _values_count
payload_value_extractor.parse_json_path = cache(payload_value_extractor.parse_json_path)  # once a filter, not a point
_weights: dict[int, tuple[models.SparseVector, dict[int, float]]] = {}  # a vector that is kept has its id alone


def _products(
    query: models.SparseVector, vectors: list[models.SparseVector], empty_is_zero: bool = False
) -> np.ndarray:
    """The client's products of sparse vectors, over the terms of the query instead of all that a document has."""
    terms = list(zip(query.indices, query.values, strict=True))
    nothing = 0.0 if empty_is_zero else -np.inf
    scores = np.full(len(vectors), nothing, np.float32)
    for row, vector in enumerate(vectors):
        known = _weights.get(id(vector))
        if known is None:
            known = _weights[id(vector)] = vector, dict(zip(vector.indices, vector.values, strict=True))
        total, found = 0.0, False
        for term, weight in terms:
            if (other := known[1].get(term)) is not None:
                total, found = total + weight * other, True
        if found:
            scores[row] = total
    return scores


local_collection.calculate_distance_sparse = _products


class Refusal(Exception):
    """What a server answers instead of a result."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class StandIn:
    """Collections in memory. One request is carried out at a time, as a whole."""

    def __init__(self) -> None:
        self._client = QdrantClient(":memory:")
        self._settings: dict[str, models.CreateCollection] = {}
        self._turn = threading.Lock()
        self._on_collection: dict[tuple[str, str], Callable[[str, Any], Any]] = {
            ("GET", ""): self._describe,
            ("PUT", ""): self._create,
            ("DELETE", ""): self._drop,
            ("PUT", "index"): lambda *_: _done(),  # every filter is exact without one
            ("PUT", "points"): self._upsert,
            ("POST", "points"): self._retrieve,
            ("POST", "points/scroll"): self._scroll,
            ("POST", "points/count"): self._count,
            ("POST", "points/delete"): self._delete,
            ("POST", "points/payload"): self._set_payload,
            ("POST", "points/query/batch"): self._query,
        }

    def answer(self, method: str, path: str, body: Any) -> Any:
        """The result of a request."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        with self._turn:
            if parts == ["aliases"] and method == "GET":
                return self._client.get_aliases()
            if parts == ["collections"] and method == "GET":
                return self._client.get_collections()
            if parts == ["collections", "aliases"] and method == "POST":
                return self._client.update_collection_aliases(models.ChangeAliasesOperation(**body).actions)
            name, rest = parts[1], "/".join(parts[2:])
            if rest == "exists" and method == "GET":
                return {"exists": self._client.collection_exists(name)}
            carry_out = self._on_collection.get((method, rest)) if parts[0] == "collections" else None
            if carry_out is None:
                raise Refusal(404, f"the stand-in for Qdrant does not know {method} {path}")
            if method != "DELETE" and (method, rest) != ("PUT", "") and not self._client.collection_exists(name):
                raise Refusal(404, f"Not found: Collection `{name}` doesn't exist!")
            return carry_out(name, body)

    def _describe(self, name: str, _: Any) -> models.CollectionInfo:
        told = self._client.get_collection(name)
        aliases = {a.alias_name: a.collection_name for a in self._client.get_aliases().aliases}
        settings = self._settings[aliases.get(name, name)]
        told.config.params.shard_number = settings.shard_number or 1
        told.config.params.replication_factor = settings.replication_factor or 1
        return told

    def _create(self, name: str, body: Any) -> bool:
        if self._client.collection_exists(name):
            raise Refusal(409, f"Wrong input: Collection `{name}` already exists!")
        settings = models.CreateCollection(**body)
        self._settings[name] = settings
        return self._client.create_collection(name, settings.vectors or {}, settings.sparse_vectors)

    def _drop(self, name: str, _: Any) -> bool:
        return self._client.delete_collection(name)

    def _upsert(self, name: str, body: Any) -> models.UpdateResult:
        return self._client.upsert(name, models.PointsList(**body).points)

    def _retrieve(self, name: str, body: Any) -> list[models.Record]:
        wanted = models.PointRequest(**body)
        return self._client.retrieve(name, wanted.ids, _payload(wanted), wanted.with_vector or False)

    def _scroll(self, name: str, body: Any) -> dict[str, Any]:
        wanted = models.ScrollRequest(**body)
        order = wanted.order_by
        if isinstance(order, str):
            order = models.OrderBy(key=order)
        points, following = self._client.scroll(
            name,
            wanted.filter,
            wanted.limit or 10,
            order,
            offset=wanted.offset,
            with_payload=_payload(wanted),
            with_vectors=wanted.with_vector or False,
        )
        return {"points": points, "next_page_offset": following}

    def _count(self, name: str, body: Any) -> models.CountResult:
        return self._client.count(name, models.CountRequest(**body).filter)

    def _delete(self, name: str, body: Any) -> models.UpdateResult:
        return self._client.delete(name, models.PointIdsList(**body).points)

    def _set_payload(self, name: str, body: Any) -> models.UpdateResult:
        change = models.SetPayload(**body)
        changed = change.points if change.points is not None else change.filter
        if changed is None:
            raise Refusal(400, "Wrong input: neither points nor a filter are given")
        return self._client.set_payload(name, change.payload, changed, key=change.key)

    def _query(self, name: str, body: Any) -> list[models.QueryResponse]:
        return self._client.query_batch_points(name, models.QueryRequestBatch(**body).searches)


def _payload(wanted: models.PointRequest | models.ScrollRequest) -> Any:
    return True if wanted.with_payload is None else wanted.with_payload


def _done() -> models.UpdateResult:
    return models.UpdateResult(operation_id=0, status=models.UpdateStatus.COMPLETED)


class Handler(BaseHTTPRequestHandler):
    """Requests to calls, and results to JSON."""

    store = StandIn()
    key = os.environ.get("QDRANT__SERVICE__API_KEY")

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if path == "/readyz":
                self._send(200, b"all shards are ready")
                return
            self._check_key()
            if path == "/":
                self._send(200, to_json(self.store._client.info()))
                return
            result = self.store.answer(self.command, path, from_json(body) if body else None)
            answer = {"result": result, "status": "ok", "time": 0.0}
            self._send(200, to_json(answer, exclude_none=False, inf_nan_mode="null"))
        except Refusal as e:
            self._send(e.status, _error(str(e)))
        except (ValueError, ValidationError) as e:
            self._send(400, _error(f"Wrong input: {e}"))
        except Exception:
            self._send(500, _error(f"the stand-in for Qdrant failed: {traceback.format_exc()}"))

    do_POST = do_PUT = do_DELETE = do_GET

    def _check_key(self) -> None:
        given = self.headers.get("api-key")
        if self.key and given != self.key:
            unknown = "Invalid API key or JWT" if given else "Must provide an API key or an Authorization bearer token"
            raise Refusal(401, unknown)

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing is logged but errors of the program itself."""


def _error(message: str) -> bytes:
    return to_json({"status": {"error": message}, "time": 0.0})


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # that it is no server, which is known here
    with Server(("127.0.0.1", int(os.environ["QDRANT__SERVICE__HTTP_PORT"])), Handler) as server:
        server.serve_forever()
