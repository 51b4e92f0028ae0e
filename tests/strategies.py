"""Hypothesis strategies for what passes between the stages. Valid by construction; small, since laws run them often.

`api_objects()`: BalancedServices as their authors write them. `balanced_services()`: the same, parsed.
`mutated_objects()`: with a few places changed at random, so that many are invalid. `MANIFESTS`: of any kind, with
texts that mean something in YAML.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from controller.model.parsing import parse
from controller.model.service import BalancedService

LABELS = st.from_regex(r"\A[a-z]([-a-z0-9]{0,8}[a-z0-9])?\Z")
PORT_NUMBERS = st.integers(1, 65535)
HTTP_TOKENS = st.from_regex(r"\A[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}\Z")
VALUES = st.from_regex(r"\A([A-Za-z0-9]([-A-Za-z0-9_.]{0,6}[A-Za-z0-9])?)?\Z")
IPS = st.one_of(
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).filter(lambda address: address.ipv4_mapped is None).map(str),
)
NETWORKS = st.one_of(
    st.builds("{}/{}".format, st.ip_addresses(v=4), st.integers(0, 32)),
    st.builds("{}/{}".format, st.ip_addresses(v=6, network="2001:db8::/32"), st.integers(0, 128)),
)
HOSTNAMES = st.lists(LABELS, min_size=1, max_size=3).map(".".join)


def durations(low: str, high: str) -> st.SearchStrategy[str]:
    """From `low` to `high`, both in the list; a few writings between them."""
    milliseconds = {"0s": 0, "1ms": 1, "10ms": 10, "100ms": 100, "1s": 1000}[low]
    return st.one_of(
        st.sampled_from([low, high]),
        st.integers(max(milliseconds, 1), 99_999).map("{}ms".format),
        st.integers(1, 59).map("{}s".format),
        st.integers(0, 900).map("1m{}ms".format),
    )


def _optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def _ports() -> st.SearchStrategy[list[dict[str, Any]]]:
    port = st.fixed_dictionaries(
        {"name": LABELS, "port": PORT_NUMBERS},
        optional={
            "targetPort": st.one_of(PORT_NUMBERS, LABELS),
            "protocol": st.sampled_from(["HTTP", "HTTP", "TCP"]),
        },
    )
    return st.lists(port, min_size=1, max_size=3, unique_by=(lambda each: each["name"], lambda each: each["port"]))


def _backends() -> st.SearchStrategy[list[dict[str, Any]]]:
    source = st.one_of(
        st.fixed_dictionaries(
            {"service": st.fixed_dictionaries({"name": LABELS}, optional={"namespace": LABELS})},
        ),
        st.fixed_dictionaries(
            {
                "selector": st.fixed_dictionaries(
                    {"matchLabels": st.dictionaries(LABELS, VALUES, min_size=1, max_size=2)}
                )
            },
        ),
        st.fixed_dictionaries({"addresses": st.lists(IPS, min_size=1, max_size=4, unique=True)}),
        st.fixed_dictionaries({"hostname": HOSTNAMES}),
    )
    backend = st.builds(
        lambda name, source, options: {"name": name, **source, **options},
        LABELS,
        source,
        _optional(
            weight=st.one_of(st.integers(0, 3), st.integers(0, 1_000_000)),
            weightPer=st.sampled_from(["Backend", "Endpoint"]),
            priority=st.integers(0, 7),
            port=PORT_NUMBERS,
        ),
    )
    return st.lists(backend, min_size=1, max_size=4, unique_by=lambda each: each["name"])


def _algorithms() -> st.SearchStrategy[dict[str, Any]]:
    plain = st.sampled_from(["RoundRobin", "Random", "LeastConnections", "SourceHash", "PowerOfTwoChoices"])
    hash_on = st.one_of(
        st.builds(lambda name: {"header": name}, HTTP_TOKENS),
        st.builds(lambda name: {"cookie": name}, HTTP_TOKENS),
        st.builds(lambda name: {"query": name}, st.text(min_size=1, max_size=8)),
        st.sampled_from([{"path": True}, {"clientAddress": True}]),
    )
    return st.one_of(
        _optional(type=plain),
        st.fixed_dictionaries(
            {"type": st.just("PeakEWMA")},
            optional={
                "peakEWMA": _optional(
                    decay=durations("100ms", "1h"), failurePenalty=st.floats(1, 1000, allow_nan=False)
                )
            },
        ),
        st.fixed_dictionaries(
            {"type": st.just("ConsistentHash")},
            optional={
                "consistentHash": _optional(
                    table=st.sampled_from(["Auto", "Rendezvous", "Maglev", "Ring"]),
                    boundedLoad=st.one_of(st.just(0), st.integers(100, 1000)),
                    identity=st.sampled_from(["Pod", "Address"]),
                ),
                "hashOn": st.lists(hash_on, min_size=1, max_size=3),
            },
        ),
    )


def _affinities() -> st.SearchStrategy[dict[str, Any]]:
    cookie = _optional(
        name=HTTP_TOKENS,
        lifetime=st.sampled_from(["Session", "Permanent"]),
        ttl=durations("1s", "9600h"),
        path=st.from_regex(r"\A/[!-:<-~]{0,8}\Z"),
        sameSite=st.sampled_from(["Lax", "Strict", "None"]),
        secure=st.sampled_from(["Auto", "Always", "Never"]),
    )
    return st.fixed_dictionaries({"cookie": cookie})


def _retries() -> st.SearchStrategy[dict[str, Any]]:
    return _optional(
        attempts=st.integers(0, 10),
        conditions=st.lists(st.sampled_from(["ConnectFailure", "Reset", 429, 502, 503, 504]), max_size=4),
        perTryTimeout=durations("0s", "1h"),
        budget=_optional(percent=st.integers(0, 100), minPerSecond=st.integers(0, 10_000)),
        maxBodyBytes=st.integers(0, 16_777_216),
        nonIdempotent=st.booleans(),
    )


def _health() -> st.SearchStrategy[dict[str, Any]]:
    active = _optional(
        path=st.from_regex(r"\A/[!-~]{0,8}\Z"),
        host=HOSTNAMES,
        port=PORT_NUMBERS,
        interval=durations("100ms", "1h"),
        timeout=durations("10ms", "5m"),
        unhealthyThreshold=st.integers(1, 100),
        healthyThreshold=st.integers(1, 100),
        expectedStatuses=st.lists(
            st.one_of(st.integers(100, 599), st.sampled_from(["204", "200-399", "500-500"])), min_size=1, max_size=3
        ),
    )
    passive = _optional(
        consecutiveFailures=st.integers(0, 1000),
        ejection=durations("1ms", "24h"),
        maxEjection=durations("1ms", "24h"),
        maxEjectedPercent=st.integers(0, 100),
        successRate=_optional(
            minRequests=st.integers(1, 1_000_000), deviations=st.floats(0, 10), minGapPercent=st.integers(0, 100)
        ),
    )
    slow_start = _optional(window=durations("0s", "24h"), minPercent=st.integers(1, 100), aggression=st.floats(0.1, 10))
    return _optional(active=active, passive=passive, panicPercent=st.integers(0, 100), slowStart=slow_start)


def _proxies() -> st.SearchStrategy[dict[str, Any]]:
    labels = st.dictionaries(LABELS, VALUES, max_size=2)
    quantities = st.dictionaries(LABELS, st.sampled_from(["100m", "64Mi", ".5", "1e3", 2]), max_size=2)
    exposure = st.one_of(
        st.just({}),
        st.builds(lambda kind: {"serviceType": kind}, st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer"])),
        st.builds(
            lambda kind, policy: {"serviceType": kind, "externalTrafficPolicy": policy},
            st.sampled_from(["NodePort", "LoadBalancer"]),
            st.sampled_from(["Local", "Cluster"]),
        ),
    )
    return st.builds(
        dict.__or__,
        exposure,
        _optional(
            mode=st.sampled_from(["Gateway", "Sidecar", "External"]),
            replicas=st.integers(0, 1000),
            acceptGrace=durations("0s", "1h"),
            drain=durations("0s", "24h"),
            trustedProxies=st.lists(NETWORKS, max_size=3, unique=True),
            accessLog=st.sampled_from(["Disabled", "JSON"]),
            serviceAnnotations=st.dictionaries(LABELS, st.text(max_size=8), max_size=2),
            debugKey=st.from_regex(r"\A[!-~]{1,12}\Z"),
            resources=_optional(requests=quantities, limits=quantities),
            nodeSelector=labels,
            tolerations=st.lists(
                _optional(key=LABELS, operator=st.just("Equal"), value=VALUES, effect=st.just("NoSchedule")),
                max_size=2,
            ),
            priorityClassName=HOSTNAMES,
            imagePullSecrets=st.lists(st.builds(lambda name: {"name": name}, HOSTNAMES), max_size=2),
            podLabels=labels,
            podAnnotations=labels,
        ),
    )


def _timeouts() -> st.SearchStrategy[dict[str, Any]]:
    return _optional(
        connect=durations("1ms", "5m"),
        requestHeaders=durations("1ms", "1h"),
        response=durations("1ms", "24h"),
        idle=durations("1ms", "24h"),
        tcpIdle=durations("1ms", "168h"),
        request=durations("0s", "24h"),
    )


def _limits() -> st.SearchStrategy[dict[str, Any]]:
    return _optional(
        maxRequestsPerEndpoint=st.integers(0, 1_000_000),
        queue=st.integers(0, 1_000_000),
        queueTimeout=durations("0s", "1h"),
        maxConnections=st.integers(1, 1_000_000),
    )


def _settled(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """With the rules between fields obeyed: what they forbid is left out."""
    if len(spec["ports"]) > 1:
        for backend in spec["backends"]:
            backend.pop("port", None)
    if any(("addresses" in each or "hostname" in each) and "port" not in each for each in spec["backends"]):
        for port in spec["ports"]:
            if isinstance(port.get("targetPort"), str):
                del port["targetPort"]
    if any(port.get("protocol") == "TCP" for port in spec["ports"]):
        spec.pop("affinity", None)
        spec.get("algorithm", {}).pop("hashOn", None)
    for backend in spec["backends"]:
        if backend.get("service", {}).get("name") == name:
            backend["service"]["name"] = f"{name}-pods"
    return spec


@st.composite
def api_objects(draw: st.DrawFn) -> dict[str, Any]:
    """A valid BalancedService, as decoded JSON."""
    name, namespace = draw(LABELS), draw(LABELS)
    spec = draw(
        st.fixed_dictionaries(
            {"ports": _ports(), "backends": _backends()},
            optional={
                "algorithm": _algorithms(),
                "affinity": _affinities(),
                "retries": _retries(),
                "timeouts": _timeouts(),
                "limits": _limits(),
                "requestHeaderBytes": st.integers(1024, 1_048_576),
                "maxRequestBodyBytes": st.integers(0, 2**40),
                "health": _health(),
                "locality": _optional(prefer=st.sampled_from(["Service", "None", "Zone", "Node"])),
                "proxy": _proxies(),
            },
        )
    )
    return {
        "apiVersion": "steelyard.dev/v1alpha1",
        "kind": "BalancedService",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 1},
        "spec": _settled(name, spec),
    }


def balanced_services() -> st.SearchStrategy[BalancedService]:
    """Valid, with every default filled in."""

    def parsed(given: dict[str, Any]) -> BalancedService:
        service = parse(given)
        assert isinstance(service, BalancedService), service
        return service

    return api_objects().map(parsed)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 70_000),
    st.floats(-1, 200, allow_nan=False).filter(lambda value: not value.is_integer()),
    st.sampled_from(["", "0s", "1h", "24h", "TCP", "PeakEWMA", "ConsistentHash", "192.0.2.1", "503", "Local", "a-b"]),
    st.text(max_size=5),
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a value."""
    keys: Any = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in [(value, key), *_places(value[key])]]


