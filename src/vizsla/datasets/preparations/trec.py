"""TREC's collections as BEIR has them: Robust04 and TREC-NEWS; and Vaswani's abstracts in TREC's format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from vizsla.datasets.formats.html import html_text
from vizsla.datasets.formats.trec import cut_docno, sgml_text, trec_blocks
from vizsla.datasets.preparing import DatasetWriter, GivenFile, GivenFiles, PublishedFile, preparation

_TOP = re.compile(r"</?top>", re.IGNORECASE)
_FIELD = re.compile(
    r"<(num|title|desc|narr|docid|url)>\s*(?:(?:Number|Topic|Description|Narrative)\s*:)?", re.IGNORECASE
)
_TAG = re.compile(r"<[^<>]*>")


def read_topics(file: GivenFile) -> Iterator[tuple[int, dict[str, str]]]:
    """The topics of a file in TREC's format, such as `num`, `title` and `desc`, with the line each begins at."""
    start, topic = 0, ""
    for line, text in file.lines("latin-1"):
        mark = _TOP.search(text)
        if mark is None:
            topic += text + "\n"
        elif mark[0].startswith("</"):
            if not start:
                file.refuse("this </top> closes nothing; expected a <top> before it", line)
            fields = _FIELD.split(topic)
            found = {
                name.lower(): " ".join(_TAG.sub(" ", value).split())
                for name, value in zip(fields[1::2], fields[2::2], strict=True)
            }
            if not found.get("num"):
                file.refuse("this topic has no number (<num>)", start)
            yield start, found
            start = 0
        elif start:
            file.refuse(f"a <top> starts inside the one of line {start}", line)
        else:
            start, topic = line, text[mark.end() :] + "\n"
    if start:
        file.refuse("this <top> is never closed", start)


def read_judgements(file: GivenFile) -> Iterator[tuple[str, str, int]]:
    """Query, document and grade of each line of a file of TREC's four columns."""
    for line, text in file.lines():
        columns = text.split()
        if len(columns) != 4 or not columns[3].lstrip("-").isdigit():
            file.refuse("expected 4 columns: a topic, 0, a document and its grade", line)
        yield columns[0], columns[2], int(columns[3])


ROBUST_DOCUMENTS = tuple(
    PublishedFile(name, "trec.nist.gov/data/cd45 (TREC disks 4 and 5, on application to NIST)", several=True)
    for name in ("FBIS/FB*", "FR94/??/FR*", "FT/*/FT*", "LATIMES/LA*")
)
ROBUST_TOPICS = PublishedFile(
    "04.testset",
    "https://trec.nist.gov/data/robust/04.testset.gz",
    checksums=(
        "md5:5eac3d774a2f87da61c08a94f945beff",
        "sha256:c0045c190f1ed3ea73ffedc19f804b5895de36b8e04ca47842df509ea77576be",
    ),
)
ROBUST_JUDGEMENTS = PublishedFile(
    "qrels.robust2004.txt",
    "https://trec.nist.gov/data/robust/qrels.robust2004.txt",
    checksums=("md5:123c2a0ba2ec31178cb1050995dcfdfa",),
)
_CONTENT = re.compile(r"<(/?)(TEXT|HEADLINE|TITLE|HL|HEAD|TTL|DD|DATE|LP|LEADPARA)\b[^<>]*>", re.IGNORECASE)


@preparation(
    "robust04",
    *ROBUST_DOCUMENTS,
    ROBUST_TOPICS,
    ROBUST_JUDGEMENTS,
    help="528,155 articles of TREC disks 4 and 5 without the Congressional Record; 249 descriptions as queries",
)
def prepare_robust04(given: GivenFiles, to: DatasetWriter) -> None:
    """Texts are the parts of an article that are its content, as Anserini and ir_datasets take them; no titles."""
    for published in ROBUST_DOCUMENTS:
        for file in given.every(published.name):
            _check_unpacked(file)
            lines = ((line, text + "\n") for line, text in file.lines("latin-1"))
            for line, block in trec_blocks(file.file, lines):
                docno, rest = cut_docno(block)
                if not docno:
                    file.refuse("this <DOC> has no <DOCNO>", line)
                to.document(docno, sgml_text(_content(rest)))
    judgements = list(read_judgements(given.one(ROBUST_JUDGEMENTS.name)))
    judged = {query for query, _, _ in judgements}
    for line, topic in read_topics(given.one(ROBUST_TOPICS.name)):
        if topic["num"] in judged:
            if not topic.get("desc"):
                given.one(ROBUST_TOPICS.name).refuse("this topic has no description (<desc>)", line)
            to.query(topic["num"], topic["desc"])
    for query, document, grade in judgements:
        to.judgement("test", query, document, grade)


def _check_unpacked(file: GivenFile) -> None:
    try:
        with file.file.path.open("rb") as stream:
            packed = stream.read(2) == b"\x1f\x9d"
    except OSError as e:
        file.refuse(f"this file cannot be read ({e.strerror})")
    if packed:
        file.refuse("this file is packed with 'compress'; unpack the folder, as with 'gzip -dr -S z FOLDER'")


def _content(block: str) -> str:
    """The parts of a document between the tags of its content, which may lie in each other."""
    parts, depth, at = [], 0, 0
    for mark in _CONTENT.finditer(block):
        if depth:
            parts.append(block[at : mark.start()])
        depth = max(0, depth - 1) if mark[1] else depth + 1
        at = mark.end()
    return "\n".join(parts)


