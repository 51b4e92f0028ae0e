"""The Deployment of a Gateway's proxies; its pods meet the *restricted* pod security profile.

No port of the object stands in it, so a change of ports rolls no pod: the proxies hear of ports by their snapshot.
"""

from __future__ import annotations

import math
from typing import Any

from controller.children.meta import labels, owned, selector
from controller.children.settings import ChildSettings
from controller.model.names import CA_CONFIG_MAP, proxy_name
from controller.model.service import BalancedService

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
SECRETS = "/var/run/secrets/steelyard.dev"
AUTHORITY = "/etc/steelyard/ca"
SNAPSHOTS = "/var/lib/steelyard"
MARGIN = 5.0  # seconds after the last request may end, for the process itself to end before SIGKILL


def deployment(service: BalancedService, settings: ChildSettings) -> dict[str, Any]:
    return owned("apps/v1", "Deployment", proxy_name(service.name), service) | {
        "spec": {
            "replicas": service.proxy.replicas,
            "selector": {"matchLabels": selector(service)},
            # A proxy is ready once it has its snapshot; five seconds more show that it stays so.
            "minReadySeconds": 5,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"}},
            "template": {"metadata": _pod_metadata(service), "spec": _pod_spec(service, settings)},
        }
    }


def _pod_metadata(service: BalancedService) -> dict[str, Any]:
    theirs = dict(service.proxy.pod_annotations)
    volumes = [name for name in theirs.get(SAFE_TO_EVICT, "").split(",") if name]
    volumes += [name for name in ("snapshots", "tmp") if name not in volumes]
    return {
        "labels": dict(service.proxy.pod_labels) | labels(service, "proxy"),
        "annotations": theirs | {SAFE_TO_EVICT: ",".join(volumes)},
    }


def _pod_spec(service: BalancedService, settings: ChildSettings) -> dict[str, Any]:
    proxy = service.proxy
    spec: dict[str, Any] = {
        "serviceAccountName": proxy_name(service.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": math.ceil(proxy.accept_grace + proxy.drain + MARGIN),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": settings.user,
            "runAsGroup": settings.user,
            "fsGroup": settings.user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            _spread(service, "topology.kubernetes.io/zone"),
            _spread(service, "kubernetes.io/hostname"),
        ],
        "containers": [_container(service, settings)],
        "volumes": _volumes(settings),
    }
    if proxy.node_selector:
        spec["nodeSelector"] = dict(proxy.node_selector)
    if proxy.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in proxy.tolerations]
    priority_class = proxy.priority_class_name or settings.priority_class_name
    if priority_class:
        spec["priorityClassName"] = priority_class
    secrets = dict.fromkeys((*settings.image_pull_secrets, *(secret["name"] for secret in proxy.image_pull_secrets)))
    if secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in secrets]
    return spec


def _spread(service: BalancedService, topology: str) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": topology,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector(service)},
        # Else the pods of the old revision count during a rollout, and the new ones end up skewed.
        "matchLabelKeys": ["pod-template-hash"],
    }


def _container(service: BalancedService, settings: ChildSettings) -> dict[str, Any]:
    return {
        "name": "proxy",
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": [
            "proxy",
            f"--control={settings.control}",
            f"--namespace={service.namespace}",
            f"--name={service.name}",
            f"--token-file={SECRETS}/token",
            f"--ca-file={AUTHORITY}/ca.crt",
            f"--snapshots={SNAPSHOTS}",
            "--host=::",
            f"--health=[::]:{settings.health_port}",
            "--identity=$(POD_UID)",
        ],
        "env": [{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
        "ports": [{"name": "health", "containerPort": settings.health_port, "protocol": "TCP"}],
        # Readiness asks for a first snapshot only, never for the control plane: an outage of it must not spread.
        "startupProbe": _probe("/healthz", settings.health_port, period=1, failures=30),
        "livenessProbe": _probe("/healthz", settings.health_port, period=10, failures=3),
        "readinessProbe": _probe("/readyz", settings.health_port, period=2, failures=2),
        "resources": dict(service.proxy.resources or settings.resources),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "snapshots", "mountPath": SNAPSHOTS},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own emptyDir
            {"name": "token", "mountPath": SECRETS, "readOnly": True},
            {"name": "ca", "mountPath": AUTHORITY, "readOnly": True},
        ],
    }


def _probe(path: str, port: int, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }


def _volumes(settings: ChildSettings) -> list[dict[str, Any]]:
    token = {"audience": settings.audience, "expirationSeconds": settings.token_seconds, "path": "token"}
    return [
        # A snapshot of 64 backends with 1,000 endpoints each is about 16 MiB, and a rename needs room for two.
        {"name": "snapshots", "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
        # Optional: a pod must start even before its namespace has the authority.
        {"name": "ca", "configMap": {"name": CA_CONFIG_MAP, "optional": True}},
    ]
