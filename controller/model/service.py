"""`BalancedService`, as its author wrote it, with every default filled in.

The struct mirrors `crds/balancedservices.yaml`; `parse` (in `controller.model.parsing`) makes it from an API object.
Unconditional defaults stand here and in the CRD and nowhere else; conditional ones are in `controller.model.schema`.
Durations are seconds, as floats.
"""

from __future__ import annotations

from typing import Literal

import msgspec

GROUP = "steelyard.dev"
VERSION = "v1alpha1"
KIND = "BalancedService"
PLURAL = "balancedservices"

AlgorithmType = Literal[
    "RoundRobin",
    "Random",
    "LeastConnections",
    "SourceHash",
    "PowerOfTwoChoices",
    "PeakEWMA",
    "ConsistentHash",
]
Protocol = Literal["HTTP", "TCP"]
WeightPer = Literal["Backend", "Endpoint"]
Prefer = Literal["Service", "None", "Zone", "Node"]
Mode = Literal["Gateway", "Sidecar", "External"]
ServiceType = Literal["ClusterIP", "NodePort", "LoadBalancer"]
# A status code (as int) or the name of a failure.
RetryCondition = Literal["ConnectFailure", "Reset"] | int

HASHING: frozenset[AlgorithmType] = frozenset({"SourceHash", "ConsistentHash"})


class Struct(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=False):
    """Frozen, with the field names of the Kubernetes object on the wire."""


class Port(Struct, frozen=True, kw_only=True):
    name: str = "http"
    port: int
    target_port: int | str | None = None  # None: the Service's only port, else `port`
    protocol: Protocol = "HTTP"


class ServiceRef(Struct, frozen=True, kw_only=True):
    name: str
    namespace: str | None = None  # None: the object's own


class Backend(Struct, frozen=True, kw_only=True):
    """Exactly one of `service`, `selector` (matchLabels), `addresses`, `hostname` is set."""

    name: str
    service: ServiceRef | None = None
    selector: dict[str, str] | None = None
    addresses: tuple[str, ...] | None = None
    hostname: str | None = None
    weight: int = 1
    weight_per: WeightPer = "Backend"  # parse fills in `Endpoint` for `addresses`
    priority: int = 0
    port: int | None = None


class PeakEwma(Struct, frozen=True, kw_only=True):
    decay: float = 10.0
    failure_penalty: float = 20.0  # times the median latency


class ConsistentHash(Struct, frozen=True, kw_only=True):
    table: Literal["Auto", "Rendezvous", "Maglev", "Ring"] = "Auto"
    bounded_load: int = 125  # percent of the mean; 0 = off
    identity: Literal["Pod", "Address"] = "Pod"


class HashOn(Struct, frozen=True, kw_only=True):
    """One source of the hash key; exactly one field is set."""

    header: str | None = None
    cookie: str | None = None
    query: str | None = None
    path: bool = False
    client_address: bool = False


class Algorithm(Struct, frozen=True, kw_only=True):
    type: AlgorithmType = "PowerOfTwoChoices"
    peak_ewma: PeakEwma = msgspec.field(default=PeakEwma(), name="peakEWMA")
    consistent_hash: ConsistentHash = ConsistentHash()
    hash_on: tuple[HashOn, ...] = (HashOn(client_address=True),)


class Cookie(Struct, frozen=True, kw_only=True):
    name: str = "steelyard"
    lifetime: Literal["Session", "Permanent"] = "Session"
    ttl: float = 3600.0
    path: str = "/"
    same_site: Literal["Lax", "Strict", "None"] = "Lax"
    secure: Literal["Auto", "Always", "Never"] = "Auto"


class Affinity(Struct, frozen=True, kw_only=True):
    cookie: Cookie


class RetryBudget(Struct, frozen=True, kw_only=True):
    percent: int = 20
    min_per_second: int = 10


