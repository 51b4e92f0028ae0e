"""`Route`: one port's settings out of one snapshot, compiled once so that a request only reads them."""

from __future__ import annotations

from math import inf

from controller.model.service import Cookie
from controller.model.snapshot import Snapshot, SnapshotPort
from controller.proxy import causes
from controller.proxy.codec import Forwarding, Limits
from controller.proxy.hash_key import compile_address_key, compile_hash_key
from controller.proxy.sidecar import Withdrawn
from controller.settings import ProxySettings


class Route:
    """Never changed: a request keeps the one that it began with."""

    __slots__ = (
        "access_log",
        "address_key",
        "affinity",
        "body_bytes",
        "cookie_name",
        "debug_key",
        "drain",
        "forwarding",
        "hash_key",
        "head_limits",
        "limits",
        "longest",
        "none",
        "plain",
        "retries",
        "retry_statuses",
        "tcp",
        "timeouts",
    )

    def __init__(self, snapshot: Snapshot, port: SnapshotPort, settings: ProxySettings) -> None:
        proxy = snapshot.proxy
        pod_address = settings.pod_address or None if snapshot.mode == "Sidecar" else None
        self.tcp = port.protocol == "TCP"
        self.forwarding = Forwarding(
            hop=f"{snapshot.namespace}.{snapshot.name}.steelyard",
            port=port.port,
            trusted=proxy.trusted_proxies,
            pod_address=pod_address,
        )
        self.head_limits = Limits(
            head_bytes=snapshot.request_header_bytes, fields=settings.fields, informational=settings.informational
        )
        self.limits = snapshot.limits
        self.none = causes.SERVICE_GONE if isinstance(snapshot, Withdrawn) else causes.NO_ENDPOINTS
        self.timeouts = snapshot.timeouts
        self.longest = snapshot.timeouts.request or inf  # seconds that a request may take
        self.retries = snapshot.retries
        self.retry_statuses = frozenset(code for code in snapshot.retries.conditions if isinstance(code, int))
        self.body_bytes = snapshot.max_request_body_bytes
        self.hash_key = compile_hash_key(snapshot.algorithm, self.forwarding)
        self.address_key = compile_address_key(snapshot.algorithm, pod_address)
        self.affinity: Cookie | None = snapshot.affinity.cookie if snapshot.affinity else None
        self.cookie_name = self.affinity.name.encode() if self.affinity else b""
        self.plain = not self.retry_statuses and self.affinity is None  # nothing to do about a plain answer
        self.access_log = proxy.access_log == "JSON"
        self.debug_key = proxy.debug_key.encode() if proxy.debug_key else None
        self.drain = proxy.drain
