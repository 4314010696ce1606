"""arXiv's titles and abstracts: each title is a query for its abstract. Weak supervision rather than judgements."""

from __future__ import annotations

import lzma
from importlib import resources

from vizsla.datasets.preparing import DatasetWriter, GivenFiles, PublishedFile, preparation
from vizsla.plain_data import parse_json

_SOURCE = "github.com/staeiou/arxiv_archive: give the folder processed_data of a clone"
ABSTRACTS = tuple(
    PublishedFile(f"{year}/{part}.tsv", _SOURCE, several=True)
    for year in ("20200101", "20190101")
    for part in ("per_category/*", "per_year/199[34]")
)

_COLUMNS = (
    "number", "abstract", "acm_class", "arxiv_id", "author_text", "categories", "comments", "created", "doi",
    "num_authors", "num_categories", "primary_cat", "title", "updated", "categories_list or created_ym",
)  # fmt: skip
_SPLITS = ("", "train", "dev", "test")
_SHORTEST = 100
"""Abstracts with fewer characters are left out."""


@preparation(
    "arxiv-titles",
    *ABSTRACTS,
    help="114,000 abstracts, a sample of those of ArXiV Archive; 110,000 titles to train, 2,000 dev, 2,000 test",
    results={
        "corpus.jsonl": "8fa3a5edad01660f680f4bcecd7fd98ad9429df5a98c4725a3afc2553827faea",
        "queries.jsonl": "f576bb56af4225d518ce270852b5658c81e455bafc04d90c05c446cb2b8338d7",
    },
)
def prepare_arxiv_titles(given: GivenFiles, to: DatasetWriter) -> None:
    """The sample was drawn once; which papers it has, and in which split, is stored as a number from 0 to 3 a paper."""
    files = {"/".join(file.file.name.split("/")[-3:]).partition(".tsv")[0] + ".tsv": file for file in given.all}
    head, _, sample = _stored().partition(b"\n")
    known: set[str] = set()
    for name, expected in parse_json(head)["files"]:
        if name not in files:
            given.all[0].refuse(f"{name} is missing beside this file")
        file = files[name]
        for line, row in file.rows(*_COLUMNS, header=("", "abstract")):
            abstract, paper, categories, title = row[1], row[3], row[5], row[12]
            if paper in known or len(abstract) < _SHORTEST:
                continue
            if len(known) == len(sample):
                file.refuse("this file has papers that those of 2020 do not have", line)
            split = _SPLITS[sample[len(known)]]
            known.add(paper)
            if split:
                key = paper.replace("/", "_")
                to.document(key, " ".join(abstract.split()), metadata={"cat": categories})
                to.query(f"t-{key}", " ".join(title.split()))
                to.judgement(split, f"t-{key}", key)
        if file.records != expected:
            file.refuse(
                f"expected {expected:,} papers, not {file.records:,}: the sample was drawn from another version"
            )


def _stored() -> bytes:
    """The files in their order with their numbers of papers, as a line of JSON, and then a byte for each paper."""
    packed = resources.files("vizsla.datasets").joinpath("data/arxiv-titles.xz").read_bytes()
    return lzma.decompress(packed)
