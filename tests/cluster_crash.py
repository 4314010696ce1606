"""Kill clients and servers while a cluster is filled, and see that nothing is lost, wrong or there twice.

    PYTHONPATH=tests python tests/cluster_crash.py [--times 20] [--what upload reweigh node]

`upload`: an upload is killed (SIGKILL) at a random moment, one to three times, and then goes on to its end; what was
live before can be searched in between. `reweigh`: the same for a reweighing. `node`: one of the three servers is killed
at a random moment of an upload and started again later; the upload must not notice. Each time, all documents, vectors,
terms and statistics must be those of a collection that nobody disturbed, read through each of the servers, and rankings
those of an index. There are three servers on this machine, three shards, and two replicas of each.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from qdrant_client import QdrantClient

from qdrant_compared import WORDS, contents, differences, documents, encode
from qdrant_server import Node, address, nodes
from vizsla import Index
from vizsla import open as open_location
from vizsla.backends.qdrant import QdrantIndex, lock
from vizsla.backends.qdrant.reweighing import reweigh
from vizsla.backends.qdrant.upload import UploadOptions, upload_parts

CHILD = """
import sys
from vizsla.backends.qdrant import filling, lock, reweighing
from vizsla.backends.qdrant.upload import UploadOptions, upload_parts

write = filling.Pieces.write

def write_and_tell(self, piece):
    print(write(self, piece), flush=True)
    return piece

filling.Pieces.write = write_and_tell
filling._SAVE_SECONDS, lock.BEAT, lock.DEAD, reweighing.PIECE = 0.2, 0.3, 1.5, 20
print("begins", flush=True)
if sys.argv[1] == "reweigh":
    reweighing.reweigh(sys.argv[2], threshold=0)
else:
    upload_parts(sys.argv[3], sys.argv[2], options=UploadOptions(shards=3, replicas=2))
