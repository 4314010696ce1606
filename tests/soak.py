"""Mixed traffic against a served index for a long time: memory must stay flat, and nothing unexpected may come back.

    python tests/soak.py --minutes 30
    python tests/soak.py --minutes 0 --leak 20_000    # a server that leaks must be found out

Builds an index, serves it with two workers, --write and --collections, and lets several clients search, filter,
explain, count, judge, write, commit, create, fill and delete collections, send garbage and hang up, all at random.
Every answer must have a status that its request may have, and searches for known documents must find them. The memory,
the open and mapped files and the threads of every worker, and all files on the disk, are looked at every few seconds.
Ends with a summary, and with 1 if something was wrong: an answer nobody expected, a worker that died, or memory of its
own (not of mapped files) that grew by more than --bound MB a worker after the warm-up; so for open files, mapped files,
threads and the disk.

Caches fill, and what leaks grows, with requests and not with time. So the warm-up is a number of requests, after which
at least --requests more are counted, however long that takes: the result does not depend on how fast the machine is.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from served import Running, running
from visitors import Findings, Visitor, document
from vizsla import Index

LEAKING = Path(__file__).with_name("leaking.py")


@dataclass(frozen=True)
class Sample:
    """A worker at one moment: how many requests all workers had, its own memory and all in MB, its files and threads.

    And the MB of all files on the disk.
    """

    requests: int
    own: float
    resident: float
    files: int
    maps: int
    threads: int
    disk: float

    @classmethod
    def take(cls, process: int, requests: int, disk: float) -> Sample:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        facts = {name: value.split()[0] for name, _, value in (line.partition(":") for line in lines) if value.split()}
        files = len(list(Path(f"/proc/{process}/fd").iterdir()))
        maps = Path(f"/proc/{process}/maps").read_text().count("\n")
        own, resident = int(facts["RssAnon"]) / 1024, int(facts["VmRSS"]) / 1024
        return cls(requests, own, resident, files, maps, int(facts["Threads"]), disk)


def on_disk(folder: Path) -> float:
    """The megabytes of all files in a folder, in blocks that they take; folders may vanish meanwhile."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
    return total / 1e6


