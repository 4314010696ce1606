"""A generator for tests that needs no network, and a script that runs it in a process of its own.

What it writes depends on all texts of a call, as rounding does, so that other blocks show as other bytes.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.models.generator import Sampling, TextGenerator


class Echo(TextGenerator):
    """Writes words of the text, with marks of the key, the seed and the whole call."""

    task, digest, length = "query", "0123", 12

    def __init__(self, name: str = "echo", pause: float = 0.0) -> None:
        self.name = name
        self.pause = pause
        self.calls: list[list[str]] = []

    def generate(
        self, texts: Sequence[str], sampling: Sampling | None = None, keys: Sequence[str] | None = None
    ) -> list[list[str]]:
        sampling, keys = sampling or Sampling(), keys or texts
        self.calls.append(list(keys))
        time.sleep(self.pause)
        call = zlib.crc32("\0".join([repr(sampling), *texts]).encode())
        return [
            [f"{text.split()[n % len(text.split())]}  {key}\n{sampling.seed} {n} {call}" for n in range(sampling.texts)]
            for text, key in zip(texts, keys, strict=True)
        ]

    def token_counts(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([len(text.split()) for text in texts])


def records(count: int) -> list[dict[str, Any]]:
    """Documents, some without text, some longer than the generator reads, some with odd characters and fields."""
    made: list[dict[str, Any]] = []
    for n in range(count):
        record = {"_id": f"d{n}", "title": f"Title {n}", "text": f'Dogs "{n}" bark, "queries": [ übel \u2028 ]'}
        made.append({**record, "text": "long " * 20} if n % 7 == 3 else record)
        if n % 5 == 2:
            made[-1] = {"_id": f"d{n}", "text": " ", "year": 1990 + n, "deep": {"a": [1, None], "queries": ["x"]}}
    return made


def write(file: Path, made: Sequence[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in made))
    return file


if __name__ == "__main__":  # python expanding.py PAUSE ARGUMENTS...: vizsla with a generator that takes its time
    import vizsla.models.generator as generators
    from vizsla.cli import main

    slow = Echo(pause=float(sys.argv[1]))
    generators.open_generator = lambda _: slow
    sys.argv = ["vizsla", *sys.argv[2:]]
    main()
