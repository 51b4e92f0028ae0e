"""Processor-sharing servers: of n requests present each progresses at min(1, cap / n), with a cap that changes.

A server keeps a virtual time that runs at that rate, and a heap of the virtual times at which its requests end; one
completion is scheduled, with a version, and rescheduled whenever an arrival, a departure or the cap changes the rate.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from controller.balancing.node import Kind
from tests.bench.simulation.fleet import Fleet
from tests.bench.simulation.result import Recorder, Result
from tests.bench.simulation.trace import Trace

ARRIVAL, COMPLETION, FLIP = 0, 1, 2


@dataclass(frozen=True)
class Caps:
    high: float
    low: float
    high_mean: float  # seconds
    low_mean: float

    @property
    def mean(self) -> float:
        return (self.high * self.high_mean + self.low * self.low_mean) / (self.high_mean + self.low_mean)


@dataclass
class Server:
    cap: float
    virtual: float = 0.0
    at: float = 0.0
    version: int = 0
    jobs: list[tuple[float, int, int, float]] = field(default_factory=list)  # virtual end, number, balancer, began
    supplied: float = 0.0  # cap-seconds, to check the antagonist against its mean

    def rate(self) -> float:
        return min(1.0, self.cap / len(self.jobs)) if self.jobs else 0.0

    def advance(self, now: float) -> None:
        self.virtual += (now - self.at) * self.rate()
        self.supplied += (now - self.at) * self.cap
        self.at = now

    def next_end(self) -> float | None:
        return self.at + max(0.0, self.jobs[0][0] - self.virtual) / self.rate() if self.jobs else None


def run_sharing(
    fleet: Fleet, trace: Trace, servers: int, caps: Caps, *, timeout: float, warmup: float = 0.2, seed: int = 0
) -> tuple[Result, list[float]]:
    """The result, and every server's average cap over the run."""
    recorder = Recorder(from_time=trace.at[int(len(trace.at) * warmup)], servers=servers)
    random = np.random.default_rng(seed + 77)
    farm = []
    events: list[tuple[float, int, int, int, int]] = []  # time, order, kind, server or request, version
    order = 0

    def schedule(at: float, kind: int, which: int, version: int = 0) -> None:
        nonlocal order
        order += 1
        heapq.heappush(events, (at, order, kind, which, version))

    def reschedule(index: int) -> None:
        server = farm[index]
        server.version += 1
        ends = server.next_end()
        if ends is not None:
            schedule(ends, COMPLETION, index, server.version)

    for index in range(servers):
        low = bool(random.random() < caps.low_mean / (caps.low_mean + caps.high_mean))
        farm.append(Server(cap=caps.low if low else caps.high))
        schedule(random.exponential(caps.low_mean if low else caps.high_mean), FLIP, index)
    present = [0] * servers
    n, requests = 0, len(trace.at)
    while n < requests or any(present):
        if n < requests and (not events or trace.at[n] <= events[0][0]):
            now = trace.at[n]
            balancer = trace.balancer[n]
            index = fleet.pick(balancer, now, trace.key[n], present)
            fleet.started(balancer, index, now)
            if now >= recorder.from_time:
                recorder.picks[index] += 1
            server = farm[index]
            server.advance(now)
            heapq.heappush(server.jobs, (server.virtual + trace.demand[n], n, balancer, now))
            present[index] += 1
            reschedule(index)
            n += 1
            continue
        now, _, kind, index, version = heapq.heappop(events)
        server = farm[index]
        if kind == FLIP:
            server.advance(now)
            low = server.cap == caps.high
            server.cap = caps.low if low else caps.high
            schedule(now + random.exponential(caps.low_mean if low else caps.high_mean), FLIP, index)
            reschedule(index)
        elif version == server.version:
            server.advance(now)
            _, _, balancer, began = heapq.heappop(server.jobs)
            present[index] -= 1
            late = now - began > timeout
            fleet.ended(balancer, index, began, now, Kind.TIMEOUT if late else Kind.OK)
            if began >= recorder.from_time:
                recorder.total += 1
                recorder.errors += late
                recorder.latencies.append(min(timeout, now - began))
            reschedule(index)
    end = trace.at[-1]
    return recorder.result(), [server.supplied / max(server.at, end) for server in farm]
