"""Every field of a BalancedService, with its type and its bounds; the same as in `crds/balancedservices.yaml`.

Unconditional defaults are the structs' own; conditional ones are the functions here.
"""

from __future__ import annotations

from typing import Any

from controller.model import rules
from controller.model.fields import (
    Checked,
    Choice,
    Converted,
    Duration,
    Either,
    Flag,
    Integer,
    Listing,
    Mark,
    Number,
    Table,
    Text,
)
from controller.model.records import Group, Record
from controller.model.service import (
    ActiveHealth,
    Affinity,
    Algorithm,
    Backend,
    BalancedService,
    ConsistentHash,
    Cookie,
    HashOn,
    Health,
    Limits,
    Locality,
    PassiveHealth,
    PeakEwma,
    Port,
    Proxy,
    Retries,
    RetryBudget,
    ServiceRef,
    SlowStart,
    SuccessRate,
    Timeouts,
)

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_VALUE = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # RFC 9110 §5.6.2  # noqa: S105 - a grammar, no password
_QUANTITY = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?"

_PORT_NUMBER = Integer(1, 65535)
_PERCENT = Integer(0, 100)
_DNS_LABEL = Text("lower-case letters, digits and '-', with a letter or digit at both ends", 63, _LABEL)
_DNS_NAME = Text("DNS labels joined by dots", 253, _SUBDOMAIN)
_HTTP_TOKEN = Text("letters, digits and !#$%&'*+.^_`|~-", 128, _TOKEN)
_LABELS = Text("a label's value", 63, _LABEL_VALUE)
_ANNOTATIONS = Table(Text("a string", 16384), 64)


def _complete_backend(given: dict[str, Any]) -> None:
    # Fixed addresses are weighted one by one in nginx and HAProxy, a set of interchangeable pods as a whole.
    if "addresses" in given:
        given.setdefault("weight_per", "Endpoint")


def _complete_active(given: dict[str, Any]) -> None:
    given.setdefault("host", "")  # the record doesn't know the object's name; `parse` fills it in


def _complete_proxy(given: dict[str, Any]) -> None:
    exposed = given.get("service_type")
    if exposed in ("LoadBalancer", "NodePort"):
        policy = given.setdefault("external_traffic_policy", "Local" if exposed == "LoadBalancer" else "Cluster")
        if exposed == "LoadBalancer" and policy == "Local":
            # A node that loses its last proxy must fail the provider's health check before connections may be refused.
            given.setdefault("accept_grace", 30.0)


PORT = Record(
    Port,
    name=_DNS_LABEL,
    port=_PORT_NUMBER,
    target_port=Either(
        _PORT_NUMBER,
        Text("a port's number without quotes, or its name", 63, r"([0-9][-0-9]*)?[a-z]([-a-z0-9]*[a-z0-9])?"),
    ),
    protocol=Choice("HTTP", "TCP"),
)

BACKEND = Record(
    Backend,
    rules=(rules.ONE_SOURCE,),
    complete=_complete_backend,
    name=_DNS_LABEL,
    service=Record(ServiceRef, name=_DNS_LABEL, namespace=_DNS_LABEL),
    selector=Converted(
        Group({"matchLabels": Table(_LABELS, 32, low=1)}, required=("matchLabels",)),
        take=lambda selector: selector["matchLabels"],
        give=lambda labels: {"matchLabels": labels},
    ),
    addresses=Converted(
        Listing(Checked(Text("an IP address", 45), *rules.IP_ADDRESS), 1, 256, key=lambda address: address),
        take=rules.canonical,
        give=lambda addresses: addresses,
    ),
    hostname=Checked(Text("a DNS name", 253, rf"{_SUBDOMAIN}\.?"), *rules.NO_IP_ADDRESS),
    weight=Integer(0, 1_000_000),
    weight_per=Choice("Backend", "Endpoint"),
    priority=Integer(0, 7),
    port=_PORT_NUMBER,
)

ALGORITHM = Record(
    Algorithm,
    rules=rules.OPTIONS,
    type=Choice(
        "RoundRobin",
        "Random",
        "LeastConnections",
        "SourceHash",
        "PowerOfTwoChoices",
        "PeakEWMA",
        "ConsistentHash",
    ),
    peak_ewma=Record(PeakEwma, decay=Duration("100ms", "1h"), failure_penalty=Number(1, 1000)),
    consistent_hash=Record(
        ConsistentHash,
        table=Choice("Auto", "Rendezvous", "Maglev", "Ring"),
        bounded_load=Checked(Integer(0, 1000), *rules.BOUNDED_LOAD),
        identity=Choice("Pod", "Address"),
    ),
    hash_on=Listing(
        Record(
            HashOn,
            rules=(rules.ONE_KEY,),
            header=_HTTP_TOKEN,
            cookie=_HTTP_TOKEN,
            query=Text("a parameter's name", 128, low=1),
            path=Mark(),
            client_address=Mark(),
        ),
        1,
        8,
    ),
)

AFFINITY = Record(
    Affinity,
    cookie=Record(
        Cookie,
        name=_HTTP_TOKEN,
        lifetime=Choice("Session", "Permanent"),
        ttl=Duration("1s", "9600h"),
        path=Text("a path without spaces and ';'", 256, "/[!-:<-~]*"),
        same_site=Choice("Lax", "Strict", "None"),
        secure=Choice("Auto", "Always", "Never"),
    ),
)

