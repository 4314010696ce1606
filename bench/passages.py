"""Ten million passages out of a few hundred thousand, with the statistics that so many real ones would have.

    python bench/passages.py make corpus.jsonl OUT.jsonl --documents 10000000 [--growth 0.58]
    python bench/passages.py check corpus.jsonl [--growth 0.58]    # a quarter grown to the whole, and the whole

The real passages come first. After them comes one copy of all of them after the other, and each copy is made so:

- **Spans.** WINDOW neighbouring passages, of one article or of the next ones, are cut in three where the copy says.
  A new passage takes the beginning of one, the middle of the second and the end of the third, all of about one length.
  Each word of the collection occurs once in each copy, so document frequencies and lengths are those of real ones.
- **New words.** Real collections have new words at any size: V(n) grows like n ** growth (Heaps' law). In the copy
  number r a word with document frequency d is new to the collection with the probability (r + 1) ** (growth - d): that
  is how often all d of its documents are among the last n of (r + 1) n documents, where the shares of words with each
  frequency do not depend on the size. Such words get an ending that belongs to the copy, so a new word is as frequent
  in its copy as the old one was. A name of one article becomes another name; a word of many articles stays.

`check` does this to the first quarter of a collection and compares the result with the real collection of that size.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from vizsla.datasets import read_documents
from vizsla.text import Analyzer
from vizsla.text.lexicon import Lexicon

WINDOW = 24
GROWTH = 0.58  # of Heaps' law, as bench/scale.py found it in Wikipedia passages
_ENDINGS = "bcdfghjklmnprstvwxz"
_BLOCK = 20_000


class Words:
    """The texts of passages as numbers of words between spaces, and what happens to each word in a copy."""

    def __init__(self, texts: Iterator[str]) -> None:
        known: dict[str, int] = {}
        rows, sizes = [], []
        while batch := list(islice(texts, _BLOCK)):
            split = [text.split() for text in batch]
            rows.append(np.array([known.setdefault(word, len(known)) for row in split for word in row], np.int32))
            sizes.append(np.array([len(row) for row in split], np.int64))
        self.numbers = np.concatenate(rows)
        self.starts = np.append(0, np.cumsum(np.concatenate(sizes)))
        self.forms = list(known)
        self._count_parts()

    def __len__(self) -> int:
        return len(self.starts) - 1

    def _count_parts(self) -> None:
        """Find the runs of letters and digits in words, and in how many passages each is, whatever its case."""
        known: dict[str, int] = {}
        self._pieces = [re.split(r"(\w+)", form) for form in self.forms]
        parts = [[known.setdefault(piece.lower(), len(known)) for piece in pieces[1::2]] for pieces in self._pieces]
        self._parts = parts
        starts = np.append(0, np.cumsum([len(p) for p in parts]))
        flat = np.array([part for some in parts for part in some], np.int64)
        self.frequencies = np.zeros(len(known), np.int64)
        for a in range(0, len(self), 50_000):
            z = min(a + 50_000, len(self))
            numbers = self.numbers[self.starts[a] : self.starts[z]]
            owners = np.repeat(np.arange(z - a), np.diff(self.starts[a : z + 1]))
            counts = starts[numbers + 1] - starts[numbers]
            offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            found = flat[np.repeat(starts[numbers], counts) + offsets]
            pairs = np.unique(np.repeat(owners, counts) * len(known) + found)
            self.frequencies += np.bincount(pairs % len(known), minlength=len(known))
        self._can_change = np.array([max(part, default="") < "\u2e80" for part in known])

    def forms_in(self, copy: int, growth: float) -> list[str]:
        """The words of a copy: some have an ending that makes them new."""
        rng = np.random.default_rng([7, copy])
        chance = (copy + 1.0) ** (growth - np.minimum(self.frequencies, 60))
        renamed = ((rng.random(len(chance)) < chance) & self._can_change).tolist()
        ending = "k" + _ENDINGS[copy // len(_ENDINGS)] + _ENDINGS[copy % len(_ENDINGS)] + "x"
        forms = list(self.forms)
        for i, parts in enumerate(self._parts):
            if any(renamed[part] for part in parts):
                pieces = list(self._pieces[i])
                for j, part in enumerate(parts):
                    if renamed[part]:
                        pieces[2 * j + 1] += ending
                forms[i] = "".join(pieces)
        return forms

    def copy(self, copy: int, growth: float) -> Iterator[str]:
        """The passages of a copy, in the order of those they are made of."""
        forms = self.forms_in(copy, growth)
        rng = np.random.default_rng([8, copy])
        for a in range(0, len(self), WINDOW):
            z = min(a + WINDOW, len(self))
            starts = self.starts[a : z + 1]
            sizes = np.diff(starts)
            cuts = np.sort(rng.random(2))
            order = np.argsort(sizes, kind="stable")
            bounds = starts[:-1, None] + np.column_stack([0 * sizes, np.outer(sizes, cuts).astype(np.int64), sizes])
            first, second = bounds[order], bounds[np.roll(order, 1)]
            third = bounds[np.roll(order, 2)]
            made = [""] * (z - a)
            for place, one, two, three in zip(
                order.tolist(), first.tolist(), second.tolist(), third.tolist(), strict=True
            ):
                words = [
                    *self.numbers[one[0] : one[1]].tolist(),
                    *self.numbers[two[1] : two[2]].tolist(),
                    *self.numbers[three[2] : three[3]].tolist(),
                ]
                made[place] = " ".join([forms[word] for word in words])
            yield from made


def grown(words: Words, count: int, growth: float) -> Iterator[str]:
    """So many passages, real ones first."""
    copies = range(-(-count // len(words)))
    texts = (text for copy in copies for text in (words.copy(copy, growth) if copy else real(words)))
    return islice(texts, count)


def real(words: Words) -> Iterator[str]:
    for a, z in zip(words.starts[:-1].tolist(), words.starts[1:].tolist(), strict=True):
        yield " ".join([words.forms[word] for word in words.numbers[a:z].tolist()])


def texts_of(corpus: str) -> Iterator[str]:
    """Title and text of each document, as BM25 reads them."""
    return (f"{d.content.get('title', '')} {d.content['text']}" for d in read_documents(corpus))


def make(o: argparse.Namespace) -> None:
    """Write passages as JSON lines."""
    words = Words(texts_of(o.corpus))
    print(f"{len(words):,} passages, {len(words.numbers):,} words", file=sys.stderr)
    with o.out.open("w") as file:
        for i, text in enumerate(grown(words, o.documents, o.growth)):
            file.write(f'{{"_id": "{i}", "text": {json.dumps(text, ensure_ascii=False)}}}\n')
            if (i + 1) % 1_000_000 == 0:
                print(f"{i + 1:,} passages", file=sys.stderr, flush=True)


class Counts:
    """What an analyzer finds in a stream of texts: the growth of the vocabulary, lengths, document frequencies."""

    def __init__(self, texts: Iterator[str], marks: list[int]) -> None:
        lexicon = Lexicon(Analyzer.parse("lucene-english"))
        self.vocabulary: dict[int, int] = {}
        frequencies, lengths, count = np.zeros(0, np.int64), [], 0
        while batch := list(islice(texts, min(_BLOCK, next((m for m in marks if m > count), count + _BLOCK) - count))):
            terms, ends = lexicon.encode(batch)
            sizes = np.diff(np.append(0, ends))
            lengths.append(sizes)
            owners = np.repeat(np.arange(len(batch)), sizes)
            highest = max(int(terms.max(initial=0)) + 1, len(frequencies))
            pairs = np.unique(owners * highest + terms.astype(np.int64))
            frequencies = np.pad(frequencies, (0, highest - len(frequencies)))
            frequencies += np.bincount(pairs % highest, minlength=highest)
            count += len(batch)
            if count in marks:
                self.vocabulary[count] = int(np.count_nonzero(frequencies))
        self.lengths = np.concatenate(lengths)
        self.frequencies = np.sort(frequencies[frequencies > 0])[::-1]

    def rows(self) -> dict[str, str]:
        """Figures by name, for a table."""
        f, n = self.frequencies, len(self.lengths)
        shares = {f"terms in {a} to {z} documents" if a < z else f"terms in {a} documents":
                  np.mean((f >= a) & (f <= z)) for a, z in ((1, 1), (2, 2), (3, 5), (6, 20), (21, 100))}  # fmt: skip
        skew = {f"postings of the {top:,} most frequent terms": f[:top].sum() / f.sum() for top in (100, 1000, 10_000)}
        quantiles = "/".join(f"{q:.0f}" for q in np.quantile(self.lengths, (0.05, 0.25, 0.5, 0.75, 0.95)))
        return {
            **{f"terms at {size:,}": f"{v:,}" for size, v in self.vocabulary.items()},
            "postings a document": f"{f.sum() / n:.1f}",
            "length: 5/25/50/75/95%": quantiles,
            **{name: f"{100 * share:.1f}%" for name, share in {**shares, **skew}.items()},
        }


def check(o: argparse.Namespace) -> None:
    """Grow a quarter to the whole and print it beside the real whole."""
    texts = list(islice(texts_of(o.corpus), o.documents))
    quarter = len(texts) // 4
    marks = [quarter, 2 * quarter, 3 * quarter, 4 * quarter]
    found = Counts(iter(texts), marks)
    made = Counts(grown(Words(iter(texts[:quarter])), 4 * quarter, o.growth), marks)
    theirs = made.rows()
    sizes, terms = np.log(list(found.vocabulary)), np.log(list(found.vocabulary.values()))
    print(f"growth of the real vocabulary: n ** {np.polyfit(sizes, terms, 1)[0]:.3f}")
    print("| | real | made of the first quarter |\n|---|---|---|")
    for name, value in found.rows().items():
        print(f"| {name} | {value} | {theirs[name]} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["make", "check"])
    parser.add_argument("corpus")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--documents", type=int)
    parser.add_argument("--growth", type=float, default=GROWTH, help="the exponent of Heaps' law")
    o = parser.parse_args()
    if o.step == "make":
        if o.out is None or not o.documents:
            parser.error("make needs a file to write and --documents")
        make(o)
    else:
        check(o)


if __name__ == "__main__":
    main()
