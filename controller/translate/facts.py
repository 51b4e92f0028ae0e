"""The four conditions of an object: what is true, why, and what would mend it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from controller.model.conditions import Fact, Reason
from controller.model.endpoints import fits_a_slice
from controller.model.service import BalancedService
from controller.translate.counting import Count
from controller.translate.fleet import Fleet
from controller.translate.inputs import ProxyReport
from controller.translate.status import told

_WAITING = "the last accepted configuration keeps serving"


def rejected(reason: Literal["Invalid", "Unsupported"], message: str) -> tuple[Fact, ...]:
    """Of an object that can't be served as it is written: what is known of the rest belongs to the last good one.

    `Invalid` shows only when all is seen, as a loop does. `Unsupported` is what a CRD has let pass that is not of this
    version, since one of this version accepts what `parse` accepts.
    """
    return (
        Fact(type="Accepted", status="False", reason=reason, message=message),
        Fact(type="ResolvedRefs", status="Unknown", reason=reason, message="the object is not accepted"),
        Fact(type="Programmed", status="False", reason="Pending", message=f"not accepted: {_WAITING}"),
        Fact(type="Ready", status="Unknown", reason=reason, message=f"not accepted: {_WAITING}"),
    )


def accepted(conflicts: Iterable[str]) -> Fact:
    foreign = sorted(conflicts)
    if foreign:
        message = f"not this object's, so left alone: {', '.join(foreign)}; delete or rename it, or this object"
        return Fact(type="Accepted", status="False", reason="Conflict", message=told([message]))
    return Fact(type="Accepted", status="True", reason="Accepted")


def resolved_refs(service: BalancedService, counts: Sequence[Count]) -> Fact:
    problems = [(each.backend.name, problem) for each in counts for problem in each.problems]
    if problems:
        message = told([f'backend "{name}": {problem.message}' for name, problem in problems])
        return Fact(type="ResolvedRefs", status="False", reason=problems[0][1].reason, message=message)
    message = told(_beyond_slices(counts)) if service.proxy.mode == "Sidecar" else ""
    return Fact(type="ResolvedRefs", status="True", reason="ResolvedRefs", message=message)


def _beyond_slices(counts: Sequence[Count]) -> list[str]:
    """What sidecars reach, but a client of the plain Service does not."""
    parts = []
    for each in counts:
        left_out = [target.hostname for target in each.targets if target.hostname]
        left_out += [
            endpoint.address
            for target in each.targets
            for endpoint in target.endpoints
            if not fits_a_slice(endpoint.address)
        ]
        if left_out:
            names = ", ".join(sorted(set(left_out)))
            parts.append(f'backend "{each.backend.name}": only sidecars reach {names}, an EndpointSlice can\'t hold it')
    return parts


def programmed(fleet: Fleet) -> Fact:
    if fleet.mode == "Gateway" and not fleet.expected:
        return _not_programmed("NoProxiesReady", "no proxy of this object is ready")
    if fleet.mode != "Gateway" and not fleet.counted:
        return Fact(type="Programmed", status="True", reason="NoProxies", message="no proxy is connected")
    if fleet.complete:
        return Fact(type="Programmed", status="True", reason="Programmed")
    kind = "ready" if fleet.mode == "Gateway" else "connected"
    parts = [f"{len(fleet.programmed)} of {len(fleet.counted)} {kind} proxies have acknowledged this generation"]
    if len(fleet.counted) < fleet.expected:
        parts.append(f"silent, and not counted: {fleet.expected - len(fleet.counted)}")
    parts += [f"proxy {report.proxy} refused it: {report.error}" for report in fleet.counted if report.error]
    return _not_programmed("Pending", told(parts))


def _not_programmed(reason: Reason, message: str) -> Fact:
    return Fact(type="Programmed", status="False", reason=reason, message=message)


def ready(counts: Sequence[Count], reports: Sequence[ProxyReport]) -> Fact:
    """False when nothing can be picked: by the slices, or because every proxy that reports has ejected all."""
    weighted = [each for each in counts if each.backend.weight > 0]
    found = sum(1 if each.unseen else each.active for each in weighted)
    if not found:
        return Fact(type="Ready", status="False", reason="NoEndpoints", message=_why_none(counts, weighted))
    names = {each.backend.name for each in weighted}
    told_by = [report for report in reports if report.health]
    known = [health for report in told_by for name, health in report.health.items() if name in names]
    if told_by and not any(health.usable for health in known):
        if any(health.known for health in known):
            message = "every proxy has ejected all endpoints, or their checks fail"
            return Fact(type="Ready", status="False", reason="AllEjected", message=message)
        return Fact(type="Ready", status="False", reason="NoEndpoints", message="no proxy knows an endpoint yet")
    return Fact(type="Ready", status="True", reason="Ready")


def _why_none(counts: Sequence[Count], weighted: Sequence[Count]) -> str:
    if sum(each.active for each in counts):
        return "all backends with endpoints have weight 0"
    draining = sum(each.draining for each in weighted)
    if draining:
        return f"no endpoint is ready; stopping ones still serve ({draining})"
    return "no endpoint is ready"