@st.composite
def mutated_objects(draw: st.DrawFn) -> dict[str, Any]:
    """A valid object whose `spec` has lost, gained or exchanged a few values."""
    given: dict[str, Any] = copy.deepcopy(draw(api_objects()))
    for _ in range(draw(st.integers(1, 3))):
        container, key = draw(
            st.sampled_from([(given, "spec"), *_places(given["spec"])] if given.get("spec") else [(given, "spec")])
        )
        match draw(st.sampled_from(["remove", "exchange", "repeat", "swap"])):
            case "remove":
                container.pop(key, None) if isinstance(container, dict) else container.pop(key)
            case "exchange":
                container[key] = draw(ANYTHING)
            case "repeat" if isinstance(container, list):
                container.append(copy.deepcopy(container[key]))
            case _:
                other, there = draw(st.sampled_from(_places(given)))
                container[key] = copy.deepcopy(other[there])
    return given


_YAML = st.lists(
    st.sampled_from(
        [*" \n\t\r:#-'\"\\{}[],&*!|>%@`?=~", "- ", ": ", " #", "---", "\n---\n", "...", "<<", "a", "é", "😀"]
    )
    | st.sampled_from(
        ["\x85", "\u2028", "\ufeff", "\x7f", "\x00", "y", "on", "0", "7", "1e3", "null", "lorem ipsum " * 12]
    )
    | st.text(max_size=2),
    max_size=8,
).map("".join)
MANIFESTS = st.dictionaries(
    _YAML,
    st.recursive(
        SCALARS | _YAML | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_YAML, inner, max_size=3),
    ),
    max_size=3,
)
