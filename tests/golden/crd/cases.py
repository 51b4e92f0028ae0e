"""Objects that are accepted, and objects with one fault each with the path that the refusal names.

Data only, so that the same table can be put to a real API server.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tests.golden.crd.spoiling import Case, spoilt


def an_object(spec: dict[str, Any], name: str = "shop", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "steelyard.dev/v1alpha1",
        "kind": "BalancedService",
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


SERVICE = {"name": "stable", "service": {"name": "shop-v1"}}
FIXED = {"name": "fixed", "addresses": ["192.0.2.10"]}
NAMED = {"name": "named", "hostname": "shop.example.com"}


def minimal(**spec: Any) -> dict[str, Any]:
    return an_object({"ports": [{"port": 80}], "backends": [SERVICE], **spec})


def _ports(*protocols: str) -> list[dict[str, Any]]:
    return [{"name": f"p{n}", "port": 80 + n, "protocol": protocol} for n, protocol in enumerate(protocols)]


ACCEPTED: dict[str, dict[str, Any]] = {
    "minimal": minimal(),
    "at a glance": an_object(
        {
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "HTTP"}],
            "backends": [
                {"name": "stable", "service": {"name": "shop-v1"}, "weight": 90},
                {"name": "canary", "selector": {"matchLabels": {"app": "shop", "track": "canary"}}, "weight": 10},
                {"name": "offsite", "addresses": ["192.0.2.10", "192.0.2.11"], "port": 8080, "priority": 1},
            ],
            "algorithm": {"type": "PowerOfTwoChoices"},
        },
        namespace="store",
    ),
    "every field": an_object(
        {
            "ports": [
                {"name": "http", "port": 80, "targetPort": 8080, "protocol": "HTTP"},
                {"name": "metrics", "port": 9090, "targetPort": "metrics", "protocol": "HTTP"},
            ],
            "backends": [
                {
                    "name": "stable",
                    "service": {"name": "shop-v1", "namespace": "other"},
                    "weight": 90,
                    "weightPer": "Backend",
                    "priority": 0,
                },
                {"name": "canary", "selector": {"matchLabels": {"app": "shop"}}, "weight": 0, "weightPer": "Endpoint"},
            ],
            "algorithm": {
                "type": "ConsistentHash",
                "consistentHash": {"table": "Maglev", "boundedLoad": 150, "identity": "Address"},
                "hashOn": [
                    {"header": "X-User"},
                    {"cookie": "sid"},
                    {"query": "id"},
                    {"path": True},
                    {"clientAddress": True},
                ],
            },
            "affinity": {
                "cookie": {
                    "name": "sticky",
                    "lifetime": "Permanent",
                    "ttl": "24h",
                    "path": "/shop",
                    "sameSite": "Strict",
                    "secure": "Always",
                }
            },
            "retries": {
                "attempts": 2,
                "conditions": ["ConnectFailure", "Reset", 502, 503, 504, 429],
                "perTryTimeout": "2s",
                "budget": {"percent": 10, "minPerSecond": 5},
                "maxBodyBytes": 0,
                "nonIdempotent": True,
            },
            "timeouts": {
                "connect": "500ms",
                "requestHeaders": "10s",
                "response": "1m30s",
                "idle": "10m",
                "tcpIdle": "2h",
                "request": "1h",
            },
            "limits": {"maxRequestsPerEndpoint": 100, "queue": 0, "queueTimeout": "1s", "maxConnections": 500},
            "requestHeaderBytes": 16384,
            "maxRequestBodyBytes": 10485760,
            "health": {
                "active": {
                    "path": "/healthz",
                    "host": "shop.example.com",
                    "port": 9000,
                    "interval": "2s",
                    "timeout": "500ms",
                    "unhealthyThreshold": 2,
                    "healthyThreshold": 2,
                    "expectedStatuses": [200, "204", "300-399"],
                },
                "passive": {
                    "consecutiveFailures": 0,
                    "ejection": "10s",
                    "maxEjection": "1m",
                    "maxEjectedPercent": 20,
                    "successRate": {"minRequests": 50, "deviations": 2, "minGapPercent": 5},
                },
                "panicPercent": 0,
                "slowStart": {"window": "30s", "minPercent": 5, "aggression": 1.5},
            },
            "locality": {"prefer": "Zone"},
            "proxy": {
                "mode": "Gateway",
                "replicas": 3,
                "acceptGrace": "10s",
                "drain": "1m",
                "trustedProxies": ["10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32"],
                "accessLog": "JSON",
                "serviceType": "LoadBalancer",
                "serviceAnnotations": {"example.com/tier": "internal"},
                "externalTrafficPolicy": "Cluster",
                "debugKey": "open-sesame",
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": 1, "memory": "1e9"}},
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [
                    {
                        "key": "dedicated",
                        "operator": "Equal",
                        "value": "edge",
                        "effect": "NoExecute",
                        "tolerationSeconds": 60,
                    }
                ],
                "priorityClassName": "system-cluster-critical",
                "imagePullSecrets": [{"name": "registry"}],
                "podLabels": {"team": "edge", "empty": ""},
                "podAnnotations": {"example.com/note": "any text: at all"},
            },
        }
    ),
    "PeakEWMA": minimal(algorithm={"type": "PeakEWMA", "peakEWMA": {"decay": "5s", "failurePenalty": 7.5}}),
    "ConsistentHash without options": minimal(algorithm={"type": "ConsistentHash"}),
    "no bound on the load": minimal(algorithm={"type": "ConsistentHash", "consistentHash": {"boundedLoad": 0}}),
    "a cookie with all defaults": minimal(affinity={"cookie": {}}),
    "an active check with all defaults": minimal(health={"active": {}}),
    "TCP by client address": an_object(
        {
            "ports": _ports("TCP", "TCP"),
            "backends": [FIXED, NAMED],
            "algorithm": {"type": "ConsistentHash", "hashOn": [{"clientAddress": True}]},
        }
    ),
    "TCP and HTTP": an_object({"ports": _ports("HTTP", "TCP"), "backends": [SERVICE]}),
    "fixed addresses": an_object(
        {
            "ports": [{"port": 80, "targetPort": "web"}],
            "backends": [
                {"name": "fixed", "addresses": ["192.0.2.10", "2001:DB8::10", "::1"], "port": 8080},
                {"name": "named", "hostname": "shop.example.com.", "port": 8080},
                SERVICE,
            ],
        }
    ),
    "a named target port": an_object(
        {
            "ports": [{"port": 80, "targetPort": "8080-web"}],
            "backends": [{"name": "pods", "selector": {"matchLabels": {"a": ""}}}],
        }
    ),
    "a load balancer": minimal(proxy={"serviceType": "LoadBalancer"}),
    "a node port": minimal(proxy={"serviceType": "NodePort", "externalTrafficPolicy": "Local"}),
    "its own name beside a sidecar": an_object(
        {
            "ports": [{"port": 80}],
            "backends": [{"name": "own", "service": {"name": "shop"}}],
            "proxy": {"mode": "Sidecar"},
        }
    ),
    "its own name in another namespace": an_object(
        {"ports": [{"port": 80}], "backends": [{"name": "own", "service": {"name": "shop", "namespace": "other"}}]}
    ),
    "nulls are as good as absent": minimal(
        affinity=None, algorithm=None, proxy={"debugKey": None, "podLabels": {"a": None}}
    ),
    "all weights 0": an_object({"ports": [{"port": 80}], "backends": [{**SERVICE, "weight": 0}]}),
    "the longest name": an_object({"ports": [{"port": 80}], "backends": [SERVICE]}, name="a" * 63),
    **{
        f"algorithm {name}": minimal(algorithm={"type": name})
        for name in ("RoundRobin", "Random", "LeastConnections", "SourceHash", "PowerOfTwoChoices")
    },
}


def _backends(*backends: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return minimal(backends=list(backends), **spec)


def _address(address: str) -> dict[str, Any]:
    return _backends({"name": "fixed", "addresses": [address]})


def _duration(field: str, value: str) -> tuple[dict[str, Any], str]:
    """A minimal object with one duration of it set, and the duration's path."""
    *parents, name = field.split(".")
    spec: dict[str, Any] = {name: value}
    for parent in reversed(parents):
        spec = {parent: spec}
    if "peakEWMA" in parents:
        spec["algorithm"]["type"] = "PeakEWMA"
    return minimal(**spec), f"spec.{field}"


