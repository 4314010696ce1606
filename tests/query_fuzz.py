"""Random lives of a collection against the definition of the query language, and garbage instead of queries.

    python tests/query_fuzz.py --comparisons 100000 --seed 1

Each result list, explanation or count of values that a search gives is compared with what the definition gives, see
query_oracle.py. Beside each life as many texts of garbage as queries are asked: each is answered, or refused in one
sentence and a mark. Prints how far it is, and in the end what was compared how often. A difference is printed with the
seed of its life, `--life SEED` lives it again; the command then exits with 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from queries import WORDS
from query_oracle import Oracle
from vizsla import Index
from vizsla.runs.query_language import QuerySyntaxError

STEPS, QUERIES = 10, 4  # of a life, and of each step and reader
MOST_WRONG = 10  # lives, after which it stops
PIECES = [*WORDS, *"+-!()[]{}^\"~*?:\\/&|.,;'<>=", "AND", "OR", "NOT", "&&", "||", "title:", "text:", "lang:", "no:"]
PIECES += [" ", " ", " ", "\t", "\n", "\x00", "\ud83d", "\U0001f415", "\u72ac", "\u0301", "~1", "~2", "^2", "^1e9"]
PIECES += ["9" * 30]


def garbage(rng: random.Random) -> str:
    """A text of pieces of queries, or of any characters."""
    if rng.random() < 0.3:
        return "".join(chr(rng.randrange(0x3000)) for _ in range(rng.randint(1, 30)))
    return "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 25)))


def survives(index: Index, text: str) -> str:
    """Search, highlight and explain; gives what came of it. Other errors than mistakes in the query go through."""
    if not text.strip():
        return "empty"
    mistake = None
    try:
        hits = index.search(text, syntax="lucene")
        highlighter = index.highlighter(text, syntax="lucene")
    except QuerySyntaxError as e:
        mistake = e
    if mistake is not None:
        assert str(mistake).count("\n") == 2, repr(str(mistake))
        assert 0 <= mistake.position <= len(text)
        return "refused"
    for hit in hits[:2]:
        highlighter.snippet(hit.document)
        assert abs(index.explain(text, hit.id, syntax="lucene").score - hit.score) < 1e-4 * max(1.0, abs(hit.score))
    return "found" if hits else "nothing found"


def live(seed: int, compared: Counter[str], garbled: Counter[str]) -> None:
    """A life, and garbage at its end."""
    with tempfile.TemporaryDirectory() as folder:
        oracle = Oracle(Path(folder) / "i", seed, compared)
        try:
            oracle.live(STEPS, QUERIES)
            rng = random.Random(seed)
            garbled.update(survives(oracle.index, garbage(rng)) for _ in range(STEPS * QUERIES))
        finally:
            oracle.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--life", type=int, help="the seed of one life, to live it alone")
    given = parser.parse_args()
    compared: Counter[str] = Counter()
    garbled: Counter[str] = Counter()
    seeds = random.Random(given.seed)
    start = shown = time.monotonic()
    lives = wrong = 0
    while wrong < MOST_WRONG and compared.total() < given.comparisons and not (given.life is not None and lives):
        seed = seeds.randrange(1 << 32) if given.life is None else given.life
        try:
            live(seed, compared, garbled)
        except Exception as e:
            wrong += 1
            print(f"--life {seed}: {e}", flush=True)
            if not isinstance(e, AssertionError):
                traceback.print_exc()
        lives += 1
        if time.monotonic() - shown > 20:
            shown = time.monotonic()
            print(f"{compared.total():>9,} comparisons, {lives:,} lives, {shown - start:,.0f} s", flush=True)
    for what, count in sorted(compared.items()):
        print(f"{count:>9,}  {what}")
    for what, count in sorted(garbled.items()):
        print(f"{count:>9,}  garbage: {what}")
    took = f"{time.monotonic() - start:,.0f} s, seed {given.seed}"
    print(f"{compared.total():,} comparisons in {lives:,} lives, {wrong} of them wrong; {took}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
