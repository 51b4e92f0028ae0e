"""Putting the proxy beside its clients: a native sidecar in pods that ask for it. Pure.

`inject(pod, services, settings)` gives the pod as it should be, or why it is refused; `inject_workload` does the same
for the pod template of a Deployment and its kin. Twice is the same as once. Belongs here: what is put into pods of
others. Does not belong here: where pods and services come from (an admission request, a file, an API), what we own
ourselves (`children`).

The sidecar needs no privilege: each BalancedService has a loopback address of its own (`status.sidecar.address`), the
pod's `hostAliases` lead its names there, and the sidecar listens on the service's ports. Native sidecars are KEP-753.
"""

from __future__ import annotations

from controller.injection.pod import Injected, Refused, inject
from controller.injection.settings import InjectionSettings
from controller.injection.target import Target, target
from controller.injection.wishes import INJECT_LABEL, INJECTED
from controller.injection.workloads import KINDS, inject_workload, namespace_of

__all__ = [
    "INJECTED",
    "INJECT_LABEL",
    "KINDS",
    "Injected",
    "InjectionSettings",
    "Refused",
    "Target",
    "inject",
    "inject_workload",
    "namespace_of",
    "target",
]
