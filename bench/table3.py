"""Table 3 of the BEIR paper: time of a query and size of the index, for its ten systems.

    python bench/table3.py FOLDER --corpus corpus.jsonl --queries queries.jsonl [--documents 100000] [--device cuda]
                                  [--system NAME]... [--drawn] [--asked 50]

The measuring is `vizsla.evaluation.efficiency`; it says what stands in for weights that are not at hand. Every row is
appended to FOLDER/table3.jsonl as soon as it is measured, and a row that is there is not measured again: a stopped run
continues. docT5query needs documents with a field `queries`, as `vizsla queries generate` writes them; those alone are
indexed in its row.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import argparse
import json
import sys
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from vizsla.errors import VizslaError
from vizsla.evaluation.efficiency import COMPRESSED, TABLE, Measurement, first, markdown, measure


def read_lines(file: Path, count: int) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in islice(lines, count or None)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=0, help="how many documents are taken; 0 for all")
    parser.add_argument("--asked", type=int, default=50, help="how many queries are asked")
    parser.add_argument("--system", action="append", metavar="NAME", help="a row of the table; by default all")
    parser.add_argument("--device", default="", help="where networks run, as in cuda")
    parser.add_argument("--drawn", action="store_true", help="draw the vectors of documents instead of computing them")
    parser.add_argument("-k", type=int, default=100)
    options = parser.parse_args()
    rows = {system.name: system for system in (*TABLE, COMPRESSED)}
    wanted = options.system or list(rows)
    if unknown := [name for name in wanted if name not in rows]:
        parser.error(f"there is no system {unknown[0]!r}; the systems are {', '.join(rows)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    log = options.folder / "table3.jsonl"
    done = [Measurement(**row) for row in read_lines(log, 0)] if log.is_file() else []
    known = {one.system for one in done}
    documents = first(read_lines(options.corpus, options.documents), options.documents)
    queries = [query["text"] for query in read_lines(options.queries, options.asked)]
    for name in wanted:
        if name in known:
            continue
        try:
            (one,) = measure(
                documents,
                queries,
                options.folder,
                [rows[name]],
                drawn=options.drawn,
                device=options.device,
                k=options.k,
            )
        except VizslaError as e:
            print(f"{name} is left out: {e}", file=sys.stderr)
            continue
        with log.open("a", encoding="utf-8") as written:
            written.write(json.dumps(asdict(one)) + "\n")
        print(one, file=sys.stderr, flush=True)
        done.append(one)
    order = list(rows)
    print(markdown(sorted(done, key=lambda one: order.index(one.system))))


if __name__ == "__main__":
    main()
