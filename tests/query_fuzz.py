"""Random queries and garbage in the query language: each is answered, or refused in one sentence and a mark.

    python tests/query_fuzz.py --times 10000

Random queries must be answered and give what the definition gives. Prints what it saw; exits with 1 if something was
wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from queries import WORDS, Definition, query_text, random_documents, random_query
from vizsla import Index
from vizsla.runs.query_language import QuerySyntaxError

PIECES = [*WORDS, *"+-!()[]{}^\"~*?:\\/&|.,;'<>=", "AND", "OR", "NOT", "&&", "||", "title:", "text:", "lang:", "no:"]
PIECES += [
    " ",
    " ",
    " ",
    "\t",
    "\n",
    "\x00",
    "\ud83d",
    "\U0001f415",
    "\u72ac",
    "\u0301",
    "~1",
    "~2",
    "^2",
    "^1e9",
    "9" * 30,
]


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    documents = random_documents(rng, 60)
    definition = Definition(documents)
    seen: Counter[str] = Counter()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, Index.create(Path(folder) / "i", positions=True) as index:
        index.add(documents)
        index.commit()
        for _ in range(given.times):
            query = random_query(rng)
            text = query_text(query)
            seen[f"random query: {survives(index, text)}"] += 1
            if {hit.id for hit in index.search(text, 100, syntax="lucene")} != definition.found(query).keys():
                print(f"other documents than by the definition: {text}")
                wrong += 1
            seen[f"garbage: {survives(index, garbage(rng))}"] += 1
    for what, count in sorted(seen.items()):
        print(f"{count:>7,}  {what}")
    wrong += seen["random query: refused"]
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
