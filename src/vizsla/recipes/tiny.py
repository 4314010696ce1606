"""A paper's table on a small generated collection with tiny networks: every step of the way, in seconds.

The figures say nothing about a system; they show that data, training, search, evaluation and page work together. What
is made here depends on names and seeds alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from vizsla.datasets import known_datasets
from vizsla.errors import VizslaError
from vizsla.models import MODELS
from vizsla.models.dense import PRESETS
from vizsla.recipes.paper_tables import PaperTable, TrainedPart
from vizsla.recipes.table_data import training_inputs
from vizsla.spec.notation import Call, parse_sum
from vizsla.text import Analyzer

DOCUMENTS, QUERIES, NEGATIVES = 80, 24, 4
_NAMES = ("Aron", "Brena", "Calvo", "Dorin", "Elmar", "Fenja", "Gorvan", "Hilda", "Ivo", "Jorun", "Kalle", "Lenka")
_PLACES = ("Arden", "Belmont", "Corvin", "Dunmore", "Eastvale", "Farrow", "Glenholm", "Harrow")
_THINGS = ("bridge", "museum", "theatre", "railway", "harbour", "library", "garden", "tower", "market", "school")
_VERBS = ("designed", "founded", "restored", "painted", "described", "measured")
_FILLER = "the old town on the river has a long history and many visitors come to see its stone houses".split()  # noqa: SIM905
_HEADS = ("unicoil", "unicoil-noexp", "coil", "sparta", "deepct", "deepct-beir")
"""Models of published networks with heads of their own; a tiny SPLADE stands for them."""
_TERMS_OF_A_TEXT = 200
_SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_SHRUNK = {
    "training.steps": "2", "training.epochs": "0", "training.batch_size": "8", "training.eval_steps": "2",
    "training.save_steps": "2", "training.warmup_steps": "1", "training.tokens_per_chunk": "4000",
    "masked_lm.steps": "2", "masked_lm.batch_size": "8", "masked_lm.warmup_steps": "1",
    "data.depth": "20", "data.negatives_depth": "20", "data.negatives_per_query": "1", "vocabulary.min_df": "1",
    "data.max_query_length": "24", "data.max_document_length": "48", "data.window": "48",
}  # fmt: skip
"""Settings of training recipes and their values in a tiny run, where a recipe has them."""


@dataclass(frozen=True)
class Tiny:
    """Data and networks in a folder, in place of those that a paper has."""

    folder: Path

    @property
    def data(self) -> Path:
        """The folder of data sets."""
        return self.folder / "data"

    def network(self) -> Path:
        """A masked language model of two layers with random weights, which stands for every published one."""
        return write_network(self.folder / "network")

    def make(self, table: PaperTable) -> None:
        """Write the data sets of a table and of its training."""
        for name in sorted({*table.data, *table.training_data}):
            if not (self.data / name).is_dir():
                write_dataset(self.data / name, name)

    def expression(self, text: str) -> str:
        """The expression with the tiny network for each published checkpoint and for MiniLM.

        >>> Tiny(Path("t")).expression("bm25-wp + 2 * bm26")
        'bm25-wp + 2 * bm26'
        """
        terms = parse_sum(text, MODELS.what, MODELS.example)
        return " + ".join(("" if w is None else f"{w:g} * ") + self._replaced(call) for w, call in terms)

    def _replaced(self, call: Call) -> str:
        if call.name in PRESETS or call.name == "minilm":
            return f"dense(checkpoint={self.network()}, namespace={call.name})"
        options = dict(call.options)
        if call.name in _HEADS and "network" not in options:
            return f"splade(checkpoint={self.network()})"
        if options.get("checkpoint", "").startswith("hf:"):
            options["checkpoint"] = str(self.network())
        for name in ("dense", "lexical"):
            if call.name == "spar" and name in options:
                options[name] = self.expression(options[name])
        written = [*call.unnamed, *(f"{name}={value}" for name, value in options.items())]
        return f"{call.name}({', '.join(written)})" if written else call.name

    def reranker(self, name: str) -> str:  # noqa: ARG002 (one stands for all)
        """The tiny cross-encoder."""
        return str(write_network(self.folder / "reranker", pairs=True))

    def train(self, part: TrainedPart, data: Path, folder: Path) -> None:
        """Train a part by its own recipe, with the tiny network and two steps."""
        from vizsla.training import load_training_recipe, train
        from vizsla.training.settings import keys_of

        recipe = load_training_recipe(part.recipe)
        known = {key.name: key.value for key in keys_of(recipe.settings)}
        stages = ["training", "data", "vocabulary", *(["masked_lm"] if known.get("masked_lm.steps") else [])]
        changes = part.changes(str(folder.parent))
        if "network.base_model" in known and not any(c.startswith("network.base_model=") for c in changes):
            changes.append(f"network.base_model={self.network()}")
        changes += [
            f"{name}={value}" for name, value in _SHRUNK.items() if name in known and name.split(".")[0] in stages
        ]
        train(recipe.with_changes(changes), folder, training_inputs(part, data))


def made_documents(name: str) -> Iterator[tuple[str, str, str, str]]:
    """Documents of a collection: id, title, text, and the person that it is about.

    >>> [next(made_documents("nq")) == next(made_documents("nq")), len(list(made_documents("nq")))]
    [True, 80]
    """
    rng = Random(f"documents of {name}")
    for number in range(DOCUMENTS):
        person = f"{rng.choice(_NAMES)} {rng.choice(_PLACES)}son"
        thing, place, verb = rng.choice(_THINGS), rng.choice(_PLACES), rng.choice(_VERBS)
        filler = " ".join(rng.choices(_FILLER, k=24))
        text = (
            f"{person} {verb} the {thing} of {place} in {1700 + number}. {filler.capitalize()}. It stands in {place}."
        )
        yield str(number + 1), f"The {thing} of {place}", text, person


def write_dataset(folder: Path, name: str) -> None:
    """A data set in BEIR's layout: documents, queries with answers, judgements of three splits, hard negatives."""
    rng = Random(f"queries of {name}")
    documents = list(made_documents(name))
    parts = known_datasets()[name].parts if name in known_datasets() else ()
    for part in parts:
        write_dataset(folder / part, part)
    if parts:
        return
    beside = folder.with_name(f".{folder.name}")
    (beside / "qrels").mkdir(parents=True, exist_ok=True)
    rows = [{"_id": i, "title": t, "text": x, "queries": [f"who made {t.lower()}"]} for i, t, x, _ in documents]
    _write_lines(beside / "corpus.jsonl", rows)
    queries, negatives = [], []
    for split in ("train", "dev", "test"):
        lines = ["query-id\tcorpus-id\tscore"]
        for number in range(QUERIES):
            doc_id, title, _, person = rng.choice(documents)
            query = f"{name}-{split}-{number}"
            queries.append({
                "_id": query, "text": f"who is behind {title.lower()} there",
                "metadata": {"answers": [person], "split": split, "relation": f"P{number % 3}"},
            })  # fmt: skip
            lines.append(f"{query}\t{doc_id}\t1")
            if split == "train":
                others = [d for d, *_ in rng.sample(documents, NEGATIVES + 1) if d != doc_id][:NEGATIVES]
                negatives.append({"query-id": query, "pos": [doc_id], "neg": others})
        (beside / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    _write_lines(beside / "queries.jsonl", queries)
    _write_lines(beside / "train_hard_negatives.jsonl", negatives)
    beside.rename(folder)


def _write_lines(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def write_network(folder: Path, *, pairs: bool = False) -> Path:
    """A BERT with random weights and BERT's word pieces: a masked language model, or a cross-encoder for `pairs`."""
    if folder.is_dir():
        return folder
    try:
        import torch
        import transformers
    except ImportError as e:
        raise VizslaError(f"tiny networks need more packages ({e}); install vizsla[train]") from None
    pieces = Analyzer.parse("wordpiece").tokenizer.vocabulary  # type: ignore[attr-defined]
    torch.manual_seed(0)
    library: Any = transformers
    library.utils.logging.disable_progress_bar()
    config = library.BertConfig(**_SMALL, vocab_size=len(pieces), max_position_embeddings=260, num_labels=1)
    network = library.BertForSequenceClassification(config) if pairs else library.BertForMaskedLM(config)
    if not pairs:
        _make_sparse(network.eval())
    beside = folder.with_name(f".{folder.name}")
    network.save_pretrained(beside)
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    library.BertTokenizerFast(vocab=vocabulary, do_lower_case=True).save_pretrained(beside)
    return beside.rename(folder)


def _make_sparse(network: Any) -> None:
    """Lower all logits until a text has some hundred terms; with random weights alone it has half the vocabulary."""
    import torch

    with torch.no_grad():
        logits = network(torch.randint(1000, 30000, (4, 32))).logits
        network.get_output_embeddings().bias -= logits.amax(1).quantile(1 - _TERMS_OF_A_TEXT / logits.shape[-1])
