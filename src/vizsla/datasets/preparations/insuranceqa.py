"""InsuranceQA, version 2: questions about insurance and the answers of experts, with the published splits."""

from __future__ import annotations

from vizsla.datasets.preparing import DatasetWriter, GivenFile, GivenFiles, PublishedFile, preparation

_SOURCE = "https://github.com/shuzi/insuranceQA/raw/master/V2"
_PARTS = {"train": "train", "valid": "dev", "test": "test"}


def _published(name: str, records: int | None = None) -> PublishedFile:
    return PublishedFile(name, f"{_SOURCE}/{name}.gz" if name != "vocabulary" else f"{_SOURCE}/{name}", records)


VOCABULARY = _published("vocabulary")
ANSWERS = _published("InsuranceQA.label2answer.raw.encoded", 27_413)
_QUESTIONS = {
    part: _published(f"InsuranceQA.question.anslabel.raw.100.pool.solr.{part}.encoded", records)
    for part, records in (("train", 12_889), ("valid", 2_000), ("test", 2_000))
}


@preparation(
    "insuranceqa-v2",
    VOCABULARY,
    ANSWERS,
    *_QUESTIONS.values(),
    help="27,413 answers and the published train, valid and test questions",
    results={
        "corpus.jsonl": "9778634e4aca64266533beed58cfa57928174c5b3782f5aa6fdc543563e068db",
        "queries.jsonl": "666a8772999809cbf6ee510b3e7467de70f8ece9d1e3276f3db41d74a460e59d",
        "qrels/train.tsv": "35d8dee0b8ff7d8d6f4597a66055b7e329e8d85c78ee23165b9fdbc6b509ebcf",
        "qrels/dev.tsv": "54a9eccfc5b4144d81a2b02aae043c7c03336fa38b2e20975f3488d3cde38936",
        "qrels/test.tsv": "84aceca8a6b2c04ea98236adb3b2a3fc9b2dd4f77245691dbf5249cc2179ccc9",
    },
)
def prepare_insuranceqa(given: GivenFiles, to: DatasetWriter) -> None:
    """Texts are sequences of numbered words, which the vocabulary spells out as their authors wrote them."""
    vocabulary = given.one(VOCABULARY.name)
    words = {number: word for _, (number, word) in vocabulary.columns("number", "word")}
    answers = given.one(ANSWERS.name)
    known = set()
    for line, (label, text) in answers.columns("label", "answer"):
        known.add(label)
        to.document(label, _spelled(text, words, answers, line))
    for part, split in _PARTS.items():
        file = given.one(_QUESTIONS[part].name)
        rows = file.columns("domain", "question", "labels of answers", "labels of other answers")
        for number, (line, (domain, question, labels, _)) in enumerate(rows):
            query = f"{split}-{number}"
            to.query(query, _spelled(question, words, file, line), domain=domain)
            for label in labels.split():
                if label not in known:
                    file.refuse(f"there is no answer {label!r} in {answers.name}", line)
                to.judgement(split, query, label)


def _spelled(text: str, words: dict[str, str], file: GivenFile, line: int) -> str:
    """A text whose numbered words, such as `idx_17`, are replaced by those of the vocabulary; others stay."""
    found = []
    for word in text.split():
        if word.startswith("idx_") and word not in words:
            file.refuse(f"the vocabulary has no word {word[:40]!r}", line)
        found.append(words.get(word, word))
    return " ".join(found)
