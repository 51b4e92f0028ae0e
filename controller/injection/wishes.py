"""What a pod's author can say about its sidecar, read and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from controller.model.service import GROUP

INJECT_LABEL = f"{GROUP}/inject"  # `enabled` opts in
INJECTED = f"{GROUP}/injected"  # the injector's version, in pods that have a sidecar
SERVICES = f"{GROUP}/services"
EXCLUDE_PORTS = f"{GROUP}/exclude-ports"
ADMIN_PORT = f"{GROUP}/admin-port"
HEALTH_PORT = f"{GROUP}/health-port"
FORWARD_PORT = f"{GROUP}/forward-proxy-port"
# Of the sidecar itself. Applications seldom have them; 15000 to 15090 are Istio's.
PORTS = {ADMIN_PORT: 19911, HEALTH_PORT: 19912, FORWARD_PORT: 19915}


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    services: tuple[str, ...] | None  # None: all of the namespace
    excluded: frozenset[int]
    own: Mapping[str, int]  # the sidecar's own ports, by annotation


class Wrong(msgspec.Struct, frozen=True):
    """The message names the annotation."""

    message: str


def wishes(annotations: Mapping[str, str]) -> Wishes | Wrong:
    excluded = [_port(text) for text in _listed(annotations.get(EXCLUDE_PORTS, ""))]
    if None in excluded:
        return Wrong(f"annotation {EXCLUDE_PORTS}: {annotations[EXCLUDE_PORTS]!r} is no list of ports, as in 80,8080")
    own = dict(PORTS)
    for annotation in PORTS.keys() & annotations.keys():
        port = _port(annotations[annotation])
        if port is None:
            return Wrong(f"annotation {annotation}: {annotations[annotation]!r} is no port (1 to 65535)")
        own[annotation] = port
    if len(set(own.values())) < len(own):
        told = ", ".join(f"{annotation}={port}" for annotation, port in own.items())
        return Wrong(f"the sidecar's own ports must differ: {told}")
    named = annotations.get(SERVICES)
    return Wishes(
        services=None if named is None else tuple(dict.fromkeys(_listed(named))),
        excluded=frozenset(port for port in excluded if port is not None),
        own=own,
    )


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _port(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,5}", text.strip()) and 0 < int(text) <= 65535 else None
