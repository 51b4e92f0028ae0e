"""What the pages say in passing, and nothing else shows."""

from __future__ import annotations

import asyncio
from typing import get_args

import click
import pytest

from controller.balancing.node import Kind
from controller.children import ChildSettings
from controller.children.pods import deployment
from controller.commands.proxy import proxy
from controller.model.endpoints import Endpoint
from controller.model.service import Algorithm, AlgorithmType, BalancedService, Port
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort
from controller.proxy import report
from controller.proxy.codec import Refused
from controller.proxy.seat import Seat
from controller.proxy.timers import LoopTimers
from controller.proxy.upstreams import Upstreams
from tests.pages import section
from tests.unit.codec.reading import read_request


@pytest.mark.parametrize("algorithm", get_args(AlgorithmType))
async def test_only_peak_ewma_has_latencies_to_show(algorithm: AlgorithmType) -> None:
    endpoint = Endpoint(id="one", address="192.0.2.1", port=80)
    backend = SnapshotBackend(name="all", weight=1, weight_per="Backend", endpoints=(endpoint,))
    ports = (SnapshotPort(name="http", port=80, listen=80, backends=(backend,)),)
    upstreams = Upstreams(Seat(identity="pod"), LoopTimers(), lambda u, n: None, lambda u, n: None)
    upstreams.apply(Snapshot(namespace="store", name="shop", ports=ports, algorithm=Algorithm(type=algorithm)))
    (upstream,) = upstreams
    (node,) = upstream.nodes

    now = asyncio.get_running_loop().time()
    node.start(now)
    node.finish(now + 0.5, Kind.OK, 0.5)
    (row,) = report.endpoints(upstream, now + 0.5)
    upstreams.close()

    assert row["latency"] == (0.5 if algorithm == "PeakEWMA" else None)


def test_a_gateways_proxy_is_one_worker() -> None:
    """So more replicas help it, and more cores don't."""
    service = BalancedService(namespace="store", name="shop", ports=(Port(port=80),), backends=())
    made = deployment(service, ChildSettings(image="proxy:1", control="https://operator:19443"))
    (container,) = made["spec"]["template"]["spec"]["containers"]
    (option,) = [each for each in proxy.params if each.name == "workers"]

    assert not [each for each in container["args"] if each.startswith("--workers")]
    assert [each["name"] for each in container["env"]] == ["POD_UID"]
    assert isinstance(option, click.Option)
    assert option.default == 1


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        (b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c", 400),
        (b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 501),
    ],
    ids=["TLS", "HTTP/2", "PROXY 1", "PROXY 2", "CONNECT"],
)
def test_another_protocol_is_refused_as_is_said(raw: bytes, status: int) -> None:
    answer, _ = read_request([raw])

    assert isinstance(answer, Refused)
    assert answer.status == status
    assert str(status) in section("limits.md", "## Protocols")
