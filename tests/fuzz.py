"""Malformed requests: what the description of the API allows and does not allow, and bytes that are no HTTP at all.

    vizsla serve my.index --port 8080 --limits seconds=1 --quiet
    python tests/fuzz.py http://127.0.0.1:8080 --requests 10000

The limit is short because requests that end too early are waited for.
No response may be a 5xx of an unexpected error, and the server must survive. Prints what it saw; exits with 1
if something was wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

from waiting import LIMIT

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW")
VALUES: tuple[object, ...] = (
    None, True, -1, 0, 1, 10**30, 1.5, -0.0, 1e308, "", " ", "dog", "\x00", "\ud800", "\U0001f415" * 50, "a" * 5000,
    "../../etc/passwd", "<script>alert(1)</script>", "year >= ", "year = 1", "bm25", "bm25(k1=nan)", "rm3", "/etc",
    [], {}, ["dog", 1], [["dog"]], {"year": {}}, {"year": []}, [1e999], {"fields": ["year"]}, {"fields": None},
)  # fmt: skip
FIELDS = (
    "query", "queries", "like", "k", "offset", "filter", "combine", "search_params", "rerank", "depth", "fields",
    "highlight", "explain", "facets", "generation", "model", "weights", "expand", "id", "ids", "grade", "models",
    "measures", "nothing",
)  # fmt: skip
PARAMETERS = ("query", "hits", "parse", "offset", "filter", "model", "expand", "combine", "text", "prefix", "size")


def requests(paths: list[str], indexes: list[str], rng: random.Random) -> Iterator[bytes]:
    """Requests without end, some nearly right and some nothing like HTTP."""
    while True:
        kind = rng.random()
        if kind < 0.1:
            yield rng.randbytes(rng.randrange(1, 300)) + b"\r\n\r\n"
            continue
        if kind < 0.15:  # one that is right, among the others
            name = rng.choice(indexes)
            yield f"GET /v1/{name}/search?query=dog HTTP/1.1\r\nhost: HOST\r\nconnection: close\r\n\r\n".encode()
            continue
        path = rng.choice(paths).replace("{index}", rng.choice([*indexes, "none", "%00", "..", "a" * 300]))
        path = path.replace("{docid}", quote(str(rng.choice(VALUES)).encode("utf-8", "replace")))
        if rng.random() < 0.5:
            chosen = rng.sample(PARAMETERS, rng.randrange(1, 5))
            values = [quote(str(rng.choice(VALUES)).encode("utf-8", "replace")) for _ in chosen]
            path += "?" + "&".join(f"{name}={value}" for name, value in zip(chosen, values, strict=True))
        body = b""
        if rng.random() < 0.6:
            names = rng.sample(FIELDS, rng.randrange(1, 5))
            body = json.dumps({name: rng.choice(VALUES) for name in names}).encode()
            if rng.random() < 0.2:
                body = body[: rng.randrange(len(body))] + rng.randbytes(3)
        length = len(body) if rng.random() < 0.95 else rng.choice(["x", -1, len(body) // 2, 10**20])
        kinds = ("application/json", "text/plain", "", "multipart/form-data; boundary=x", "application/x-ndjson")
        head = f"{rng.choice(METHODS)} {path} HTTP/1.1\r\nhost: HOST\r\ncontent-type: {rng.choice(kinds)}\r\n"
        yield f"{head}content-length: {length}\r\nconnection: close\r\n\r\n".encode("utf-8", "replace") + body


def answer_of(address: tuple[str, int], request: bytes) -> bytes:
    """What the server sends back; nothing if it hangs up."""
    with socket.create_connection(address, timeout=LIMIT) as connection:
        try:
            connection.sendall(request)
            received = b""
            while chunk := connection.recv(65536):
                received += chunk
        except OSError:
            return b""
    return received


def fuzz(url: str, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Send requests; gives how often each status came, and what should not have come."""
    parts = urlsplit(url)
    address = (str(parts.hostname), int(parts.port or 80))
    head = f"GET /openapi.json HTTP/1.1\r\nhost: {parts.netloc}\r\nconnection: close\r\n\r\n"
    description = json.loads(answer_of(address, head.encode()).partition(b"\r\n\r\n")[2])
    head = f"GET /v1/indexes HTTP/1.1\r\nhost: {parts.netloc}\r\nconnection: close\r\n\r\n"
    indexes = [i["name"] for i in json.loads(answer_of(address, head.encode()).partition(b"\r\n\r\n")[2])["indexes"]]
    paths = [*description["paths"], "/", "/page/app.js", "/page/%2e%2e/x", "/nothing", "/mcp"]
    seen: Counter[str] = Counter()
    wrong = []
    source = requests(paths, indexes, random.Random(seed))
    for _ in range(count):
        request = next(source).replace(b"HOST", parts.netloc.encode())
        answer = answer_of(address, request)
        status = answer.split(b" ", 2)[1].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else "none"
        seen[status] += 1
        if status == "500" or b"Traceback" in answer or (status == "none" and request[:1].isupper() and answer):
            wrong.append(f"{request[:300]!r} -> {answer[:300]!r}")
    return seen, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    seen, wrong = fuzz(options.url, options.requests, options.seed)
    print(dict(sorted(seen.items())))
    print("\n".join(wrong[:20]) or "nothing wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
