"""Data sets are prepared from files in their owners' layouts; damaged and wrong files are refused in one sentence."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from vizsla import BeirDataset, Index, VizslaError
from vizsla.datasets import (
    PREPARATIONS,
    DatasetWriter,
    GivenFiles,
    PublishedFile,
    dataset_entry,
    known_datasets,
    open_datasets,
    preparation,
    preparation_of,
    prepare,
    read_questions,
)
from vizsla.text.tokenizers import parse_tokenizer


def lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)  # the same bytes at any time, for names of tests


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., Path]:
    """Writes files into a folder and returns it."""

    def write(**contents: str | bytes) -> Path:
        folder = tmp_path / "given"
        folder.mkdir(exist_ok=True)
        for name, content in contents.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return folder

    return write


PASSAGES = 'id\ttext\ttitle\n1\t"Aaron, or ""Ahron"", is a prophet."\tAaron\n2\tDogs bark.\tDog\n'


@pytest.mark.parametrize("name", ["psgs_w100.tsv", "psgs_w100.tsv.gz"])
def test_wikipedia_in_passages(tmp_path: Path, files: Callable[..., Path], name: str) -> None:
    folder = files(**{name: packed(PASSAGES) if name.endswith("gz") else PASSAGES})
    done = prepare("wiki-dpr", [folder / name], tmp_path / "data")
    assert (done.documents, done.queries, done.state) == (2, 0, "not verified")
    assert done.differences == ["psgs_w100.tsv: 2 records, and 21,015,324 are published"] + (
        ["the checksum of psgs_w100.tsv is none of those published (md5:612fe66e0b6b41ee28f806140226c563)"]
        if name.endswith("gz")
        else []
    )
    documents = list(open_datasets("wiki-dpr", tmp_path / "data").members[0].documents())
    assert [(d.id, d["title"], d["text"]) for d in documents] == [
        ("1", "Aaron", 'Aaron, or "Ahron", is a prophet.'),
        ("2", "Dog", "Dogs bark."),
    ]
    facts = json.loads((done.folder / "prepared.json").read_text())
    (source,) = facts["sources"]
    assert source["sha256"] == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    assert (source["file"], source["records"], facts["state"]) == (name, 2, "not verified")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id\ttext\ttitle\n1\tno title\n", r"psgs_w100\.tsv:2: expected 3 columns \(id, text, title\), not 2"),
        (b"id\ttext\ttitle\n\ttext\ttitle\n", r"psgs_w100\.tsv:2: this passage has no id"),
        (b'1\t"open\ttitle\n', r"psgs_w100\.tsv:1: this row cannot be read"),
        (b"1\t\xff\ttitle\n", r"psgs_w100\.tsv:1: this is not UTF-8"),
        (b"", r"psgs_w100\.tsv: nothing was found in these files"),
        (b"id\ttext\ttitle\n", r"psgs_w100\.tsv: nothing was found in these files"),
    ],
)
def test_damaged_passages(tmp_path: Path, files: Callable[..., Path], content: bytes, message: str) -> None:
    folder = files(**{"psgs_w100.tsv": content})
    with pytest.raises(VizslaError, match=message):
        prepare("wiki-dpr", [folder], tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_a_cut_off_archive_leaves_nothing(tmp_path: Path, files: Callable[..., Path]) -> None:
    cut = packed(PASSAGES * 1000)[:-20]
    folder = files(**{"psgs_w100.tsv.gz": cut})
    with pytest.raises(VizslaError, match=r"psgs_w100\.tsv\.gz:\d+: the file is damaged"):
        prepare("wiki-dpr", [folder], tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_what_was_given_is_checked(tmp_path: Path, files: Callable[..., Path]) -> None:
    folder = files(**{"psgs_w100.tsv": PASSAGES, "other.txt": "x", "a/psgs_w100.tsv": PASSAGES})
    data = tmp_path / "data"
    for given, message in (
        ([tmp_path / "nowhere"], "nowhere: this file or folder does not exist"),
        ([folder / "other.txt"], "this is no file of wiki-dpr; its files are called psgs_w100.tsv"),
        ([folder / "psgs_w100.tsv", folder / "a"], r"both .*psgs_w100\.tsv and .*psgs_w100\.tsv may be psgs_w100\.tsv"),
    ):
        with pytest.raises(VizslaError, match=message):
            prepare("wiki-dpr", given, data)
    with pytest.raises(VizslaError, match="published in BEIR's layout; get it with 'vizsla datasets fetch scifact'"):
        prepare("scifact", [folder], data)
    with pytest.raises(VizslaError, match="did you mean 'wiki-dpr'"):
        prepare("wiki-dprr", [folder], data)
    with pytest.raises(VizslaError, match="cannot be downloaded; give its files"):
        prepare("ccnet", [], data)
    with pytest.raises(VizslaError, match=r"msmarco also needs .*\.tsv; get it from https://"):
        prepare("msmarco", [files(**{"m/collection.tsv": "0\tx\n"}) / "m"], data)
    # The same file twice is one file; an existing folder is kept unless it may be replaced.
    prepare("wiki-dpr", [folder / "psgs_w100.tsv", folder / "psgs_w100.tsv"], data)
    with pytest.raises(VizslaError, match=r"wiki-dpr: this folder exists; --overwrite"):
        prepare("wiki-dpr", [folder / "psgs_w100.tsv"], data)
    (folder / "psgs_w100.tsv").write_text("9\tnew\tNew\n")
    assert prepare("wiki-dpr", [folder / "psgs_w100.tsv"], data, overwrite=True).documents == 1
    assert [p.name for p in data.iterdir()] == ["wiki-dpr"]


def passage(number: int | str, key: str = "passage_id", **more: Any) -> dict[str, Any]:
    return {"title": f"T{number}", "text": f"text {number}", "score": 9.5, "title_score": 0, key: str(number), **more}


def question(number: int, positives: list[Any], hard: list[Any], random: list[Any] | None = None) -> dict[str, Any]:
    return {
        "dataset": "nq_train_psgs_w100", "question": f"question {number}", "answers": [f"answer {number}"],
        "positive_ctxs": positives, "negative_ctxs": random or [], "hard_negative_ctxs": hard,
    }  # fmt: skip


def test_training_questions_of_dpr(tmp_path: Path, files: Callable[..., Path]) -> None:
    train = [
        question(0, [passage(11, score=1000), passage(12)], [passage(13), passage(11), passage(13)], [passage(99)]),
        question(1, [], [passage(14)]),
        question(2, [passage(13)], [], [passage(15)]),
        question(3, [{"title": "Made", "text": "no id"}], [passage("wiki:7", "psg_id")]),
    ]
    folder = files(
        **{
            "biencoder-nq-train.json.gz": packed(json.dumps(train, indent=4)),
            "biencoder-nq-dev.json": json.dumps([question(0, [passage(11, "psg_id")], [passage(16)])]),
        }
    )
    done = prepare("dpr-nq", [folder], tmp_path / "data")
    made = hashlib.sha1(b"Made\nno id").hexdigest()[:16]
    dataset = BeirDataset.open(done.folder)
    assert dataset.queries() == {"train-0": "question 0", "train-2": "question 2", "train-3": "question 3",
                                 "dev-0": "question 0"}  # fmt: skip
    assert dataset.answers()["train-2"] == ["answer 2"]
    # Question 1 has no positive, so its negative is written only because it was named.
    assert [d.id for d in dataset.documents()] == ["11", "12", "13", "14", "15", made, "wiki:7", "16"]
    assert dataset.qrels("train").judgements == {"train-0": {"11": 1}, "train-2": {"13": 1}, "train-3": {made: 1}}
    named = dataset.hard_negatives("train")
    assert named["train-0"] == (("11",), ("13",))
    assert named["train-2"] == (("13",), ("15",)), "without hard negatives the random ones"
    assert named["train-3"] == ((made,), ("wiki:7",))
    assert dataset.hard_negatives("dev") == {"dev-0": (("11",), ("16",))}
    assert done.remarks == ["1 questions of biencoder-nq-train.json have no positive and are left out, as in DPR"]
    assert "biencoder-nq-train.json: 4 records, and 58,880 are published" in done.differences


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"question": "q"}]', "expected a list of texts 'answers'"),
        ('[{"answers": []}]', "expected a text 'question'"),
        ('[{"question": "q", "answers": ["a"], "positive_ctxs": {}}]', "expected a list 'positive_ctxs'"),
        ('[{"question": "q", "answers": ["a"], "positive_ctxs": [7]}]', "expected objects in 'positive_ctxs'"),
        ('[{"question": "q", "answers": ["a"], "positive_ctxs": [{}]}]', "expected a text 'text'"),
        ("[7]", "expected a JSON object"),
        ('[\n{"question": "q",', ":2: this is not JSON"),
        ('[{"question": "q"', "this is not JSON"),
        ("[", "the array is never closed"),
        ("", "nothing was found"),
        ("{" * 5000, "nested too deeply|not JSON"),
    ],
)
def test_damaged_training_questions(tmp_path: Path, files: Callable[..., Path], content: str, message: str) -> None:
    folder = files(**{"biencoder-squad1-train.json": content})
    with pytest.raises(VizslaError, match=message) as error:
        prepare("dpr-squad", [folder], tmp_path / "data")
    assert "biencoder-squad1-train.json" in str(error.value)
    assert list((tmp_path / "data").iterdir()) == []


def test_a_question_may_be_longer_than_documents_are(tmp_path: Path, files: Callable[..., Path]) -> None:
    """With its passages a question of DPR has megabytes; its list is read question by question."""
    long = "x" * 200_000
    many = [question(n, [passage(n)], [passage(f"{n}-{i}", text=long) for i in range(100)]) for n in range(3)]
    folder = files(**{"biencoder-trivia-train.json": json.dumps(many)})
    many.clear()
    tracemalloc.start()
    done = prepare("dpr-triviaqa", [folder], tmp_path / "data")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (done.queries, done.documents) == (3, 303)
    assert peak < 200e6, "60 MB of text: one question at a time"


def test_question_files_of_dpr(tmp_path: Path, files: Callable[..., Path], cli: Cli) -> None:
    folder = files(
        **{
            "nq-test.qa.csv": "who barks\t['dog', \"a dog's friend\"]\nwho purrs\t['cat']\n",
            "nq-dev.qa.csv": 'who swims\t["fish"]\n',
        }
    )
    data = tmp_path / "data"
    assert prepare("openqa-nq", [folder], data).queries == 3
    questions = BeirDataset.open(data / "openqa-nq").questions("test")
    assert questions.texts == {"test-0": "who barks", "test-1": "who purrs"}
    assert questions.answers["test-0"] == ["dog", "a dog's friend"]
    with pytest.raises(VizslaError, match="no questions with answers of the split 'train'"):
        BeirDataset.open(data / "openqa-nq").questions("train")

    with Index.create(tmp_path / "wiki") as index:
        index.add([{"id": "1", "text": "A dog barks."}, {"id": "2", "text": "Somebody purrs."}])
        index.commit()
    code, out, _ = cli("eval", "openqa-nq", "--data", data, "--index", tmp_path / "wiki", "--json")
    assert code == 0
    (result,) = json.loads(out)["results"]
    assert (result["file"], result["questions"], result["accuracy"]["Acc@5"]) == ("openqa-nq", 2, 0.5)
    code, out, _ = cli(
        "eval", "openqa-nq", "--data", data, "--index", tmp_path / "wiki", "--split", "dev", "--measures", "Acc@1"
    )
    assert (code, out.split()[-3:]) == (0, ["openqa-nq", "1", "0.0000"])
    code, _, err = cli("eval", "openqa-nq", "--data", data, "--index", tmp_path / "wiki", "--split", "train")
    assert (code, "of the split 'train'" in err) == (2, True)


@pytest.mark.parametrize("content", ["question\n", "question\tanswer\n", "a\tb\t['c']\n"])
def test_wrong_question_files(tmp_path: Path, files: Callable[..., Path], content: str) -> None:
    folder = files(**{"squad1-test.qa.csv": content})
    with pytest.raises(VizslaError, match=r"squad1-test\.qa\.csv:1: expected"):
        prepare("openqa-squad", [folder], tmp_path / "data")


def test_answers_of_curatedtrec_are_patterns(tmp_path: Path, files: Callable[..., Path], cli: Cli) -> None:
    folder = files(**{"curatedtrec-test.qa.csv": 'How tall is it?\t["20\\\\s?,?\\\\s?320 feet"]\n'})
    prepare("openqa-curatedtrec", [folder], tmp_path / "data")
    with Index.create(tmp_path / "wiki") as index:
        index.add([{"id": "1", "text": "It is 20 , 320 feet tall."}])
        index.commit()
    code, out, _ = cli(
        "eval", "openqa-curatedtrec", "--data", tmp_path / "data", "--index", tmp_path / "wiki", "--json"
    )
    assert code == 0
    assert json.loads(out)["results"][0]["accuracy"]["Acc@20"] == 1.0


def entity_files(relations: list[str]) -> dict[str, str]:
    found = {}
    for relation in relations:
        asked = [{"question": f"Where is {relation} {n}?", "answers": ["Rome"]} for n in range(1 + (relation == "P17"))]
        found[f"dataset/test/{relation}.test.json"] = json.dumps(asked)
    return found


def test_entity_questions_keep_their_relation(tmp_path: Path, files: Callable[..., Path], cli: Cli) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in entity_files(["P17", "P19"]).items():
            archive.writestr(name, content)
        archive.writestr("dataset/one-off/no-overlap/P17/P17_no_overlap.test.json", "[broken")
        archive.writestr("dataset/one-off/common-random-buckets/P17/bucket1.test.json", "[broken")
    folder = files(**{"dataset.zip": out.getvalue()})
    done = prepare("entityquestions", [folder / "dataset.zip"], tmp_path / "data")
    assert done.queries == 3
    assert done.remarks == ["there are 2 relations of test, and 24 are published"]
    assert done.differences == ["2 files test/P*.test.json: 3 records, and 22,075 are published"]
    questions = read_questions(done.folder / "queries.jsonl")
    assert questions.relations == {"P17-test-0": "P17", "P17-test-1": "P17", "P19-test-0": "P19"}

    with Index.create(tmp_path / "wiki") as index:
        index.add([{"id": "1", "text": "P17 is in Rome."}])
        index.commit()
    code, text, _ = cli("eval", "entityquestions", "--data", tmp_path / "data", "--index", tmp_path / "wiki")
    assert (code, "entityquestions, mean of 2 relations" in text) == (0, True)


def test_entity_questions_macro_and_micro(tmp_path: Path, files: Callable[..., Path], cli: Cli) -> None:
    contents = {
        "dataset/test/P17.test.json": json.dumps([{"question": f"dog {n}", "answers": ["barks"]} for n in range(3)]),
        "dataset/test/P19.test.json": json.dumps([{"question": "cat", "answers": ["barks"]}]),
    }
    folder = files(**contents)
    prepare("entityquestions", [folder], tmp_path / "data")
    with Index.create(tmp_path / "wiki") as index:
        index.add([{"id": "1", "text": "a dog barks"}, {"id": "2", "text": "a cat purrs"}])
        index.commit()
    code, text, _ = cli("eval", "entityquestions", "--data", tmp_path / "data", "--index", tmp_path / "wiki", "--json")
    assert code == 0
    (result,) = json.loads(text)["results"]
    assert (result["accuracy"]["Acc@20"], result["macro"]["Acc@20"], result["relations"]) == (0.75, 0.5, 2)


def test_paq(tmp_path: Path, files: Callable[..., Path]) -> None:
    text = (
        '{"question": "who wrote it", "subsets": ["L1"], "answer": ["Ann", "A."]}\n{"question": "b", "answer": ["c"]}\n'
    )
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        member = tarfile.TarInfo("PAQ/PAQ.filtered.jsonl")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text.encode()))
    folder = files(**{"PAQ.tar.gz": out.getvalue(), "PAQ.filtered.jsonl": text})
    done = prepare("paq", [folder / "PAQ.tar.gz"], tmp_path / "data")
    assert BeirDataset.open(done.folder).questions("train").answers == {"0": ["Ann", "A."], "1": ["c"]}
    assert read_questions(folder / "PAQ.filtered.jsonl").answers["PAQ.filtered.jsonl-0"] == ["Ann", "A."]
    (folder / "PAQ.tar.gz").write_bytes(out.getvalue()[:60])
    with pytest.raises(VizslaError, match=r"PAQ\.tar\.gz: the archive is damaged"):
        prepare("paq", [folder / "PAQ.tar.gz"], tmp_path / "data", overwrite=True)
    (folder / "PAQ.filtered.jsonl").write_text('{"question": "b", "answer": [1]}\n')
    with pytest.raises(VizslaError, match=r"PAQ\.filtered\.jsonl:1: expected a list of texts 'answers'"):
        prepare("paq", [folder / "PAQ.filtered.jsonl"], tmp_path / "data", overwrite=True)


MARCO = {
    "collection.tsv": '0\tpassage "zero\n1\tone\n2\ttwo\n3\tthree\n',
    "queries.train.tsv": "10\tq ten\n11\tq eleven\n12\tunjudged\n",
    "queries.dev.small.tsv": "20\tq twenty\n",
    "qrels.train.tsv": "10\t0\t1\t1\n11\t0\t0\t1\n",
    "qrels.dev.small.tsv": "20\t0\t3\t1\n",
}


MINED = """{"qid": 10, "pos": [1], "neg": {"bm25": [3, 1, 2], "ance": [0]}}
{"qid": 11, "pos": [0], "neg": {"a": [2], "b": [2, 3]}}
{"qid": 12, "pos": [], "neg": {}}
"""


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "qidpidtriples.train.full.2.tsv.gz",
            packed("10\t1\t3\n10\t1\t2\n11\t0\t2\n10\t1\t2\n12\t1\t2\n"),
            {"10": (("1",), ("2", "3")), "11": (("0",), ("2",))},
        ),
        (
            "msmarco-hard-negatives.jsonl",
            MINED,
            {"10": (("1",), ("3", "2")), "11": (("0",), ("2", "3"))},
        ),
        ("train.negatives.tsv", "10\t3,2\n", {"10": (("1",), ("3", "2"))}),
    ],
)
def test_msmarco(
    tmp_path: Path, files: Callable[..., Path], name: str, content: str | bytes, expected: dict[str, Any]
) -> None:
    folder = files(**MARCO, **{name: content})
    done = prepare("msmarco", [folder], tmp_path / "data")
    dataset = BeirDataset.open(done.folder)
    assert dataset.queries() == {"10": "q ten", "11": "q eleven", "20": "q twenty"}
    assert dataset.qrels("dev").judgements == {"20": {"3": 1}}
    assert [d["text"] for d in dataset.documents()] == ['passage "zero', "one", "two", "three"]
    assert dataset.hard_negatives("train") == expected
    assert list(done.folder.parent.iterdir()) == [done.folder]


def test_msmarco_from_its_archive_and_trec(tmp_path: Path, files: Callable[..., Path]) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in {**MARCO, "queries.eval.tsv": "9\tx\n"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    folder = files(
        **{
            "collectionandqueries.tar.gz": out.getvalue(),
            "msmarco-test2019-queries.tsv": "30\tq thirty\n31\tunjudged\n",
            "2019qrels-pass.txt": "30 Q0 2 3\n30 Q0 1 0\n",
        }
    )
    done = prepare("msmarco", [folder / "collectionandqueries.tar.gz", *folder.glob("*2019*")], tmp_path / "data")
    assert dict(done.judgements) == {"train": 2, "dev": 1, "test": 2}
    assert BeirDataset.open(done.folder).qrels("test").judgements == {"30": {"2": 3, "1": 0}}


def test_many_negatives_become_fifty(tmp_path: Path, files: Callable[..., Path]) -> None:
    triples = "".join(f"10\t1\t{n}\n" for n in range(1000))
    folder = files(**{**MARCO, "qidpidtriples.train.full.tsv": triples})
    data = tmp_path / "data"
    prepare("msmarco", [folder], data)
    first = (data / "msmarco" / "train_hard_negatives.jsonl").read_bytes()
    ((positives, negatives),) = BeirDataset.open(data / "msmarco").hard_negatives("train").values()
    assert (positives, len(negatives), len(set(negatives)), "1" in negatives) == (("1",), 50, 50, False)
    done = prepare("msmarco", [folder], data, overwrite=True)
    assert (data / "msmarco" / "train_hard_negatives.jsonl").read_bytes() == first
    assert "of queries with more than 50 negatives, 50 random ones are kept" in done.remarks


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"collection.tsv": "0 passage\n"},
            r"collection\.tsv:1: expected 2 columns separated by tabs \(pid, passage\)",
        ),
        ({"qrels.train.tsv": "10\t0\t1\n"}, r"qrels\.train\.tsv:1: expected four columns"),
        ({"qrels.train.tsv": "10\t0\t1\tx\n"}, r"qrels\.train\.tsv:1: expected four columns"),
        ({"queries.dev.small.tsv": "7\tx\n"}, r"queries\.dev\.small\.tsv: 1 judged queries of qrels\.dev\.small\.tsv"),
        ({"queries.train.tsv": "10\ta\n10\tb\n"}, r"queries\.train\.tsv:2: the query id '10' appears a second time"),
        ({"qidpidtriples.train.full.tsv": "10\t1\t2\n10\t1\n"}, r"full\.tsv:2: expected three numbers"),
        ({"qidpidtriples.train.full.tsv": "10\t1\tx\n"}, r"full\.tsv:1: expected three numbers"),
        ({"qidpidtriples.train.full.tsv": f"10\t1\t{1 << 40}\n"}, r"full\.tsv:1: expected three numbers"),
        ({"msmarco-hard-negatives.jsonl": '{"qid": 1, "neg": [2]}\n'}, r"negatives\.jsonl:1: expected a 'qid'"),
        ({"train.negatives.tsv": "10\n"}, r"train\.negatives\.tsv:1: expected 2 columns"),
        (
            {"train.negatives.tsv": "1\t2\n", "qidpidtriples.train.full.tsv": "1\t1\t2\n"},
            "negatives come from one file",
        ),
        ({"2019qrels-pass.txt": "1 0 1 1\n"}, "belong together"),
    ],
)
def test_damaged_msmarco(tmp_path: Path, files: Callable[..., Path], changed: dict[str, str], message: str) -> None:
    folder = files(**{**MARCO, **changed})
    with pytest.raises(VizslaError, match=message):
        prepare("msmarco", [folder], tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_text_in_documents_of_500_tokens(tmp_path: Path, files: Callable[..., Path]) -> None:
    words = [f"unbelievable{n % 7} word" for n in range(2000)]
    first = "".join(json.dumps({"raw_content": " ".join(words[n : n + 50])}) + "\n" for n in range(0, 1500, 50))
    folder = files(**{"en_head_0000.json.gz": packed(first), "more.txt": "\n".join(words[1500:])})
    done = prepare("ccnet", [folder], tmp_path / "data")
    texts = [d["text"] for d in BeirDataset.open(done.folder).documents()]
    assert " ".join(" ".join(texts).split()) == " ".join(words), "nothing is lost, no word is cut"
    counts = [len(parse_tokenizer("wordpiece").tokens(text)) for text in texts]
    assert all(490 < count <= 500 for count in counts[:-1])
    assert 0 < counts[-1] <= 500
    with pytest.raises(VizslaError, match=r"x\.json:1: expected a text 'raw_content'"):
        prepare("ccnet", [files(**{"b/x.json": '{"url": "u"}\n'}) / "b"], tmp_path / "data", overwrite=True)


def test_a_word_without_an_end_is_text_too(
    tmp_path: Path, files: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_CHARACTERS", 1000), ("_LONGEST", 50_000)):  # a twentieth, as the word is
        monkeypatch.setattr(f"vizsla.datasets.preparations.ccnet.{name}", value)
    folder = files(**{"a.txt": "a" * 150_000 + "\n" + " " * 5000 + "\nend"})
    done = prepare("ccnet", [folder], tmp_path / "data")
    texts = [d["text"] for d in BeirDataset.open(done.folder).documents()]
    assert sum(text.count("a") for text in texts) == 150_000
    assert texts[-1].endswith("end")


def test_every_preparation_is_of_a_known_data_set() -> None:
    assert set(PREPARATIONS.names()) <= set(known_datasets())
    published = {name: preparation_of(name) for name in PREPARATIONS.names()}
    assert all(p is not None and p.files and p.help for p in published.values())
    counts = {file.name: file.records for p in published.values() if p is not None for file in p.files}
    # The published numbers: of DPR, EntityQuestions and MS MARCO's own pages, and of the catalogue of ir_datasets.
    expected = {
        "psgs_w100.tsv": 21_015_324, "biencoder-nq-train.json": 58_880, "biencoder-nq-dev.json": 6_515,
        "biencoder-trivia-train.json": 78_785, "nq-train.qa.csv": 79_168, "nq-dev.qa.csv": 8_757,
        "nq-test.qa.csv": 3_610, "trivia-test.qa.csv": 11_313, "webquestions-test.qa.csv": 2_032,
        "curatedtrec-test.qa.csv": 694, "squad1-test.qa.csv": 10_570, "test/P*.test.json": 22_075,
        "collection.tsv": 8_841_823, "queries.train.tsv": 808_731, "qrels.train.tsv": 532_761,
        "qrels.dev.small.tsv": 7_437, "qidpidtriples.train.full.tsv": 269_919_004,
        "qidpidtriples.train.full.2.tsv": 397_768_673,
    }  # fmt: skip
    assert {name: counts[name] for name in expected} == expected
    assert counts["collection.tsv"] == dataset_entry("msmarco").documents


@pytest.fixture
def pets(tmp_path: Path) -> Iterator[str]:
    """A preparation of somebody's own, with a checksum and a result that are published."""
    content = b"1\tdogs bark\n"
    corpus = b'{"_id": "1", "title": "", "text": "dogs bark"}\n'
    digest, result = (hashlib.sha256(part).hexdigest() for part in (content, corpus))
    (tmp_path / "pets.tsv").write_bytes(content)

    @preparation(
        "pets",
        PublishedFile("pets.tsv", (tmp_path / "pets.tsv").as_uri(), 1, (f"sha256:{digest}",)),
        help="a dog",
        results={"corpus.jsonl": result},
    )
    def prepare_pets(given: GivenFiles, to: DatasetWriter) -> None:
        for _, (number, text) in given.one("pets.tsv").columns("id", "text"):
            to.document(number, text)

    yield "pets"
    del PREPARATIONS._entries["pets"]


