"""FeedbackQA: questions about public health in 2020, and the sections of official pages that answer them."""

from __future__ import annotations

from vizsla.datasets.preparing import DatasetWriter, GivenFiles, PublishedFile, preparation

_SOURCE = "https://github.com/McGill-NLP/feedbackqa/archive/refs/heads/main.zip"
_DOMAINS = ("Australia", "CDC", "UK", "WHO")
_PARTS = {"train": "train", "valid": "dev", "test": "test"}


def _published(domain: str, part: str) -> PublishedFile:
    return PublishedFile(f"feedbackQA_data/{domain}/{part}.json", _SOURCE)


@preparation(
    "feedbackqa",
    *(_published(domain, part) for domain in _DOMAINS for part in _PARTS),
    help="2,364 sections of official pages and the published train, valid and test questions",
    results={
        "corpus.jsonl": "53a2450ff6a85d4e0b06720210b66e417a824591e2eac0d8fbbf5f72d6fb41e4",
        "queries.jsonl": "21c00292bf7568d66b8718ef61fd684a9faa217a9712a6303d2a865eee0906b6",
        "qrels/train.tsv": "68d1dd7de612d543afa30af387ea9ff365827412cb93d776facbf5d1098fa5b2",
        "qrels/dev.tsv": "a68aba5744bcb9d237a0df65846f29b873d7c422f420d81a68f964c2ccbbfe63",
        "qrels/test.tsv": "a4ff2c94de53c0b695286d90b44be4105a60000b94fd759c3a4767012b22969b",
    },
)
def prepare_feedbackqa(given: GivenFiles, to: DatasetWriter) -> None:
    """Passages of four sources as their train files have them: their headings are the title."""
    for domain in _DOMAINS:
        known: set[str] = set()
        for part, split in _PARTS.items():
            file = given.one(f"feedbackQA_data/{domain}/{part}.json")
            content = file.json_object()
            if part == "train":
                for passage in file.objects(content.get("passages"), "passages"):
                    document, section = f"{domain}-{passage.get('passage_id')}", passage.get("reference")
                    if not isinstance(section, dict) or not isinstance(section.get("section_headers"), list):
                        file.refuse(f"expected a section with headings in the passage {document}", 1)
                    known.add(document)
                    text = file.text(section.get("section_content"), "section_content", 1)
                    to.document(document, text, " / ".join(section["section_headers"]))
            for question in file.objects(content.get("examples"), "examples"):
                query, document = f"{domain}-{part}-{question.get('id')}", f"{domain}-{question.get('passage_id')}"
                if document not in known:
                    file.refuse(f"the question {query} is about the passage {document}, which is not there", 1)
                to.query(query, file.text(question.get("question"), "question", 1))
                to.judgement(split, query, document)