"""
OPTIONS = UploadOptions(shards=3, replicas=2)
QUERIES = {f"q{i}": " ".join(random.Random(i).choices(WORDS, k=4)) for i in range(10)}


def killed(what: str, where: str, parts: Path | None = None, *, pieces: int = 0, seconds: float = 0.0) -> int:
    """Run an upload or a reweighing, and kill it so many seconds after so many pieces; gives its exit code."""
    command = [sys.executable, "-c", CHILD, what, where, *([str(parts)] if parts else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        for _ in range(pieces + 1):
            child.stdout.readline()
        if seconds:
            time.sleep(seconds)
        child.send_signal(signal.SIGKILL)
        code, said = child.wait(), child.stderr.read()
    if code > 0:
        raise SystemExit(f"an upload that nobody had killed failed: {said}")
    return code


class Cluster:
    """Three servers, and the collections that others are compared with."""

    def __init__(self, folder: Path, servers: list[Node], rng: random.Random) -> None:
        self.folder, self.servers, self.rng = folder, servers, rng
        self.first, self.second = documents(150, seed=1), documents(400, seed=2)
        self.parts = encode(self.second, folder / "parts", "bm25", batch=10)
        self.old_parts = encode(self.first, folder / "old", "bm25", batch=50)
        self.local = Index.create(folder / "i")
        self.local.add(self.second)
        self.local.commit()
        upload_parts(self.parts, self.at("expected"), options=OPTIONS)
        self.expected = contents(self.at("expected"))

    def at(self, name: str) -> str:
        return address(self.servers, name)

    def check(self, name: str, expected: dict[str, Any]) -> None:
        """All servers tell the same of a collection, and it is what is expected."""
        for server in self.servers:
            found = contents(address([server], name))
            for key, value in expected.items():
                if found[key] != value:
                    raise SystemExit(f"{name}: {key} is wrong, as {server.host} tells it")

    def drop(self, name: str) -> None:
        client = QdrantClient(url=f"http://{self.servers[0].host}", check_compatibility=False, timeout=60)
        for collection in client.get_collections().collections:
            if collection.name.partition("@")[0] == name:
                client.delete_collection(collection.name)
        client.close()

    def upload(self, turn: int) -> str:
        """An upload over a live collection, killed one to three times."""
        name = f"upload{turn}"
        upload_parts(self.old_parts, self.at(name), options=OPTIONS)
        kills = [self.kill("upload", name, self.parts) for _ in range(self.rng.randint(1, 3))]
        with open_location(self.at(name)) as live:
            assert len(live) in (len(self.first), len(self.second))
            assert live.search("word1")
        report = upload_parts(self.parts, self.at(name), options=OPTIONS)
        self.check(name, self.expected)
        with open_location(self.at(name)) as cluster:
            wrong = differences(self.local, cluster, QUERIES, 20)
        if wrong:
            raise SystemExit(f"{name}: {wrong[0]}")
        self.drop(name)
        how = "was there" if report.was_there else "went on" if report.resumed else "began"
        return f"killed {', '.join(kills)}; {how}"

    def kill(self, what: str, name: str, parts: Path | None = None) -> str:
        """Kill a client: some time after it began, or just after one of its pieces."""
        early = self.rng.random() < 0.4
        pieces, seconds = (
            (0, self.rng.uniform(0, 2)) if early else (self.rng.randrange(1, 28), self.rng.uniform(0, 0.1))
        )
        code = killed(what, self.at(name), parts, pieces=pieces, seconds=seconds)
        return f"{seconds:.2f} s after {pieces} pieces" if code else "at its end"

    def reweigh(self, turn: int) -> str:
        """A reweighing after documents have become longer, killed one to three times."""
        name = f"reweigh{turn}"
        longer = [{**d, "id": f"x{i}", "text": f"{d['text']} " * 3} for i, d in enumerate(self.first)]
        with QdrantIndex.create(self.at(name), "bm25", shards=3, replicas=2) as index:
            for some in (self.second, longer):
                index.add(some)
                index.commit()
        kills = [self.kill("reweigh", name) for _ in range(self.rng.randint(1, 3))]
        report = reweigh(self.at(name), threshold=0)
        with QdrantIndex.create(self.at("fresh"), "bm25", overwrite=True, shards=3, replicas=2) as index:
            index.add([*self.second, *longer])
            index.commit()
        expected = contents(self.at("fresh"))
        self.check(name, {key: expected[key] for key in ("documents", "terms", "state.documents")})
        self.drop(name)
        return f"killed {', '.join(kills)}; {'renewed' if report.renewed else 'was renewed'}"

    def node(self, turn: int) -> str:
        """A server killed during an upload, and started again some time later."""
        name, victim = f"node{turn}", self.rng.choice(self.servers)
        before, after = self.rng.uniform(0, 2.5), self.rng.uniform(0, 3)
        errors: list[BaseException] = []

        def upload() -> None:
            try:
                upload_parts(self.parts, self.at(name), options=OPTIONS)
            except BaseException as e:
                errors.append(e)

        thread = threading.Thread(target=upload)
        thread.start()
        time.sleep(before)
        victim.kill()
        during = thread.is_alive()
        time.sleep(after)
        victim.start()
        thread.join()
        if errors:
            raise SystemExit(f"{name}: server {victim.number} killed after {before:.2f} s: {errors[0]}")
        self.wait_for_replicas(name)
        self.check(name, self.expected)
        with open_location(self.at(name)) as cluster:
            wrong = differences(self.local, cluster, QUERIES, 20)
        if wrong:
            raise SystemExit(f"{name}: {wrong[0]}")
        self.drop(name)
        return f"server {victim.number} killed after {before:.2f} s{'' if during else ' (all was written)'}"

    def wait_for_replicas(self, name: str) -> None:
        """Until every replica of the collection is active again."""
        deadline = time.monotonic() + 60
        for server in self.servers:
            client = QdrantClient(url=f"http://{server.host}", check_compatibility=False, timeout=60)
            while True:
                told = client.http.distributed_api.collection_cluster_info(name).result
                states = {shard.state.value for shard in (*told.local_shards, *told.remote_shards)}
                if states == {"Active"} and not told.shard_transfers:
                    break
                if time.monotonic() > deadline:
                    raise SystemExit(f"{name}: a replica did not come back ({states})")
                time.sleep(0.1)
            client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument(
        "--what", nargs="+", choices=["upload", "reweigh", "node"], default=["upload", "reweigh", "node"]
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    o = parser.parse_args()
    lock.BEAT, lock.DEAD = 0.3, 1.5
    print(f"seed {o.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder, nodes(Path(folder) / "nodes", 3) as servers:
        cluster = Cluster(Path(folder), servers, random.Random(o.seed))
        for what in o.what:
            for turn in range(o.times):
                print(f"{what} {turn + 1}: {getattr(cluster, what)(turn)}", flush=True)
        cluster.local.close()
    print(f"{o.times} times each ({', '.join(o.what)}): nothing lost, nothing wrong, nothing twice")


if __name__ == "__main__":
    main()
