"""SQuAD's development set as retrieval: its paragraphs are the documents, and whole articles are held out."""

from __future__ import annotations

from vizsla.datasets.preparing import DatasetWriter, GivenFiles, PublishedFile, preparation

SQUAD = PublishedFile(
    "dev-v1.1.json",
    "https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v1.1.json",
    checksums=(
        "sha256:95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
        "md5:3e85deb501d4e538b6bc56f786231552",
    ),
)

_DEV = {"Black_Death", "Construction", "Force", "Private_school"}
_TEST = {
    "Ctenophora", "Economic_inequality", "French_and_Indian_War", "Genghis_Khan", "Harvard_University", "Teacher",
    "United_Methodist_Church", "University_of_Chicago", "Victoria_(Australia)", "Victoria_and_Albert_Museum",
}  # fmt: skip


@preparation(
    "squad-dev-split",
    SQUAD,
    help="2,067 paragraphs, and the questions of 34 articles to train, 4 dev, 10 test",
    results={
        "corpus.jsonl": "6c4e8e101f0a4a321b1cd28b39a6ac6d2eeff0464b1f072ec67d5ffe598b89f4",
        "queries.jsonl": "559ce8e7550b1698057efb887b8dcc691c7c71372a9742a172ef4ad237939252",
        "qrels/train.tsv": "56655729c5394f102da65321a50f6b6c10860db4e8f5cb43bbcf09d1fb11ebb1",
        "qrels/dev.tsv": "ef2fad710f8f7521fab82ad81a4b5d54de40bebb5c67f457d57e20d5ee11ed9f",
        "qrels/test.tsv": "a9316c8c158053c4b49db67bd5647bd4ec48c33b4d09af67ea3a3985574ef6ac",
    },
)
def prepare_squad_dev_split(given: GivenFiles, to: DatasetWriter) -> None:
    """Articles in the order of their titles; a document's id is the article's title and the paragraph's number."""
    file = given.one(SQUAD.name)
    content = file.json_object()
    articles = sorted(
        file.objects(content.get("data"), "data"), key=lambda article: file.text(article.get("title"), "title", 1)
    )
    for article in articles:
        name = article["title"]
        split = "dev" if name in _DEV else "test" if name in _TEST else "train"
        for number, paragraph in enumerate(file.objects(article.get("paragraphs"), "paragraphs")):
            document = f"{name}-{number}"
            to.document(document, file.text(paragraph.get("context"), "context", 1).strip(), name.replace("_", " "))
            for question in file.objects(paragraph.get("qas"), "qas"):
                key = file.text(question.get("id"), "id", 1)
                answers = {
                    file.text(a.get("text"), "text", 1) for a in file.objects(question.get("answers"), "answers")
                }
                to.query(key, file.text(question.get("question"), "question", 1).strip(), answers=sorted(answers))
                to.judgement(split, key, document)
