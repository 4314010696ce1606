"""GAR beside BM25: the share of questions that find an answer, with generated texts appended to the questions.

    python bench/gar.py INDEX QUESTIONS --texts answers.tsv sentences.tsv titles.tsv [--field generated] [--limit N]
    python bench/gar.py INDEX QUESTIONS --generators gar-answer gar-sentence gar-title

QUESTIONS: JSON lines with texts and answers. `--texts`: for each kind of text a file, either lines of an id, a tab and
the question with its text, in the order of the questions, as GAR-T5's are supplied; or JSON lines with the texts as a
list in a field, and the question as `text` or its id as `_id`. `--generators`: folders of generators that write the
texts now. Each kind is searched by itself, and all of them are fused by reciprocal ranks.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from vizsla.datasets import read_questions
from vizsla.evaluation import answer_accuracy
from vizsla.index import Index
from vizsla.models import BM25, GAR
from vizsla.runs import Fusion

DEPTHS = (5, 20, 100)
FUSION = "rrf(k=60)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--texts", nargs="+", default=[])
    parser.add_argument("--generators", nargs="+", default=[])
    parser.add_argument("--field", default="generated")
    parser.add_argument("--limit", type=int, default=None)
    options = parser.parse_args()
    texts, answers, _ = read_questions(options.questions)
    asked = dict(list(texts.items())[: options.limit])
    with tempfile.TemporaryDirectory() as folder, Index.open(options.index) as index:
        systems = {"bm25": index}
        for name in options.texts:
            expander = given(Path(name), options.questions, texts, options.field, Path(folder))
            systems[Path(name).name] = index.with_model(BM25().expand(expander))
        for name in options.generators:
            systems[Path(name).name] = index.with_model(BM25().expand(GAR(generator=name)))
        runs, seconds = {}, {}
        for name, system in systems.items():
            began = time.perf_counter()
            runs[name] = system.run(asked, max(DEPTHS))
            seconds[name] = time.perf_counter() - began
        generated = [run for name, run in runs.items() if name != "bm25"]
        if len(generated) > 1:
            runs[f"{FUSION} of {len(generated)}"] = Fusion.parse(FUSION).fuse(generated, None, max(DEPTHS))
        print(f"{len(asked):,} questions of {options.questions.name}\n")
        heads = " ".join(f"{name:>8}" for name in (*(f"Acc@{k}" for k in DEPTHS), "seconds"))
        print(f"{'system':<50} {heads}")
        for name, run in runs.items():
            figures = answer_accuracy(index, asked, answers, DEPTHS, run=run)
            cells = " ".join(f"{figures[f'Acc@{k}']:8.4f}" for k in DEPTHS)
            print(f"{name[-50:]:<50} {cells} {seconds.get(name, 0):8.1f}", flush=True)


def given(file: Path, questions: Path, texts: dict[str, str], field: str, folder: Path) -> GAR:
    """An expander with the texts of a file; texts by question id get their questions."""
    if ".jsonl" not in file.name:
        return GAR(file=str(file), questions=str(questions))
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]
    joined = folder / file.name
    with joined.open("w", encoding="utf-8") as written:
        for row in rows:
            if "text" in row or str(row["_id"]) in texts:
                question = row.get("text", texts.get(str(row.get("_id"))))
                written.write(json.dumps({"text": question, field: row[field]}) + "\n")
    return GAR(file=str(joined), field=field)


if __name__ == "__main__":
    main()
