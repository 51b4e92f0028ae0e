"""The client's address and what upstream learns of it."""

from __future__ import annotations

import pytest

from controller.proxy.codec import Forwarding
from tests.unit.codec.cases import request
from tests.unit.codec.cases_forwarding import BAD_NETWORKS, FORWARDED, Forwarded
from tests.unit.codec.reading import AUTHORITY, GET, ID, lines_of, request_of

HOP = "store.shop.steelyard"


@pytest.mark.parametrize("case", FORWARDED, ids=str)
def test_forwarding_fields_are_believed_of_trusted_peers_only(case: Forwarded) -> None:
    forwarding = Forwarding(hop=HOP, port=80, trusted=case.trusted, pod_address=case.pod_address)
    head = request_of(request(*case.lines))

    lines = lines_of(head.forward(forwarding, case.peer, ID, AUTHORITY))

    assert sorted(lines) == sorted(
        [*case.out, b"Host: a.example", b"X-Request-Id: our-id", b"Steelyard-Hop: " + HOP.encode()]
    )
    assert head.client(forwarding, case.peer) == case.client
    assert head.scheme(forwarding, case.peer) == case.scheme


def test_the_forwarded_host_is_the_one_that_the_client_named() -> None:
    forwarding = Forwarding(hop=HOP, port=8080)
    head = request_of(b"GET http://b.example:81/ HTTP/1.1\r\nHost: a.example\r\n\r\n")

    lines = lines_of(head.forward(forwarding, "192.0.2.1", ID, AUTHORITY))

    assert b"X-Forwarded-Host: b.example:81" in lines
    assert b"X-Forwarded-Port: 8080" in lines


def test_a_peer_that_is_no_address_is_its_own_client() -> None:
    forwarding = Forwarding(hop=HOP, port=80, trusted=("0.0.0.0/0", "::/0"))
    head = request_of(request(b"X-Forwarded-For: 1.1.1.1"))

    assert head.client(forwarding, "unix:") == "unix:"
    assert b"X-Forwarded-For: unix:" in lines_of(head.forward(forwarding, "unix:", ID, AUTHORITY))


@pytest.mark.parametrize("network", BAD_NETWORKS)
def test_a_bad_network_is_refused_at_once(network: str) -> None:
    with pytest.raises(ValueError, match="is no address, network or host name"):
        Forwarding(hop=HOP, port=80, trusted=(network,))


@pytest.mark.parametrize("hop", ["", "a b", "a,b", "a\r\nb", "ä"])
def test_a_bad_pseudonym_is_refused_at_once(hop: str) -> None:
    with pytest.raises(ValueError, match="is no address, network or host name"):
        Forwarding(hop=hop, port=80)


def test_a_bad_pod_address_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="is no address, network or host name"):
        Forwarding(hop=HOP, port=80, pod_address="x")


def test_a_control_byte_in_the_peer_is_refused() -> None:
    with pytest.raises(ValueError, match="peer holds a control byte"):
        request_of(GET).forward(Forwarding(hop=HOP, port=80), "a\r\nb", ID, AUTHORITY)
