"""Pod templates: where each kind that makes pods keeps its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controller.injection.pod import Injected, Refused, inject
from controller.injection.settings import InjectionSettings
from controller.injection.target import Target

# By (apiVersion, kind): the way to the pod; () is the object itself.
KINDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("v1", "Pod"): (),
    ("apps/v1", "Deployment"): ("spec", "template"),
    ("apps/v1", "StatefulSet"): ("spec", "template"),
    ("apps/v1", "DaemonSet"): ("spec", "template"),
    ("batch/v1", "Job"): ("spec", "template"),
    ("batch/v1", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
}


def namespace_of(item: Mapping[str, Any], default: str) -> str:
    return (item.get("metadata") or {}).get("namespace") or default


def inject_workload(
    item: Mapping[str, Any], namespace: str, services: Iterable[Target], settings: InjectionSettings
) -> Injected | Refused | None:
    """The whole object with its pods injected; None for a kind that makes no pods."""
    path = KINDS.get((str(item.get("apiVersion")), str(item.get("kind"))))
    if path is None:
        return None
    pod: Any = item
    for step in path:
        pod = pod.get(step) if isinstance(pod, Mapping) else None
    if not isinstance(pod, Mapping):
        return Refused(f"has no {'.'.join(path)}")
    result = inject(pod, namespace, services, settings)
    if isinstance(result, Refused):
        return result
    return Injected(_replaced(item, path, result.pod), result.warnings)


def _replaced(item: Mapping[str, Any], path: tuple[str, ...], pod: dict[str, Any]) -> dict[str, Any]:
    if not path:
        return pod
    return dict(item) | {path[0]: _replaced(item[path[0]], path[1:], pod)}
