"""What a build takes stays within its memory, with any number of threads."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

BUILD = """
import resource, sys
from pathlib import Path
import numpy, sqlite3
from vizsla import Index
from vizsla.datasets import Source
from vizsla.models import parse_model

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

folder, corpus, memory, threads = sys.argv[1:]
parse_model("bm25")
before = peak()
with Index.create(folder, memory=int(memory)) as index, index.writer() as writer:
    writer.add(Source.find(Path(corpus)).raw_lines(), workers=int(threads))
    print(before, peak())
"""


SMALLEST, LARGE = 128_000_000, 256_000_000
"""The smallest memory that is a bound (docs/collections.md), and a larger one."""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="others measure a process otherwise")
def test_a_build_of_more_than_its_memory_stays_within_it(tmp_path: Path) -> None:
    """What it writes is as large as the larger memory, and without a bound it would take twice that."""
    chance = random.Random(3)
    words = [f"{a}{n}" for n in range(20_000) for a in ("run", "bark", "sleep")]
    weights = [1 / (n + 1) for n in range(len(words))]
    corpus = tmp_path / "corpus.jsonl"
    drawn = chance.choices(words, weights, k=1_000_000)
    with corpus.open("w") as out:
        for n in range(300_000):
            first = chance.randrange(len(drawn) - 100)
            out.write(json.dumps({"_id": f"document-{n}", "text": " ".join(drawn[first : first + 100])}) + "\n")
    assert corpus.stat().st_size > 3 * LARGE // 4
    for memory, threads in (SMALLEST, 1), (SMALLEST, 8), (LARGE, 8):
        index = tmp_path / f"{memory}-{threads}"
        command = [sys.executable, "-c", BUILD, index, corpus, str(memory), str(threads)]
        ended = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        before, most = map(int, ended.stdout.split())
        assert 1024 * (most - before) < memory
