"""Files of documents that several tests write, and what is read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vizsla.datasets import Source

TABLE = """id,text,year,price,draft,day,code,note
01,a dog,1999,7.5,true,2024-02-29,007,
02,a cat,2001,10,FALSE,2023-12-31 10:30,8,x
03,"a, fish",,,,,,
"""
LINES = "".join(json.dumps({"id": str(n), "text": f"dog {n}"}) + "\n" for n in range(5))
RECORDS = [{"id": str(n), "text": f'a {"dog" * n} "[{{', "more": [{"n": n}]} for n in range(50)]


def contents(source: Path, **options: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(d.id, dict(d.content)) for d in Source.find(source, **options).documents()]


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    return file
