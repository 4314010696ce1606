"""Parts: shards that any machine encodes alone give the index that one build gives."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Cli
from small import documents_of, small_dense, small_model
from vizsla import BM25, Dense, Document, Index, LearnedSparse, Model, VizslaError
from vizsla.datasets import documents_from
from vizsla.index import Shard, build_from_parts, encode_shard
from vizsla.index.parts.encoding import unfinished_file
from vizsla.models import AutoWeightedSum, Component, Part, PrecomputedVectors, TokenComponent, TokenMatchComponent
from vizsla.vectors import MatchTexts

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

TABLES = ("terms", "documents", "contents", "deletions")


@dataclass(frozen=True)
class WordTokens(TokenComponent):
    """A vector for each word."""

    name: str = "word-tokens"
    namespace: str = "word-tokens"
    fields: tuple[str, ...] = ("text",)
    dimensions: int = 2
    kind: ClassVar[str] = "test-word-tokens"

    def document_embeddings(self, documents: Sequence[Any]) -> list[np.ndarray]:
        return self.query_embeddings([document["text"] for document in documents])

    def query_embeddings(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.array([[len(w), ord(w[0])] for w in t.split()], np.float32).reshape(-1, 2) for t in texts]


@dataclass(frozen=True)
class WordMatches(TokenMatchComponent):
    """A vector for each word that meets equal words, and one for the text."""

    name: str = "word-matches"
    namespace: str = "word-matches"
    fields: tuple[str, ...] = ("text",)
    dimensions: int = 1
    cls_dimensions: int = 2
    kind: ClassVar[str] = "test-part-matches"

    def document_embeddings(self, documents: Sequence[Any]) -> MatchTexts:
        return self.query_embeddings([document["text"] for document in documents])

    def query_embeddings(self, texts: Sequence[str]) -> MatchTexts:
        terms = [np.array([sum(map(ord, word)) for word in text.split()], np.int64) for text in texts]
        vectors = [some[:, None].astype(np.float32) % 7 + 1 for some in terms]
        return MatchTexts(terms, vectors, np.array([[len(t), 1.0] for t in texts], np.float32).reshape(-1, 2))


@pytest.fixture
def in_sevens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models encode seven documents at once, so that few documents make many batches."""
    for kind in (Component, Dense, LearnedSparse):
        monkeypatch.setattr(kind, "batch_size", property(lambda _: 7))


def stream(records: Sequence[dict[str, Any]]) -> Iterator[Document]:
    return (item for item in documents_from(records) if isinstance(item, Document))


def encode_all(
    records: Sequence[dict[str, Any]], folder: Path, model: str | Model, shards: int, **options: Any
) -> Path:
    """All parts, in any order."""
    folder.mkdir()
    order = list(range(1, shards + 1))
    random.Random(len(records)).shuffle(order)
    for number in order:
        encode_shard(stream(records), folder / f"part-{number:02}.parquet", model, Shard(number, shards), **options)
    return folder


def build(records: Sequence[dict[str, Any]], path: Path, model: str | Model, **options: Any) -> Path:
    with Index.create(path, model, **options) as index:
        index.add(records)
        index.commit()
    return path


def stored(path: Path) -> tuple[list[Any], ...]:
    """All rows of the database that say what is in an index, and all files of segments."""
    db = sqlite3.connect(path / "index.db")
    rows = [db.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in TABLES]
    db.close()
    return (*rows, sorted((f.name, f.read_bytes()) for f in (path / "segments").rglob("*") if f.is_file()))


def assert_equal(ours: Path, theirs: Path, queries: Sequence[str] = ("barking dog at night", "river stone")) -> None:
    assert stored(ours) == stored(theirs)
    with Index.open(ours) as a, Index.open(theirs) as b:
        wanted = {str(i): query for i, query in enumerate(queries)}
        ran = a.run(wanted, k=50)
        assert ran == b.run(wanted, k=50)
        assert any(len(ran[name]) for name in ran)
        assert [(p.weight, p.component) for p in a.model.parts] == [(p.weight, p.component) for p in b.model.parts]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    tmp_path = tmp_path_factory.mktemp("models")
    learned, dense = small_model(tmp_path / "learned"), small_dense(tmp_path / "dense")
    return {
        "lexical": BM25(),
        "learned": learned,
        "dense": dense,
        "sum": BM25() + 0.5 * dense + 2 * learned + WordMatches(),
        "tokens": WordTokens(),
        "fitted": AutoWeightedSum((Part(1.0, BM25()), Part(1.0, BM25(k1=2.0, namespace="other"))), "fitted"),
    }


