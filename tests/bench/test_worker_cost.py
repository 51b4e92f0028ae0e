"""What it costs that workers balance as one: shared counters around a pick; and what a second worker carries.

The first is a gate, in CPU time of one process, medians of interleaved rounds. The second is only reported: client,
backend and workers share the machine's cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import thread_time

from controller.balancing.affinity import Keys
from controller.balancing.node import Kind
from controller.balancing.picker import PickRequest
from controller.model.endpoints import Endpoint
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort
from controller.proxy.block import Block
from controller.proxy.seat import Seat
from controller.proxy.sharing import Carrying
from controller.proxy.upstream import Upstream
from tests.bench.test_proxy_cost import FILE, cpu, free_port, load, running
from tests.component.hand_clock import HandTimers

ROUNDS = 9
CALLS = 5000
NODES = 100
WORKERS = 2
RATE = 20_000  # requests a second of the worker: how often a pick finds the others' sums too old
EXTRA = 1.0  # µs that start + pick + finish may cost more than without other workers
TRIES = 3  # noise only ever adds


def upstream(sharing: Carrying | None) -> Upstream:
    endpoints = tuple(Endpoint(id=f"e{n}", address=f"10.0.0.{n}", port=80) for n in range(NODES))
    backend = SnapshotBackend(name="all", weight=1, weight_per="Endpoint", endpoints=endpoints)
    port = SnapshotPort(name="http", port=80, listen=80, backends=(backend,))
    snapshot = Snapshot(namespace="bench", name="shop", ports=(port,))
    seat = Seat(identity="pod", workers=WORKERS if sharing else 1)
    return Upstream(port, snapshot, seat, HandTimers(), Keys(bytes(32)), sharing)


def shared() -> Upstream:
    block = Block(memoryview(bytearray(Block.size(WORKERS, NODES))), WORKERS, NODES)
    carrying = Carrying(block, 0, lambda *outcome: None)
    carrying.assign("bench/shop/http", {f"e{n}": n for n in range(NODES)})
    return upstream(carrying)


def rounds(of: Upstream) -> Callable[[], float]:
    """CPU-microseconds for one attempt in a round: pick, start, the answer, finish."""
    now = 0.0

    def one_round() -> float:
        nonlocal now
        requests = [PickRequest(now + n / RATE) for n in range(CALLS)]
        now += CALLS / RATE
        began = thread_time()
        for request in requests:
            node = of.pick(request)
            node.start(request.now)
            node.answered(request.now, Kind.OK, 0.001)
            node.finish(request.now, Kind.OK)
        return (thread_time() - began) / CALLS * 1e6

    return one_round


def test_shared_counters_add_less_than_a_microsecond_to_an_attempt() -> None:
    alone, together = rounds(upstream(None)), rounds(shared())
    for _ in range(TRIES):
        found = [(alone(), together()) for _ in range(ROUNDS)]
        one, two = (median(column) for column in zip(*found, strict=True))
        extra = median(theirs - ours for ours, theirs in found)
        print(
            f"\nan attempt's choice and counters: {one:.2f} µs alone, {two:.2f} µs with {WORKERS} workers: +{extra:.2f}"
        )
        if extra <= EXTRA:
            return
    raise AssertionError(f"shared counters cost {extra:.2f} µs")


def pod_cpu(pid: int) -> float:
    """Seconds on a processor, of a proxy and its workers."""
    children = "".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return sum(cpu(each) for each in (pid, *map(int, children.split())))


def test_what_workers_carry_is_reported(tmp_path: Path) -> None:
    found, costs = {}, {}
    for workers in (1, 2):
        backend, port = free_port(), free_port()
        path = tmp_path / f"{workers}.yaml"
        path.write_text(FILE.format(port=port, backend=backend))
        options = ("--host", "127.0.0.1", "--admin", "Disabled", "--workers", str(workers))
        with ExitStack() as stack:
            stack.enter_context(running(backend, "tests.bench.raw_peers", "serve", str(backend)))
            pid = stack.enter_context(running(port, "controller", "proxy", "--file", str(path), *options))
            assert any(load(port) > 500 for _ in range(10))  # the sockets listen before the workers serve
            spent, began = pod_cpu(pid), time.monotonic()
            answers = load(port)
            found[workers] = answers / (time.monotonic() - began)
            costs[workers] = (pod_cpu(pid) - spent) / answers * 1e6
    print("\nclient and backend on the same cores:")
    for workers, rate in found.items():
        print(f"  {workers} workers: {rate:.0f} requests a second, {costs[workers]:.1f} CPU-µs each, of all processes")
    assert min(found.values()) > 500
