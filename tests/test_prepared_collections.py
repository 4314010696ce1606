"""BEIR's sets that are given out on request, and our own eight, from made files in the layout of their owners."""

from __future__ import annotations

import gzip
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from vizsla import VizslaError
from vizsla.datasets import Prepared, known_datasets, preparation_of, prepare

OWN = (
    "insuranceqa-v2", "medquad", "feedbackqa", "squad-dev-split", "cranfield", "vaswani", "arxiv-titles",
    "wiki-openqa-ds",
)  # fmt: skip

Given = Callable[[dict[str, Any]], Path]


@pytest.fixture
def given(tmp_path: Path) -> Given:
    """Writes files by their paths into a folder; what is no text is written as JSON."""

    def write(contents: dict[str, Any]) -> Path:
        for name, content in contents.items():
            path = tmp_path / "given" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not isinstance(content, str | bytes):
                content = json.dumps(content, indent=1)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path / "given"

    return write


def made(name: str, folder: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str], dict[str, list[str]], Prepared]:
    """Documents, texts of queries, lines of judgements, and what `prepare` says."""
    done = prepare(name, [folder], folder.parent / "data", overwrite=True)
    read = [json.loads(line) for line in (done.folder / "corpus.jsonl").read_text("utf-8").splitlines()]
    queries = [json.loads(line) for line in (done.folder / "queries.jsonl").read_text("utf-8").splitlines()]
    judged = {f.stem: f.read_text().splitlines()[1:] for f in sorted((done.folder / "qrels").glob("*.tsv"))}
    return {d.pop("_id"): d for d in read}, {q["_id"]: q["text"] for q in queries}, judged, done


