"""Languages: BM25 before and now, a mixed collection beside separate ones, and the speed of analysis.

    python bench/languages.py --data data default [SET ...]   # nDCG@10 with English analysis and with the language's
    python bench/languages.py --data data mixed [SET ...]     # one index of all sets beside one index for each
    python bench/languages.py --data data speed [SET ...]     # analysis in turns, processor time beside English
    python bench/languages.py --data data size [SET ...]      # index size and building, beside English analysis

"mixed" also has idf with the number of documents of the collection in the place of the language's.

A set is a folder in BEIR's layout whose name ends in the code of its language (xquad-de), or NAME=CODE. Speed is that
of a lexicon over about as many characters of each language: when all forms are new, and once they are known.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from vizsla import BM25, BeirDataset, Document, Index, evaluate
from vizsla.evaluation import evaluate_model
from vizsla.evaluation.retrieval import retrieve
from vizsla.models import LanguageBM25, Part, Sum, detect_model, multilingual
from vizsla.text import Analyzer
from vizsla.text.languages import LANGUAGES

SETS = (
    "xquad-ar", "xquad-de", "xquad-es", "xquad-hi", "xquad-ru", "xquad-vi", "xquad-zh", "cmrc-dev=zh",
    "jaquad-dev=ja", "iapp-th=th", "scifact=en", "nfcorpus=en",
)  # fmt: skip
MEASURE = "nDCG@10"
SPEED_CHARACTERS = 150_000


def opened(data: str, names: Sequence[str]) -> Iterator[tuple[str, str, BeirDataset]]:
    """The name, the language and the data set of each."""
    for name in names:
        folder, _, code = name.partition("=")
        yield folder, code or folder.rpartition("-")[2], BeirDataset.open(Path(data) / folder)


def default(data: str, names: Sequence[str]) -> None:
    for folder, code, dataset in opened(data, names):
        model = detect_model([document.content for document in islice(dataset.documents(), 100)]).model
        values = [evaluate_model(m, dataset, measures=[MEASURE]).evaluation.measures[MEASURE] for m in (BM25(), model)]
        print(f"{folder:14} {code}  English {values[0]:.4f}  now {values[1]:.4f}  {model.name}", flush=True)


_FIELDS = [field.name for field in fields(LanguageBM25)]


@dataclass(frozen=True)
class OfTheCollection(LanguageBM25):
    """BM25 of a language with the number of documents of the whole collection."""

    whole: int = 0

    def term_factors(self, frequencies: np.ndarray, documents: int) -> np.ndarray:  # noqa: ARG002
        return super().term_factors(frequencies, self.whole)

    @property
    def index_signature(self) -> tuple[Any, ...]:
        return LanguageBM25(**{n: getattr(self, n) for n in _FIELDS}).index_signature


def mixed(data: str, names: Sequence[str]) -> None:
    """Every document is in the mixed index; its language is detected, not told."""
    found = list(opened(data, names))
    differences: dict[str, list[float]] = {"language": [], "collection": []}
    codes = list(dict.fromkeys(code for _, code, _ in found))
    with (
        tempfile.TemporaryDirectory() as folder,
        Index.create(Path(folder) / "mixed", multilingual(codes)) as index,
    ):
        for name, _, dataset in found:
            index.add(_renamed(name, dataset))
        index.commit()
        parts = [part.component for part in index.model.parts]
        own_fields = [{n: getattr(part, n) for n in _FIELDS} for part in parts]
        of_all = Sum(tuple(Part(1.0, OfTheCollection(**own, whole=len(index))) for own in own_fields))
        for name, code, dataset in found:
            alone = evaluate_model(BM25(analyzer=LANGUAGES[code].analyzer), dataset, measures=[MEASURE])
            qrels = dataset.qrels("test")
            judged = {q: {f"{name}:{d}": g for d, g in of.items()} for q, of in qrels.judgements.items()}
            one = alone.evaluation.measures[MEASURE]
            line = f"{name:14} {code}  alone {one:.4f}"
            for whose, searched in (("language", index), ("collection", index.with_model(of_all))):
                together = retrieve(searched, dataset.queries_of(qrels), 100)
                value = evaluate(together, replace(qrels, judgements=judged), [MEASURE]).measures[MEASURE]
                differences[whose].append(value - one)
                line += f"  mixed, N of the {whose} {value:.4f} ({value - one:+.4f})"
            print(line, flush=True)
    for whose, values in differences.items():
        print(f"N of the {whose}: {np.mean(values):+.4f} on average, {min(values):+.4f} at worst")


def _renamed(name: str, dataset: BeirDataset) -> Iterator[Document]:
    for document in dataset.documents():
        yield replace(document, id=f"{name}:{document.id}")


def speed(data: str, names: Sequence[str]) -> None:
    texts = {code: _texts(dataset) for _, code, dataset in opened(data, names)}
    analyzers = {code: Analyzer.parse(LANGUAGES[code].analyzer) for code in texts}
    best: dict[tuple[str, str], float] = {}
    terms: dict[str, float] = {}  # different ones a character
    for _ in range(5):
        for code, own in texts.items():
            lexicon = analyzers[code].lexicon()
            for state in ("new", "known"):
                started = time.process_time()
                lexicon.encode(own)
                spent = (time.process_time() - started) / sum(map(len, own)) * 1e9
                best[code, state] = min(spent, best.get((code, state), spent))
            terms[code] = len(lexicon.terms) / sum(map(len, own))
    for code in texts:
        new, known = best[code, "new"], best[code, "known"]
        a_term = new / best["en", "new"] * terms["en"] / terms[code]
        beside = (
            f"{new / best['en', 'new']:.2f} / {known / best['en', 'known']:.2f} of English's, {a_term:.2f} a new term"
        )
        print(f"{code}  {analyzers[code]!s:32.32}  {new:7.1f} / {known:6.1f} ns a character, new / known; {beside}")


def size(data: str, names: Sequence[str]) -> None:
    """Bytes of the index for a character, and processor time to build it, as the language has them and as English."""
    for folder, code, dataset in opened(data, names):
        documents = list(dataset.documents())
        characters = sum(len(document["text"]) for document in documents)
        figures = []
        for model in (BM25(), BM25(analyzer=LANGUAGES[code].analyzer)):
            spent = []
            for _ in range(3):
                with tempfile.TemporaryDirectory() as place, Index.create(Path(place) / "i", model) as index:
                    started = time.process_time()
                    index.add(documents)
                    index.commit()
                    spent.append(time.process_time() - started)
                    stored = index.info()["index_bytes"]
            figures.append(f"{stored / 1e6:.2f} MB, {min(spent):.2f} s")
        print(f"{folder:14} {code} {characters:,} characters: English {figures[0]}; own {figures[1]}", flush=True)


def _texts(dataset: BeirDataset) -> list[str]:
    """About as many characters for each language, again from the front where there are fewer."""
    found, size = [], 0
    for document in cycle(list(islice(dataset.documents(), 240))):
        found.append(document["text"])
        size += len(document["text"])
        if size >= SPEED_CHARACTERS:
            return found
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("default", "mixed", "speed", "size"))
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--data", required=True)
    options = parser.parse_args()
    {"default": default, "mixed": mixed, "speed": speed, "size": size}[options.what](options.data, options.sets)


if __name__ == "__main__":
    main()
