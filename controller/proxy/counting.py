"""A worker's counters as a `Report`, and the parent's sum of them: what a dead worker had counted stays counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.model.snapshot import Snapshot
from controller.proxy.messages import Counts, Key, Report, ServiceGauges
from controller.proxy.plane import DataPlane
from controller.proxy.upstream import Upstream
from controller.telemetry import Gauges, Telemetry

NOTHING = Report()


def report(plane: DataPlane) -> Report:
    """All that this process has counted, and what it holds now."""
    services = plane.gauges()  # first: it brings the byte counters of open connections up to date
    telemetry = plane.telemetry
    held, refused, unkept = telemetry.memory()
    idle = {upstream.name: {id_: count for id_, count in pools.items() if count} for upstream, pools in plane.idle()}
    return Report(
        requests=tuple(
            Counts(*labels, dict(each.outcomes), list(each.buckets), each.seconds, each.received, each.sent)
            for labels, each in telemetry.by_backend.items()
        ),
        services=tuple(
            ServiceGauges(name, each.in_flight, each.waiting, each.clients, each.idle)
            for name, each in services.items()
        ),
        pools=tuple((name, each.connects, each.races) for name, each in telemetry.by_service.items()),
        retries=tuple((*labels, count) for labels, count in telemetry.retries.items()),
        refused_connections=telemetry.refused_connections,
        drain_cut=telemetry.drain_cut,
        bugs=telemetry.bugs,
        log_lost=telemetry.log_lost,
        held=held,
        memory_refused=refused,
        memory_unkept=unkept,
        idle={name: pools for name, pools in idle.items() if pools},
    )


def remains(of: Report) -> Report:
    """What stays when its worker has died: the counters, none of the gauges."""
    return Report(
        requests=of.requests,
        pools=of.pools,
        retries=of.retries,
        refused_connections=of.refused_connections,
        drain_cut=of.drain_cut,
        bugs=of.bugs,
        log_lost=of.log_lost,
        memory_refused=of.memory_refused,
        memory_unkept=of.memory_unkept,
    )


def total(reports: Iterable[Report]) -> Report:
    """The sum."""
    reports = tuple(reports)
    requests: dict[tuple[str, str], Counts] = {}
    services: dict[str, ServiceGauges] = {}
    made: dict[str, tuple[int, int]] = {}
    retries: dict[tuple[str, str], int] = {}
    idle: dict[str, dict[str, int]] = {}
    for each in reports:
        for counts in each.requests:
            _add_counts(requests, counts)
        for gauges in each.services:
            known = services.setdefault(gauges.service, ServiceGauges(gauges.service, 0, 0, 0, 0))
            for field in ServiceGauges.__struct_fields__[1:]:
                setattr(known, field, getattr(known, field) + getattr(gauges, field))
        for service, connects, races in each.pools:
            before = made.get(service, (0, 0))
            made[service] = (before[0] + connects, before[1] + races)
        for service, cause, count in each.retries:
            retries[service, cause] = retries.get((service, cause), 0) + count
        for upstream, pools in each.idle.items():
            sums = idle.setdefault(upstream, {})
            for identity, count in pools.items():
                sums[identity] = sums.get(identity, 0) + count
    return Report(
        requests=tuple(requests.values()),
        services=tuple(services.values()),
        pools=tuple((service, *counts) for service, counts in made.items()),
        retries=tuple((*labels, count) for labels, count in retries.items()),
        refused_connections=sum(each.refused_connections for each in reports),
        drain_cut=sum(each.drain_cut for each in reports),
        bugs=sum(each.bugs for each in reports),
        log_lost=sum(each.log_lost for each in reports),
        held=sum(each.held for each in reports),
        memory_refused=sum(each.memory_refused for each in reports),
        memory_unkept=sum(each.memory_unkept for each in reports),
        idle=idle,
    )


def _add_counts(into: dict[tuple[str, str], Counts], counts: Counts) -> None:
    key = (counts.service, counts.backend)
    if key not in into:
        into[key] = Counts(
            *key, dict(counts.outcomes), list(counts.buckets), counts.seconds, counts.received, counts.sent
        )
        return
    known = into[key]
    for outcome, count in counts.outcomes.items():
        known.outcomes[outcome] = known.outcomes.get(outcome, 0) + count
    known.buckets = [mine + theirs for mine, theirs in zip(known.buckets, counts.buckets, strict=True)]
    known.seconds += counts.seconds
    known.received += counts.received
    known.sent += counts.sent


def show(of: Report, telemetry: Telemetry) -> None:
    """Make it what the parent's /metrics show."""
    for counts in of.requests:
        shown = telemetry.requests(counts.service, counts.backend)
        shown.outcomes, shown.buckets, shown.seconds = counts.outcomes, counts.buckets, counts.seconds
        shown.received, shown.sent = counts.received, counts.sent
    for service, connects, races in of.pools:
        pools = telemetry.pools(service)
        pools.connects, pools.races = connects, races
    telemetry.retries = {(service, cause): count for service, cause, count in of.retries}
    telemetry.refused_connections = of.refused_connections
    telemetry.drain_cut = of.drain_cut
    telemetry.bugs = of.bugs
    telemetry.log_lost = of.log_lost
    telemetry.memory = lambda: (of.held, of.memory_refused, of.memory_unkept)


def gauges(
    of: Report, upstreams: Iterable[Upstream], snapshots: Mapping[Key, tuple[Snapshot, str, float]]
) -> dict[str, Gauges]:
    """By service. Endpoints, and the versions in force, are what the parent knows itself."""
    services = {
        each.service: Gauges(in_flight=each.in_flight, waiting=each.waiting, clients=each.clients, idle=each.idle)
        for each in of.services
    }
    for upstream in upstreams:
        known = services.setdefault("/".join(upstream.snapshot.key), Gauges())
        known.usable += upstream.usable
        known.known += upstream.known
    for key, (_, version, applied) in snapshots.items():
        known = services.setdefault("/".join(key), Gauges())
        known.version, known.applied = version, applied
    return services


class Counted:
    """What the workers of a pod have counted, those included that have died."""

    def __init__(self) -> None:
        self._latest: dict[int, Report] = {}
        self._past = NOTHING

    def hear(self, worker: int, latest: Report) -> None:
        self._latest[worker] = latest

    def bury(self, worker: int) -> None:
        """What it held is gone, and what it counted stays."""
        self._past = total((self._past, remains(self._latest.pop(worker, NOTHING))))

    @property
    def whole(self) -> Report:
        return total((self._past, *self._latest.values()))
