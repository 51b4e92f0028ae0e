"""Constants and frozen settings: unit and reason beside each default; flags and environment override in __main__."""

from __future__ import annotations

import msgspec


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a proxy process is told besides its snapshots. Times in seconds, sizes in bytes."""

    admin: tuple[str, int] | None = ("127.0.0.1", 19901)  # 9901 and 15001 are Envoy's and Istio's
    health: tuple[str, int] | None = None  # pods: [::]:19902, since probes go to the pod's address
    host: str = "0.0.0.0"  # noqa: S104 - a proxy's listener faces its clients
    listen_offset: int = 0  # added to each port, so that a low port can be tried without privileges
    node: str = ""
    zone: str = ""
    pod_address: str = ""  # sidecar: the client address that backends see
    identity: str = ""  # the pod's uid; seeds orders and start positions. "" = random
    workers: int = 1
    session_key_file: str | None = None
    coarse_tick: float = 0.5  # coarse timers may be this late, never early
    upstream_idle: float = 4.0  # below common backends' 5 s (Node, uvicorn)
    upstream_age: float = 3600.0
    upstream_requests: int = 10_000
    upstream_idle_connections: int = 128  # kept per endpoint
    head_bytes: int = 65536  # response heads; request heads: the object's `requestHeaderBytes`
    fields: int = 256
    informational: int = 32  # 1xx responses per request
    write_high: int = 65536  # uvloop's default low-water mark is 16 bytes: set both
    write_low: int = 16384
    lingering: float = 2.0  # how long a closing connection discards what the client still sends
    lingering_bytes: int = 262_144
    lingering_connections: int = 256
    flush: float = 5.0  # a closing connection that its peer doesn't read
    continue_wait: float = 1.0  # then we send the 100 ourselves
    backlog: int = 4096
    tcp_keepalive: tuple[int, int, int] = (60, 10, 3)  # TCP ports, both sides: s of silence, s between probes, probes
    pipes: int = 8  # for bulk bytes; 1 MiB of the kernel's each, of which one user has 64 on a node. 0: none
    memory: int | None = None  # bytes held at most; None = a third of the cgroup's limit, else of 128 MiB


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator is told. Times in seconds."""

    namespace: str = "steelyard-system"  # its own: Lease, Secret, Deployment and Service are here
    watch: frozenset[str] = frozenset()  # namespaces; empty = all
    proxy_image: str
    proxy_pull_policy: str = "IfNotPresent"
    proxy_pull_secrets: tuple[str, ...] = ()  # names in the objects' namespaces
    proxy_priority_class: str = ""  # where the object names none
    proxy_resources: dict[str, object] | None = None  # where the object names none; None: `ChildSettings`' own
    max_rollouts: int = 5  # Deployments that roll at a time: a bad image stops after these
    kubeconfig: str | None = None  # None: the pod's own account, else kubectl's default
    pod: str = ""  # name; "" outside a cluster
    address: str = "127.0.0.1"  # where other replicas reach this one
    deployment: str = ""  # the operator's own, owner of what it makes here; "" outside a cluster
    account: str = ""  # the operator's own, as in system:serviceaccount:NAMESPACE:NAME
    service: str = "steelyard-controller"  # the Service that proxies connect to
    discovery: tuple[str, int] = ("::", 19443)
    discovery_port: int = 19443  # of the Service
    webhook: tuple[str, int] | None = None  # pods: [::]:19444; None: no pod is given a sidecar by us
    injection_policy: bool = False  # a MutatingAdmissionPolicy gives them
    webhook_configuration: str = ""  # whose `caBundle` is kept; "" = someone else's business
    cluster_domain: str = "cluster.local"
    sidecar_resources: dict[str, object] | None = None  # None: `InjectionSettings`' own
    sidecar_start_timeout: float = 10.0
    token_file: str | None = None  # shown to other replicas; None: reports stay here
    health: tuple[str, int] | None = None  # pods: [::]:19902, since probes go to the pod's address
    admin: tuple[str, int] | None = ("127.0.0.1", 19901)
    lease: str = "steelyard-controller"
    secret: str = "steelyard-controller"  # noqa: S105 - its name
    tls_secret: str = ""  # name of a Secret in `namespace` that someone else keeps; "" = an authority of our own
    tls_secret_period: float = 10.0  # between two looks at it
    secret_period: float = 60.0  # between two looks at the Secret: how late a follower learns of a rotation
