"""Data sets the field knows: facts, fetching, counting, questions."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from conftest import Cli
from vizsla import BeirDataset, VizslaError
from vizsla.datasets import count_dataset, dataset_entry, known_datasets, open_datasets, read_questions
from vizsla.datasets.fetch import download, fetch
from vizsla.datasets.registry import Download
from vizsla.errors import InputError


def test_all_sets_of_beir_are_known() -> None:
    beir = list(known_datasets().values())[:19]
    assert len(beir) == 19
    assert sum(bool(e.downloads) for e in beir) == 15
    assert all(d.md5 and len(d.md5) == 32 for e in beir for d in e.downloads)
    assert {e.name for e in beir if e.evaluated != "test"} == {"msmarco"}
    assert {e.name for e in beir if not e.downloads} == {"bioasq", "signal1m", "trec-news", "robust04"}
    assert all(e.how for e in beir if not e.downloads)
    assert dataset_entry("openqa-curatedtrec").answers == "regex"
    with pytest.raises(VizslaError, match="unknown data set 'scifcat'; did you mean 'scifact'"):
        dataset_entry("scifcat")


@pytest.mark.parametrize("name", ["scifact", "nfcorpus"])
def test_counting_gives_table_1_of_the_paper(name: str, data: Path) -> None:
    counted, entry = count_dataset(BeirDataset.open(data / name)), dataset_entry(name)
    assert counted.documents == entry.documents
    assert {s: n for s, n in counted.splits.items() if s in entry.splits} == entry.splits
    assert counted.per_query["test"] == pytest.approx(entry.per_query, abs=0.05)
    assert counted.query_words == pytest.approx(entry.query_words, rel=0.01)
    assert counted.document_words == pytest.approx(entry.document_words, rel=0.01)
    assert counted.relevance == ("binary" if entry.grades == 2 else f"{entry.grades}-level")


def zipped(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


class Server:
    """A web server that can break off in the middle, and notes what ranges it was asked for."""

    def __init__(self, content: bytes) -> None:
        self.content, self.breaks_at, self.asked, self.ranges = content, 0, [], True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                wanted = self.headers.get("Range")
                outer.asked.append(wanted)
                first = int(wanted.split("=")[1].rstrip("-")) if wanted and outer.ranges else 0
                if self.path.endswith("missing"):
                    self.send_error(404)
                    return
                if first >= len(outer.content):
                    self.send_error(416)
                    return
                self.send_response(206 if first else 200)
                self.send_header("Content-Length", str(len(outer.content) - first))
                self.end_headers()
                self.wfile.write(outer.content[first : outer.breaks_at or None])

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/pets.zip"


@pytest.fixture
def server() -> Iterator[Server]:
    files = {
        "pets/corpus.jsonl": '{"_id": "1", "text": "dog"}\n',
        "pets/queries.jsonl": '{"_id": "q", "text": "dog"}\n',
    }
    served = Server(zipped(files | {"pets/qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\t1\t1\n"}))
    yield served
    served.server.shutdown()
    served.server.server_close()


def entry_at(server: Server, md5: str | None = None) -> object:
    source = Download(server.url, "pets.zip", md5 or hashlib.md5(server.content).hexdigest())
    return replace(dataset_entry("scifact"), name="pets", downloads=(source,))


def test_fetching_resumes_verifies_and_unpacks(server: Server, tmp_path: Path) -> None:
    entry = entry_at(server)
    server.breaks_at = 100
    with pytest.raises(InputError, match=r"cannot be reached .* the part that arrived is kept"):
        fetch(entry, tmp_path)
    server.breaks_at = 0
    told: list[tuple[int, int]] = []
    folder = fetch(entry, tmp_path, lambda done, total: told.append((done, total)))
    assert server.asked == [None, "bytes=100-"]
    assert told[-1] == (len(server.content), len(server.content))
    assert BeirDataset.open(folder).qrels().judgements == {"q": {"1": 1}}
    assert sorted(p.name for p in tmp_path.iterdir()) == [".downloads", "pets"]
    assert fetch(entry, tmp_path) == folder
    assert len(server.asked) == 2


def test_a_server_without_ranges_starts_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "pets.zip.part").write_bytes(b"something old")
    server.ranges = False
    source = Download(server.url, "pets.zip", None)
    assert download(source, tmp_path).read_bytes() == server.content


def test_damaged_downloads_are_thrown_away(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the download is damaged"):
        fetch(entry_at(server, "0" * 32), tmp_path)
    assert not (tmp_path / "pets").exists()
    assert list((tmp_path / ".downloads" / "pets").iterdir()) == []
    server.content = b"please log in"
    with pytest.raises(InputError, match="not an archive"):
        fetch(entry_at(server), tmp_path)
    with pytest.raises(InputError, match="the server says 404"):
        download(Download(server.url + "missing", "x", None), tmp_path)
    with pytest.raises(InputError, match="cannot be reached"):
        download(Download("http://127.0.0.1:1/x", "y", None), tmp_path)


def test_archives_that_reach_outside_are_refused(server: Server, tmp_path: Path) -> None:
    server.content = zipped({"../evil": "x"})
    with pytest.raises(InputError, match="would write outside"):
        fetch(entry_at(server), tmp_path)
    assert not (tmp_path.parent / "evil").exists()


def test_archives_that_do_not_unpack_are_not_kept(server: Server, tmp_path: Path) -> None:
    whole = server.content
    flipped = bytearray(whole)
    flipped[45] ^= 255  # in the first file's bytes
    encrypted = bytearray(whole)
    for place in (whole.index(b"PK\x03\x04") + 6, whole.index(b"PK\x01\x02") + 8):
        encrypted[place] |= 1
    for content in (bytes(flipped), bytes(encrypted)):
        server.content = content
        with pytest.raises(InputError, match=r"pets\.zip: the archive is damaged, encrypted or of another kind"):
            fetch(entry_at(server), tmp_path)
        assert list((tmp_path / ".downloads" / "pets").iterdir()) == []
    server.content = whole
    assert BeirDataset.open(fetch(entry_at(server), tmp_path)).queries() == {"q": "dog"}


def test_data_sets_by_name_or_folder(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIZSLA_DATA", str(dataset.parent))
    assert open_datasets("pets").members[0].folder == dataset
    assert open_datasets(dataset).split(None) == "test"
    with pytest.raises(InputError, match=r"not on this machine .* fetch it with 'vizsla datasets fetch scifact'"):
        open_datasets("scifact")
    with pytest.raises(InputError, match="Register at bioasq"):
        open_datasets("bioasq")
    with pytest.raises(InputError, match="this folder does not exist, nor does a data set of this name"):
        open_datasets("nowhere")


def test_msmarco_is_evaluated_on_dev(dataset: Path) -> None:
    group = open_datasets(dataset.rename(dataset.with_name("msmarco")))
    assert (group.split(None), group.split("test")) == ("dev", "test")


def test_a_group_of_forums_is_their_mean(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    whole = tmp_path / "cqadupstack"
    whole.mkdir()
    dataset.rename(whole / "android")
    with pytest.raises(InputError, match="parts of this data set are missing: english, gaming"):
        open_datasets(whole)
    mine = whole.rename(tmp_path / "forums")
    (mine / "english").mkdir()
    for name in ("corpus.jsonl", "queries.jsonl"):
        (mine / "english" / name).write_text((mine / "android" / name).read_text())
    (mine / "english" / "qrels").mkdir()
    (mine / "english" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td4\t1\n")
    code, out, _ = cli("eval", mine, "--measures", "RR", "--json")
    result = json.loads(out)
    assert (code, result["dataset"]) == (0, "forums (mean of 2)")
    assert [p["measures"]["RR"] for p in result["parts"]] == [1.0, 0.0]
    assert result["measures"]["RR"] == 0.5


def test_the_command_lists_shows_and_counts(cli: Cli, dataset: Path) -> None:
    code, out, err = cli("datasets", "--data", dataset.parent)
    assert code == 0
    assert "cqadupstack" in out
    assert "there are also pets" in err
    assert len(json.loads(cli("datasets", "--data", dataset.parent, "--json")[1])) == len(known_datasets())
    code, out, _ = cli("datasets", "show", "msmarco")
    assert "TREC Deep Learning 2019" in out
    code, out, _ = cli("datasets", "stats", dataset, "--json")
    (counted,) = json.loads(out)
    assert (counted["documents"], counted["splits"], counted["relevance"]) == (4, {"dev": 1, "test": 2}, "3-level")
    assert "3-level" in cli("datasets", "stats", dataset)[1]
    code, _, err = cli("datasets", "fetch", "robust04", "--data", dataset.parent)
    assert (code, err.count("\n")) == (2, 1)


def test_questions_come_in_three_formats(tmp_path: Path, dataset: Path) -> None:
    found = read_questions(dataset / "queries.jsonl")
    assert list(found.texts) == ["q1", "q2"]
    (tmp_path / "q.csv").write_text('who?\t[\'A\', "B\'s"]\nwhen?\t"[\'1 ""x""\']"\n')
    assert read_questions(tmp_path / "q.csv").answers == {"q.csv-0": ["A", "B's"], "q.csv-1": ['1 "x"']}
    (tmp_path / "torn.csv").write_text("who?\t['A', Destiny's Child, 'B, C']\n")
    assert read_questions(tmp_path / "torn.csv").answers == {"torn.csv-0": ["A", "Destiny's Child", "B, C"]}
    (tmp_path / "P1.json").write_text('[{"question": "who?", "answers": ["A"]}]')
    assert read_questions(tmp_path / "P1.json").texts == {"P1.json-0": "who?"}
    for name, content in (
        ("a.csv", "who?\t__import__('os')\n"),
        ("b.csv", "who?\n"),
        ("c.json", "{}"),
        ("d.jsonl", ""),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(InputError):
            read_questions(tmp_path / name)
