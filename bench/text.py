"""Text analysis, in terms a second, beside the plain loops one would write without it.

    python bench/text.py corpus.jsonl [--documents 100000] [--repeats 3]

Every contender reads the same texts (title and text, already in memory), alternating, in one process. The plain
loop for English is a regular expression, a set of stop words and PyStemmer on every word; it cuts words more
crudely than Lucene's rules, so its terms are not quite ours. For word pieces it is the tokenizers library on
whole texts. What is compared is the time to term numbers, counts not included.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable
from itertools import islice

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # one thread each

import Stemmer

from vizsla.datasets import read_documents
from vizsla.text import Analyzer
from vizsla.text.filters import stop_words

BATCH = 2000


def ours(name: str) -> Callable[[list[str]], int]:
    analyzer = Analyzer.parse(name)

    def run(texts: list[str]) -> int:
        lexicon = analyzer.lexicon()
        return sum(lexicon.encode(texts[a : a + BATCH])[0].size for a in range(0, len(texts), BATCH))

    return run


def plain_english(texts: list[str]) -> int:
    words, stop, stemmer = re.compile(r"\w+"), stop_words("lucene-english"), Stemmer.Stemmer("porter", 0)
    numbers: dict[str, int] = {}
    count = 0
    for text in texts:
        terms = stemmer.stemWords([w for w in words.findall(text.lower()) if w not in stop])
        count += len([numbers.setdefault(t, len(numbers)) for t in terms])
    return count


def plain_pieces(texts: list[str]) -> int:
    tokenizer = Analyzer.parse("wordpiece").tokenizer._tokenizer  # type: ignore[attr-defined]
    batches = (texts[a : a + BATCH] for a in range(0, len(texts), BATCH))
    return sum(len(e.ids) for b in batches for e in tokenizer.encode_batch_fast(b, add_special_tokens=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    documents = islice(read_documents(options.file), options.documents)
    texts = [f"{d.get('title') or ''}\n{d['text']}" for d in documents]
    print(f"{len(texts):,} documents, {sum(map(len, texts)) / 1e6:.1f} M characters, one thread")
    contenders = [
        ("lucene-english", ours("lucene-english"), "regex + PyStemmer", plain_english),
        ("wordpiece", ours("wordpiece"), "tokenizers, whole texts", plain_pieces),
    ]
    for name, run, peer_name, peer in contenders:
        run(texts[:10])  # compile
        best: dict[str, float] = {}
        for repeat in range(options.repeats):
            pair = [(name, run), (peer_name, peer)]
            for label, contender in pair if repeat % 2 == 0 else reversed(pair):
                started = time.perf_counter()
                count = contender(texts)
                rate = count / (time.perf_counter() - started)
                best[label] = max(best.get(label, 0.0), rate)
        for label, rate in best.items():
            print(f"{label:24} {rate / 1e6:6.2f} M terms/s")
        print(f"{'ratio':24} {best[name] / best[peer_name]:6.2f}")


if __name__ == "__main__":
    main()
