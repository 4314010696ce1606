"""How many positives a Lambda needs: SPAR's figure 2, validation MRR by the number of positives for a query.

    python bench/positives.py CORPUS --questions FILE [--positives 1,2,5,10,20] [--steps 2000] [--passages N]

Queries are drawn and ranked by the teacher once; each run then takes the first 1, 2, 5, ... documents as positives.
Everything else is as in the recipe `lambda`, which --set changes. The MRR is that of dev questions: the teacher's first
document in a pool with one of its last five.
"""

from __future__ import annotations

import argparse
import copy
from dataclasses import replace
from itertools import islice
from pathlib import Path

from vizsla.datasets import read_documents
from vizsla.models import parse_model
from vizsla.training import TokenCorpus, Trainer, load_training_recipe
from vizsla.training.kinds.spar import imitation_data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="documents, one JSON object a line")
    parser.add_argument("--questions", required=True, help="file of dev questions")
    parser.add_argument("--positives", default="1,2,5,10,20", help="numbers of positives")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--passages", type=int, help="read only the first N documents")
    parser.add_argument("--set", action="append", default=[], help="another setting, as section.key=value")
    told = parser.parse_args()
    counts = [int(part) for part in told.positives.split(",")]
    changes = [f"data.top_positives={max(counts)}", f"data.dev_questions={told.questions}", *told.set]
    kind = load_training_recipe("lambda").with_changes([f"training.steps={told.steps}", *changes]).make()
    settings, base = kind.settings, kind.load_base()
    documents = list(islice(read_documents(told.corpus), told.passages))
    ranked, dev = imitation_data(documents, parse_model(settings.data.teacher), base.analyzer, settings.data)
    lengths = {name: getattr(settings.data, name) for name in ("max_query_length", "max_document_length")}
    drawn = {name: getattr(settings.data, name) for name in ("negatives_per_query", "positive_decay")}
    ranked = replace(ranked, **lengths, **drawn)
    start = copy.deepcopy(base.network.state_dict())
    print(f"{len(documents):,} documents, {len(ranked.queries):,} queries; positives, step, MRR")
    for count in counts:
        base.network.load_state_dict(start)
        best = TokenCorpus.of([ranked.positives[i][:count] for i in range(len(ranked.queries))])
        pairs = replace(ranked, positives=best)
        trainer = Trainer(
            base.network, pairs, settings.training, objective=kind.objective(), dev=[replace(d, **lengths) for d in dev]
        )
        for line in trainer.run().log:
            figures = [value for name, value in line.items() if name.endswith("MRR")]
            if figures:
                print(f"{count:>3} {line['step']:>6} {sum(figures) / len(figures):.4f}", flush=True)


if __name__ == "__main__":
    main()