DURATIONS = {  # each with values just outside of its bounds, where the pattern allows any
    "algorithm.peakEWMA.decay": ("99ms", "1h1ms"),
    "affinity.cookie.ttl": ("999ms", "9601h"),
    "retries.perTryTimeout": ("61m",),
    "timeouts.connect": ("0s", "301s"),
    "timeouts.requestHeaders": ("0s", "61m"),
    "timeouts.response": ("0s", "25h"),
    "timeouts.idle": ("0s", "25h"),
    "timeouts.tcpIdle": ("0s", "169h"),
    "timeouts.request": ("25h",),
    "limits.queueTimeout": ("61m",),
    "health.active.interval": ("99ms", "61m"),
    "health.active.timeout": ("9ms", "301s"),
    "health.passive.ejection": ("0s", "25h"),
    "health.passive.maxEjection": ("0s", "25h"),
    "health.slowStart.window": ("25h",),
    "proxy.acceptGrace": ("61m",),
    "proxy.drain": ("1440m1ms",),
}

# Each rule of the CRD that is no bound of a duration, broken.
_BROKEN_RULES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("a name that begins with a digit", {**minimal(), "metadata": {"name": "1shop"}}, "metadata.name"),
    ("a name with a dot", {**minimal(), "metadata": {"name": "shop.web"}}, "metadata.name"),
    ("a name too long for a Service", {**minimal(), "metadata": {"name": "a" * 64}}, "metadata.name"),
    ("a loop", _backends(FIXED, {"name": "own", "service": {"name": "shop"}}), "spec.backends"),
    (
        "port with two ports",
        an_object({"ports": _ports("HTTP", "HTTP"), "backends": [{**SERVICE, "port": 8080}]}),
        "spec.backends",
    ),
    (
        "a named target port for addresses",
        minimal(ports=[{"port": 80, "targetPort": "web"}], backends=[FIXED]),
        "spec.ports",
    ),
    (
        "a named target port for a hostname",
        minimal(ports=[{"port": 80, "targetPort": "web"}], backends=[NAMED]),
        "spec.ports",
    ),
    ("affinity on TCP", minimal(ports=_ports("HTTP", "TCP"), affinity={"cookie": {}}), "spec.affinity"),
    (
        "hashOn a header on TCP",
        minimal(
            ports=_ports("TCP"),
            algorithm={"type": "ConsistentHash", "hashOn": [{"clientAddress": True}, {"header": "X-User"}]},
        ),
        "spec.algorithm.hashOn",
    ),
    ("one port twice", minimal(ports=[{"name": "a", "port": 80}, {"name": "b", "port": 80}]), "spec.ports"),
    ("no source", _backends({"name": "none"}), "spec.backends[0]"),
    ("two sources", _backends(SERVICE, {**FIXED, "hostname": "shop.example.com"}), "spec.backends[1]"),
    ("a name as address", _address("shop.example.com"), "spec.backends[0].addresses[0]"),
    ("an address with a zone", _address("fe80::1%eth0"), "spec.backends[0].addresses[0]"),
    ("an IPv4 address in IPv6 clothes", _address("::ffff:192.0.2.1"), "spec.backends[0].addresses[0]"),
    ("an address with leading zeros", _address("192.0.2.010"), "spec.backends[0].addresses[0]"),
    ("an address with a port", _address("192.0.2.1:80"), "spec.backends[0].addresses[0]"),
    ("an address in brackets", _address("[2001:db8::1]"), "spec.backends[0].addresses[0]"),
    ("an empty address", _address(""), "spec.backends[0].addresses[0]"),
    ("an address as hostname", _backends({**NAMED, "hostname": "192.0.2.1"}), "spec.backends[0].hostname"),
    ("peakEWMA with another type", minimal(algorithm={"peakEWMA": {}}), "spec.algorithm.peakEWMA"),
    (
        "consistentHash with another type",
        minimal(algorithm={"type": "SourceHash", "consistentHash": {}}),
        "spec.algorithm.consistentHash",
    ),
    (
        "hashOn with another type",
        minimal(algorithm={"type": "SourceHash", "hashOn": [{"path": True}]}),
        "spec.algorithm.hashOn",
    ),
    (
        "a bound below the mean",
        minimal(algorithm={"type": "ConsistentHash", "consistentHash": {"boundedLoad": 99}}),
        "spec.algorithm.consistentHash.boundedLoad",
    ),
    (
        "two sources of a key in one entry",
        minimal(algorithm={"type": "ConsistentHash", "hashOn": [{"path": True, "query": "id"}]}),
        "spec.algorithm.hashOn[0]",
    ),
    (
        "no source of a key",
        minimal(algorithm={"type": "ConsistentHash", "hashOn": [{"path": True}, {}]}),
        "spec.algorithm.hashOn[1]",
    ),
    ("a condition unheard of", minimal(retries={"conditions": ["Timeout"]}), "spec.retries.conditions[0]"),
    ("a code that is not retried", minimal(retries={"conditions": ["Reset", 500]}), "spec.retries.conditions[1]"),
    ("a code in quotes", minimal(retries={"conditions": ["503"]}), "spec.retries.conditions[0]"),
    (
        "a falling range",
        minimal(health={"active": {"expectedStatuses": ["399-200"]}}),
        "spec.health.active.expectedStatuses[0]",
    ),
    (
        "externalTrafficPolicy of a ClusterIP",
        minimal(proxy={"externalTrafficPolicy": "Local"}),
        "spec.proxy.externalTrafficPolicy",
    ),
    ("an address as network", minimal(proxy={"trustedProxies": ["192.0.2.1"]}), "spec.proxy.trustedProxies[0]"),
    ("a prefix too long", minimal(proxy={"trustedProxies": ["10.0.0.0/33"]}), "spec.proxy.trustedProxies[0]"),
    ("a netmask", minimal(proxy={"trustedProxies": ["10.0.0.0/255.0.0.0"]}), "spec.proxy.trustedProxies[0]"),
    ("a prefix with a zero", minimal(proxy={"trustedProxies": ["10.0.0.0/08"]}), "spec.proxy.trustedProxies[0]"),
)

