"""One training recipe under several settings: figures of the dev sets side by side.

    python bench/ablation.py RECIPE FOLDER --variant NAME [SETTING=VALUE ...] [--variant ...]
        [--corpus SOURCE ...] [--dataset DIR ...] [--dev DIR ...] [--set SETTING=VALUE ...]

    python bench/ablation.py bm26-fresh runs --corpus wiki.jsonl --dev nfcorpus --dev feedbackqa \\
        --variant ours --variant "one window" data.same_window=true --variant "one way" loss.symmetric=false

All variants have the recipe's settings, those of --set, and their own; seeds are the same. Each is trained into its own
folder under FOLDER. A variant that is there already is not trained again, so a stopped run goes on with the next one.
Prints a table in Markdown with the figures of each variant's best step.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from vizsla.datasets import BeirDataset, read_documents
from vizsla.training import TrainingInputs, load_training_recipe, train

FIGURES = "figures.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--variant", action="append", nargs="+", required=True, metavar=("NAME", "SETTING=VALUE"))
    for name in ("--corpus", "--dataset", "--dev", "--set"):
        parser.add_argument(name, action="append", default=[])
    options = parser.parse_args()
    found = {}
    for name, *changes in options.variant:
        folder = options.folder / re.sub(r"\W+", "-", name)
        if not (folder / FIGURES).is_file():
            recipe = load_training_recipe(options.recipe).with_changes([*options.set, *changes])
            documents = (document for source in options.corpus for document in read_documents(source))
            judged, dev = ([BeirDataset.open(path) for path in paths] for paths in (options.dataset, options.dev))
            inputs = TrainingInputs(documents if options.corpus else None, judged, dev)
            result = train(recipe, folder, inputs).result
            (folder / FIGURES).write_text(json.dumps({"step": result.best_step, **result.figures}))
        found[name] = json.loads((folder / FIGURES).read_text())
        print(name, *changes, found[name], flush=True)
    columns = list(next(iter(found.values())))
    print(f"\n| {options.recipe} | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for name, figures in found.items():
        cells = [f"{figures[column]:.4f}" if column != "step" else str(figures[column]) for column in columns]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
