"""The sidecar's container and volumes; they meet the *restricted* pod security profile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from controller.injection.settings import InjectionSettings
from controller.injection.target import Target
from controller.injection.wishes import ADMIN_PORT, FORWARD_PORT, HEALTH_PORT
from controller.model.names import CA_CONFIG_MAP

NAME = "steelyard"  # of the container; an init container of this name that is there already gives resources
SNAPSHOTS, TOKEN, AUTHORITY = "steelyard-snapshots", "steelyard-token", "steelyard-ca"  # volumes
PATHS = {
    SNAPSHOTS: "/var/lib/steelyard",
    TOKEN: "/var/run/secrets/steelyard.dev",
    AUTHORITY: "/etc/steelyard/ca",
}
KEPT = ("resources", "securityContext")  # what the pod's author may set on it
SLACK = 20  # seconds: a node that starts many pods at once is slow

_SECURE = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def container(
    targets: Sequence[Target],
    namespace: str,
    own: Mapping[str, int],
    settings: InjectionSettings,
    given: Mapping[str, Any],
) -> dict[str, Any]:
    """`given` is the container of the same name that the pod has already, or nothing."""
    proxy = settings.proxy
    health = own[HEALTH_PORT]
    made: dict[str, Any] = {
        "name": NAME,
        "image": proxy.image,
        "imagePullPolicy": proxy.image_pull_policy,
        "restartPolicy": "Always",
        "args": [
            "proxy",
            f"--control={proxy.control}",
            f"--namespace={namespace}",
            *(f"--sidecar={target.argument}" for target in targets),
            f"--cluster-domain={settings.cluster_domain}",
            f"--start-timeout={settings.start_timeout:g}",
            f"--token-file={PATHS[TOKEN]}/token",
            f"--ca-file={PATHS[AUTHORITY]}/ca.crt",
            f"--snapshots={PATHS[SNAPSHOTS]}",
            f"--admin=127.0.0.1:{own[ADMIN_PORT]}",
            f"--health=[::]:{health}",
            f"--forward-proxy=127.0.0.1:{own[FORWARD_PORT]}",
            "--identity=$(POD_UID)",
            "--pod-address=$(POD_IP)",
        ],
        "env": [
            {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "ports": [{"name": "sidecar-health", "containerPort": health, "protocol": "TCP"}],
        # Ready means: every service has a snapshot, or passes through. What comes next in the pod waits for it.
        "startupProbe": _probe("/readyz", health, period=1, failures=math.ceil(settings.start_timeout) + SLACK),
        "livenessProbe": _probe("/healthz", health, period=10, failures=3),
        "readinessProbe": _probe("/readyz", health, period=5, failures=2),
        "resources": settings.resources,
        "securityContext": _SECURE | {"runAsUser": proxy.user, "runAsGroup": proxy.user},
        "volumeMounts": [
            {"name": name, "mountPath": path} | ({} if name == SNAPSHOTS else {"readOnly": True})
            for name, path in PATHS.items()
        ],
    }
    return made | {name: given[name] for name in KEPT if given.get(name)}


def _probe(path: str, port: int, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }


def volumes(settings: InjectionSettings) -> list[dict[str, Any]]:
    proxy = settings.proxy
    token = {"audience": proxy.audience, "expirationSeconds": proxy.token_seconds, "path": "token"}
    return [
        {"name": SNAPSHOTS, "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": TOKEN, "projected": {"sources": [{"serviceAccountToken": token}]}},
        # Optional: a pod must start even before its namespace has the authority.
        {"name": AUTHORITY, "configMap": {"name": CA_CONFIG_MAP, "optional": True}},
    ]
