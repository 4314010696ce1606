"""Kill a server at random moments while collections are created, filled and deleted, and see what is there afterwards.

    python tests/collections_crash.py --times 30

Three clients create collections, add documents, change settings and delete, each with names of its own, and write down
what was answered. The server is killed (SIGKILL) after a random time. Then each folder that has the name of a
collection must be a whole one, which `verify` finds in order. The next server must remove what else is there, show each
collection as the last answer left it, or as the request that was cut off would have, and take further documents.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from progress import Progress
from served import Client, running
from vizsla.index import verify
from vizsla.server.collections import INDEX, RECORD, STAGED, STATE, is_name

TIMES = 30
SECONDS = 4.0
"""How long a round takes on an idle machine; most of it is the start of the server."""
CLIENTS = 3
NAMES = 3
"""How many names a client has."""


class Shown(NamedTuple):
    """A collection as it can be seen."""

    description: str
    documents: int


class Life:
    """What a collection may be now: several things after a request that was cut off."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.may_be: set[Shown | None] = {None}

    @property
    def now(self) -> Shown | None:
        (now,) = self.may_be
        return now

    def change(self, client: Client, rng: random.Random) -> None:
        """Send a random request. If there is no answer, what it would have made stays possible."""
        now, word = self.now, f"{rng.random()}"
        path = f"/v1/{self.name}"
        after: Shown | None
        request: tuple[str, str, Any]
        if now is None:
            after, request = Shown(word, 0), ("PUT", path, {"description": word})
        elif rng.random() < 0.4:
            after, request = None, ("DELETE", path, None)
        elif rng.random() < 0.3:
            after, request = Shown(word, now.documents), ("PATCH", path, {"description": word})
        else:
            lines = json.dumps({"id": word, "text": "common"}).encode()
            after, request = Shown(now.description, now.documents + 1), ("POST", f"{path}/documents", lines)
        self.may_be.add(after)
        answer = client.send(*request)
        assert answer.status in (200, 201), (request, answer)
        self.may_be = {after}


def live(client: Client, lives: list[Life], rng: random.Random, answered: list[int]) -> None:
    """A client, until its server is gone."""
    try:
        while True:
            rng.choice(lives).change(client, rng)
            answered.append(1)
    except (OSError, http.client.HTTPException):
        return


def kill(server: Any, lives: list[list[Life]], rng: random.Random) -> int:
    """Let all clients live until the server is killed; how many requests were answered."""
    answered: list[int] = []
    threads = [
        threading.Thread(target=live, args=(server.client, own, random.Random(rng.random()), answered)) for own in lives
    ]
    for thread in threads:
        thread.start()
    first = rng.randrange(12)
    while len(answered) < first and any(thread.is_alive() for thread in threads):
        time.sleep(0.005)
    time.sleep(rng.uniform(0, 0.2))
    server.process.send_signal(signal.SIGKILL)
    for thread in threads:
        thread.join()
    server.process.wait()
    return len(answered)


def halves(folder: Path) -> list[str]:
    """The collections in a folder of which not all is there."""
    found = []
    for collection in (file for file in folder.iterdir() if is_name(file.name)):
        if not (collection / RECORD).is_file() or not (collection / STATE / STAGED).is_dir():
            found.append(f"{collection.name} has no record or no state")
        found += [f"{collection.name}: {problem}" for problem in verify(collection / INDEX)]
    return found


def leftovers(folder: Path) -> list[str]:
    """What is there beside collections and the lock."""
    return sorted(file.name for file in folder.iterdir() if not is_name(file.name) and file.name != "lock")


def look(client: Client, life: Life) -> str | None:
    """What is wrong with a collection after a crash, or None; afterwards it is known what it is."""
    answer = client.get(f"/v1/{life.name}")
    found = None
    if answer.status == 200:
        found = Shown(answer.data["collection"]["settings"]["description"], answer.data["documents"])
    elif answer.status != 404:
        return f"{life.name}: {answer.error}"
    if found not in life.may_be:
        return f"{life.name} is {found}, and may be one of {life.may_be}"
    life.may_be = {found}
    if found is not None:
        added = client.add(life.name, [{"id": "new", "text": "common"}])
        hits = client.get(f"/v1/{life.name}/search", query="common", hits=1000).data["candidates"]
        documents = found.documents + (added.data["added"] - added.data["replaced"])
        if len(hits) != documents:
            return f"{life.name} has {documents} documents, and {len(hits)} are found"
        life.may_be = {Shown(found.description, documents)}
    return None


def run(times: int, seed: int, folder: Path, tell: Callable[[str], None]) -> list[str]:
    """Kill so many servers; gives what was wrong."""
    rng = random.Random(seed)
    lives = [[Life(f"c{n}-{m}") for m in range(NAMES)] for n in range(CLIENTS)]
    wrong, answered, cut, left = list[str](), 0, 0, 0
    for n in range(times + 1):
        with running("--collections", folder, "--write", "--quiet") as server:
            wrong += [f"kill {n}: the next server has left {name}" for name in leftovers(folder)]
            wrong += [f"kill {n}: {told}" for own in lives for life in own if (told := look(server.client, life))]
            if wrong or n == times:
                break
            answered += kill(server, lives, rng)
        cut += sum(len(life.may_be) > 1 for own in lives for life in own)
        left += bool(leftovers(folder))
        wrong += [f"kill {n + 1}: {half}" for half in halves(folder)]
        tell(f"{n + 1} of {times} kills")
    tell(f"{answered:,} requests were answered and {cut} cut off; {left} servers left something to remove")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=TIMES, help="less takes less time")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    minutes = max(options.times * SECONDS / 60, 1)
    print(f"{options.times:,} kills, about {minutes:.0f} minutes on an idle machine", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        wrong = run(options.times, options.seed, Path(folder) / "collections", Progress(0).tell)
    print(
        "\n".join(wrong) or f"{options.times:,} servers killed, and each collection was there as a whole or not at all"
    )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
