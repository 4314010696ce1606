"""Open-domain questions over a part of the English Wikipedia of 2015: what the Wikipedia figures were measured on."""

from __future__ import annotations

from collections.abc import Iterator

from vizsla.datasets.preparations.dpr import answered_questions
from vizsla.datasets.preparing import DatasetWriter, GivenFile, GivenFiles, PublishedFile, preparation

ARTICLES = PublishedFile(
    "wiki_*",
    "an English dump of 2015, extracted by github.com/attardi/wikiextractor with --json: pages with ids up to 60633",
    several=True,
)
_DPR = "https://dl.fbaipublicfiles.com/dpr/data/retriever/{}"
_WEBQUESTIONS = "https://raw.githubusercontent.com/brmson/dataset-factoid-webquestions/master/main/{}"
_EFFICIENT_QA = (
    "https://raw.githubusercontent.com/google-research-datasets/natural-questions/master/nq_open/"
    "NQ-open.efficientqa.dev.1.1.jsonl"
)
QUESTIONS = {
    "dpr-nq-dev": PublishedFile("nq-dev.qa.csv", _DPR.format("nq-dev.qa.csv"), 8_757),
    "dpr-trivia-dev": PublishedFile("trivia-dev.qa.csv", _DPR.format("trivia-dev.qa.csv.gz"), 8_837),
    "webquestions-trainmodel": PublishedFile("trainmodel.json", _WEBQUESTIONS.format("trainmodel.json"), 2_834),
    "webquestions-val": PublishedFile("val.json", _WEBQUESTIONS.format("val.json"), 755),
    "efficientqa-dev": PublishedFile("NQ-open.efficientqa.dev.1.1.jsonl", _EFFICIENT_QA, 1_800),
    "dpr-nq-test": PublishedFile("nq-test.qa.csv", _DPR.format("nq-test.qa.csv"), 3_610),
    "dpr-trivia-test": PublishedFile("trivia-test.qa.csv", _DPR.format("trivia-test.qa.csv.gz"), 11_313),
    "dpr-wq-test": PublishedFile("webquestions-test.qa.csv", _DPR.format("webquestions-test.qa.csv"), 2_032),
    "dpr-squad-test": PublishedFile("squad1-test.qa.csv", _DPR.format("squad1-test.qa.csv"), 10_570),
}
"""The question files by the beginning of their ids, in the order in which they are written."""

_WORDS = 100
_FEWEST = 20
"""The words of a passage; a last one with fewer than 20 is left out."""


@preparation(
    "wiki-openqa-ds",
    ARTICLES,
    *QUESTIONS.values(),
    help="651,935 passages of 27,914 articles; 50,508 questions with answers, without judgements",
    results={"corpus.jsonl": "447144aefe7c6c3f379a14c611d31d900ba64a394db6af4009171749504945e7"},
)
def prepare_wiki_openqa(given: GivenFiles, to: DatasetWriter) -> None:
    """Answer accuracies need no judgements. Articles are cut into passages of 100 words, in the order of their ids."""
    for file in given.every(ARTICLES.name):
        for line, article in file.json_lines():
            words = file.text(article.get("text"), "text", line).split()
            key, title = str(article.get("id") or ""), file.text(article.get("title"), "title", line)
            if not key:
                file.refuse("this article has no id", line)
            for number, start in enumerate(range(0, len(words), _WORDS)):
                passage = words[start : start + _WORDS]
                if len(passage) >= _FEWEST:
                    to.document(f"{key}-{number}", " ".join(passage), title)
    for prefix, published in QUESTIONS.items():
        for number, (question, answers) in enumerate(_questions(given.one(published.name))):
            to.query(f"{prefix}-{number}", question, answers=answers)
    to.remark("there are no judgements: passages that hold an answer among BM25's first ones were used for training")


def _questions(file: GivenFile) -> Iterator[tuple[str, list[str]]]:
    if file.published.name.endswith(".csv"):
        yield from answered_questions(file)
        return
    for line, record in file.json_records():
        answers = file.texts(record.get("answers", record.get("answer")), "answers", line)
        yield file.text(record.get("qText", record.get("question")), "question", line), answers
