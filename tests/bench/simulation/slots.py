"""Servers with c slots and a FIFO queue each: a request started at t takes demand / speed(t).

A failing server answers with an error after a millisecond and takes no slot. With a timeout, a request that has
waited longer when it reaches the head of the queue is an error, and one that finishes late counts with the timeout
as its latency. With a cache, a key that is not among the server's most recent ones costs `miss` times the work.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller.balancing.node import Kind
from tests.bench.simulation.fleet import Fleet
from tests.bench.simulation.result import Recorder, Result
from tests.bench.simulation.trace import Trace

FAILS_AFTER = 0.001


@dataclass(frozen=True)
class Antagonist:
    """Every server's speed is multiplied by `slow` in phases of exponential length, drawn per server."""

    slow: float
    slow_mean: float
    normal_mean: float

    @property
    def mean_factor(self) -> float:
        return (self.slow * self.slow_mean + self.normal_mean) / (self.slow_mean + self.normal_mean)

    def phases(self, until: float, seed: int) -> list[tuple[float, float]]:
        """(start, factor) of each phase, from a stationary beginning."""
        random = np.random.default_rng(seed)
        slow = bool(random.random() < self.slow_mean / (self.slow_mean + self.normal_mean))
        at, phases = 0.0, []
        while at < until:
            phases.append((at, self.slow if slow else 1.0))
            at += random.exponential(self.slow_mean if slow else self.normal_mean)
            slow = not slow
        return phases


@dataclass(frozen=True)
class Cache:
    size: int
    miss: float


def run_slots(
    fleet: Fleet,
    trace: Trace,
    slots: Sequence[int],
    speeds: Sequence[float],
    *,
    timeout: float = math.inf,
    failing: int | None = None,
    antagonist: Antagonist | None = None,
    cache: Cache | None = None,
    warmup: float = 0.2,
    seed: int = 0,
) -> Result:
    servers = len(slots)
    horizon = trace.at[-1]
    recorder = Recorder(from_time=trace.at[int(len(trace.at) * warmup)], servers=servers)
    free = [[0.0] * n for n in slots]  # per server: when each slot is free, a heap
    present = [0] * servers
    # A server is asked for its speed at times that never fall, so its phases are walked once.
    phases = [antagonist.phases(2 * horizon, seed * 1009 + i) if antagonist else [(0.0, 1.0)] for i in range(servers)]
    phase = [0] * servers
    cached: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(servers)]
    ends: list[tuple[float, int, int, int, float, Kind, float]] = []

    def end(at: float, balancer: int, server: int, began: float, kind: Kind, latency: float) -> None:
        present[server] -= 1
        fleet.ended(balancer, server, began, at, kind)
        if began >= recorder.from_time:
            recorder.total += 1
            if kind is Kind.OK:
                recorder.latencies.append(latency)
            else:
                recorder.errors += 1
                if latency == timeout:
                    recorder.latencies.append(latency)

    for n, now in enumerate(trace.at):
        while ends and ends[0][0] <= now:
            at, _, balancer, server, began, kind, latency = heapq.heappop(ends)
            end(at, balancer, server, began, kind, latency)
        if n % 1024 == 0 and now >= recorder.from_time:
            recorder.samples.append(max(present[i] / (slots[i] * speeds[i]) for i in range(servers)))
        balancer = trace.balancer[n]
        server = fleet.pick(balancer, now, trace.key[n], present)
        if now >= recorder.from_time:
            recorder.picks[server] += 1
        present[server] += 1
        fleet.started(balancer, server, now)
        if server == failing:
            heapq.heappush(ends, (now + FAILS_AFTER, n, balancer, server, now, Kind.ERROR, FAILS_AFTER))
            continue
        start = max(now, free[server][0])
        if start - now > timeout:
            heapq.heappush(ends, (start, n, balancer, server, now, Kind.TIMEOUT, timeout))
            continue
        demand = trace.demand[n]
        if cache is not None:
            recent, key = cached[server], trace.key[n]
            if key in recent:
                recent.move_to_end(key)
                recorder.hits += now >= recorder.from_time
            else:
                demand *= cache.miss
                recent[key] = None
                if len(recent) > cache.size:
                    recent.popitem(last=False)
        own = phases[server]
        while phase[server] + 1 < len(own) and own[phase[server] + 1][0] <= start:
            phase[server] += 1
        finish = start + demand / (speeds[server] * own[phase[server]][1])
        heapq.heapreplace(free[server], finish)
        heapq.heappush(ends, (finish, n, balancer, server, now, Kind.OK, min(timeout, finish - now)))
    while ends:
        at, _, balancer, server, began, kind, latency = heapq.heappop(ends)
        end(at, balancer, server, began, kind, latency)
    return recorder.result()