# What a schema can't be walked into: the parts around `spec`, and mistakes that people make.
_BY_HAND: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("a field beside spec", {**minimal(), "specs": {}}, "specs"),
    ("a field of no metadata", {**minimal(), "metadata": {"name": "shop", "nmae": "x"}}, "metadata.nmae"),
    ("no name", {**minimal(), "metadata": {}}, "metadata.name"),
    ("no spec", {name: value for name, value in minimal().items() if name != "spec"}, "spec"),
    ("spec is null", {**minimal(), "spec": None}, "spec"),
    ("a null in a list", minimal(backends=[SERVICE, None]), "spec.backends[1]"),
    ("a required field is null", minimal(ports=[{"port": None}]), "spec.ports[0].port"),
    ("a target port in quotes", minimal(ports=[{"port": 80, "targetPort": "8080"}]), "spec.ports[0].targetPort"),
    ("two weeks", minimal(timeouts={"response": "2 weeks"}), "spec.timeouts.response"),
    ("a duration without its unit", minimal(timeouts={"response": 30}), "spec.timeouts.response"),
    ("a number too large for a duration", minimal(timeouts={"response": "100000s"}), "spec.timeouts.response"),
    ("Off for the access log", minimal(proxy={"accessLog": False}), "spec.proxy.accessLog"),
    ("a broken CPU", minimal(proxy={"resources": {"limits": {"cpu": 1.5}}}), "spec.proxy.resources.limits.cpu"),
    (
        "no labels",
        _backends({"name": "pods", "selector": {"matchLabels": {}}}),
        "spec.backends[0].selector.matchLabels",
    ),
    ("one network twice", minimal(proxy={"trustedProxies": ["::/0", "::/0"]}), "spec.proxy.trustedProxies[1]"),
)


def refused() -> Iterator[Case]:
    """One fault each: made from the schema for the samples that hold all fields, then the rules, then by hand."""
    for sample in ("every field", "PeakEWMA", "TCP by client address", "fixed addresses"):
        yield from spoilt(sample, ACCEPTED[sample])
    for field, values in DURATIONS.items():
        for value in values:
            spec, path = _duration(field, value)
            yield Case(f"{field} of {value}", spec, path)
    for name, given, path in (*_BROKEN_RULES, *_BY_HAND):
        yield Case(name, copy.deepcopy(given), path)
