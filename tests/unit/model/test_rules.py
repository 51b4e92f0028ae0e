"""IP addresses and networks as CEL's isIP and isCIDR see them."""

from __future__ import annotations

import pytest

from controller.model.rules import is_ip, is_network, is_service_name


@pytest.mark.parametrize("text", ["192.0.2.1", "0.0.0.0", "::", "::1", "2001:DB8::1", "::192.0.2.1"])
def test_an_ip_address_is_one(text: str) -> None:
    assert is_ip(text)


@pytest.mark.parametrize(
    "text",
    ["", "192.0.2", "192.0.2.01", "192.0.2.256", "fe80::1%eth0", "::ffff:192.0.2.1", "[::1]", "1", " ::1", "::1\n"],
)
def test_what_is_no_ip_address_is_none(text: str) -> None:
    assert not is_ip(text)


@pytest.mark.parametrize("text", ["10.0.0.0/8", "10.1.2.3/8", "0.0.0.0/0", "::/0", "2001:db8::1/128"])
def test_a_network_is_one(text: str) -> None:
    assert is_network(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.0",
        "10.0.0.0/",
        "10.0.0.0/33",
        "10.0.0.0/08",
        "10.0.0.0/255.0.0.0",
        "::/129",
        "x/8",
        "::ffff:1.2.3.4/96",
    ],
)
def test_what_is_no_network_is_none(text: str) -> None:
    assert not is_network(text)


@pytest.mark.parametrize("text", ["a", "a-1", "a" * 63])
def test_a_service_name_is_a_label_of_rfc_1035(text: str) -> None:
    assert is_service_name(text)


@pytest.mark.parametrize("text", ["", "a" * 64, "1a", "a-", "-a", "A", "a.b", "a\n"])
def test_what_is_no_service_name_is_none(text: str) -> None:
    assert not is_service_name(text)
