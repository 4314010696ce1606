"""Figures for Prometheus: requests, latencies, batches, indexes. With several workers they are summed over all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from vizsla.errors import VizslaError

if TYPE_CHECKING:
    from vizsla.server.hosting import Hosting

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the folder in which workers store their figures."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32)


class Metrics:
    """The figures of one worker."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        own = CollectorRegistry()
        self._registry = own
        self._requests = Counter("vizsla_requests", "Requests by route and status.", ("route", "status"), registry=own)
        self._seconds = Histogram(
            "vizsla_request_seconds", "Time of requests by route.", ("route",), buckets=_SECONDS, registry=own
        )
        self._batches = Histogram(
            "vizsla_batch_size", "Queries that were searched in one call.", buckets=_SIZES, registry=own
        )
        self._in_flight = Gauge(
            "vizsla_in_flight", "Requests being answered.", registry=own, multiprocess_mode="livesum"
        )
        self._memory = Gauge(
            "vizsla_worker_memory_bytes", "Resident memory, of all workers.", registry=own, multiprocess_mode="livesum"
        )

    def observe_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that has been answered."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def observe_batch(self, size: int) -> None:
        """Count a call of the engine."""
        self._batches.observe(size)

    def update(self, in_flight: int) -> None:
        """Update the gauges to their current values."""
        self._in_flight.set(in_flight)
        self._memory.set(resident_bytes())

    def text(self) -> bytes:
        """All figures, as Prometheus reads them."""
        registry = self._registry
        if SHARED in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        collected = generate_latest(registry)
        indexes = CollectorRegistry()
        indexes.register(_Indexes(self._hosting))
        return collected + generate_latest(indexes)


class _Indexes:
    """The state of the indexes, as seen by the worker that answers."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting

    def collect(self) -> Iterator[Metric]:
        ready = GaugeMetricFamily("vizsla_index_ready", "Whether an index can be searched.", labels=("index",))
        number = GaugeMetricFamily("vizsla_index_generation", "The commit that is searched.", labels=("index",))
        documents = GaugeMetricFamily("vizsla_index_documents", "Documents of an index.", labels=("index",))
        kept = GaugeMetricFamily(
            "vizsla_index_cache_entries", "What a worker keeps for the next searches.", labels=("index", "cache")
        )
        for name, hosted in list(self._hosting.indexes.items()):
            ready.add_metric((name,), float(hosted.is_open and hosted.problem is None))
            with suppress(VizslaError):  # it is closed, or is deleted meanwhile
                index = hosted.index
                figures = index.generation, len(index), index.cache_sizes()
                number.add_metric((name,), figures[0])
                documents.add_metric((name,), figures[1])
                for cache, size in figures[2].items():
                    kept.add_metric((name, cache), size)
        yield from (ready, number, documents, kept)


def resident_bytes() -> int:
    """The memory of this process that is not swapped out; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
