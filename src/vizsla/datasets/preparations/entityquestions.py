"""EntityQuestions: questions of 24 relations with answers and without judged passages, to measure answer accuracy."""

from __future__ import annotations

from vizsla.datasets.preparing import DatasetWriter, GivenFiles, PublishedFile, preparation

_SPLITS = {"train": 176_560, "dev": 22_068, "test": 22_075}
_RELATIONS = [
    PublishedFile(
        f"{split}/P*.{split}.json",
        "https://nlp.cs.princeton.edu/projects/entity-questions/dataset.zip",
        count,
        required=False,
        several=True,
    )
    for split, count in _SPLITS.items()
]
_RELATION_COUNT = 24


@preparation("entityquestions", *_RELATIONS, help="questions with answers, each with its relation")
def prepare_entityquestions(given: GivenFiles, to: DatasetWriter) -> None:
    """There are 24 files a split, one a relation, such as P17.test.json; a file is a list of questions."""
    for split, published in zip(_SPLITS, _RELATIONS, strict=True):
        files = given.every(published.name)
        if files and len(files) != _RELATION_COUNT:
            to.remark(f"there are {len(files)} relations of {split}, and {_RELATION_COUNT} are published")
        for file in files:
            relation = file.name.partition(".")[0]
            for number, (line, record) in enumerate(file.json_records()):
                question = file.text(record.get("question"), "question", line)
                answers = file.texts(record.get("answers"), "answers", line)
                to.query(f"{relation}-{split}-{number}", question, answers=answers, split=split, relation=relation)
