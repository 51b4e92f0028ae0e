"""What service accounts wrote, by the API server's own audit log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tests.cluster.api import Cluster

OPERATOR = "system:serviceaccount:steelyard-system:steelyard-controller"
POD = "authentication.kubernetes.io/pod-name"


@dataclass(frozen=True)
class Write:
    """One request that the API server has answered. `at` is Unix time, of its arrival: a process that is stopped in
    the middle of one has begun it before."""

    at: float
    pod: str
    verb: str
    resource: str
    namespace: str
    name: str
    status: int


def writes(cluster: Cluster, since: float, account: str = OPERATOR) -> Iterator[Write]:
    """Of this account, in the order of the answers. Reviews of tokens, which keep nothing, are among them."""
    assert cluster.local is not None
    for path in sorted(cluster.local.layout.log.glob("audit*")):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            at = datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
            if event["user"]["username"] != account or at < since:
                continue
            about = event.get("objectRef", {})
            subresource = about.get("subresource")
            yield Write(
                at=at,
                pod=next(iter(event["user"].get("extra", {}).get(POD, [])), ""),
                verb=event["verb"],
                resource=about.get("resource", "") + (f"/{subresource}" if subresource else ""),
                namespace=about.get("namespace", ""),
                name=about.get("name", ""),
                status=event.get("responseStatus", {}).get("code", 0),
            )
