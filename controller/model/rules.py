"""What must hold beyond the type of a single field: the counterparts of the CRD's CEL rules, with the same messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from controller.model.fields import Broken, Plain, refuse
from controller.model.records import Rule
from controller.model.service import Backend, Fault, HashOn, Port

Check = tuple[str, Callable[[Any], bool]]  # the message, and what must hold


def is_ip(text: str) -> bool:
    """An IPv4 or IPv6 address; no zone, no leading zeros, and no IPv4 address in IPv6 clothes (as CEL's isIP)."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return not isinstance(address, IPv6Address) or (address.scope_id is None and address.ipv4_mapped is None)


def is_network(text: str) -> bool:
    """An address and the length of its prefix (as CEL's isCIDR); bits beyond the prefix may be set."""
    address, slash, length = text.partition("/")
    if not slash or re.fullmatch("0|[1-9][0-9]{0,2}", length, re.ASCII) is None or not is_ip(address):
        return False
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def canonical(addresses: Sequence[str]) -> tuple[str, ...]:
    """Each address once, in its shortest writing, so that one endpoint has one identity."""
    return tuple(dict.fromkeys(str(ip_address(address)) for address in addresses))


def is_service_name(text: str) -> bool:
    """A DNS label of RFC 1035, which is what a Service may be called."""
    return len(text) <= 63 and re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", text, re.ASCII) is not None


SERVICE_NAME: Check = (
    "metadata.name must be a Service name: at most 63 lower-case letters, digits and '-', beginning with a letter "
    "and ending with a letter or digit",
    is_service_name,
)
IP_ADDRESS: Check = (
    "addresses must be IP addresses such as 192.0.2.10 or 2001:db8::10: use hostname for a name, and port for a port",
    is_ip,
)
NO_IP_ADDRESS: Check = (
    "hostname must be a DNS name: use addresses for an IP address",
    lambda text: not is_ip(text),
)
NETWORK: Check = (
    "trustedProxies must be networks such as 10.0.0.0/8 or 2001:db8::/32: write one address as 192.0.2.1/32",
    is_network,
)
BOUNDED_LOAD: Check = (
    "boundedLoad must be 0 (no bound) or from 100 to 1000 percent",
    lambda percent: percent == 0 or percent >= 100,
)
RISING: Check = (
    "expectedStatuses must be codes or rising ranges such as 200-399",
    lambda text: "-" not in text or text[:3] <= text[4:],
)
DISTINCT_PORTS: Check = (
    "ports must differ in port: two entries listen on the same one",
    lambda ports: len({port.port for port in ports}) == len(ports),
)


class RetryCondition(Plain):
    """The name of a failure, or a status code that may be retried."""

    allowed = ("ConnectFailure", "Reset", 429, 502, 503, 504)
    message = "conditions must be ConnectFailure, Reset, 429, 502, 503 or 504, the codes without quotes"

    def read(self, value: object, path: str, faults: list[Fault]) -> str | int | Broken:
        for word in self.allowed:
            if value == word:
                return word
        return refuse(faults, path, self.message)


def _exactly_one(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda given: sum(name in given for name in names) == 1


# The options of `spec.algorithm`, each with the only type that it is allowed with.
OPTION_OF = {"peakEWMA": "PeakEWMA", "consistentHash": "ConsistentHash", "hashOn": "ConsistentHash"}


def _only_with_its_type(option: str, why: str = "") -> Rule:
    return Rule(
        ("type", option),
        option,
        f"{option} is allowed only with type {OPTION_OF[option]}{why}: change type, or remove {option}",
        lambda given: option not in given or given.get("type") == OPTION_OF[option],
    )


ONE_SOURCE = Rule(
    (),
    "",
    "exactly one of service, selector, addresses and hostname must be set: a backend has one source of endpoints",
    _exactly_one("service", "selector", "addresses", "hostname"),
)
ONE_KEY = Rule(
    (),
    "",
    "exactly one of header, cookie, query, path and clientAddress must be set in an entry of hashOn: "
    "write one entry for each",
    _exactly_one("header", "cookie", "query", "path", "clientAddress"),
)
OPTIONS = (
    _only_with_its_type("peakEWMA"),
    _only_with_its_type("consistentHash"),
    _only_with_its_type("hashOn", why=" (SourceHash always hashes the client address)"),
)
EXPOSED = Rule(
    ("serviceType", "externalTrafficPolicy"),
    "externalTrafficPolicy",
    "externalTrafficPolicy is allowed only with serviceType NodePort or LoadBalancer: change serviceType, "
    "or remove externalTrafficPolicy",
    lambda given: "externalTrafficPolicy" not in given or given.get("serviceType") in ("NodePort", "LoadBalancer"),
)


def _has_tcp(given: Mapping[str, Any]) -> bool:
    ports: Sequence[Port] = given["ports"]
    return any(port.protocol == "TCP" for port in ports)


def _hashes_only_addresses(given: Mapping[str, Any]) -> bool:
    algorithm = given.get("algorithm")
    sources: Sequence[HashOn] = algorithm.hash_on if algorithm is not None else ()
    return all(source.client_address for source in sources)


def _numbers_where_no_names_are(given: Mapping[str, Any]) -> bool:
    ports: Sequence[Port] = given["ports"]
    backends: Sequence[Backend] = given["backends"]
    named = any(isinstance(port.target_port, str) for port in ports)
    return not named or all(
        backend.port is not None or (backend.addresses is None and backend.hostname is None) for backend in backends
    )


SPEC = (
    Rule(
        ("ports", "backends"),
        "backends",
        "backends[].port is allowed only with exactly one entry in ports: with several, set targetPort on each entry "
        "of ports",
        lambda given: len(given["ports"]) == 1 or all(backend.port is None for backend in given["backends"]),
    ),
    Rule(
        ("ports", "backends"),
        "ports",
        "ports[].targetPort must be a number for backends with addresses or hostname, which have no named ports: "
        "write the number, or set port on the backend",
        _numbers_where_no_names_are,
    ),
    Rule(
        ("ports", "affinity"),
        "affinity",
        "affinity needs cookies, which TCP ports do not have: remove affinity, or move the TCP ports to another "
        "BalancedService",
        lambda given: "affinity" not in given or not _has_tcp(given),
    ),
    Rule(
        ("ports", "algorithm"),
        "algorithm.hashOn",
        "hashOn may name only clientAddress while there is a TCP port: use clientAddress, or move the TCP ports to "
        "another BalancedService",
        lambda given: _hashes_only_addresses(given) or not _has_tcp(given),
    ),
)

LOOP = (
    "backends must not name this object's own Service, which would be a loop: rename the object, or point the backend "
    "at another Service"
)


def names_itself(name: str, spec: Mapping[str, Any]) -> bool:
    """Whether a backend is the Service that a Gateway of this name owns, as far as the object alone can tell."""
    proxy, backends = spec.get("proxy"), spec["backends"]
    return (proxy is None or proxy.mode == "Gateway") and any(
        backend.service is not None and backend.service.namespace is None and backend.service.name == name
        for backend in backends
    )
