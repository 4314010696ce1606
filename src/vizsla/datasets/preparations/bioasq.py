"""BioASQ as BEIR has it: abstracts of PubMed, questions of experts with the articles that answer them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vizsla.datasets.files import parse_line
from vizsla.datasets.preparing import DatasetWriter, GivenFile, GivenFiles, PublishedFile, preparation
from vizsla.plain_data import parse_json

_OWNER = "participants-area.bioasq.org/datasets"
ARTICLES = PublishedFile("allMeSH_2020.json", f"{_OWNER} (task 9a, training v.2020, on registration)")
TEST = PublishedFile("8B*_golden.json", f"{_OWNER} (task 8b, test set with golden answers: five files)", several=True)
TRAIN = PublishedFile("*training8b.json", f"{_OWNER} (task 8b, training set)", required=False)
BY_HAND = PublishedFile(
    "Manual-fixes-BioASQ-Task8b.csv",
    "https://docs.google.com/spreadsheets/d/1GZghfN5RT8h01XzIlejuwhBIGe8f-VaGf-yGaq11U-k/export?format=csv",
    required=False,
)
_ENCODING = "windows-1252"


@preparation(
    "bioasq",
    ARTICLES,
    TEST,
    TRAIN,
    BY_HAND,
    help="14,914,602 abstracts; 500 questions of task 8b to test, those of its training set to train",
)
def prepare_bioasq(given: GivenFiles, to: DatasetWriter) -> None:
    """Judged articles that the dump lacks are in a table that BEIR's authors made by hand: id, title, abstract."""
    seen = _Numbers()
    articles = given.one(ARTICLES.name)
    for line, article in _articles(articles):
        key = str(article.get("pmid") or "")
        if not key.isdigit():
            articles.refuse("expected a 'pmid', which is a number", line)
        if seen.add(int(key)):
            text = articles.text(article.get("abstractText"), "abstractText", line)
            to.document(key, text, str(article.get("title") or ""))
    by_hand = given.find(BY_HAND.name)
    if by_hand is not None:
        for line, (key, title, text) in by_hand.rows("pmid", "title", "abstract", delimiter=","):
            if not key.isdigit():
                by_hand.refuse("expected a number of PubMed in the first column", line)
            if seen.add(int(key)):
                to.document(key, text, title)
    missing = 0
    for split, files in (("train", given.every(TRAIN.name)), ("test", given.every(TEST.name))):
        for file in files:
            for question in file.objects(file.json_object().get("questions"), "questions"):
                key = file.text(question.get("id"), "id", 1)
                to.query(key, " ".join(file.text(question.get("body"), "body", 1).split()))
                for document in dict.fromkeys(_articles_of(question, file)):
                    missing += int(document) not in seen
                    to.judgement(split, key, document)
    if missing:
        to.remark(f"{missing:,} judgements are about articles that are not there ({BY_HAND.name} has BEIR's additions)")


def _articles(file: GivenFile) -> Iterator[tuple[int, dict[str, Any]]]:
    """The articles of the dump, which is one JSON object with an article in each line after the first."""
    ended = False
    for line, text in file.lines(_ENCODING):
        source = text.strip()
        if line == 1:
            source = source.partition("[")[2].strip()
        if source in ("", "]", "]}", "}"):
            ended = ended or source in ("]}", "}")
            continue
        if source.endswith("]}") and not _is_json(source):
            source, ended = source.removesuffix("]}").strip(), True
        article = parse_line(source.removesuffix(","), file.file, line)
        if not isinstance(article, dict):
            file.refuse("expected a JSON object, an article", line)
        yield line, article
    if not ended:
        file.refuse("the list of articles is never closed; the file is cut off")


def _is_json(source: str) -> bool:
    try:
        parse_json(source)
    except ValueError:
        return False
    return True


def _articles_of(question: dict[str, Any], file: GivenFile) -> Iterator[str]:
    """The PubMed numbers of the articles that answer a question, such as http://www.ncbi.nlm.nih.gov/pubmed/23242658."""
    for address in question.get("documents") or []:
        key = str(address).rstrip("/").rpartition("/")[2]
        if not key.isdigit():
            file.refuse(f"expected the address of an article of PubMed, not {str(address)[:60]!r}", 1)
        yield key


class _Numbers:
    """A set of numbers up to some hundred million, a bit each."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def __contains__(self, number: int) -> bool:
        return number >> 3 < len(self._bits) and bool(self._bits[number >> 3] & 1 << (number & 7))

    def add(self, number: int) -> bool:
        """Add a number; False if it was there."""
        if number in self:
            return False
        if number >> 3 >= len(self._bits):
            self._bits.extend(bytes((number >> 3) + (1 << 16) - len(self._bits)))
        self._bits[number >> 3] |= 1 << (number & 7)
        return True
