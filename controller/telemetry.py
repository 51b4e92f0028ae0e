"""Every metric of a proxy, declared once.

The hot path adds to plain integers; a collector turns them into Prometheus samples when somebody asks. Labels are
bounded: services, backends and fixed words, never a path, an address or a pod.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

# Seconds. Twice as far apart each: a proxied request in a cluster takes 1 ms to 10 s.
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Requests:
    """Requests, or connections of TCP ports, of one service to one backend ("" = none was reached)."""

    __slots__ = ("buckets", "outcomes", "received", "seconds", "sent")

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}  # a status class ("2xx"), or a reason word of the proxy's own
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        self.received = 0  # bytes from clients of TCP ports
        self.sent = 0  # bytes to them

    def observe(self, seconds: float) -> None:
        """Time from the request's head to the final response's head: a stream of an hour is no latency of an hour."""
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds


class PoolCounts:
    """What the pools of one service have made, over all its ports, those that are gone included."""

    __slots__ = ("connects", "races")

    def __init__(self) -> None:
        self.connects = 0  # begun to endpoints
        self.races = 0  # idle connections that an endpoint closed under a request


class Gauges(msgspec.Struct, kw_only=True):
    """What one service looks like at the moment of a scrape: nothing that only grows."""

    in_flight: int = 0
    waiting: int = 0
    clients: int = 0
    idle: int = 0
    usable: int = 0
    known: int = 0
    version: str = ""
    applied: float = 0.0  # seconds since the epoch


class Telemetry:
    """The process's counters. `gauges` is asked at every scrape: service → Gauges."""

    def __init__(self, gauges: Callable[[], Mapping[str, Gauges]] = dict) -> None:
        self.gauges = gauges
        self.retries: dict[tuple[str, str], int] = {}  # service, condition
        self.ejections: dict[tuple[str, str], int] = {}  # service, cause
        self.verdicts: dict[tuple[str, str], int] = {}  # service, what active checks found that they hadn't before
        self.log_lost = 0  # lines of the access log
        self.refused_connections = 0  # over maxConnections
        self.drain_cut = 0
        self.bugs = 0
        self.worker_restarts = 0
        self.worker_failures = 0
        self.pass_through: int | None = None  # services without a configuration; None where that can't be
        self.config_applied = 0
        self.config_rejected = 0
        self.memory: Callable[[], tuple[int, int, int]] = lambda: (0, 0, 0)  # held, refused, unkept
        # connected, and seconds since the operator said anything; None without an operator
        self.control: Callable[[], tuple[bool, float]] | None = None
        self._requests: dict[tuple[str, str], Requests] = {}
        self._pools: dict[str, PoolCounts] = {}

    def ejected(self, service: str, cause: str) -> None:
        self.ejections[service, cause] = self.ejections.get((service, cause), 0) + 1

    def judged(self, service: str, *, healthy: bool) -> None:
        verdict = "healthy" if healthy else "unhealthy"
        self.verdicts[service, verdict] = self.verdicts.get((service, verdict), 0) + 1

    def requests(self, service: str, backend: str) -> Requests:
        return self._requests.setdefault((service, backend), Requests())

    def pools(self, service: str) -> PoolCounts:
        return self._pools.setdefault(service, PoolCounts())

    @property
    def by_service(self) -> Mapping[str, PoolCounts]:
        return self._pools

    @property
    def by_backend(self) -> Mapping[tuple[str, str], Requests]:
        return self._requests

    def registry(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        registry.register(_Samples(self))
        return registry


class _Samples(Collector):
    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry must not collect just to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        telemetry = self._telemetry
        gauges = telemetry.gauges()  # first: they bring the counters of what is still open up to date
        yield from _of_requests(telemetry)
        yield from _of_services(gauges)
        yield from _of_pools(telemetry)
        for name, text, label, counts in (
            ("retries", "Retries made, and why.", "cause", telemetry.retries),
            ("ejections", "Endpoints ejected as outliers, and why.", "cause", telemetry.ejections),
            ("check_verdicts", "Endpoints that active checks found changed.", "verdict", telemetry.verdicts),
        ):
            family = CounterMetricFamily(f"steelyard_{name}", text, labels=("service", label))
            for labels, value in counts.items():
                family.add_metric(labels, value)
            yield family
        held, refused, unkept = telemetry.memory()
        yield GaugeMetricFamily("steelyard_held_bytes", "Bytes held for clients and backends.", value=held)
        for name, text, value in (
            ("memory_refused", "Requests refused for want of memory.", refused),
            ("memory_unkept", "Replay copies given up for want of memory.", unkept),
            ("connections_refused", "Client connections over maxConnections.", telemetry.refused_connections),
            ("drain_cut", "Requests cut when a drain was over.", telemetry.drain_cut),
            ("bugs", "Faults of the proxy itself.", telemetry.bugs),
            ("log_lines_lost", "Lines of the access log that nobody took in time.", telemetry.log_lost),
            ("worker_restarts", "Workers that died and were replaced.", telemetry.worker_restarts),
            (
                "worker_failures",
                "Workers that could not begin, for want of descriptors or processes.",
                telemetry.worker_failures,
            ),
            ("config_applied", "Configurations put in force.", telemetry.config_applied),
            ("config_rejected", "Configurations refused; the last good one stays.", telemetry.config_rejected),
        ):
            yield CounterMetricFamily(f"steelyard_{name}", text, value=value)
        if telemetry.pass_through is not None:
            text = "Services that are reached by their ordinary address, for want of a configuration."
            yield GaugeMetricFamily("steelyard_pass_through", text, value=telemetry.pass_through)
        if telemetry.control is not None:
            connected, age = telemetry.control()
            yield GaugeMetricFamily("steelyard_control_connected", "A stream to the operator is open.", value=connected)
            yield GaugeMetricFamily("steelyard_control_age_seconds", "Since the operator said anything.", value=age)


def _of_requests(telemetry: Telemetry) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "steelyard_requests", "Requests that have ended.", labels=("service", "backend", "outcome")
    )
    seconds = HistogramMetricFamily(
        "steelyard_response_head_seconds",
        "From the request's head to the final response's head.",
        labels=("service", "backend"),
    )
    carried = CounterMetricFamily(
        "steelyard_tcp_bytes",
        "Bytes from clients of TCP ports (received), and to them (sent).",
        labels=("service", "backend", "direction"),
    )
    bounds = [*(str(bound) for bound in BOUNDS), "+Inf"]
    for labels, counts in telemetry.by_backend.items():
        for outcome, value in counts.outcomes.items():
            requests.add_metric((*labels, outcome), value)
        seconds.add_metric(labels, list(zip(bounds, accumulate(counts.buckets), strict=True)), counts.seconds)
        if counts.received or counts.sent:
            carried.add_metric((*labels, "received"), counts.received)
            carried.add_metric((*labels, "sent"), counts.sent)
    yield requests
    yield seconds
    yield carried


def _of_pools(telemetry: Telemetry) -> Iterator[Metric]:
    connects = CounterMetricFamily("steelyard_pool_connects", "Connections begun to endpoints.", labels=("service",))
    text = "Idle connections that an endpoint closed under a request."
    races = CounterMetricFamily("steelyard_pool_races", text, labels=("service",))
    for service, counts in telemetry.by_service.items():
        connects.add_metric((service,), counts.connects)
        races.add_metric((service,), counts.races)
    yield connects
    yield races


def _of_services(gauges: Mapping[str, Gauges]) -> Iterator[Metric]:
    now = time.time()
    for field, name, text in (
        ("in_flight", "requests_in_flight", "Requests on an endpoint now."),
        ("waiting", "queue_length", "Requests waiting for a free slot."),
        ("clients", "client_connections", "Open connections of clients."),
        ("idle", "pool_idle_connections", "Idle connections to endpoints."),
        ("usable", "endpoints_usable", "Endpoints that may be picked."),
        ("known", "endpoints_known", "Endpoints that are listed."),
    ):
        family = GaugeMetricFamily(f"steelyard_{name}", text, labels=("service",))
        for service, values in gauges.items():
            family.add_metric((service,), getattr(values, field))
        yield family
    age = GaugeMetricFamily("steelyard_config_age_seconds", "Since the configuration came.", labels=("service",))
    info = GaugeMetricFamily("steelyard_config_info", "The version in force.", labels=("service", "version"))
    for service, values in gauges.items():
        if values.version:  # else it is gone, and its last requests have their drain
            age.add_metric((service,), max(0.0, now - values.applied))
            info.add_metric((service, values.version), 1)
    yield age
    yield info