@dataclass(frozen=True)
class Bounds:
    """What counts as growth: requests of the warm-up, requests after it, MB a worker and MB of the disk."""

    warm_up: int = 5_000
    requests: int = 15_000
    megabytes: float = 48

    def measured(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples after the warm-up."""
        return [sample for sample in samples if sample.requests >= self.warm_up]

    def growth(self, what: str, samples: Sequence[Sample]) -> list[str]:
        """What has grown too much between the first and the last tenth of the samples after the warm-up."""
        after = self.measured(samples)
        if len(after) < 2 or after[-1].requests < self.warm_up + self.requests:
            seen = max(samples[-1].requests - self.warm_up, 0) if samples else 0
            return [f"{what}: {seen:,} requests after the warm-up of {self.warm_up:,} are too few; take more minutes"]
        part = max(len(after) // 10, 1)
        found = []
        for name, most in (("own", self.megabytes), ("files", 20), ("maps", 150), ("threads", 4), ("disk", 48)):
            first, last = (median(getattr(s, name) for s in some) for some in (after[:part], after[-part:]))
            if last - first > most:
                requests = after[-1].requests - after[0].requests
                found.append(f"{what}: {name} grew from {first:.0f} to {last:.0f} in {requests:,} requests")
        return found


class Watch(threading.Thread):
    """Looks at all workers every few seconds, and writes what it sees to a file if there is one."""

    def __init__(self, server: Running, folder: Path, findings: Findings, every: float, log: Path | None) -> None:
        super().__init__(daemon=True)
        self._folder, self._findings, self._every, self._log = folder, findings, every, log
        self._began = time.monotonic()
        self.samples: dict[int, list[Sample]] = {process: [] for process in server.workers() or [server.process.pid]}
        self.died: set[int] = set()
        self.stopped = threading.Event()
        if log is not None:
            log.write_text("seconds worker requests own_mb resident_mb files maps threads disk_mb\n")

    def run(self) -> None:
        while not self.stopped.wait(self._every):
            self.look()

    def look(self) -> None:
        """Take a sample of each worker."""
        requests, disk = self._findings.count, on_disk(self._folder)
        for process, samples in self.samples.items():
            try:
                samples.append(Sample.take(process, requests, disk))
            except (FileNotFoundError, ProcessLookupError):
                self.died.add(process)
                continue
            if self._log is not None:
                s = samples[-1]
                seconds = time.monotonic() - self._began
                with self._log.open("a") as file:
                    file.write(
                        f"{seconds:.0f} {process} {s.requests} {s.own:.1f} {s.resident:.1f} {s.files} {s.maps} "
                        f"{s.threads} {s.disk:.1f}\n"
                    )

    def problems(self, bounds: Bounds) -> list[str]:
        """What is wrong with the workers."""
        found = [f"worker {process} died" for process in sorted(self.died)]
        for process, samples in self.samples.items():
            found += bounds.growth(f"worker {process}", samples)
        return found

    def table(self, bounds: Bounds) -> str:
        """The samples after the warm-up, a line for each worker."""
        memory = "own MB: after warm-up, last, most    with mapped files"
        lines = [f"worker     requests    {memory}    files    maps: first, last    threads    disk MB: first, last"]
        for process, samples in self.samples.items():
            if after := bounds.measured(samples):
                own, last = [sample.own for sample in after], after[-1]
                lines.append(
                    f"{process:<10} {last.requests - after[0].requests:8,} {own[0]:13.1f} {own[-1]:8.1f} "
                    f"{max(own):8.1f} {last.resident:22.1f} {last.files:12} {after[0].maps:10} {last.maps:8} "
                    f"{last.threads:10} {after[0].disk:10.1f} {last.disk:8.1f}"
                )
        return "\n".join(lines)


def summary(findings: Findings, seconds: float) -> str:
    lines = [f"{'what':<22}{'requests':>10}{'a second':>10}{'p50 ms':>9}{'p99 ms':>9}   statuses"]
    for kind, statuses in findings.statuses.items():
        count, times = statuses.total(), findings.milliseconds[kind]
        p99 = quantiles(times, n=100)[-1] if len(times) > 1 else times[0]
        told = ", ".join(f"{status or 'none'}: {n:,}" for status, n in sorted(statuses.items()))
        lines.append(f"{kind:<22}{count:>10,}{count / seconds:>10.1f}{median(times):>9.1f}{p99:>9.1f}   {told}")
    return "\n".join(lines)


def soak(folder: Path, options: argparse.Namespace) -> list[str]:
    """Run it all; gives what was wrong."""
    rng = random.Random(options.seed)
    with Index.create(folder / "soak.index") as index:
        index.add(document(n, rng) for n in range(options.documents))
        index.commit()
    key = secrets.token_hex(16)
    keys = folder / "keys"
    keys.touch(0o600)
    keys.write_text(f"admin {key}\nread {secrets.token_hex(16)}\n")
    findings = Findings()
    collections = ("--collections", folder / "collections")
    given = ("--workers", options.workers, "--write", "--keys", keys, "--quiet", *collections)
    bounds = Bounds(options.warm_up, options.requests, options.bound)
    leak = {"VIZSLA_PLUGINS": str(LEAKING), "SOAK_LEAK": str(options.leak)} if options.leak else None
    with running(folder / "soak.index", *given, env=leak) as server:
        watch = Watch(server, folder, findings, options.every, options.log)
        watch.start()
        began = time.monotonic()

        def goes_on() -> bool:
            minutes = (time.monotonic() - began) / 60
            is_enough = findings.count >= bounds.warm_up + bounds.requests and minutes >= options.minutes
            return not is_enough and minutes < options.at_most and not watch.died

        visitors = [
            Visitor(server.client.url, key, options.documents, options.seed + n, findings)
            for n in range(options.clients)
        ]
        threads = [threading.Thread(target=v.run, args=(goes_on, options.pause), daemon=True) for v in visitors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - began
        watch.stopped.set()
        watch.join()
        watch.look()
        told = [line for line in server.log if "Traceback" in line or "ended" in line or "mistake" in line]
        code = server.stop()
    wrong = [f"{count} times {what}" for what, count in findings.wrong.most_common()] + watch.problems(bounds)
    wrong += [f"the server said: {line.strip()}" for line in told[:10]]
    wrong += [f"the server ended with {code}"] if code else []
    print(f"{seconds / 60:.1f} minutes, {options.clients} clients, {options.workers} workers\n")
    print(summary(findings, seconds), watch.table(bounds), sep="\n\n")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30, help="how long it takes at least")
    parser.add_argument("--at-most", type=float, default=240, help="minutes after which it ends in any case")
    parser.add_argument("--warm-up", type=int, default=Bounds.warm_up, help="requests before anything is measured")
    parser.add_argument("--requests", type=int, default=Bounds.requests, help="requests after that, at least")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds a client waits between requests, on average")
    parser.add_argument("--every", type=float, default=10, help="seconds between looks at the workers")
    parser.add_argument(
        "--bound", type=float, default=Bounds.megabytes, help="MB that a worker's own memory may grow by"
    )
    parser.add_argument("--leak", type=int, default=0, help="bytes that the server is made to lose with each request")
    parser.add_argument("--log", type=Path, help="a file for what is seen of the workers all the time")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = soak(Path(folder), options)
    print()
    print("\n".join(wrong) or "Memory is flat, and nothing unexpected came back.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