def jsonl(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


ROBUST: dict[str, Any] = {
    "FBIS/FB396001": "<DOC>\n<DOCNO> FBIS3-1 </DOCNO>\n<HT> code </HT>\n<HEADER>\n<DATE1> 1 </DATE1>\n</HEADER>\n"
    "<TEXT>\nDogs &amp; cats.\n</TEXT>\n</DOC>\n",
    "FBIS/READCHG.TXT": "not a document",
    "FR94/01/FR940104.0": "<DOC>\n<DOCNO> FR940104-0-00001 </DOCNO>\n<TEXT>\n<USDEPT>Farming</USDEPT>\n"
    "</TEXT>\n</DOC>\n",
    "FT/FT911/FT911_1": b"<DOC>\n<DOCNO>FT911-1</DOCNO>\n<PROFILE>x</PROFILE>\n<HEADLINE>\nFT  14 MAY\n</HEADLINE>\n"
    b"<TEXT>\n\xa35 a dog.\n</TEXT>\n</DOC>\n",
    "LATIMES/LA010189": "<DOC>\n<DOCNO> LA010189-0001 </DOCNO>\n<LENGTH><P>9 words</P></LENGTH>\n<TEXT>\n<P>\nCats\n"
    "</P>\n</TEXT>\n</DOC>\n",
    "CR/CR93E-1": "<DOC>\n<DOCNO>CR93E-1</DOCNO>\n<TEXT>Congress</TEXT>\n</DOC>\n",
    "04.testset": "<top>\n\n<num> Number: 301 \n<title> Dogs \n\n<desc> Description: \nWhich dogs\nbark?\n\n"
    "<narr> Narrative: \nAll.\n\n</top>\n\n"
    "<top>\n<num> Number: 652\n\n<title>\nCats\n\n<desc>\nWhich cats?\n\n<narr>\nNone.\n</top>\n"
    "<top>\n<num> Number: 672\n<title> Mice\n<desc> Description:\nNot judged.\n<narr> Narrative:\nx\n</top>\n",
    "qrels.robust2004.txt": "301 0 FBIS3-1 2\n301 0 FT911-1 0\n652 0 LA010189-0001 1\n",
}


def test_robust04(given: Given) -> None:
    documents, queries, judged, done = made("robust04", given(ROBUST))
    assert {key: document["text"] for key, document in documents.items()} == {
        "FBIS3-1": "Dogs & cats.",
        "FR940104-0-00001": "Farming",
        "FT911-1": "FT 14 MAY\n£5 a dog.",
        "LA010189-0001": "Cats",
    }
    assert queries == {"301": "Which dogs bark?", "652": "Which cats?"}
    assert judged == {"test": ["301\tFBIS3-1\t2", "301\tFT911-1\t0", "652\tLA010189-0001\t1"]}
    assert done.differences == [
        "the checksum of qrels.robust2004.txt is none of those published (md5:123c2a0ba2ec31178cb1050995dcfdfa)"
    ]


NEWS: dict[str, Any] = {
    "TREC_Washington_Post_collection.v2.jl": jsonl(
        {"id": "t1", "title": "Dogs  bark", "contents": [None, {"subtype": "paragraph", "content": "x"}]},
        {
            "id": "a",
            "title": None,
            "contents": [
                {"type": "title", "content": "A"},
                {
                    "type": "sanitized_html",
                    "subtype": "paragraph",
                    "mime": "text/html",
                    "content": "<b>Cats</b> &amp; me",
                },
                {"type": "sanitized_html", "subtype": "paragraph", "mime": "text/plain", "content": "1 < 2"},
                {"type": "image", "fullcaption": "picture"},
            ],
        },
    ),
    "newsir19-background-linking-topics.xml": "<top>\n<num> Number: 826 </num>\n<docid>t1</docid>\n"
    "<url>http://x.org/</url>\n</top>\n",
    "newsir19-qrels-background.txt": "826 0 a 16\n826 0 b 0\n826 0 c 8\n826 0 d 4\n826 0 e 2\n",
}


def test_trec_news(given: Given) -> None:
    documents, queries, judged, done = made("trec-news", given(NEWS))
    assert documents == {"a": {"title": "", "text": "Cats & me\n1 < 2"}}
    assert queries == {"826": "Dogs bark"}
    assert judged["test"] == ["826\ta\t4", "826\tb\t0", "826\tc\t3", "826\td\t2", "826\te\t1"]
    assert done.remarks == ["left out 1 articles that are topics"]


def question(key: str, body: str, *articles: int) -> dict[str, Any]:
    return {"id": key, "body": body, "documents": [f"http://www.ncbi.nlm.nih.gov/pubmed/{n}" for n in articles]}


BIOASQ: dict[str, Any] = {
    "allMeSH_2020.json": b'{"articles":[\n'
    b'{"journal":"J","meshMajor":[],"year":"1","abstractText":"5 \xb5g","pmid":"7","title":"T."},\n'
    b'{"abstractText":"again","pmid":"7","title":"T."},\n'
    b'{"abstractText":"b","pmid":"40000000","title":"U."}\n]}',
    "8B1_golden.json": {"questions": [question("q1", "Does  it\nhelp?", 7, 9, 7)]},
    "8B2_golden.json": {"questions": [question("q2", "Which?", 9)]},
    "BioASQ-training8b.json": {"questions": [question("q0", "Why?", 40000000)]},
    "Manual-fixes-BioASQ-Task8b.csv": '9,"A title, by hand",text\n',
}


def test_bioasq(given: Given) -> None:
    documents, queries, judged, done = made("bioasq", given(BIOASQ))
    assert documents == {
        "7": {"title": "T.", "text": "5 µg"},
        "40000000": {"title": "U.", "text": "b"},
        "9": {"title": "A title, by hand", "text": "text"},
    }
    assert queries == {"q0": "Why?", "q1": "Does it help?", "q2": "Which?"}
    assert judged == {"test": ["q1\t7\t1", "q1\t9\t1", "q2\t9\t1"], "train": ["q0\t40000000\t1"]}
    assert not done.remarks


def test_bioasq_without_the_table_made_by_hand(given: Given) -> None:
    files = {name: content for name, content in BIOASQ.items() if not name.startswith("Manual")}
    assert made("bioasq", given(files))[3].remarks == [
        "2 judgements are about articles that are not there (Manual-fixes-BioASQ-Task8b.csv has BEIR's additions)"
    ]


SIGNAL: dict[str, Any] = {
    "sample-1M.jsonl": jsonl({"id": "u1", "title": "Dogs ", "content": "x"}, {"id": "u2", "title": "Not judged"}),
    "signal1m_tweets_qrels": "u1 0 11 2\nu1 0 12 0\nu1 0 99 1\n",
    "201509-tweets.tsv": "11\tA dog \U0001f600 barks http://t.co/x \n12\thttp://t.co/y\n",
    "more-tweets.jsonl": jsonl({"id_str": "13", "full_text": "Cats\nsleep"}, {"id": 14, "text": "Mice"}),
}


def test_signal1m(given: Given) -> None:
    documents, queries, judged, done = made("signal1m", given(SIGNAL))
    texts = {key: document["text"] for key, document in documents.items()}
    assert texts == {"13": "Catssleep", "14": "Mice", "11": "A dog  barks"}
    assert queries == {"u1": "Dogs"}
    assert judged == {"test": ["u1\t11\t2", "u1\t99\t1"]}
    assert done.remarks == ["1 of the judged tweets are missing; deleted tweets are not available"]


def article(title: str, *questions: str) -> dict[str, Any]:
    asked = [
        {"id": q, "question": f" {q}?", "answers": [{"text": "b"}, {"text": "a"}, {"text": "b"}]} for q in questions
    ]
    return {"title": title, "paragraphs": [{"context": f"About {title}. ", "qas": asked}]}


SQUAD = {"data": [article("Warsaw", "q1"), article("Black_Death", "q2"), article("Teacher", "q3")], "version": "1.1"}


def test_squad_is_split_by_article(given: Given) -> None:
    folder = given({"dev-v1.1.json": SQUAD})
    documents, queries, judged, done = made("squad-dev-split", folder)
    assert documents["Black_Death-0"] == {"title": "Black Death", "text": "About Black_Death."}
    assert list(documents) == ["Black_Death-0", "Teacher-0", "Warsaw-0"]
    assert queries == {"q2": "q2?", "q3": "q3?", "q1": "q1?"}
    assert judged == {
        "train": ["q1\tWarsaw-0\t1"],
        "dev": ["q2\tBlack_Death-0\t1"],
        "test": ["q3\tTeacher-0\t1"],
    }
    first = json.loads((done.folder / "queries.jsonl").read_text().splitlines()[0])
    assert first["metadata"] == {"answers": ["a", "b"]}
    assert done.state == "not verified"


def feedback(domain: str, part: str) -> dict[str, Any]:
    section = {"section_headers": ["A", "B"], "section_content": "Wash\nhands", "page_title": "Page"}
    return {
        "examples": [{"id": 0, "source": domain, "question": "How?", "passage_id": 0}],
        "passages": [{"passage_id": 0, "source": domain, "reference": section}] if part == "train" else [],
    }


FEEDBACK = {
    f"feedbackQA_data/{domain}/{part}.json": feedback(domain, part)
    for domain in ("Australia", "CDC", "UK", "WHO")
    for part in ("train", "valid", "test")
}


def test_feedbackqa(given: Given) -> None:
    documents, queries, judged, _ = made("feedbackqa", given(FEEDBACK))
    assert list(documents) == ["Australia-0", "CDC-0", "UK-0", "WHO-0"]
    assert documents["UK-0"] == {"title": "A / B", "text": "Wash\nhands"}
    assert queries["WHO-valid-0"] == "How?"
    assert judged["dev"][1] == "CDC-valid-0\tCDC-0\t1"
    assert {split: len(lines) for split, lines in judged.items()} == {"train": 4, "dev": 4, "test": 4}


def test_an_archive_is_read_as_its_folder_is(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "main.zip", "w") as archive:
        for name, content in FEEDBACK.items():
            archive.writestr(f"feedbackqa-main/experiments/{name}", json.dumps(content))
    from_archive = prepare("feedbackqa", [tmp_path / "main.zip"], tmp_path / "data")
    assert (from_archive.documents, from_archive.queries) == (4, 12)
    preparation = preparation_of("feedbackqa")
    assert preparation is not None
    assert [one.name for one in preparation.downloads] == ["main.zip"]


def medical(focus: str, *pairs: tuple[str, str | None]) -> str:
    asked = "".join(
        f'<QAPair pid="{n}"><Question qid="x-{n}" qtype="t">{q}</Question>'
        + (f"<Answer>{a}</Answer>" if a is not None else "<Answer/>")
        + "</QAPair>"
        for n, (q, a) in enumerate(pairs, 1)
    )
    return f'<?xml version="1.0"?>\n<Document id="x"><Focus>{focus}</Focus><QAPairs>{asked}</QAPairs></Document>'


def test_medquad_has_no_disease_in_two_splits(given: Given) -> None:
    files = {f"9_CDC_QA/{n:07}.xml": medical(f"Disease {n}", ("What?", f"It  is {n}.")) for n in range(40)}
    files["1_CancerGov_QA/0000001.xml"] = medical("DISEASE 3", ("Why ?", "It is\n3."), ("How?", None))
    documents, queries, judged, _ = made("medquad", given(files))
    assert len(documents) == 40  # two pairs have the same answer, one has none
    assert next(iter(documents)) == "A-1_CancerGov_QA-0000001-x-1-1"
    assert queries["1_CancerGov_QA-0000001-x-1-1"] == "Why ?"
    assert "How?" not in queries.values()
    assert {split: len(lines) for split, lines in judged.items()} in [
        {"train": 32 + a, "dev": 4 + b, "test": 5 - a - b} for a in (0, 1) for b in (0, 1) if a + b <= 1
    ]
    split_of = {line.split("\t")[0]: split for split, lines in judged.items() for line in lines}
    assert split_of["1_CancerGov_QA-0000001-x-1-1"] == split_of["9_CDC_QA-0000003-x-1-1"]


INSURANCE: dict[str, Any] = {
    "vocabulary": "idx_1\tIs\nidx_2\tit\nidx_3\tinsured?\nidx_4\tYes.\n",
    "InsuranceQA.label2answer.raw.encoded.gz": gzip.compress(b"1\tidx_4 w ant\n2\tidx_4\n"),
    **{
        f"InsuranceQA.question.anslabel.raw.100.pool.solr.{part}.encoded": "auto\tidx_1 idx_2 idx_3\t1 2\t7 8\n"
        for part in ("train", "valid", "test")
    },
}


def test_insuranceqa(given: Given) -> None:
    documents, queries, judged, _ = made("insuranceqa-v2", given(INSURANCE))
    assert {key: document["text"] for key, document in documents.items()} == {"1": "Yes. w ant", "2": "Yes."}
    assert queries == dict.fromkeys(("train-0", "dev-0", "test-0"), "Is it insured?")
    assert judged["dev"] == ["dev-0\t1\t1", "dev-0\t2\t1"]


CRANFIELD: dict[str, Any] = {
    "cran.all.1400": ".I 1\n.T\na wing\nin air .\n.A\nx,y.\n.B\nj.\n.W\na wing\nin air .\n.A\nis tested .\n"
    ".I 85\n.T\nb .\n.A\n.B\n.W\n",
    "cran.qry": ".I 001\n.W\nwhat is\na wing .\n.I 004\n.W\nwhy .\n",
    "cranqrel": "1 1 2 \n1 85 -1\n2 85  4 \n",
}


def test_cranfield(given: Given) -> None:
    documents, queries, judged, _ = made("cranfield", given(CRANFIELD))
    assert documents["1"] == {"title": "a wing in air .", "text": "a wing in air . .A is tested ."}
    assert queries == {"1": "what is a wing .", "2": "why ."}
    assert judged == {"test": ["1\t1\t1", "2\t85\t1"]}


VASWANI: dict[str, Any] = {
    "doc-text.trec": "<DOC>\n<DOCNO>1</DOCNO>\ncompact  memories\nare small\n</DOC>\n",
    "query-text.trec": "<top>\n<num>1</num><title>\nSMALL MEMORIES\n</title>\n</top>\n",
    "qrels": "1 0 1 1\n",
}


def test_vaswani(given: Given) -> None:
    documents, queries, judged, done = made("vaswani", given(VASWANI))
    assert documents == {"1": {"title": "", "text": "compact memories are small"}}
    assert (queries, judged) == ({"1": "SMALL MEMORIES"}, {"test": ["1\t1\t1"]})
    assert done.state == "not verified"


def test_wikipedia_questions(given: Given) -> None:
    files: dict[str, Any] = {
        "AA/wiki_00": jsonl({"id": "12", "title": "Dog", "text": " ".join(["dog"] * 225)}),
        "AA/wiki_01": jsonl({"id": 25, "title": "Cat", "text": " ".join(["cat"] * 119)}),
        "trainmodel.json": [{"qId": "w", "qText": "who?", "answers": ["A"]}],
        "val.json": [{"qId": "w", "qText": "when?", "answers": ["B"]}],
        "NQ-open.efficientqa.dev.1.1.jsonl": jsonl({"question": "where?", "answer": ["C"]}),
    }
    csvs = ("nq-dev", "trivia-dev", "nq-test", "trivia-test", "webquestions-test", "squad1-test")
    files |= {f"{name}.qa.csv": "why?\t['D', 'E']\n" for name in csvs}
    documents, queries, judged, _ = made("wiki-openqa-ds", given(files))
    assert {key: len(document["text"].split()) for key, document in documents.items()} == {
        "12-0": 100, "12-1": 100, "12-2": 25, "25-0": 100,
    }  # fmt: skip
    assert documents["25-0"]["title"] == "Cat"
    assert list(queries)[:3] == ["dpr-nq-dev-0", "dpr-trivia-dev-0", "webquestions-trainmodel-0"]
    assert not judged


def test_another_version_of_arxiv_is_refused(given: Given) -> None:
    table = "\t".join(["", "abstract", *"abcdefghijklm"]) + "\n"
    folder = given({"20200101/per_category/acc-phys.tsv.xz": lzma.compress(table.encode())})
    with pytest.raises(VizslaError, match=r"arxiv-titles also needs 20200101/per_year/199\[34\]\.tsv"):
        made("arxiv-titles", folder)
    places = ("20200101/per_year/1993.tsv", "20190101/per_category/acc-phys.tsv", "20190101/per_year/1993.tsv")
    given(dict.fromkeys(places, table))
    with pytest.raises(VizslaError, match=r"acc-phys\.tsv\.xz: expected 49 papers, not 0: the sample was drawn from"):
        made("arxiv-titles", folder)


ASKED = '{"examples": [{"passage_id": 9}]}'
WRONG: list[tuple[str, dict[str, Any], str, str | bytes, str]] = [
    ("robust04", ROBUST, "FT/FT911/FT911_1", b"\x1f\x9d\x90", r"FT911_1: this file is packed with 'compress'; unpack"),
    ("robust04", ROBUST, "LATIMES/LA010189", "<DOC>\n<TEXT>\nx", r"LA010189:1: this <DOC> is never closed"),
    ("robust04", ROBUST, "04.testset", "<top>\n<num> Number: 301\n", r"04\.testset:1: this <top> is never closed"),
    ("robust04", ROBUST, "qrels.robust2004.txt", "301 FBIS3-1 2\n", r"qrels\.robust2004\.txt:1: expected 4 columns"),
    ("trec-news", NEWS, "newsir19-qrels-background.txt", "826 0 a 3\n", r"the grade 3 of the document a is none of"),
    ("trec-news", NEWS, "TREC_Washington_Post_collection.v2.jl", '{"id": "a"}\n', r"jl:1: expected a list 'contents'"),
    ("bioasq", BIOASQ, "allMeSH_2020.json", '{"articles":[\n{"pmid":"7"', r"2020\.json:2: this line is not JSON"),
    ("bioasq", BIOASQ, "allMeSH_2020.json", '{"articles":[\n', r"is never closed; the file is cut off"),
    ("bioasq", BIOASQ, "8B1_golden.json", "{}", r"8B1_golden\.json:1: expected a list 'questions' of objects"),
    ("signal1m", SIGNAL, "sample-1M.jsonl", jsonl({"id": "x"}), r"jsonl lacks 1 judged articles, such as u1"),
    ("squad-dev-split", {"dev-v1.1.json": SQUAD}, "dev-v1.1.json", '{"data": [', r"v1\.1\.json:1: this line is not"),
    ("feedbackqa", FEEDBACK, "feedbackQA_data/UK/test.json", ASKED, r"UK-9, which is not there"),
    ("insuranceqa-v2", INSURANCE, "vocabulary", "idx_1\tIs\n", r"encoded\.gz:1: the vocabulary has no word 'idx_4'"),
    ("cranfield", CRANFIELD, "cranqrel", "1 9 1\n", r"cranqrel:1: there is no query '1' or no document '9'"),
    ("cranfield", CRANFIELD, "cran.qry", "what\n", r"cran\.qry:1: expected '\.I' and a number"),
    ("vaswani", VASWANI, "doc-text.trec", "<DOC>\n</DOC>\n", r"doc-text\.trec:1: this <DOC> has no <DOCNO>"),
    ("medquad", {}, "9_CDC_QA/1.xml", "<Document>\n<Focus>", r"1\.xml:2: this is not XML"),
    ("medquad", {}, "9_CDC_QA/1.xml", "<!DOCTYPE x>\n<Document/>", r"1\.xml: this XML has declarations"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "files", "file", "content", "message"), WRONG)
def test_what_is_wrong_is_said_in_one_sentence(
    given: Given, tmp_path: Path, name: str, files: dict[str, Any], file: str, content: str | bytes, message: str
) -> None:
    folder = given({**files, file: content})
    with pytest.raises(VizslaError, match=message) as error:
        made(name, folder)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "data" / name).exists()


@pytest.mark.parametrize("name", OWN)
def test_our_own_sets_are_known(cli: Cli, name: str) -> None:
    entry = known_datasets()[name]
    assert entry.documents
    assert entry.licence != "not known"
    assert "seen: " in entry.note.lower()
    preparation = preparation_of(name)
    assert preparation is not None
    assert preparation.results
    code, shown, _ = cli("datasets", "show", name)
    assert code == 0
    assert f"vizsla datasets prepare {name}" in " ".join(shown.split())