class Retries(Struct, frozen=True, kw_only=True):
    attempts: int = 1  # retries, so at most attempts + 1 tries
    conditions: tuple[RetryCondition, ...] = ("ConnectFailure", "Reset")
    per_try_timeout: float = 0.0  # 0 = off
    budget: RetryBudget = RetryBudget()
    max_body_bytes: int = 65536
    non_idempotent: bool = False


class Timeouts(Struct, frozen=True, kw_only=True):
    connect: float = 2.0
    request_headers: float = 15.0
    response: float = 60.0
    idle: float = 300.0
    tcp_idle: float = 3600.0
    request: float = 0.0  # 0 = off: a bound on the whole kills streams


class Limits(Struct, frozen=True, kw_only=True):
    max_requests_per_endpoint: int = 0  # 0 = no limit
    queue: int = 1024
    queue_timeout: float = 5.0
    max_connections: int = 10000


class ActiveHealth(Struct, frozen=True, kw_only=True):
    path: str = "/"
    host: str  # parse fills in the object's name
    port: int | None = None
    interval: float = 5.0
    timeout: float = 1.0
    unhealthy_threshold: int = 3
    healthy_threshold: int = 1
    expected_statuses: tuple[str, ...] = ("200-399",)  # a code, or a range of them


class SuccessRate(Struct, frozen=True, kw_only=True):
    min_requests: int = 100
    deviations: float = 1.9
    min_gap_percent: int = 10


class PassiveHealth(Struct, frozen=True, kw_only=True):
    consecutive_failures: int = 5
    ejection: float = 30.0
    max_ejection: float = 300.0
    max_ejected_percent: int = 50
    success_rate: SuccessRate = SuccessRate()


class SlowStart(Struct, frozen=True, kw_only=True):
    window: float = 0.0  # 0 = off
    min_percent: int = 10
    aggression: float = 1.0


class Health(Struct, frozen=True, kw_only=True):
    active: ActiveHealth | None = None
    passive: PassiveHealth = PassiveHealth()
    panic_percent: int = 50
    slow_start: SlowStart = SlowStart()


class Locality(Struct, frozen=True, kw_only=True):
    prefer: Prefer = "Service"


class Proxy(Struct, frozen=True, kw_only=True):
    mode: Mode = "Gateway"
    replicas: int = 2
    accept_grace: float = 5.0  # parse fills in 30 s for a LoadBalancer with externalTrafficPolicy Local
    drain: float = 30.0
    trusted_proxies: tuple[str, ...] = ()  # CIDRs
    access_log: Literal["Disabled", "JSON"] = "Disabled"
    service_type: ServiceType = "ClusterIP"
    service_annotations: dict[str, str] = {}
    external_traffic_policy: Literal["Local", "Cluster"] | None = None
    debug_key: str | None = None
    # Copied into the pod template as they are.
    resources: dict[str, object] = {}
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, object], ...] = ()
    priority_class_name: str | None = None
    image_pull_secrets: tuple[dict[str, str], ...] = ()
    pod_labels: dict[str, str] = {}
    pod_annotations: dict[str, str] = {}


class BalancedService(Struct, frozen=True, kw_only=True):
    """One valid object. `uid` and `generation` are "" and 0 for an object from a file."""

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    deleting: bool = False  # has a deletionTimestamp: served on, but nothing of it is written any more
    ports: tuple[Port, ...]
    backends: tuple[Backend, ...]
    algorithm: Algorithm = Algorithm()
    affinity: Affinity | None = None
    retries: Retries = Retries()
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
    request_header_bytes: int = 65536
    max_request_body_bytes: int = 0  # 0 = no limit
    health: Health = Health()
    locality: Locality = Locality()
    proxy: Proxy = Proxy()

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)


class Fault(msgspec.Struct, frozen=True):
    """One mistake of the author's: where, and what to do about it."""

    path: str  # as in `spec.backends[0].weight`
    message: str  # names the mend


class Invalid(msgspec.Struct, frozen=True):
    """What `parse` says of an object that the CRD would refuse; never empty."""

    namespace: str
    name: str
    faults: tuple[Fault, ...]
