"""`inject`: a pod with its sidecar, from a pod without one or with an older one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from controller.children.pods import SAFE_TO_EVICT
from controller.injection import sidecar
from controller.injection.settings import InjectionSettings
from controller.injection.shape import misshapen
from controller.injection.target import Target
from controller.injection.wishes import (
    EXCLUDE_PORTS,
    HEALTH_PORT,
    INJECT_LABEL,
    INJECTED,
    SERVICES,
    Wishes,
    Wrong,
    wishes,
)


class Injected(msgspec.Struct, frozen=True):
    """The whole pod; the one given is untouched. Without a service for it, it comes back as it was."""

    pod: dict[str, Any]
    warnings: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    message: str


def inject(
    pod: Mapping[str, Any], namespace: str, services: Iterable[Target], settings: InjectionSettings
) -> Injected | Refused:
    """`pod` is a Pod or a pod template, `services` are those of its namespace. What is there already is replaced.

    Refused are what the API would never take for a pod, a pod on the host's network, where the services' addresses
    would be the node's, and what an annotation says wrongly. A service whose port the pod listens on itself keeps its
    ordinary address, and a warning says so: the application couldn't bind the wildcard address beside the sidecar.
    """
    wrong = misshapen(pod)
    if wrong is not None:
        return Refused(wrong)
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    if spec.get("hostNetwork"):
        return Refused("a pod with hostNetwork can't have a sidecar: its loopback addresses are the node's")
    # To the API null is an empty string.
    said = wishes({name: text or "" for name, text in (metadata.get("annotations") or {}).items()})
    if isinstance(said, Wrong):
        return Refused(said.message)
    known = {each.name: each for each in services}
    names = sorted(known) if said.services is None else said.services
    unknown = [name for name in names if name not in known]
    if unknown:
        return Refused(
            f"annotation {SERVICES}: no BalancedService {', '.join(unknown)} with mode Sidecar and an "
            f"address in namespace {namespace}; there are: {', '.join(sorted(known)) or 'none'}"
        )
    declared = _declared(spec)
    clash = [f"{name}={port}" for name, port in said.own.items() if port in declared]
    if clash:
        return Refused(f"a container declares the sidecar's own port; annotation {', '.join(clash)} can change it")
    chosen, warnings = _chosen([known[name] for name in names], said, declared)
    if not chosen:
        none = f"no sidecar: namespace {namespace} has no BalancedService with mode Sidecar for this pod"
        return Injected(dict(pod), (*warnings, none))
    return Injected(_with_sidecar(pod, namespace, chosen, said, settings), tuple(warnings))


def _chosen(targets: Sequence[Target], said: Wishes, declared: frozenset[int]) -> tuple[list[Target], list[str]]:
    chosen, warnings = [], []
    for each in targets:
        numbers = {number for number, _, _ in each.ports}
        taken = dict.fromkeys(numbers & declared, "a container declares it")
        taken |= dict.fromkeys(numbers & said.excluded, f"annotation {EXCLUDE_PORTS}")
        # Only the health port: the two others are on another loopback address.
        taken |= dict.fromkeys(numbers & {said.own[HEALTH_PORT]}, f"annotation {HEALTH_PORT}")
        if taken:
            reasons = ", ".join(f"{number} ({why})" for number, why in sorted(taken.items()))
            warnings.append(f"{each.name} goes by its ordinary Service in this pod, not by the sidecar: port {reasons}")
        else:
            chosen.append(each)
    return chosen, warnings


def _declared(spec: Mapping[str, Any]) -> frozenset[int]:
    """The application's own ports."""
    found = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    return frozenset(
        port.get("containerPort", 0)
        for each in found
        if each.get("name") != sidecar.NAME
        for port in each.get("ports") or ()
        if port.get("protocol", "TCP") == "TCP"
    )


def _with_sidecar(
    pod: Mapping[str, Any], namespace: str, targets: Sequence[Target], said: Wishes, settings: InjectionSettings
) -> dict[str, Any]:
    metadata, spec = dict(pod.get("metadata") or {}), dict(pod.get("spec") or {})
    metadata["labels"] = (metadata.get("labels") or {}) | {INJECT_LABEL: "enabled"}
    metadata["annotations"] = _annotations(metadata.get("annotations") or {}, settings.version)
    others = spec.get("initContainers") or []
    given: Mapping[str, Any] = next((each for each in others if each.get("name") == sidecar.NAME), {})
    # First: what starts later may already call, and at the end it is stopped last.
    made = sidecar.container(targets, namespace, said.own, settings, given)
    spec["initContainers"] = [made, *(each for each in others if each.get("name") != sidecar.NAME)]
    volumes = sidecar.volumes(settings)
    ours = {volume["name"] for volume in volumes}
    spec["volumes"] = [*(each for each in spec.get("volumes") or () if each.get("name") not in ours), *volumes]
    spec["hostAliases"] = _aliases(spec.get("hostAliases") or (), namespace, targets, settings.cluster_domain)
    return dict(pod) | {"metadata": metadata, "spec": spec}


def _annotations(theirs: Mapping[str, str | None], version: str) -> dict[str, str | None]:
    volumes = [name for name in (theirs.get(SAFE_TO_EVICT) or "").split(",") if name]
    if sidecar.SNAPSHOTS not in volumes:
        volumes.append(sidecar.SNAPSHOTS)
    return dict(theirs) | {SAFE_TO_EVICT: ",".join(volumes), INJECTED: version}


def _aliases(
    there: Iterable[Mapping[str, Any]], namespace: str, targets: Sequence[Target], domain: str
) -> list[dict[str, Any]]:
    """Ours are known by their last name: it is the Service's whole one, and the address is loopback."""
    suffix = f".{namespace}.svc.{domain}"
    kept = [
        dict(each)
        for each in there
        if not (each.get("ip", "").startswith("127.") and (each.get("hostnames") or [""])[-1].endswith(suffix))
    ]
    return kept + [{"ip": each.address, "hostnames": each.names(domain)} for each in targets]
