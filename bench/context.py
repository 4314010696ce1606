"""How often a budget of tokens from long documents holds the answer: windows, breadcrumbs, document scores, both.

    python bench/context.py articles DATA [--articles 4000] [--model vizsla-sparse] [--questions 600]
    python bench/context.py guidance DATA [--publisher WHO] [--model hybrid]
    python bench/context.py manuals FOLDER [--questions 600] [--kept questions.json]

`articles`: DATA is a data set of Wikipedia passages in BEIR's layout with questions and answers
(`vizsla datasets prepare wiki-openqa`). The passages of an article are joined; the collection is the articles of the
questions, and others up to a number. A text holds the answer as DPR matches it.

`guidance`: DATA is FeedbackQA. Eight sections of a publisher are a document, with their titles as headings. The budget
holds the answer if it has half of the section that people chose.

`manuals`: FOLDER holds PDFs (bench/documents.py says which). Half of the passages of 60 to 120 words, no more than the
number of questions, get a question by the shipped generator; the budget holds the answer if it has half of the passage.
The questions are made from texts without their headings, so this says nothing about headings in questions. `--kept`
names a file that the questions are written to, or read from, if it is there: to make them takes minutes.

Every second question is for choosing (dev), the others are for judging, unless the data are divided. A search ranks
passages of 200 words; up to `--passages` of a document are taken. Questions of people come from the dev and test sets.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vizsla import Document, Index, Splitter, count_tokens, parse_model, read_documents
from vizsla.evaluation import has_answer
from vizsla.models import Model
from vizsla.numbers import number_text
from vizsla.runs import Hits

BUDGETS = 500, 1000, 2000
WEIGHTS = 0.1, 0.2, 0.4
DEPTH = 30
SIZE = 200


@dataclass(frozen=True)
class Question:
    text: str
    is_answered: Callable[[Hits], bool]
    is_dev: bool


@dataclass(frozen=True)
class Task:
    documents: list[Document]
    questions: list[Question]


def holds(answers: Sequence[str]) -> Callable[[Hits], bool]:
    return lambda hits: any(has_answer(hit["text"], answers) for hit in hits)


def covers(doc_id: str, start: int, end: int) -> Callable[[Hits], bool]:
    """Whether hits have half of a part of a document."""

    def check(hits: Hits) -> bool:
        places = [hit.place for hit in hits if hit.id == doc_id]
        return sum(max(0, min(p.end, end) - max(p.start, start)) for p in places) * 2 >= end - start

    return check


def sampled(questions: list[Question], count: int) -> list[Question]:
    """So many questions for choosing, and so many for judging."""
    rng = random.Random(0)
    groups = [[q for q in questions if q.is_dev is wanted] for wanted in (True, False)]
    return [q for group in groups for q in rng.sample(group, min(count, len(group)))]


def articles(data: Path, count: int, questions: int) -> Task:
    rng = random.Random(0)
    texts = {q["_id"]: q for q in map(json.loads, (data / "queries.jsonl").open())}
    chosen: list[Question] = []
    wanted: dict[str, None] = {}
    for split in ("dev", "test"):
        rows = [line.split("\t") for line in (data / "qrels" / f"{split}.tsv").read_text().splitlines()[1:]]
        first = {query: passage for query, passage, _ in reversed(rows)}
        for query in rng.sample(sorted(first), min(questions, len(first))):
            wanted[first[query].rpartition("-")[0]] = None
            asked = texts[query]
            chosen.append(Question(asked["text"], holds(asked["metadata"]["answers"]), split == "dev"))
    passages: dict[str, list[dict[str, str]]] = {}
    for line in (data / "corpus.jsonl").open():
        passage = json.loads(line)
        passages.setdefault(passage["_id"].rpartition("-")[0], []).append(passage)
    others = [article for article in passages if article not in wanted and len(passages[article]) >= 5]
    kept = [*wanted, *rng.sample(others, max(0, min(count - len(wanted), len(others))))]
    documents = [
        Document(a, {"title": passages[a][0]["title"], "text": " ".join(p["text"] for p in passages[a])}) for a in kept
    ]
    return Task(documents, chosen)


def guidance(data: Path, questions: int, only: str | None) -> Task:
    sections: dict[str, list[Document]] = {}
    for section in read_documents(data / "corpus.jsonl"):
        if only is not None and not section.id.startswith(f"{only}-"):
            continue
        sections.setdefault(section.id.rpartition("-")[0], []).append(section)
    documents, places = [], {}
    for publisher, every in sections.items():
        for first in range(0, len(every), 8):
            name, text, headings = f"{publisher} {first // 8 + 1}", "", []
            for section in every[first : first + 8]:
                title = " ".join(str(section.get("title") or "").split())
                if title:
                    headings.append([len(text), 1, title])
                    text += f"{title}\n\n"
                places[section.id] = name, len(text), len(text) + len(section["text"])
                text += section["text"] + "\n\n"
            content = {"title": publisher, "text": text, "outline": {"headings": headings}}
            documents.append(Document(name, content))
    asked = {q["_id"]: q["text"] for q in map(json.loads, (data / "queries.jsonl").open())}
    chosen = []
    for split in ("dev", "test"):
        for line in (data / "qrels" / f"{split}.tsv").read_text().splitlines()[1:]:
            query, section_id, _ = line.split("\t")
            if section_id not in places:
                continue
            chosen.append(Question(asked[query], covers(*places[section_id]), split == "dev"))
    return Task(documents, sampled(chosen, questions))


def manuals(folder: Path, questions: int, kept: Path | None) -> Task:
    from vizsla.datasets import Source

    read = (d for path in sorted(folder.rglob("*.pdf")) for d in Source.find(path).documents())
    documents = {d.id: d for d in read}
    if kept is not None and kept.is_file():
        asked = json.loads(kept.read_text())
    else:
        asked = generated_questions(documents.values(), questions)
        if kept is not None:
            kept.write_text(json.dumps(asked, indent=0))
    chosen = [Question(text, covers(*place), i % 2 == 0) for i, (text, *place) in enumerate(asked)]
    return Task(list(documents.values()), chosen)


def generated_questions(documents: Iterable[Document], count: int) -> list[tuple[str, str, int, int]]:
    """Questions, with the document and the place that each was made from."""
    from vizsla.models.generator import Sampling, open_generator

    rng = random.Random(0)
    spans = [(d, *span) for d in documents for span in Splitter(120).spans(d["text"])[::2]]
    spans = [s for s in spans if len(s[0]["text"][s[1] : s[2]].split()) >= 60]
    spans = rng.sample(spans, min(2 * count, len(spans)))
    made = open_generator().generate([d["text"][a:b] for d, a, b in spans], Sampling(texts=1))
    return [(texts[0], d.id, a, b) for texts, (d, a, b) in zip(made, spans, strict=True)]


def parts_of(name: str, documents: Sequence[Document]) -> Callable[[str, str], str]:
    """The expression of a model that reads some fields, its namespaces with a tag; `hybrid` is fitted."""
    if name == "bm25":
        return lambda fields, tag: f"bm25(fields={fields}, namespace=w{tag})"
    if name == "vizsla-sparse":
        return lambda fields, tag: (
            f"bm25(fields={fields}, namespace=w{tag}) + 1.3 * vizsla-splade(fields={fields}, namespace=n{tag})"
        )
    sample = [p.content for d in documents[:100] for p in Splitter(SIZE).passages(d)][:400]
    fitted = parse_model("hybrid").fit(sample)
    (one, words), (other, _) = fitted.parts
    norm, weight = words.query_norm, number_text(other / one)
    print(f"hybrid: bm25(query_norm={norm}) + {weight} * bge-small")
    return lambda fields, tag: (
        f"bm25(fields={fields}, namespace=w{tag}, query_norm={number_text(norm)}) + "
        f"{weight} * bge-small(fields={fields}, namespace=n{tag})"
    )


def recall(index: Index, model: Model, questions: Iterable[Question], passages: int) -> list[list[bool]]:
    """For each question whether each budget holds its answer."""
    asked, count = list(questions), cache(count_tokens)
    found = index.search_many([q.text for q in asked], DEPTH, passages=passages, model=model)
    return [[q.is_answered(hits.within(b, count)) for b in BUDGETS] for q, hits in zip(asked, found, strict=True)]


def measure(task: Task, name: str, most: Sequence[int], without: Sequence[str]) -> None:
    parts = parts_of(name, task.documents)
    norm = parts("text", "").partition("query_norm=")[2].partition(")")[0] or "0"
    whole = f"bm25-document(query_norm={norm})"
    plain, headed = parts("text", "p"), parts("title/text", "h")
    every = {
        "windows": [(plain, Splitter(SIZE, at="words"))],
        "passages": [(plain, Splitter(SIZE))],
        "with titles": [(headed, Splitter(SIZE, headings=False))],
        "with breadcrumbs": [(headed, Splitter(SIZE))],
        "with document scores": [(f"{plain} + {w} * {whole}", Splitter(SIZE)) for w in WEIGHTS],
        "with both": [(f"{headed} + {w} * {whole}", Splitter(SIZE)) for w in WEIGHTS],
    }
    has_headings = any("outline" in document.content for document in task.documents)
    left_out = without if has_headings else ("with titles", *without)  # a breadcrumb is a title
    every = {way: ways for way, ways in every.items() if way not in left_out}
    dev, test = ([q for q in task.questions if q.is_dev is wanted] for wanted in (True, False))
    print(f"{name}: {len(task.documents)} documents, {len(dev)} questions for choosing, {len(test)} for judging")
    opened: dict[Splitter, Index] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as closing:
        for splitter in dict.fromkeys(splitter for ways in every.values() for _, splitter in ways):
            start = time.perf_counter()
            read = [plain] if splitter.at == "words" else [headed] if not splitter.headings else [plain, headed, whole]
            index = Index.create(Path(folder) / str(len(opened)), " + ".join(read), passages=splitter)
            opened[splitter] = closing.enter_context(index)
            index.add(task.documents)
            index.commit()
            print(f"  {splitter}: {index.info()['passages']:,}, {time.perf_counter() - start:.0f} s", flush=True)
        for passages in most:
            for way, (expression, splitter) in ((way, one) for way, ways in every.items() for one in ways):
                model = parse_model(expression)
                weight = next((f", {w}" for w, c in model.parts if c.reads_documents), "")
                found = [shares(recall(opened[splitter], model, group, passages)) for group in (dev, test)]
                shown = f"{passages:3} of a document | {way + weight:26}"
                print(f"  {shown} | dev {found[0]} | test {found[1]}", flush=True)


def shares(rows: Sequence[Sequence[bool]]) -> str:
    """The share of questions that each budget answers, in percent."""
    return " ".join(f"{100 * sum(column) / len(rows):5.1f}" for column in zip(*rows, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("articles", "guidance", "manuals"))
    parser.add_argument("data", type=Path)
    parser.add_argument("--articles", type=int, default=4000, help="how many articles there are")
    parser.add_argument("--questions", type=int, default=600, help="how many for choosing, and how many for judging")
    parser.add_argument("--model", choices=("bm25", "vizsla-sparse", "hybrid"), default="bm25")
    parser.add_argument("--passages", type=int, nargs="+", default=[1, 100], help="how many of a document, at most")
    parser.add_argument("--publisher", help="of guidance: Australia, CDC, UK or WHO alone")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="of manuals: where the questions are kept")
    parser.add_argument("--without", nargs="+", default=[], metavar="ROW", help="rows to leave out, as in 'windows'")
    given = parser.parse_args()
    if given.task == "articles":
        task = articles(given.data, given.articles, given.questions)
    elif given.task == "guidance":
        task = guidance(given.data, given.questions, given.publisher)
    else:
        task = manuals(given.data, given.questions, given.kept)
    measure(task, given.model, given.passages, given.without)


if __name__ == "__main__":
    main()
