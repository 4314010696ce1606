"""Analyzers of source code, on functions of Python packages: the first line of a docstring finds the function it is of.

    python bench/code.py [--folder DIR] [--most N] [ANALYZER ...]

A document is a function without its docstring, a query the docstring's first line, of five words at least; the one
function is relevant. The folder is the standard library of the running Python by default. Prints the mean reciprocal
rank, how often the function is among the first ten, and the same for queries that are identifiers alone: names that the
function uses and at most twenty others do, with their case changed to another convention.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vizsla import BM25, Index

ANALYZERS = (
    "standard | lower",
    "lucene-english",
    "code",
    "identifiers | normalize:nfkc | lower",
    "identifiers | normalize:nfkc | lower | porter",
    "identifiers | normalize:nfkc | lower | stop:lucene-english | porter",
)
_IN_NAMES = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


class Function(NamedTuple):
    code: str
    query: str
    names: frozenset[str]


def functions(folder: Path) -> Iterator[Function]:
    """The documented functions of a folder, without those of its tests."""
    for file in sorted(folder.rglob("*.py")):
        if {"test", "tests", "idlelib", "site-packages", "lib2to3"} & set(file.relative_to(folder).parts):
            continue
        try:
            text = file.read_text("utf-8")
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        lines = text.splitlines()
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or len(node.body) < 2:
                continue
            said = (ast.get_docstring(node) or "").strip().partition("\n")[0]
            if len(said.split()) >= 5:
                inside = (n for part in node.body[1:] for n in ast.walk(part))
                names = {n.id for n in inside if isinstance(n, ast.Name)}
                head, first = lines[node.lineno - 1 : node.body[0].lineno - 1], node.body[1].lineno - 1
                yield Function("\n".join([*head, *lines[first : node.end_lineno]]), said, frozenset(names))


def in_another_case(name: str) -> str:
    """fetch_user as fetchUser, and the other way round.

    >>> in_another_case("fetch_user"), in_another_case("fetchUserData")
    ('fetchUser', 'fetch_user_data')
    """
    parts = [part.lower() for part in _IN_NAMES.findall(name)]
    return parts[0] + "".join(map(str.capitalize, parts[1:])) if "_" in name else "_".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("analyzers", nargs="*", default=ANALYZERS)
    parser.add_argument("--folder", type=Path, default=Path(os.__file__).parent)
    parser.add_argument("--most", type=int, default=2000, help="queries of each kind")
    options = parser.parse_args()
    found = list(functions(options.folder))
    rng = random.Random(1)
    described = {i: found[i].query for i in rng.sample(range(len(found)), min(options.most, len(found)))}
    uses = Counter(name for function in found for name in function.names)
    named = {
        i: in_another_case(rng.choice(names))
        for i, function in enumerate(found)
        if (names := sorted(n for n in function.names if uses[n] <= 20 and len(_IN_NAMES.findall(n)) > 1))
    }
    print(f"{len(found):,} functions; {len(described):,} described, {len(named):,} named")
    for analyzer in options.analyzers:
        with (
            tempfile.TemporaryDirectory() as folder,
            Index.create(Path(folder) / "i", BM25(analyzer=analyzer)) as index,
        ):
            index.add({"id": str(i), "text": function.code} for i, function in enumerate(found))
            index.commit()
            size = index.info()["index_bytes"]
            figures = []
            for queries in (described, named):
                hits = index.search_many(list(queries.values()), 10, documents=False)
                pairs = zip(queries, hits, strict=True)
                ranks = np.array([one.ids.index(str(i)) + 1 if str(i) in one.ids else np.inf for i, one in pairs])
                figures.append(f"MRR@10 {np.mean(1 / ranks):.3f}, found {np.mean(np.isfinite(ranks)):.3f}")
            print(f"{analyzer:70} described {figures[0]}; named {figures[1]}; {size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
