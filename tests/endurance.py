"""Open, refresh and commit ten thousand times each, with at most 256 file handles and no garbage collection.

python tests/endurance.py --times 10000
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from vizsla import Index
from vizsla.index import verify
from vizsla.index.storage import arrays


def run(folder: Path, times: int) -> str | None:
    """What went wrong, or None."""
    place = folder / "i"
    with Index.create(place) as index:
        for i in range(8):
            index.add([{"id": f"{i} {n}", "text": f"common word{n}"} for n in range(10)])
            index.commit()
    start = len(os.listdir("/proc/self/fd"))
    for _ in range(times):
        with Index.open(place) as index:
            index.search("common")
    with Index.open(place) as index:
        for _ in range(times):
            index.refresh()
        for n in range(times):
            index.add([{"id": str(n % 500), "text": "common"}])
            index.commit()
        if len(index.search("common", 10_000)) != 80 + min(times, 500):
            return "documents are missing"
    if len(os.listdir("/proc/self/fd")) != start:
        return f"{len(os.listdir('/proc/self/fd')) - start} handles are left open"
    return next(iter(verify(place)), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10_000)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    arrays.SMALL = 0  # every array is a map, as in a large index
    gc.disable()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        wrong = run(Path(folder), options.times)
    print(wrong or f"{options.times:,} opens, refreshes and commits each in {time.perf_counter() - started:.0f} s")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
