"""Encode a collection on a Ray cluster: Ray Data reads the files and a pool of actors encodes the shards.

    pip install "ray[data]==2.60.*"
    python examples/encode_with_ray.py corpus-*.jsonl -o parts --model minilm --shards 20 --actors 4 --gpus 1
    vizsla index --from parts -o my.index

Each actor opens the model once and encodes one shard after the other. The parts are those of `vizsla encode` with the
same sources in the same order, byte for byte. The folder of parts must be one that all machines of the cluster share;
a run that was stopped goes on with the same command. `RAY_ADDRESS` names the cluster; without it Ray starts one on this
machine.

Files are read as bytes, and we parse the JSON: Ray's `read_json` turns an id such as "4983" into a number, and its
`read_text` also ends a line at characters, such as U+2028, that may stand inside of a text.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ray
import ray.data

from vizsla.datasets import Document
from vizsla.errors import InputError, VizslaError
from vizsla.index import Shard, encode_shard
from vizsla.models import parse_model

COLUMNS = ("bytes", "path")


def documents_of(files: Sequence[tuple[str, bytes]]) -> Iterator[Document]:
    """The documents in files of JSON lines."""
    for path, data in files:
        for number, line in enumerate(data.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as e:
                raise InputError(f"this line is not JSON ({e})", file=path, line=number) from None
            yield Document.from_record(record)


class Encoder:
    """An actor: it holds the model, and encodes the shards that it is given."""

    def __init__(self, tables: Sequence[Any], output: str, model: str, shards: int) -> None:
        self._tables = tables
        self._output = Path(output)
        self._name = model
        self._model = parse_model(model)
        self._shards = shards

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        rows = [self._encode(Shard(number, self._shards)) for number in batch["shard"].tolist()]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def _encode(self, shard: Shard) -> dict[str, Any]:
        """Encode a shard; what is wrong with the documents is a result, since Ray would try again and wrap it."""
        file = self._output / f"part-{shard.number:0{len(str(self._shards))}}.parquet"
        row = {"shard": shard.number, "documents": 0, "file": str(file), "problem": ""}
        try:
            report = encode_shard(self._documents(), file, self._model, shard, name=self._name)
        except VizslaError as e:
            return {**row, "problem": str(e)}
        return {**row, "documents": report.documents}

    def _documents(self) -> Iterator[Document]:
        """All documents, file by file from the object store, in the order of the sources."""
        for reference in self._tables:
            table = ray.get(reference)
            for row in table.select(COLUMNS).to_pylist():
                yield from documents_of([(row["path"], row["bytes"])])


def encode(
    sources: Sequence[str], output: Path, model: str, shards: int, *, actors: int = 1, gpus: float = 0
) -> list[dict[str, Any]]:
    """Encode all shards; gives a row for each part: its shard, how many documents it has, and its file."""
    output.mkdir(parents=True, exist_ok=True)
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    files = ray.data.read_binary_files([str(Path(s).resolve()) for s in sources], include_paths=True)
    numbers = ray.data.from_items([{"shard": n} for n in range(1, shards + 1)], override_num_blocks=shards)
    encoded = numbers.map_batches(
        Encoder,
        fn_constructor_args=(files.materialize().to_arrow_refs(), str(output.resolve()), model, shards),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=actors),
        num_cpus=1,
        num_gpus=gpus or None,
    )
    rows = sorted(encoded.take_all(), key=lambda row: int(row["shard"]))
    for row in rows:
        if row["problem"]:
            raise VizslaError(row["problem"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", help="files of JSON lines, in the order of the collection")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder of the parts")
    parser.add_argument("--model", default="bm25")
    parser.add_argument("--shards", type=int, required=True)
    parser.add_argument("--actors", type=int, default=1)
    parser.add_argument("--gpus", type=float, default=0, help="of each actor")
    o = parser.parse_args()
    ray.init(log_to_driver=False)
    try:
        for row in encode(o.sources, o.output, o.model, o.shards, actors=o.actors, gpus=o.gpus):
            print(f"{row['file']}: shard {row['shard']}/{o.shards} has {row['documents']:,} documents", file=sys.stderr)
    except VizslaError as e:
        sys.exit(str(e))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
