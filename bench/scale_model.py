"""What a collection costs: passages, measured figures and prices in; machines, memory, time and money out.

Three steps, each a plain function: `Line.fit` turns measurements at several sizes into a rate, `plan` turns rates into
machines, `slowest` turns the measured times of single shards into the time of the slowest of many. `bench/scale.py`
measures, checks the model against what it measured, and prints the tables in docs/scale.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

GB = 1e9
HOURS_A_MONTH = 730
DAY = 86_400


class Line(NamedTuple):
    """A cost that is fixed + each * passages.

    >>> line = Line.fit([10, 20, 40], [3, 5, 9])
    >>> round(line.fixed, 6), round(line.each, 6), round(line.at(100), 6)
    (1.0, 0.2, 21.0)
    """

    fixed: float
    each: float

    @classmethod
    def fit(cls, sizes: Sequence[float], costs: Sequence[float]) -> Line:
        """The line with the least squared relative error, since the largest size is not the most precise one."""
        x, y = np.array(sizes, float), np.array(costs, float)
        if len(x) < 2 or len(x) != len(y) or not (y > 0).all():
            raise ValueError("a line needs costs above 0 of two sizes or more")
        rows = np.stack([1 / y, x / y], axis=1)
        fixed, each = np.linalg.lstsq(rows, np.ones(len(y)), rcond=None)[0]
        return cls(float(fixed), float(each))

    def at(self, passages: float) -> float:
        """The cost of so many passages."""
        return self.fixed + self.each * passages

    def reach(self, cost: float) -> float:
        """How many passages a cost is enough for; 0 if the fixed part is too much already."""
        return max(cost - self.fixed, 0.0) / self.each


class Power(NamedTuple):
    """What grows as factor * passages ** exponent, as a vocabulary does (Heaps' law).

    >>> Power.fit([100, 10_000], [10, 100]).at(1_000_000)
    1000.0
    """

    factor: float
    exponent: float

    @classmethod
    def fit(cls, sizes: Sequence[float], values: Sequence[float]) -> Power:
        """The curve through measurements."""
        exponent, offset = np.polyfit(np.log(sizes), np.log(values), 1)
        return cls(float(np.exp(offset)), float(exponent))

    def at(self, passages: float) -> float:
        """The value at so many passages."""
        return float(round(self.factor * passages**self.exponent, 6))


@dataclass(frozen=True)
class System:
    """What a passage costs in one system of search."""

    name: str
    search_ms: Line
    """Milliseconds of one core for a query over one shard of so many passages."""
    memory: float
    """Bytes a passage that must be in memory."""
    disk: float
    """Bytes a passage on disk, the text included."""
    index_rate: float
    """Passages a second that one core indexes, once they are encoded."""
    encode_rate: float = 0.0
    """Passages a second that one GPU encodes; 0: there is no network."""
    exact: bool = True


@dataclass(frozen=True)
class Machines:
    """What is rented, and what is asked of it. Prices are assumptions, to be replaced by one's own."""

    cores: int = 32
    memory: float = 256 * GB
    disk: float = 4000 * GB
    price: float = 2.0
    """Dollars an hour of a machine."""
    gpu_price: float = 3.5
    """Dollars an hour of a GPU."""
    replicas: int = 2
    queries: float = 100.0
    """Queries a second."""
    budget_ms: float = 200.0
    """How long a search may take, at the median."""
    memory_share: float = 0.75
    """Of the memory, for the index; the rest is for the system and for building."""
    disk_share: float = 0.6
    """Of the disk; a rebuild needs room beside the old index."""
    load: float = 0.5
    """Of the cores; a busier machine lets queries wait."""
    build_seconds: float = DAY
    """How long a full build may take."""


@dataclass(frozen=True)
class Plan:
    """What one system needs for so many passages."""

    system: System
    passages: float
    shards: int
    nodes: int
    decided_by: str
    """Which demand needs the most machines: replicas, memory, disk, load or latency."""
    demands: dict[str, int] = field(repr=False)
    memory: float
    disk: float
    core_seconds: float
    """Of all machines together, for one query."""
    search_ms: float
    """At the median, when every core of a replica works on its shard."""
    gpus: int
    gpu_hours: float
    index_hours: float
    """Hours on all machines."""
    month: float
    """Dollars."""
    build: float
    """Dollars."""


def plan(system: System, passages: float, machines: Machines) -> Plan:
    """How many machines a system needs for so many passages, and what decides it.

    Every query visits every passage of one replica. A shard is searched by one core, and a machine has as many shards
    as cores, so a query takes as long as one shard does.
    """
    copies = machines.replicas
    memory, disk = system.memory * passages * copies, system.disk * passages * copies
    smallest = system.search_ms.reach(machines.budget_ms)
    if not smallest:
        raise ValueError(f"{system.name}: a shard without passages takes longer than {machines.budget_ms} ms")
    demands = {
        "replicas": copies,
        "memory": math.ceil(memory / (machines.memory * machines.memory_share)),
        "disk": math.ceil(disk / (machines.disk * machines.disk_share)),
        "latency": copies * math.ceil(passages / smallest / machines.cores),
        "load": 0,
    }
    nodes = max(demands.values())
    for _ in range(50):  # more machines mean more shards, each with its fixed cost
        shards = max(nodes // copies, 1) * machines.cores
        seconds = (shards * system.search_ms.fixed + system.search_ms.each * passages) / 1000
        demands["load"] = math.ceil(machines.queries * seconds / (machines.cores * machines.load))
        needed = max(demands.values())
        if needed <= nodes:
            break
        nodes = needed
    gpu_hours = passages / system.encode_rate / 3600 if system.encode_rate else 0.0
    index_hours = passages * copies / system.index_rate / (nodes * machines.cores) / 3600
    return Plan(
        system, passages, shards, nodes, max(demands, key=lambda name: demands[name]), demands, memory, disk, seconds,
        system.search_ms.at(passages / shards), math.ceil(gpu_hours * 3600 / machines.build_seconds), gpu_hours,
        index_hours, nodes * machines.price * HOURS_A_MONTH,
        gpu_hours * machines.gpu_price + index_hours * nodes * machines.price,
    )  # fmt: skip


class Limit(NamedTuple):
    """Something that breaks, and from how many passages on."""

    passages: float
    what: str
    instead: str


def slowest(times: np.ndarray, shards: int, rng: np.random.Generator, draws: int = 200) -> np.ndarray:
    """The times of the slowest of so many shards, simulated from the times of queries on a few shards.

    `times`: [queries, measured shards]. A query that is long on one shard is long on all. What differs is the delay
    beyond the fastest shard: more postings there, or a busy machine. So each query keeps its shortest time, and the
    delays are drawn from all that were measured.

    >>> even = np.array([[1.0, 1.0], [2.0, 2.0]])
    >>> sorted(set(slowest(even, 10, np.random.default_rng(0)).tolist()))
    [1.0, 2.0]
    """
    shortest = times.min(axis=1)
    delays = np.sort((times - shortest[:, None]).ravel())
    # The largest of n draws is the quantile at u ** (1 / n) for a uniform u, so a thousand shards cost one draw.
    places = rng.random((draws, len(shortest))) ** (1 / shards)
    largest = delays[np.minimum((places * len(delays)).astype(np.int64), len(delays) - 1)]
    found: np.ndarray = (shortest[None] + largest).ravel()
    return found


def independent(times: np.ndarray, shards: int, rng: np.random.Generator, draws: int = 200) -> np.ndarray:
    """The same, as if each shard had a query of its own: too slow where a query is alike on all shards."""
    pool = np.sort(times.ravel())
    places = rng.random((draws, times.shape[0])) ** (1 / shards)
    found: np.ndarray = pool[np.minimum((places * len(pool)).astype(np.int64), len(pool) - 1)].ravel()
    return found
