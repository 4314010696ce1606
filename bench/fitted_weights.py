"""How weights that are fitted to documents compare with fixed ones, on small sets of many kinds.

    python bench/fitted_weights.py make OUT DATASET SPLIT [--documents 1200] [--queries 300] [--join 4] [--own-words]
    python bench/fitted_weights.py measure OUT... [--parts bm25 minilm] [--weights 5 10 15 20 30 40]

`make` writes a sample of a data set in BEIR's layout, with the documents that its queries need. `--join 4` joins four
consecutive documents to a long one. `--own-words` replaces the queries: each is two fifths of the words of a passage.
These are the sets where words decide. For choosing, use dev or train queries only.

`measure` indexes each set with `auto(PARTS)` and searches it with each part alone, with the last part under fixed
weights beside the others, and with the fitted weights. It prints nDCG@10, its mean, and the worst difference to the
best part of a set.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path

from vizsla.datasets import BeirDataset, Document
from vizsla.evaluation import evaluate_retriever
from vizsla.index import Index
from vizsla.models import parse_model
from vizsla.runs import Qrels

SPLIT = "dev"
OWN_WORDS, PASSAGE = 0.4, (10, 30)
"""The share of a passage's words that a query of `--own-words` keeps, and how many words the passage has."""


def make(out: Path, dataset: BeirDataset, split: str, options: argparse.Namespace) -> None:
    """Write a sample of a data set as a data set with one split."""
    rng = random.Random(0)
    qrels, documents = dataset.qrels(split), list(dataset.documents())
    known = {document.id for document in documents}
    judged = [query for query in qrels.judgements if qrels.relevant(query).keys() & known]
    chosen = rng.sample(judged, min(options.queries, len(judged)))
    needed = {document for query in chosen for document in qrels.relevant(query) if document in known}
    others = sorted(known - needed)
    kept = needed | set(rng.sample(others, max(0, min(len(others), options.documents - len(needed)))))
    contents = [(document.id, dict(document.content)) for document in documents if document.id in kept]
    texts = dataset.queries()
    queries = {query: texts[query] for query in chosen}
    judgements = {query: {d: g for d, g in qrels.judgements[query].items() if d in kept} for query in chosen}
    if options.join > 1:
        groups = [contents[i : i + options.join] for i in range(0, len(contents), options.join)]
        place = {name: group[0][0] for group in groups for name, _ in group}
        contents = [
            (group[0][0], {"title": group[0][1].get("title", ""), "text": "\n".join(str(c["text"]) for _, c in group)})
            for group in groups
        ]
        judgements = {query: {place[d]: g for d, g in judged.items() if g > 0} for query, judged in judgements.items()}
    if options.own_words:
        queries, judgements = own_words(contents, options.queries, rng)
    (out / "qrels").mkdir(parents=True)
    rows = [{"_id": name, "title": content.get("title", ""), "text": content["text"]} for name, content in contents]
    asked = [{"_id": query, "text": text} for query, text in queries.items()]
    for name, records in (("corpus.jsonl", rows), ("queries.jsonl", asked)):
        (out / name).write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    Qrels(judgements).write(out / "qrels" / f"{SPLIT}.tsv")
    print(f"{out}: {len(rows)} documents, {len(queries)} queries")


def own_words(
    contents: list[tuple[str, dict[str, object]]], count: int, rng: random.Random
) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Queries of some words of a passage, each for the document it is from."""
    queries, judgements = {}, {}
    for name, content in rng.sample(contents, min(count, len(contents))):
        words = str(content["text"]).split()
        size = min(rng.randint(*PASSAGE), len(words))
        start = rng.randint(0, len(words) - size)
        if kept := [word for word in words[start : start + size] if rng.random() < OWN_WORDS]:
            queries[f"own-{name}"], judgements[f"own-{name}"] = " ".join(kept), {name: 1}
    return queries, judgements


def measure(folder: Path, parts: list[str], weights: list[float]) -> dict[str, float]:
    """nDCG@10 of each way to search a set, in hundredths."""
    dataset = BeirDataset.open(folder)
    rest = " + ".join(parts[:-1])
    ways = {name: name for name in parts} | {f"{rest} + {w:g} * {parts[-1]}": "" for w in weights}
    with tempfile.TemporaryDirectory() as place, Index.create(place, f"auto({', '.join(parts)})", store=False) as index:
        index.add(Document(d.id, d.content) for d in dataset.documents())
        index.commit()
        print(f"{folder.name}: " + ", ".join(f"{w:g} * {c.name}" for w, c in index.model.parts), flush=True)
        norm = getattr(index.model.parts[0].component, "query_norm", 0.0)
        print(f"  query_norm {norm:g}")
        found = {
            way: evaluate_retriever(index.with_model(parse_model(way)), dataset, SPLIT, "nDCG@10", 100) for way in ways
        }
        found[index.model.name] = evaluate_retriever(index, dataset, SPLIT, "nDCG@10", 100)
    return {way: 100 * evaluated.evaluation.measures["nDCG@10"] for way, evaluated in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("out", type=Path)
    making.add_argument("dataset", type=BeirDataset.open)
    making.add_argument("split")
    making.add_argument("--documents", type=int, default=1200)
    making.add_argument("--queries", type=int, default=300)
    making.add_argument("--join", type=int, default=1)
    making.add_argument("--own-words", action="store_true")
    measuring = commands.add_parser("measure")
    measuring.add_argument("folders", type=Path, nargs="+")
    measuring.add_argument("--parts", nargs="+", default=["bm25", "minilm"])
    measuring.add_argument("--weights", type=float, nargs="*", default=[5, 10, 15, 20, 30, 40])
    options = parser.parse_args()
    if options.command == "make":
        make(options.out, options.dataset, options.split, options)
        return
    found = {folder.name: measure(folder, options.parts, options.weights) for folder in options.folders}
    print(f"\n| | {' | '.join(found)} | mean | worst to the best part |\n|{'---|' * (len(found) + 3)}")
    for way in next(iter(found.values())):
        cells = [figures[way] for figures in found.values()]
        worst = min(figures[way] - max(figures[part] for part in options.parts) for figures in found.values())
        print(f"| `{way}` | {' | '.join(f'{c:.1f}' for c in cells)} | {sum(cells) / len(cells):.2f} | {worst:+.1f} |")


if __name__ == "__main__":
    main()
