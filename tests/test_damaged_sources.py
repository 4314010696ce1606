"""Nothing but a sentence leaves a reader: damaged documents, queries, judgements and runs."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import lzma
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard

from made_documents import LINES, RECORDS, TABLE, write
from vizsla import Qrels, Run, VizslaError
from vizsla.datasets import Source, read_queries, read_questions
from vizsla.runs.run import read_packed, write_packed


def samples(folder: Path) -> Iterator[Path]:
    yield write(folder / "x.jsonl", LINES)
    yield write(folder / "x.json", json.dumps(RECORDS[:3], indent=1))
    yield write(folder / "x.csv", TABLE)
    yield write(folder / "x.tsv", TABLE.replace(",", "\t"))
    yield write(folder / "x.trec", "<DOC>\n<DOCNO>1</DOCNO><TITLE>a</TITLE>\n&#65;<P>b</DOC>\n" * 3)
    yield write(folder / "x.md", "---\na: 1\nb:\n - x\n---\n# T\n[a](b) *c*\n")
    yield write(folder / "x.html", "<title>a</title><p class='x'>b &amp; c<!-- d --><script>e</script>")
    for name in ("gz", "xz", "zst"):
        pack = {"gz": gzip.compress, "xz": lzma.compress, "zst": zstandard.compress}[name]
        (folder / f"z.jsonl.{name}").write_bytes(pack(LINES.encode()))
        yield folder / f"z.jsonl.{name}"
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        return
    table = pyarrow.Table.from_pylist(
        [{"id": str(n), "text": "dog", "n": n, "d": dt.date(2024, 1, 1)} for n in range(9)]
    )
    parquet.write_table(table, folder / "x.parquet")
    yield folder / "x.parquet"


def damaged(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0 and place < len(data):
            data[place] = rng.randrange(256)
        elif kind == 1:
            data[place : place + rng.randrange(9)] = b""
        elif kind == 2:
            data[place:place] = rng.choice(
                (b"\0", b"\xff", b'"', b"\r", b"\n", b"<DOC>", b"{", b"[", b"\t", b",", b"&#x")
            )
        else:
            data[place:place] = data[place : place + rng.randrange(40)]
    return bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.1 else data)


@pytest.mark.slow
def test_damaged_files_are_read_or_refused_in_a_sentence(tmp_path: Path) -> None:
    rng = random.Random(20)
    sentences = []
    for sample in list(samples(tmp_path)):
        whole = sample.read_bytes()
        for _ in range(120):
            sample.write_bytes(damaged(whole, rng))
            try:
                source = Source.find(sample)
                list(source.remarks())
                list(source.documents())
            except VizslaError as e:
                sentences.append(str(e))
        sample.write_bytes(whole)
        assert list(Source.find(sample).documents())
    assert not [sentence for sentence in sentences if "\n" in sentence]


@pytest.mark.slow
def test_damaged_queries_judgements_and_runs_are_read_or_refused(tmp_path: Path) -> None:
    rng = random.Random(21)
    write_packed(Run({"q": [("d", 2.0), ("e", 1.0)]}), tmp_path / "run.npz")
    samples: list[tuple[Path, Callable[[Path], object]]] = [
        (write(tmp_path / "q.tsv", "1\ta dog\n2\ta cat\n"), read_queries),
        (write(tmp_path / "q.jsonl", LINES), read_queries),
        (write(tmp_path / "q.txt", LINES), read_queries),
        (write(tmp_path / "a.jsonl", '{"id": 1, "text": "x", "answers": ["y"]}\n'), read_questions),
        (write(tmp_path / "a.csv", 'who?\t[\'a\', "b"]\nwhat?\t["c"]\n'), read_questions),
        (write(tmp_path / "a.json", '[{"question": "who?", "answers": ["a"]}]'), read_questions),
        (write(tmp_path / "qrels.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\n"), Qrels.read),
        (write(tmp_path / "qrels.trec", "q1 0 d1 1\nq1 0 d2 0\n"), Qrels.read),
        (write(tmp_path / "run.trec", "q1 Q0 d1 1 2.5 t\nq1 Q0 d2 2 1.5 t\n"), Run.read),
        (tmp_path / "run.npz", read_packed),
    ]
    for sample, read in samples:
        whole = sample.read_bytes()
        assert read(sample)
        for _ in range(150):
            sample.write_bytes(damaged(whole, rng))
            with suppress(VizslaError):
                read(sample)
