"""Clients that send random requests to a server: searches, writes, judgements, garbage; used by soak.py."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from waiting import LIMIT

WORDS = [
    a + b + c for a in ("ka", "lo", "mi", "ru", "te") for b in ("sto", "ven", "dar", "lim") for c in ("", "s", "ing")
]
CHANGING = 500
"""How many documents are added, replaced and deleted all the time; the others stay as they are."""
KNOWN = 300
"""How many documents are looked for or looked at, so that caches of terms and documents are soon full."""
COLLECTIONS = 6
"""How many collections are created and deleted all the time."""
HEADERS = {"content-type": "application/json"}


def document(number: int, rng: random.Random, prefix: str = "") -> dict[str, Any]:
    text = " ".join(rng.choices(WORDS, range(len(WORDS), 0, -1), k=rng.randrange(20, 120)))
    return {
        "id": f"{prefix}{number}", "title": " ".join(rng.choices(WORDS, k=4)), "text": f"known{prefix}{number} {text}",
        "year": 1990 + number % 30, "lang": "en" if number % 3 else "hu",
    }  # fmt: skip


@dataclass
class Findings:
    """What clients have seen, together."""

    milliseconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    wrong: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    count: int = 0
    """How many requests there were."""

    def add(self, kind: str, status: int, seconds: float, wrong: str | None) -> None:
        with self.lock:
            self.count += 1
            self.statuses[kind][status] += 1
            if len(self.milliseconds[kind]) < 200_000:
                self.milliseconds[kind].append(1000 * seconds)
            if wrong is not None:
                self.wrong[f"{kind}: {wrong}"] += 1


class Visitor:
    """A client that sends random requests over a connection that stays open."""

    def __init__(self, url: str, key: str, documents: int, seed: int, findings: Findings) -> None:
        self._address = urlsplit(url).netloc
        self._key, self._documents, self._findings = key, documents, findings
        self._rng = random.Random(seed)
        self._connection: http.client.HTTPConnection | None = None
        self._kinds: dict[str, tuple[int, Callable[[], tuple[int, str | None]]]] = {
            "known document": (30, self._known),
            "search": (20, self._search),
            "search, all options": (12, self._everything),
            "many queries": (2, self._many),
            "look": (12, self._look),
            "judge": (5, self._judge),
            "measure": (1, self._measure),
            "write": (6, self._write),
            "commit or compact": (1, self._commit),
            "collections": (6, self._collections),
            "malformed": (10, self._malformed),
            "hang up": (2, self._hang_up),
        }

    def run(self, goes_on: Callable[[], bool], pause: float) -> None:
        """Send requests until `goes_on` says no, with a pause between two of them, in seconds on average."""
        names, weights = list(self._kinds), [weight for weight, _ in self._kinds.values()]
        while goes_on():
            (kind,) = self._rng.choices(names, weights)
            began = time.monotonic()
            try:
                status, wrong = self._kinds[kind][1]()
            except (OSError, http.client.HTTPException) as e:
                self._close()
                status, wrong = 0, f"no answer ({type(e).__name__}: {e})"
            self._findings.add(kind, status, time.monotonic() - began, wrong)
            time.sleep(self._rng.random() * 2 * pause)
        self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(
        self, method: str, path: str, body: Any = None, key: str | None = None, **parameters: Any
    ) -> tuple[int, Any]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._address, timeout=LIMIT)
        if parameters:
            path += "?" + urlencode(parameters)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body)
        headers = {**HEADERS, "x-api-key": self._key if key is None else key}
        self._connection.request(method, path, data, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.will_close:
            self._close()
        return answer.status, json.loads(text) if answer.getheader("content-type", "").endswith("json") else text

    def _expect(self, found: tuple[int, Any], *statuses: int) -> tuple[int, str | None]:
        status, data = found
        if status in statuses:
            return status, None
        return status, f"{status} {str(data)[:120]}"

    def _words(self, most: int = 4) -> str:
        return " ".join(self._rng.choices(WORDS, k=self._rng.randrange(1, most + 1)))

    def _known_number(self) -> int:
        return self._rng.randrange(KNOWN) * self._documents // KNOWN

    def _filter(self) -> str:
        return self._rng.choice(["year >= 2000", 'lang = "hu"', 'year < 1995 and lang = "en"', "year = 1800"])

    def _known(self) -> tuple[int, str | None]:
        number = self._known_number()
        status, data = self._send("GET", "/v1/soak/search", query=f"known{number} {self._words(2)}", hits=10)
        if status == 200 and data["candidates"] and data["candidates"][0]["docid"] == str(number):
            return status, None
        return status, f"{status}, and the document that has the word is not the first"

    def _search(self) -> tuple[int, str | None]:
        chosen = self._rng.choice([{}, {"filter": self._filter()}, {"model": "bm25(k1=1.2)"}, {"offset": 20}])
        status, data = self._send(
            "GET", "/v1/soak/search", query=self._words(), hits=self._rng.choice([1, 10, 100]), **chosen
        )
        return self._expect((status, data), 200)

    def _everything(self) -> tuple[int, str | None]:
        options: dict[str, Any] = {
            "filter": self._filter(), "model": "bm25(b=0.7)", "expand": "rm3", "explain": True, "highlight": True,
            "facets": {"fields": ["year", "lang"], "over": self._rng.choice(["all", 100])}, "offset": 5,
            "fields": ["title"],
        }  # fmt: skip
        chosen = {name: options[name] for name in self._rng.sample(list(options), self._rng.randrange(1, 5))}
        asked = {"query": self._words()} if self._rng.random() < 0.9 else {"like": str(self._known_number())}
        return self._expect(
            self._send("POST", "/v1/soak/search", {**asked, "k": self._rng.choice([0, 10, 50]), **chosen}), 200
        )

    def _many(self) -> tuple[int, str | None]:
        queries = [self._words() for _ in range(self._rng.randrange(2, 40))]
        status, data = self._send("POST", "/v1/soak/search", {"queries": queries, "k": 5})
        if status == 200 and [r["query"] for r in data["results"]] != queries:
            return status, "the answers are not those of the queries"
        return self._expect((status, data), 200)

    def _look(self) -> tuple[int, str | None]:
        number = str(self._known_number())
        method, path, body, parameters = self._rng.choice(
            [
                ("GET", "/v1/indexes", None, {}),
                ("GET", "/v1/soak", None, {}),
                ("GET", f"/v1/soak/doc/{number}", None, {}),
                ("GET", "/v1/soak/terms", None, {"text": self._words()}),
                ("GET", "/v1/soak/suggest", None, {"prefix": self._words(1)[:3]}),
                ("POST", "/v1/soak/explain", {"query": self._words(), "id": number}, {}),
                ("GET", "/", None, {}),
                ("GET", "/healthz", None, {}),
                ("GET", "/readyz", None, {}),
                ("GET", "/metrics", None, {}),
                ("GET", "/openapi.json", None, {}),
            ]
        )
        return self._expect(self._send(method, path, body, **parameters), 200)

    def _judge(self) -> tuple[int, str | None]:
        query = self._rng.choice(WORDS)
        if self._rng.random() < 0.3:
            return self._expect(self._send("GET", "/v1/soak/judgements", query=query), 200)
        grade = self._rng.choice([0, 1, 2, 3, None])
        body = {"query": query, "id": str(self._rng.randrange(200)), "grade": grade}
        return self._expect(self._send("PUT", "/v1/soak/judgements", body), 200)

    def _measure(self) -> tuple[int, str | None]:
        path = self._rng.choice(["", "/qrels", "/queries", "/measures"])
        if path != "/measures":
            return self._expect(self._send("GET", f"/v1/soak/judgements{path}"), 200)
        body = {"models": ["bm25", "bm25(k1=1.2)"], "measures": ["nDCG@10", "RR"]}
        return self._expect(self._send("POST", "/v1/soak/judgements/measures", body), 200, 400)

    def _write(self) -> tuple[int, str | None]:
        """Changes of a few hundred documents, which the other requests do not look for. 409: another one commits."""
        numbers = self._rng.sample(range(CHANGING), self._rng.randrange(1, 30))
        commit = self._rng.choice(["true", "false"])
        if self._rng.random() < 0.7:
            lines = "".join(json.dumps(document(n, self._rng, "new")) + "\n" for n in numbers)
            return self._expect(self._send("POST", "/v1/soak/documents", lines.encode(), commit=commit), 200, 409, 429)
        ids = {"ids": [f"new{n}" for n in numbers]}
        return self._expect(self._send("POST", "/v1/soak/delete", ids, commit=commit), 200, 409, 429)

    def _commit(self) -> tuple[int, str | None]:
        path = "commit" if self._rng.random() < 0.9 else "compact"
        return self._expect(self._send("POST", f"/v1/soak/{path}"), 200, 409, 429)

    def _collections(self) -> tuple[int, str | None]:
        """Collections that come and go, whose documents all clients change; 404: one is not there at the moment."""
        path = f"/v1/coming{self._rng.randrange(COLLECTIONS)}"
        numbers = self._rng.sample(range(50), self._rng.randrange(1, 20))
        lines = "".join(json.dumps(document(n, self._rng)) + "\n" for n in numbers).encode()
        changes = [{"id": str(n), "year": self._rng.randrange(9), "title": None} for n in numbers]
        method, path, body, parameters = self._rng.choice(
            [
                *[("PUT", path, {"passages": self._rng.choice([None, None, 30])}, {})] * 2,
                ("DELETE", path, None, {}),
                ("PATCH", path, {"description": self._words()}, {}),
                ("GET", path, None, {}),
                *[("POST", f"{path}/documents", lines, {"commit": self._rng.choice(["true", "false"])})] * 2,
                ("PATCH", f"{path}/documents", changes, {"commit": self._rng.choice(["true", "false"])}),
                ("POST", f"{path}/search", {"query": self._words(), "highlight": True}, {}),
                ("POST", f"{path}/delete", {"filter": self._filter()}, {}),
                ("PUT", f"{path}/judgements", {"query": "a", "id": str(numbers[0]), "grade": 1}, {}),
            ]
        )
        status, data = self._send(method, path, body, **parameters)
        if status == 400 and "no document has a field" in str(data):  # a filter by a field that no document has yet
            return status, None
        return self._expect((status, data), 200, 201, 404, 409, 429)

    def _malformed(self) -> tuple[int, str | None]:
        """Requests that are refused; what nobody could read as one may also end the connection."""
        if self._rng.random() < 0.3:
            return self._garbage()
        choice = self._rng.choice(
            [
                ("GET", "/v1/none/search", None, {"query": "a"}, (404,)),
                ("GET", "/v1/soak/search", None, {}, (400,)),
                ("GET", "/v1/soak/search", None, {"query": "a", "hits": 10**9}, (400,)),
                ("GET", "/v1/soak/search", None, {"query": "a", "filter": "year >"}, (400,)),
                ("POST", "/v1/soak/search", b"{", {}, (400,)),
                ("POST", "/v1/soak/search", {"query": 7, "k": "ten"}, {}, (400,)),
                ("POST", "/v1/soak/search", {"query": "x" * 100_000}, {}, (400,)),
                ("POST", "/v1/soak/search", b"\xff" * 1000, {}, (400,)),
                ("POST", "/v1/soak/documents", b'{"id": "a", "text": "b"}\n{"id"', {}, (400,)),
                ("DELETE", "/v1/soak", None, {}, (403,)),
                ("PUT", "/v1/..%2fsoak", {}, {}, (400, 404)),
                ("GET", "/v1/soak/doc/none", None, {}, (404,)),
                ("GET", "/" + "x" * 2000, None, {}, (404,)),
            ]
        )
        method, path, body, parameters, statuses = choice
        if self._rng.random() < 0.05:
            return self._expect(self._send("GET", "/v1/indexes", key="wrong"), 401)
        return self._expect(self._send(method, path, body, **parameters), *statuses)

    def _garbage(self) -> tuple[int, str | None]:
        sent = self._rng.choice(
            [
                self._rng.randbytes(200) + b"\r\n\r\n",
                b"GET / HTTP/9.9\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost\r\n\r\n",
                b"\r\n" * 50,
            ]
        )
        with self._plain() as opened:
            opened.sendall(sent)
            opened.shutdown(socket.SHUT_WR)
            try:
                answer = opened.recv(4096)
            except ConnectionResetError:
                answer = b""
        status = int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0
        return status, None if status == 0 or 200 <= status < 500 else f"garbage is answered with {status}"

    def _hang_up(self) -> tuple[int, str | None]:
        """Send a part of a request, or all of it, and do not wait for the answer."""
        body = json.dumps({"query": self._words(), "k": 100, "explain": False, "highlight": True}).encode()
        head = f"POST /v1/soak/search HTTP/1.1\r\nHost: {self._address}\r\nX-API-Key: {self._key}\r\n"
        request = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        with self._plain() as opened:
            opened.sendall(request[: self._rng.randrange(1, len(request) + 1)])
            time.sleep(self._rng.random() / 20)
        return 0, None

    def _plain(self) -> socket.socket:
        host, _, port = self._address.partition(":")
        return socket.create_connection((host, int(port)), timeout=LIMIT)
