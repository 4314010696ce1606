"""MedQuAD: questions and answers of the National Institutes of Health; the diseases of a split are its own."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple

from vizsla.datasets.files import DAMAGE, opened
from vizsla.datasets.preparing import DatasetWriter, GivenFile, GivenFiles, PublishedFile, preparation

PAIRS = PublishedFile(
    "*_QA*/*.xml",
    "https://github.com/abachaa/MedQuAD/archive/refs/heads/master.zip",
    several=True,
)


class _Pair(NamedTuple):
    key: str
    source: str
    focus: str
    """The disease or drug that it is about."""
    question: str
    answer: str


@preparation(
    "medquad",
    PAIRS,
    help="15,809 answers and 16,407 questions, 80/10/10 by disease",
    results={
        "corpus.jsonl": "2d5170636e98d65ba03f9869696b7609d84ffa97de44f38f4790d15bb019fe15",
        "queries.jsonl": "bf4360c2108aadce9b1cd95ea09d80341ffcfafd1d9046c7fb5c85f692ad453b",
        "qrels/train.tsv": "56309ac984df33e64791926ba095b24d3cd859644c5702de66a4c3b6d0b2fb4f",
        "qrels/dev.tsv": "51e1a8cdeffea52b150290ca63eab1e199b70c484fdc5f992ea0bf3896f40f85",
        "qrels/test.tsv": "ce6e49c7b27942aa671781c395de7bbf0315032c9fe6e504e38aa257819e116c",
    },
)
def prepare_medquad(given: GivenFiles, to: DatasetWriter) -> None:
    """Equal answers are one document. Pairs whose answers the owners took out for copyright are left out."""
    files = sorted(given.every(PAIRS.name), key=_place)
    splits = _splits({pair.focus.lower() for file in files for pair in _pairs(file)})
    documents: dict[str, str] = {}
    for file in files:
        for pair in _pairs(file):
            if pair.answer not in documents:
                documents[pair.answer] = f"A-{pair.key}"
                to.document(documents[pair.answer], pair.answer, pair.focus)
            to.query(pair.key, pair.question, focus=pair.focus, source=pair.source)
            to.judgement(splits[pair.focus.lower()], pair.key, documents[pair.answer])


def _splits(foci: set[str]) -> dict[str, str]:
    """The split of each disease: the last tenth of them, shuffled with the seed 7, is test, the one before dev."""
    shuffled = sorted(foci)
    random.Random(7).shuffle(shuffled)
    tenth = len(shuffled) // 10
    train = len(shuffled) - 2 * tenth
    return {focus: "train" if n < train else "dev" if n < train + tenth else "test" for n, focus in enumerate(shuffled)}


def _place(file: GivenFile) -> tuple[str, str]:
    path = PurePath(file.file.name)
    return path.parent.name, path.name


def _pairs(file: GivenFile) -> Iterator[_Pair]:
    """The pairs of a file that have an answer."""
    root = _parsed(file)
    source, name = _place(file)
    focus = (root.findtext("Focus") or "").strip()
    for pair in root.iter("QAPair"):
        question, answer = pair.find("Question"), pair.find("Answer")
        if question is None:
            file.refuse(f"the pair {pair.get('pid')} has no <Question>")
        text = " ".join("".join(answer.itertext()).split()) if answer is not None else ""
        if text:
            key = f"{source}-{PurePath(name).stem}-{question.get('qid')}-{pair.get('pid')}"
            yield _Pair(key, source, focus, question.text or "", text)


def _parsed(file: GivenFile) -> ElementTree.Element:
    """The root of an XML file; one with declarations, which could expand without end, is refused."""
    try:
        with opened(file.file) as (stream, _):
            content = stream.read()
    except DAMAGE as e:
        file.refuse(f"the file is damaged or not what its name says ({e})")
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        file.refuse("this XML has declarations; those of this data set have none")
    try:
        return ElementTree.fromstring(content)
    except ElementTree.ParseError as e:
        line, _ = e.position
        file.refuse(f"this is not XML ({e})", line)
