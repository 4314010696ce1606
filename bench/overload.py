"""Expensive requests beside ordinary clients: how much of their rate the clients keep, and when a server ends.

    python bench/overload.py CORPUS [--documents 20000] [--seconds 10] [--clients 8]

CORPUS: JSON lines with a `text`. An index of the first documents is served by one worker. The clients search for words
of the documents, one request after another: first alone, then while expensive requests of each kind are sent again and
again. Each kind gets a line: the clients' rate beside that of the turn before it without expensive requests, and what
came back to the expensive requests, with the longest time. At the end SIGTERM comes while all kinds are being answered.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlsplit

from vizsla.index import Index

EXPENSIVE: dict[str, dict[str, Any]] = {
    "phrase of 1,000 words": {"query": '"' + "the " * 1000 + '"~1000', "syntax": "lucene"},
    "phrase of 250 words": {"query": '"' + "history " * 250 + '"~1000', "syntax": "lucene"},
    "990 conditions": {"query": "history", "filter": " or ".join(f"year = {n} and part < {n}" for n in range(495))},
    "1,000 queries, k 1,000": {"queries": [f"history city {n}" for n in range(1000)], "k": 1000},
    "1,000 fuzzy words": {"query": " ".join(f"h{n}story~2" for n in range(300)), "syntax": "lucene"},
}


def build(corpus: Path, folder: Path, documents: int) -> list[str]:
    """An index of the first documents of a corpus; gives a query for each of some documents."""
    queries = []

    def read() -> Iterator[dict[str, Any]]:
        with corpus.open(encoding="utf-8") as lines:
            for n, line in enumerate(itertools.islice(lines, documents)):
                text = json.loads(line)["text"]
                words = [word for word in text.split() if word.isalpha()]
                if len(words) > 10 and n % 10 == 0:
                    queries.append(" ".join(random.Random(n).sample(words, 3)))
                yield {"id": str(n), "text": text, "year": 1500 + n % 500, "part": n % 7}

    with Index.create(folder) as index:
        index.add(read())
        index.commit()
    return queries


class Clients:
    """Clients that search one request after another, and expensive ones beside them."""

    def __init__(self, url: str, queries: list[str], count: int) -> None:
        self._netloc = urlsplit(url).netloc
        self._queries = queries
        self._count = count

    def rate(self, seconds: float) -> float:
        """How many answers a second all clients get together."""
        end = time.monotonic() + seconds
        answers = [0] * self._count

        def search(client: int) -> None:
            connection = http.client.HTTPConnection(self._netloc, timeout=60)
            for query in itertools.islice(itertools.cycle(self._queries), client * 17, None):
                if time.monotonic() > end:
                    break
                connection.request("GET", f"/v1/i/search?query={quote_plus(query)}")
                response = connection.getresponse()
                response.read()
                answers[client] += response.status == 200
            connection.close()

        threads = [threading.Thread(target=search, args=(n,)) for n in range(self._count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(answers) / seconds

    def expensive(self, body: dict[str, Any], until: threading.Event, seen: list[tuple[int, float]]) -> None:
        """Send a request again and again; adds status and seconds of each answer."""
        data = json.dumps(body)
        while not until.is_set():
            connection = http.client.HTTPConnection(self._netloc, timeout=120)
            started = time.monotonic()
            try:
                connection.request("POST", "/v1/i/search", data, {"content-type": "application/json"})
                status = connection.getresponse().status
            except (OSError, http.client.HTTPException):
                status = 0
            seen.append((status, time.monotonic() - started))
            connection.close()
            until.wait(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        queries = build(options.corpus, Path(folder) / "i", options.documents)
        command = [sys.executable, "-m", "vizsla", "serve", f"i={folder}/i", "--port", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            url = next(line for line in server.stderr if "Serving" in line).split()[1]
            threading.Thread(target=lambda: [None for _ in server.stderr or ()], daemon=True).start()  # its log
            clients = Clients(url, queries, options.clients)
            clients.rate(2)
            for name, body in EXPENSIVE.items():
                alone = clients.rate(options.seconds)
                until, seen = threading.Event(), []
                sender = threading.Thread(target=clients.expensive, args=(body, until, seen))
                sender.start()
                beside = clients.rate(options.seconds)
                until.set()
                sender.join()
                statuses = ", ".join(f"{n} of {status}" for status, n in Counter(s for s, _ in seen).items())
                longest = max(seconds for _, seconds in seen)
                share = f"{beside / alone:.2f} of {alone:.0f} a second"
                print(f"{name}: clients keep {share}; answers {statuses}, longest {longest:.2f} s", flush=True)
            until, seen = threading.Event(), []
            senders = [threading.Thread(target=clients.expensive, args=(b, until, seen)) for b in EXPENSIVE.values()]
            for sender in senders:
                sender.start()
            time.sleep(1)
            started = time.monotonic()
            server.send_signal(signal.SIGTERM)
            server.wait()
            print(f"SIGTERM: ended with {server.returncode} after {time.monotonic() - started:.1f} s", flush=True)
            until.set()
            for sender in senders:
                sender.join()


if __name__ == "__main__":
    main()
