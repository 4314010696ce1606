"""Wikipedia in passages of 100 words, as DPR cut it: the corpus of open-domain question answering."""

from __future__ import annotations

from vizsla.datasets.preparing import DatasetWriter, GivenFiles, PublishedFile, preparation

PASSAGES = PublishedFile(
    "psgs_w100.tsv",
    "https://dl.fbaipublicfiles.com/dpr/wikipedia_split/psgs_w100.tsv.gz",
    records=21_015_324,
    checksums=("md5:612fe66e0b6b41ee28f806140226c563",),  # of the .gz, in the catalogue of ir_datasets
)


@preparation("wiki-dpr", PASSAGES, help="the corpus: 21,015,324 passages of Wikipedia of December 2018")
def prepare_wiki_dpr(given: GivenFiles, to: DatasetWriter) -> None:
    """Each row is an id, a text and a title."""
    passages = given.one(PASSAGES.name)
    for line, (number, text, title) in passages.rows("id", "text", "title", header=("id", "text", "title")):
        if not number.strip():
            passages.refuse("this passage has no id", line)
        to.document(number, text, title)