NEWS_DOCUMENTS = PublishedFile(
    "TREC_Washington_Post_collection.v2.jl",
    "trec.nist.gov/data/wapost (the Washington Post corpus, version 2, on application to NIST)",
    records=595_037,
)
NEWS_TOPICS = PublishedFile(
    "newsir19-background-linking-topics.xml",
    "https://trec.nist.gov/data/news/2019/newsir19-background-linking-topics.xml",
    checksums=("md5:388b5c96f8962da17eb1024b856d21c1",),
)
NEWS_JUDGEMENTS = PublishedFile(
    "newsir19-qrels-background.txt",
    "https://trec.nist.gov/data/news/2019/newsir19-qrels-background.txt",
    records=15_655,
    checksums=("md5:7b839a1a94e349d3facf28012542cc1d",),
)
_NEWS_GRADES = {0: 0, 2: 1, 4: 2, 8: 3, 16: 4}
"""TREC's gains, and the grades that BEIR has instead of them."""


@preparation(
    "trec-news",
    NEWS_DOCUMENTS,
    NEWS_TOPICS,
    NEWS_JUDGEMENTS,
    help="594,977 articles of the Washington Post; the titles of 57 of them as queries",
)
def prepare_trec_news(given: GivenFiles, to: DatasetWriter) -> None:
    """The articles that are topics are left out: BEIR's number of documents is smaller by just these 60."""
    topics = {topic.get("docid", ""): topic["num"] for _, topic in read_topics(given.one(NEWS_TOPICS.name))}
    titles: dict[str, str] = {}
    articles = given.one(NEWS_DOCUMENTS.name)
    for line, article in articles.json_lines():
        key = articles.text(article.get("id"), "id", line)
        title = " ".join(str(article.get("title") or "").split())
        if key in topics:
            titles[topics[key]] = title
        else:
            to.document(key, "\n".join(_paragraphs(article, articles, line)), title)
    file = given.one(NEWS_JUDGEMENTS.name)
    judgements = list(read_judgements(file))
    for query in dict.fromkeys(query for query, _, _ in judgements):
        if query not in titles:
            file.refuse(f"the article of the topic {query} is not in {articles.name}")
        to.query(query, titles[query])
    for query, document, grade in judgements:
        if grade not in _NEWS_GRADES:
            file.refuse(f"the grade {grade} of the document {document} is none of 0, 2, 4, 8 and 16")
        to.judgement("test", query, document, _NEWS_GRADES[grade])
    to.remark(f"left out {len(titles)} articles that are topics")


def _paragraphs(article: dict[str, Any], file: GivenFile, line: int) -> Iterator[str]:
    """The texts of an article's paragraphs."""
    contents = article.get("contents")
    if not isinstance(contents, list):
        file.refuse("expected a list 'contents'", line)
    for part in contents:
        if isinstance(part, dict) and part.get("subtype") == "paragraph" and isinstance(part.get("content"), str):
            text = part["content"]
            yield html_text(text)[1] if part.get("mime") == "text/html" else text


_VASWANI = "https://raw.githubusercontent.com/terrier-org/terrier-core/5.x/share/vaswani_npl"
VASWANI_DOCUMENTS = PublishedFile(
    "doc-text.trec",
    f"{_VASWANI}/corpus/doc-text.trec",
    checksums=("sha256:117ae7491647cb9725621bad52969a78307de19b1757852a0a2383659a856d36",),
)
VASWANI_TOPICS = PublishedFile(
    "query-text.trec",
    f"{_VASWANI}/query-text.trec",
    checksums=("sha256:fef998db14818f74a22b2fb2be06425d5fb0dbd83ed9841fa0440e0a5477da7b",),
)
VASWANI_JUDGEMENTS = PublishedFile(
    "qrels",
    f"{_VASWANI}/qrels",
    records=2_083,
    checksums=("sha256:1b3ed6a43752c7a7becb0dbd1614d662791bb7825b60182fd36be24d480ea447",),
)


@preparation(
    "vaswani",
    VASWANI_DOCUMENTS,
    VASWANI_TOPICS,
    VASWANI_JUDGEMENTS,
    help="11,429 abstracts of physics and electronics, 93 queries in capitals",
    results={
        "corpus.jsonl": "6c4cd42df39a63e5c2f2b0382171f310029ec9c07aa90d3e11182271c532c139",
        "queries.jsonl": "a4b1fb21e45553d4c2036c519dd6201d4ca438fa517a64a74ee918fdc6d69860",
        "qrels/test.tsv": "e4ce1335ba4914ea0d574e6a08264e1c2d3677d93acf2ea699cfef31d19cca88",
    },
)
def prepare_vaswani(given: GivenFiles, to: DatasetWriter) -> None:
    """The collection of the National Physical Laboratory, as Terrier carries it."""
    documents = given.one(VASWANI_DOCUMENTS.name)
    lines = ((line, text + "\n") for line, text in documents.lines())
    for line, block in trec_blocks(documents.file, lines):
        docno, rest = cut_docno(block)
        if not docno:
            documents.refuse("this <DOC> has no <DOCNO>", line)
        to.document(docno, " ".join(rest.split()))
    for _, topic in read_topics(given.one(VASWANI_TOPICS.name)):
        to.query(topic["num"], topic.get("title", ""))
    for query, document, grade in read_judgements(given.one(VASWANI_JUDGEMENTS.name)):
        to.judgement("test", query, document, grade)