def test_verified_or_not(tmp_path: Path, pets: str) -> None:
    assert prepare(pets, [], tmp_path / "data").state == "verified", "downloaded from its address"
    assert [p.name for p in (tmp_path / "data").iterdir() if not p.name.startswith(".")] == ["pets"]
    (tmp_path / "pets.tsv").write_text("1\tdogs purr\n")
    done = prepare(pets, [tmp_path / "pets.tsv"], tmp_path / "data", overwrite=True)
    assert done.state == "not verified"
    assert [d.split(" (")[0] for d in done.differences] == [
        "the checksum of pets.tsv is none of those published",
        "corpus.jsonl is not the file that others have made",
    ]


def test_the_command(tmp_path: Path, files: Callable[..., Path], cli: Cli) -> None:
    folder, data = files(**{"psgs_w100.tsv": PASSAGES}), tmp_path / "data"
    code, out, err = cli("datasets", "prepare", "wiki-dpr", folder, "--data", data)
    assert (code, out) == (0, f"wiki-dpr is in {data / 'wiki-dpr'}: 2 documents, 0 queries; not verified\n")
    assert "wiki-dpr: psgs_w100.tsv: 2 records, and 21,015,324 are published" in err
    code, out, _ = cli("datasets", "prepare", "wiki-dpr", folder, "--data", data, "--overwrite", "--json")
    assert (code, json.loads(out)["documents"], json.loads(out)["state"]) == (0, 2, "not verified")
    code, _, err = cli("datasets", "prepare", "wiki-dpr", folder, "--data", data)
    assert (code, "--overwrite" in err) == (2, True)
    code, out, _ = cli("datasets", "show", "wiki-dpr")
    assert "psgs_w100.tsv, also compressed; 21,015,324 records" in out
    assert "https://dl.fbaipublicfiles.com/dpr/wikipedia_split/psgs_w100.tsv.gz" in out
    code, out, _ = cli("datasets", "--data", data, "--json")
    ways = {entry["name"]: (entry["way"], bool(entry["here"])) for entry in json.loads(out)}
    assert ways["wiki-dpr"] == ("fetch", True)
    assert (ways["ccnet"], ways["scifact"], ways["openqa-nq"]) == (
        ("prepare", False),
        ("fetch", False),
        ("fetch", False),
    )
    code, out, _ = cli("datasets", "stats", "wiki-dpr", "--data", data)
    assert code == 0


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("wiki-dpr", "psgs_w100.tsv", f"1\t{'x' * 5000}\tt\n"),
        ("wiki-dpr", "psgs_w100.tsv", '1\t"never closed\n' + "x\n" * 5000),
        ("dpr-nq", "biencoder-nq-dev.json", json.dumps([question(1, [passage(1, text="x" * 5000)], [])])),
        ("paq", "PAQ.filtered.jsonl", json.dumps({"question": "x" * 5000, "answer": ["a"]}) + "\n"),
    ],
)
def test_a_line_without_an_end_is_refused(
    tmp_path: Path, files: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, name: str, file: str, content: str
) -> None:
    monkeypatch.setattr("vizsla.datasets.preparing.MAX_RECORD", 1000)
    folder = files(**{file: content})
    with pytest.raises(VizslaError, match=f"{file}:1: this document has more than 1,000 bytes"):
        prepare(name, [folder], tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []
