"""Every metric of the controller, declared once. Labels are bounded: fixed words and kinds, never an object's name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator looks like at the moment of a scrape."""

    synced: bool
    leading: bool
    objects: int
    queued: int
    streams: int  # of proxies, to this replica
    ages: Mapping[str, float]  # seconds since the last byte, by kind; of several watches of one kind the oldest
    counts: Mapping[str, int]  # since the start, by one of `COUNTS`
    wire: Mapping[str, int]  # events of the discovery server, by its own words
    uninjected: int = 0  # pods without the sidecar that they ask for
    admissions: Mapping[str, int] = {}  # answers of the webhook, by outcome
    certificate_ends: float = 0.0  # Unix time; 0 before there is one


COUNTS: Final = {
    "watch_errors": "Watches and lists that failed.",
    "front_restarts": "Times that kopf ended and was started again.",
    "publish_failures": "Faults of our own while publishing an object.",
    "reconcile_failures": "Reconciliations that failed, and were or will be repeated.",
    "writes": "Writes to the API server.",
    "events_dropped": "Kubernetes Events that were not written.",
    "lease_taken": "Times that this replica became the leader.",
    "relay_failures": "Reports of proxies that were not passed on at once.",
}


def registry(state: Callable[[], Operations]) -> CollectorRegistry:
    """Asks `state` at every scrape."""
    made = CollectorRegistry()
    made.register(_Samples(state))
    return made


class _Samples(Collector):
    def __init__(self, state: Callable[[], Operations]) -> None:
        self._state = state

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry must not collect just to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        now = self._state()
        for name, text, value in (
            ("synced", "Every cache had a complete list.", now.synced),
            ("leading", "This replica holds the Lease.", now.leading),
            ("objects", "BalancedServices.", now.objects),
            ("queue_length", "Objects waiting to be reconciled.", now.queued),
            ("proxy_streams", "Open streams of proxies.", now.streams),
            ("pods_without_sidecar", "Pods that ask for a sidecar and have none.", now.uninjected),
            ("certificate_end_timestamp_seconds", "Unix time when our certificate ends.", now.certificate_ends),
        ):
            yield GaugeMetricFamily(f"steelyard_operator_{name}", text, value=value)
        for name, text in COUNTS.items():
            yield CounterMetricFamily(f"steelyard_operator_{name}", text, value=now.counts.get(name, 0))
        age = GaugeMetricFamily(
            "steelyard_operator_watch_age_seconds", "Since a watch's last byte.", labels=("resource",)
        )
        for resource, seconds in now.ages.items():
            age.add_metric((resource,), seconds)
        yield age
        wire = CounterMetricFamily("steelyard_operator_discovery", "Events of the discovery server.", labels=("event",))
        for event, count in now.wire.items():
            wire.add_metric((event,), count)
        yield wire
        admissions = CounterMetricFamily(
            "steelyard_operator_admissions", "Answers of the webhook.", labels=("outcome",)
        )
        for outcome, count in now.admissions.items():
            admissions.add_metric((outcome,), count)
        yield admissions