@pytest.mark.usefixtures("in_sevens")
@pytest.mark.parametrize(
    ("kind", "shards"), [("lexical", 20), ("learned", 4), ("dense", 4), ("sum", 20), ("tokens", 3), ("fitted", 3)]
)
def test_shards_in_any_order_are_one_build(models: dict[str, Model], kind: str, shards: int, tmp_path: Path) -> None:
    model = models[kind]
    records: list[dict[str, Any]] = [{**d, "year": 1900 + i} for i, d in enumerate(documents_of(150))]
    records.insert(9, {"id": "blank", "text": " "})
    parts = encode_all(records, tmp_path / "parts", model, shards)
    added = build_from_parts(parts, tmp_path / "a.index", model)
    assert (added.documents, added.replaced, [d.id for d in added.empty]) == (151, 0, ["blank"])
    assert_equal(tmp_path / "a.index", build(records, tmp_path / "b.index", model))


@pytest.mark.slow
def test_weights_passages_and_texts_that_are_not_stored(tmp_path: Path) -> None:
    weights = [{"dog": 1, "cat": 70_000}, {"dog": 0.25}, {}, {"cat": 3, "a": 2.5}, {"dog": 2.0, "b": 4.0}]
    vectors = [{"id": str(i), "vector": row} for i, row in enumerate(weights)]
    parts = encode_all(vectors, tmp_path / "vectors", "vectors", 2, batch=1)
    build_from_parts(parts, tmp_path / "a.index")
    assert_equal(tmp_path / "a.index", build(vectors, tmp_path / "b.index", PrecomputedVectors()), ["dog cat"])
    texts = documents_of(30)
    parts = encode_all(texts, tmp_path / "parts", "bm25", 3, batch=4, passages=8)
    options = {"store": False, "memory": 1 << 20}  # little memory: terms are forgotten and looked up again
    build_from_parts(parts, tmp_path / "c.index", **options)
    assert_equal(tmp_path / "c.index", build(texts, tmp_path / "d.index", "bm25", passages=8, **options))


WORDS = st.lists(st.sampled_from(["a", "dog", "Dogs", "ß", "猫", " ", "\n", "\0", "e\u0301", "7 "])).map("".join)


@settings(max_examples=6)
@given(st.lists(WORDS, max_size=9), st.integers(1, 4), st.integers(1, 3))
def test_any_texts_shards_and_batches(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], shards: int, batch: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    records = [{"id": f"d{i}", "text": text} for i, text in enumerate(texts)]
    parts = encode_all(records, folder / "parts", "bm25", shards, batch=batch)
    build_from_parts(parts, folder / "a.index")
    assert stored(folder / "a.index") == stored(build(records, folder / "b.index", "bm25"))


def interrupted(records: Sequence[dict[str, Any]], after: int) -> Iterator[Document]:
    for i, document in enumerate(stream(records)):
        if i == after:
            raise KeyboardInterrupt
        yield document


def test_a_stopped_run_goes_on_from_any_byte(tmp_path: Path) -> None:
    records = documents_of(40)
    whole, part = tmp_path / "whole.parquet", tmp_path / "part.parquet"
    encode_shard(stream(records), whole, "bm25", "2/3", batch=3)
    rng = random.Random(3)
    for _ in range(12):
        with pytest.raises(KeyboardInterrupt):
            encode_shard(interrupted(records, rng.randrange(40)), part, "bm25", "2/3", batch=3)
        assert not part.exists()
        begun = unfinished_file(part)
        os.truncate(begun, rng.randrange(begun.stat().st_size + 1))
        report = encode_shard(stream(records), part, "bm25", "2/3", batch=3)
        assert report.documents == 13
        assert report.resumed % 3 == 0
        assert part.read_bytes() == whole.read_bytes()
        assert [f.name for f in tmp_path.iterdir() if f.name.startswith("part")] == ["part.parquet"]
        part.unlink()


