"""The Cranfield collection: abstracts of aerodynamics, questions of researchers, judgements by them."""

from __future__ import annotations

from collections.abc import Iterator

from vizsla.datasets.preparing import DatasetWriter, GivenFile, GivenFiles, PublishedFile, preparation

_SOURCE = "http://ir.dcs.gla.ac.uk/resources/test_collections/cran/cran.tar.gz"
DOCUMENTS = PublishedFile("cran.all.1400", _SOURCE)
QUERIES = PublishedFile("cran.qry", _SOURCE)
JUDGEMENTS = PublishedFile("cranqrel", _SOURCE)

_FIELDS = {".T": "title", ".A": "author", ".B": "source", ".W": "text"}
_GRADES = {("40", "85"): 3}
"""A judgement whose line has two blanks keeps its code in the figures that were measured here; all others count 1."""


@preparation(
    "cranfield",
    DOCUMENTS,
    QUERIES,
    JUDGEMENTS,
    help="1,400 abstracts, 225 questions, judgements 1 to 4 of the original count as relevant",
    results={
        "corpus.jsonl": "86c7bfed7347f87ac13e6c2d883c85a4d40f18f5709b4ae83d58beb53ba5744f",
        "queries.jsonl": "4e2105ad51dd7625d0e8621e7a3a13c7c3456d936ff6d389be262176e869d5ea",
        "qrels/test.tsv": "9ada160931c0bd2131926ba600d457abe55de94591e3c65447f1f61f6c4b11da",
    },
)
def prepare_cranfield(given: GivenFiles, to: DatasetWriter) -> None:
    """Judgements name queries by their position, not by the number that their file gives them."""
    documents = given.one(DOCUMENTS.name)
    known = set()
    for _, number, fields in _records(documents):
        known.add(number)
        to.document(number, fields.get("text", ""), fields.get("title", ""))
    count = 0
    for line, number, fields in _records(given.one(QUERIES.name)):
        if not number.isdigit():
            given.one(QUERIES.name).refuse(f"expected a number after .I, not {number[:40]!r}", line)
        count += 1
        to.query(str(count), fields.get("text", ""), orig_num=str(int(number)))
    judgements = given.one(JUDGEMENTS.name)
    for line, text in judgements.lines():
        columns = text.split()
        if len(columns) != 3:
            judgements.refuse("expected 3 columns: a query, a document and a code from 1 to 4, or -1", line)
        query, document, code = columns
        if document not in known or not query.isdigit() or not 1 <= int(query) <= count:
            judgements.refuse(f"there is no query {query[:40]!r} or no document {document[:40]!r}", line)
        if code in ("1", "2", "3", "4"):
            to.judgement("test", query, document, _GRADES.get((query, document), 1))


def _records(file: GivenFile) -> Iterator[tuple[int, str, dict[str, str]]]:
    """The records of a file with their first lines and numbers; each line of fields begins with a dot and a letter.

    The text is the last field of a record, so lines in it that look like the beginning of another are text.
    """
    start, number, field = 0, "", ""
    fields: dict[str, list[str]] = {}
    for line, text in file.lines():
        if text.startswith(".I "):
            if start:
                yield start, number, {name: " ".join(" ".join(parts).split()) for name, parts in fields.items()}
            start, number, field, fields = line, text[3:].strip(), "", {}
        elif field != "text" and text.strip() in _FIELDS:
            field = _FIELDS[text.strip()]
        elif field:
            fields.setdefault(field, []).append(text)
        else:
            file.refuse("expected '.I' and a number, or the name of a field such as '.T'", line)
    if start:
        yield start, number, {name: " ".join(" ".join(parts).split()) for name, parts in fields.items()}
