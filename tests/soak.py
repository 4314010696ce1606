"""Mixed traffic against a served index for a long time: memory must stay flat, and nothing unexpected may come back.

    python tests/soak.py --minutes 30

Builds an index, serves it with two workers, --write and --collections, and lets several clients search, filter,
explain, count, judge, write, commit, create, fill and delete collections, send garbage and hang up, all at random.
Every answer must have a status that its request may have, and searches for known documents must find them. The memory,
the open and mapped files and the threads of every worker, and all files on the disk, are looked at every 10 seconds.
Ends with a summary, and with 1 if something was wrong: an answer nobody expected, a worker that died, or memory of its
own (not of mapped files) that grew by more than --bound MB a worker after the warm-up, which is the first fifth of the
time; so for open files, mapped files, threads and the disk.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from served import Running, running
from visitors import Findings, Visitor, document
from vizsla import Index


@dataclass(frozen=True)
class Sample:
    """A worker at one moment: memory of its own and with mapped files in MB, open files, threads."""

    own: float
    resident: float
    files: int
    maps: int
    threads: int

    @classmethod
    def take(cls, process: int) -> Sample:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        facts = {name: value.split()[0] for name, _, value in (line.partition(":") for line in lines) if value.split()}
        files = len(list(Path(f"/proc/{process}/fd").iterdir()))
        maps = Path(f"/proc/{process}/maps").read_text().count("\n")
        return cls(int(facts["RssAnon"]) / 1024, int(facts["VmRSS"]) / 1024, files, maps, int(facts["Threads"]))


def on_disk(folder: Path) -> float:
    """The megabytes of all files in a folder, in blocks that they take."""
    total = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += file.lstat().st_blocks * 512
    return total / 1e6


class Watch(threading.Thread):
    """Looks at all workers every few seconds."""

    def __init__(self, server: Running, folder: Path, every: float) -> None:
        super().__init__(daemon=True)
        self._server, self._folder, self._every = server, folder, every
        self.disk: list[float] = []
        self.samples: dict[int, list[Sample]] = {process: [] for process in server.workers()}
        self.died: set[int] = set()
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(self._every):
            self.disk.append(on_disk(self._folder))
            for process, samples in self.samples.items():
                try:
                    samples.append(Sample.take(process))
                except (FileNotFoundError, ProcessLookupError):
                    self.died.add(process)

    def problems(self, bound: float) -> list[str]:
        """What is wrong with the workers."""
        found = [f"worker {process} died" for process in sorted(self.died)]
        for process, samples in self.samples.items():
            after = samples[len(samples) // 5 :]
            part = max(len(after) // 10, 1)
            if len(after) < 2:
                found.append(f"worker {process} was not looked at often enough; take more minutes")
                continue
            for name, most in (("own", bound), ("files", 20), ("maps", 150), ("threads", 4)):
                first, last = (median(getattr(s, name) for s in some) for some in (after[:part], after[-part:]))
                if last - first > most:
                    found.append(f"worker {process}: {name} grew from {first:.0f} to {last:.0f}")
        after_warm_up = self.disk[len(self.disk) // 5 :]
        part = max(len(after_warm_up) // 10, 1)
        first, last = median(after_warm_up[:part]), median(after_warm_up[-part:])
        if last - first > bound:
            found.append(f"the disk: from {first:.0f} to {last:.0f} MB")
        return found

    def table(self) -> str:
        lines = [
            "worker     own MB: after warm-up, last, most    with mapped files    files    maps: first, last    threads"
        ]
        for process, samples in self.samples.items():
            after = samples[len(samples) // 5 :] or [Sample(0, 0, 0, 0, 0)]
            own = [sample.own for sample in after]
            lines.append(
                f"{process:<10} {own[0]:8.1f} {own[-1]:8.1f} {max(own):8.1f} {after[-1].resident:24.1f} "
                f"{after[-1].files:12} {after[0].maps:10} {after[-1].maps:8} {after[-1].threads:8}"
            )
        disk = self.disk[len(self.disk) // 5 :]
        lines.append(f"\ndisk MB: after warm-up {disk[0]:.1f}, last {disk[-1]:.1f}, most {max(disk):.1f}")
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
    with running(folder / "soak.index", *given) as server:
        watch = Watch(server, folder, options.every)
        watch.start()
        began = time.monotonic()
        until = began + 60 * options.minutes
        visitors = [
            Visitor(server.client.url, key, options.documents, options.seed + n, findings)
            for n in range(options.clients)
        ]
        threads = [threading.Thread(target=v.run, args=(until, options.pause)) for v in visitors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - began
        watch.stopped.set()
        watch.join()
        told = [line for line in server.log if "Traceback" in line or "ended" in line or "mistake" in line]
        code = server.stop()
    wrong = [f"{count} times {what}" for what, count in findings.wrong.most_common()] + watch.problems(options.bound)
    wrong += [f"the server said: {line.strip()}" for line in told[:10]]
    wrong += [f"the server ended with {code}"] if code else []
    print(f"{seconds / 60:.1f} minutes, {options.clients} clients, {options.workers} workers\n")
    print(summary(findings, seconds), watch.table(), sep="\n\n")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds a client waits between requests, on average")
    parser.add_argument("--every", type=float, default=10, help="seconds between looks at the workers")
    parser.add_argument("--bound", type=float, default=48, help="MB that a worker's own memory may grow by")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wrong = soak(Path(folder), options)
    print()
    print("\n".join(wrong) or "Memory is flat, and nothing unexpected came back.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