STOPPING = """
import sys, time
from pathlib import Path
from vizsla.datasets import read_documents
from vizsla.index import encode_shard
from vizsla.index.parts.encoding import unfinished_file
def stopping():
    for document in read_documents(sys.argv[1]):
        unfinished = unfinished_file(Path(sys.argv[2]))
        if unfinished.exists() and unfinished.stat().st_size > 8_000:
            print("half", flush=True)
            time.sleep(600)
        yield document
encode_shard(stopping(), sys.argv[2], "bm25", "1/2", batch=2)
"""


def test_a_killed_process_goes_on(tmp_path: Path) -> None:
    source, part = tmp_path / "documents.jsonl", tmp_path / "part.parquet"
    source.write_text("".join(json.dumps(d) + "\n" for d in documents_of(200)))
    with subprocess.Popen([sys.executable, "-c", STOPPING, source, part], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        process.send_signal(signal.SIGKILL)
    report = encode_shard(stream(documents_of(200)), part, "bm25", "1/2", batch=2)
    assert 0 < report.resumed < report.documents == 100
    encode_shard(stream(documents_of(200)), tmp_path / "whole.parquet", "bm25", "1/2", batch=2)
    assert part.read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_a_part_that_was_begun_is_refused_for_another(tmp_path: Path) -> None:
    records, part = documents_of(20), tmp_path / "part.parquet"
    with pytest.raises(KeyboardInterrupt):
        encode_shard(interrupted(records, 15), part, "bm25", "1/2", batch=3)

    def refused(model: str = "bm25", shard: str = "1/2", which: Sequence[dict[str, Any]] = records, **more: Any) -> str:
        with pytest.raises(VizslaError) as e:
            encode_shard(stream(which), part, model, shard, **{"batch": 3, **more})
        return str(e.value)

    begun = "this part was begun with"
    assert f"{begun} the model bm25, and now it is the model bm25(k1=1.2); give" in refused("bm25(k1=1.2)")
    assert f"{begun} the shard 1/2, and now it is 2/2" in refused(shard="2/2")
    assert f"{begun} 2 shards, and now it is 5" in refused(shard="1/5")
    assert f"{begun} batches of 3, and now it is 4" in refused(batch=4)
    assert f"{begun} whole documents, and now it is passages of 9 words that" not in refused(passages=9)
    changed = "documents of the source were added, removed or changed since this part was started"
    assert changed in refused(which=[{**records[0], "text": "other"}, *records[1:]])
    assert changed in refused(which=records[:7])
    encode_shard(stream(records), part, "bm25", "1/2", batch=3)
    assert "this part was encoded with the shard 1/2, and now it is 2/2" in refused(shard="2/2")
    assert encode_shard(stream(records), part, "bm25", "2/2", batch=3, overwrite=True).documents == 9
    assert "it cannot be encoded by shards" in refused("sketch")
    for wrong in ("0/2", "3/2", "2", "a/b", "1/0"):
        with pytest.raises(VizslaError, match="shard"):
            Shard.parse(wrong)


def test_two_processes_do_not_write_one_part(tmp_path: Path) -> None:
    part = tmp_path / "part.parquet"

    def documents() -> Iterator[Document]:
        yield from stream(documents_of(3))
        with pytest.raises(VizslaError, match="another vizsla encode is writing this part"):
            encode_shard(stream(documents_of(3)), part, "bm25")

    assert encode_shard(documents(), part, "bm25").documents == 3


def test_parts_that_do_not_make_an_index(tmp_path: Path) -> None:
    records, folder = documents_of(30), tmp_path / "parts"

    def refused() -> str:
        with pytest.raises(VizslaError) as e:
            build_from_parts(folder, tmp_path / "a.index")
        assert not (tmp_path / "a.index").exists()
        return str(e.value)

    def encode(name: str, shard: str, model: str = "bm25", **options: Any) -> Path:
        encode_shard(stream(options.pop("which", records)), folder / name, model, shard, **{"batch": 4, **options})
        return folder / name

    assert refused() == f"{folder}: this is not a folder of parts"
    folder.mkdir()
    assert "there are no parts in this folder" in refused()
    first = encode("a.parquet", "1/4")
    assert refused() == f"{folder}: 3 of 4 shards are missing: 2, 3, 4"
    encode("b.parquet", "2/4")
    encode("d.parquet", "4/4")
    assert refused() == f"{folder}: shard 3 of 4 is missing"
    with pytest.raises(KeyboardInterrupt):
        encode_shard(interrupted(records, 20), folder / "c.parquet", "bm25", "3/4", batch=4)
    assert refused() == f"{folder / 'c.parquet.unfinished'}: this part is not finished; run its vizsla encode again"
    third = encode("c.parquet", "3/4")
    for name, shard, more, message in [
        ("e", "1/4", {}, f"and so is {folder / 'e.parquet'}"),
        ("e", "1/5", {}, f"this part was encoded with 5 shards, and {first} with 4; all parts"),
        ("e", "1/4", {"model": "bm25(b=0.5)"}, f"encoded with the model bm25(b=0.5), and {first} with the model bm25;"),
        ("e", "1/4", {"batch": 5}, f"this part was encoded with batches of 5, and {first} with 4 (--batch)"),
        ("e", "1/4", {"passages": 5}, f"with passages of 5 words, and {first} with whole documents"),
        ("c", "3/4", {"which": records[:-1]}, f"from a source of 29 documents, and {first} from one of 30"),
        ("c", "3/4", {"which": records[::-1]}, f"from other documents, or another order of them, than {first}"),
    ]:
        made = encode(f"{name}.parquet", shard, **{"overwrite": True, **more})
        assert message in refused()
        if name == "e":
            made.unlink()
    encode("c.parquet", "3/4", overwrite=True)
    whole = third.read_bytes()
    ids = parquet.read_metadata(third).row_group(0).column(1)
    place = ids.dictionary_page_offset + ids.total_compressed_size - 2
    third.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    assert f"{third}: this file is damaged or not a part" in refused()
    third.write_bytes(b"no Parquet")
    assert f"{third}: this file is damaged or not a part" in refused()
    parquet.write_table(pa.table({"id": ["1"]}), third)
    assert refused() == f"{third}: this Parquet file is not a part; vizsla encode writes parts"
    third.write_bytes(whole)
    with pytest.raises(VizslaError, match="encoded with the model bm25, not with bm25-wp"):
        build_from_parts(folder, tmp_path / "a.index", "bm25-wp")
    assert build_from_parts(folder, tmp_path / "a.index").documents == 30


def test_of_an_id_twice_the_last_document_stays(tmp_path: Path) -> None:
    records = [*documents_of(8), {"id": "3", "text": "again"}, {"id": "9", "text": "x"}, {"id": "9", "text": "y"}]
    parts = encode_all(records, tmp_path / "parts", "bm25", 2, batch=2)
    added = build_from_parts(parts, tmp_path / "a.index")
    assert (added.documents, added.repeated) == (9, 2)
    with Index.open(tmp_path / "a.index") as index:
        assert (len(index), index.get("3")["text"], index.get("9")["text"]) == (9, "again", "y")
        assert [hit.id for hit in index.search("again")] == ["3"]


def test_the_command_line(cli: Cli, tmp_path: Path) -> None:
    source, parts = tmp_path / "documents.jsonl.gz", tmp_path / "parts"
    source.write_bytes(gzip.compress("".join(json.dumps(d) + "\n" for d in documents_of(30)).encode()))
    parts.mkdir()
    for number in (2, 1):
        output = parts / f"{number}.parquet"
        code, _, err = cli("encode", source, "--shard", f"{number}/2", "--batch", 4, "-o", output)
        assert (code, f"shard {number}/2 has {[16, 14][number - 1]} of 30 documents" in err) == (0, True)
    assert "it was finished" in cli("encode", source, "--shard", "1/2", "--batch", 4, "-o", parts / "1.parquet")[2]
    code, _, err = cli("index", "--from", parts, "-o", tmp_path / "a.index")
    assert (code, "30 documents in" in err) == (0, True)
    assert_equal(tmp_path / "a.index", build(documents_of(30), tmp_path / "b.index", "bm25"))
    for arguments, message in [
        (["index", "-o", tmp_path / "c"], "name the files or folders to index, or a folder of parts with --from"),
        (["index", source, "--from", parts, "-o", tmp_path / "c"], "leave out a source"),
        (["index", "--from", parts, "--passages", 5, "-o", tmp_path / "c"], "leave out --passages"),
        (["encode", source, "-o", "-"], "- is standard output"),
        (["encode", source, "-o", parts / "1.jsonl"], "a part is a Parquet file; name one that ends in .parquet"),
        (["encode", source, "--shard", "5/2", "-o", parts / "5.parquet"], "as in 3/20, not 5/2"),
    ]:
        code, _, err = cli(*arguments)
        assert (code, message in err) == (2, True), err
