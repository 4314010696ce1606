"""Uploading parts to Qdrant, beside the upload of qdrant-client with the same points ready in memory.

    python bench/upload.py PARTS qdrant://localhost:6333/bench [--workers 1,2] [--rounds 3] [--replicas 1]

PARTS: a folder that `vizsla encode` has filled; its points must fit in memory. Ours reads the parts, counts all terms,
stores these, writes the points, and counts them at the end. The client is given the points as they were stored, and
writes them to a collection with the same vectors, in requests of the same number of points, by as many processes
(`upload_points`, `wait=True`). Both take turns; a ratio is that of one round. Collections are removed at the end.
"""

from __future__ import annotations

import argparse
import gc
import time
from pathlib import Path
from typing import Any

import numpy as np
from qdrant_client import QdrantClient, models

from vizsla.backends.qdrant import layout
from vizsla.backends.qdrant.connection import MAX_POINTS, Address, Connection
from vizsla.backends.qdrant.filling import Pieces
from vizsla.backends.qdrant.generations import find_generations
from vizsla.backends.qdrant.upload import UploadOptions, count_parts, upload_parts
from vizsla.index import PartSet
from vizsla.models import Model


def points_of(parts: PartSet, where: str) -> list[models.PointStruct]:
    """The points that an upload sends, kept in memory."""
    kept: list[models.PointStruct] = []
    send = Pieces.send

    def keep(self: Any, points: Any) -> None:
        made = list(points)
        kept.extend(map(models.PointStruct.model_validate, made))
        send(self, made)

    Pieces.send = keep  # type: ignore[method-assign]
    try:
        upload_parts(parts, where)
    finally:
        Pieces.send = send  # type: ignore[method-assign]
    drop(where)
    return kept


def drop(where: str) -> None:
    """Remove all that has a name."""
    place = Address.parse(where)
    connection = Connection(place.servers)
    for base in find_generations(connection, place.name).bases:
        layout.drop_collections(connection, base)
    connection.close()


def ours(parts: PartSet, where: str, workers: int, replicas: int) -> float:
    started = time.perf_counter()
    upload_parts(parts, where, options=UploadOptions(workers=workers, shards=1, replicas=replicas))
    seconds = time.perf_counter() - started
    drop(where)
    return seconds


def theirs(points: list[models.PointStruct], model: Model, where: str, workers: int, replicas: int) -> float:
    place = Address.parse(where)
    connection = Connection(place.servers)
    base = f"{place.name}-theirs"
    layout.create_collections(connection, base, model, shards=1, replicas=replicas)
    client = QdrantClient(url=place.servers[0], check_compatibility=False, timeout=60)
    started = time.perf_counter()
    client.upload_points(base, points, batch_size=MAX_POINTS, parallel=workers, wait=True)
    counted = client.count(base, exact=True).count
    seconds = time.perf_counter() - started
    if counted != len(points):
        raise SystemExit(f"the client has uploaded {counted:,} of {len(points):,} points")
    layout.drop_collections(connection, base)
    client.close()
    connection.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", type=Path)
    parser.add_argument("address")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=1)
    o = parser.parse_args()
    parts = PartSet(o.parts)
    model = parts.model()
    started = time.process_time()
    count_parts(parts, model)
    print(f"{parts.rows:,} documents; counted in {time.process_time() - started:.1f} core s", flush=True)
    points = points_of(parts, o.address)
    gc.freeze()  # the points would be looked through again and again while ours makes others
    print("| workers | vizsla qdrant upload, documents/s | qdrant-client, documents/s | ratio |\n|---|---|---|---|")
    for workers in map(int, o.workers.split(",")):
        times = []
        for _ in range(o.rounds):
            mine = ours(parts, o.address, workers, o.replicas)
            times.append((mine, theirs(points, model, o.address, workers, o.replicas)))
        rates = parts.rows / np.array(times)
        ratio = float(np.median(rates[:, 0] / rates[:, 1]))
        mine, other = np.median(rates, axis=0)
        print(f"| {workers} | {mine:,.0f} | {other:,.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