RETRIES = Record(
    Retries,
    attempts=Integer(0, 10),
    conditions=Listing(rules.RetryCondition(), 0, 8),
    per_try_timeout=Duration("0s", "1h"),
    budget=Record(RetryBudget, percent=_PERCENT, min_per_second=Integer(0, 10_000)),
    max_body_bytes=Integer(0, 16_777_216),
    non_idempotent=Flag(),
)

TIMEOUTS = Record(
    Timeouts,
    connect=Duration("1ms", "5m"),
    request_headers=Duration("1ms", "1h"),
    response=Duration("1ms", "24h"),
    idle=Duration("1ms", "24h"),
    tcp_idle=Duration("1ms", "168h"),
    request=Duration("0s", "24h"),
)

LIMITS = Record(
    Limits,
    max_requests_per_endpoint=Integer(0, 1_000_000),
    queue=Integer(0, 1_000_000),
    queue_timeout=Duration("0s", "1h"),
    max_connections=Integer(1, 1_000_000),
)

_STATUSES = Text("a status code or a range such as 200-399", 7, "[1-5][0-9]{2}(-[1-5][0-9]{2})?")

HEALTH = Record(
    Health,
    active=Record(
        ActiveHealth,
        complete=_complete_active,
        path=Text("a path without spaces", 1024, "/[!-~]*"),
        host=Text("a host", 260, r"[A-Za-z0-9._:\[\]-]+"),
        port=_PORT_NUMBER,
        interval=Duration("100ms", "1h"),
        timeout=Duration("10ms", "5m"),
        unhealthy_threshold=Integer(1, 100),
        healthy_threshold=Integer(1, 100),
        expected_statuses=Listing(
            Converted(Either(Integer(100, 599), Checked(_STATUSES, *rules.RISING)), take=str, give=str), 1, 16
        ),
    ),
    passive=Record(
        PassiveHealth,
        consecutive_failures=Integer(0, 1000),
        ejection=Duration("1ms", "24h"),
        max_ejection=Duration("1ms", "24h"),
        max_ejected_percent=_PERCENT,
        success_rate=Record(
            SuccessRate, min_requests=Integer(1, 1_000_000), deviations=Number(0, 10), min_gap_percent=_PERCENT
        ),
    ),
    panic_percent=_PERCENT,
    slow_start=Record(SlowStart, window=Duration("0s", "24h"), min_percent=Integer(1, 100), aggression=Number(0.1, 10)),
)

_QUANTITIES = Table(Either(Integer(0, 10**15), Text("a quantity such as 100m or 64Mi", 32, _QUANTITY)), 16)

PROXY = Record(
    Proxy,
    rules=(rules.EXPOSED,),
    complete=_complete_proxy,
    mode=Choice("Gateway", "Sidecar", "External"),
    replicas=Integer(0, 1000),
    accept_grace=Duration("0s", "1h"),
    drain=Duration("0s", "24h"),
    trusted_proxies=Listing(Checked(Text("a network", 49), *rules.NETWORK), 0, 64, key=lambda network: network),
    access_log=Choice("Disabled", "JSON"),
    service_type=Choice("ClusterIP", "NodePort", "LoadBalancer"),
    service_annotations=_ANNOTATIONS,
    external_traffic_policy=Choice("Local", "Cluster"),
    debug_key=Text("1 or more visible ASCII characters", 128, "[!-~]+", secret=True),
    resources=Group({"requests": _QUANTITIES, "limits": _QUANTITIES}),
    node_selector=Table(_LABELS, 32),
    tolerations=Listing(
        Group(
            {
                "key": Text("a taint's key", 317),
                "operator": Choice("Exists", "Equal"),
                "value": Text("a taint's value", 63),
                "effect": Choice("NoSchedule", "PreferNoSchedule", "NoExecute"),
                "tolerationSeconds": Integer(0, 315_360_000),
            }
        ),
        0,
        32,
    ),
    priority_class_name=_DNS_NAME,
    image_pull_secrets=Listing(Group({"name": _DNS_NAME}, required=("name",)), 0, 16),
    pod_labels=Table(_LABELS, 64),
    pod_annotations=_ANNOTATIONS,
)

SPEC = Record(
    BalancedService,
    rules=rules.SPEC,
    ports=Checked(Listing(PORT, 1, 16, key=lambda port: port.name), *rules.DISTINCT_PORTS),
    backends=Listing(BACKEND, 1, 64, key=lambda backend: backend.name),
    algorithm=ALGORITHM,
    affinity=AFFINITY,
    retries=RETRIES,
    timeouts=TIMEOUTS,
    limits=LIMITS,
    request_header_bytes=Integer(1024, 1_048_576),
    max_request_body_bytes=Integer(0, 2**40),
    health=HEALTH,
    locality=Record(Locality, prefer=Choice("Service", "None", "Zone", "Node")),
    proxy=PROXY,
)

NAME = Checked(Text("a Service name", 253), *rules.SERVICE_NAME)
NAMESPACE = _DNS_LABEL
# Those of Kubernetes' ObjectMeta: kubectl refuses others.
METADATA = (
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)
