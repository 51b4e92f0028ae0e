"""A proxy without a cluster: a file in the operator's place, through the same parse and translate."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Iterable
from pathlib import Path

from controller.balancing.affinity import Keys
from controller.discovery import files
from controller.model.service import BalancedService
from controller.model.snapshot import Snapshot
from controller.proxy.hosting import PortInUse
from controller.proxy.plane import Plane
from controller.translate import Inputs, translate_all

log = logging.getLogger(__name__)

KEY_BYTES = 32


class BadConfiguration(Exception):  # noqa: N818 - what it is
    """The file or the key can't be used; the message is for its author."""


def load(path: Path) -> tuple[Snapshot, ...]:
    """The file's snapshots. Raises BadConfiguration with every fault, one a line."""
    contents = files.read(path)
    if isinstance(contents, files.Refused):
        raise BadConfiguration(str(contents))
    return snapshots(path, contents.services)


def snapshots(path: Path, services: Iterable[BalancedService]) -> tuple[Snapshot, ...]:
    """Translate all of a file. Raises BadConfiguration for what needs a cluster."""
    services = tuple(services)
    faults = [
        f"{path}: spec.backends[{index}]: {service.name}'s backend {backend.name!r} can't be found without a cluster: "
        "give it addresses or a hostname"
        for service in services
        for index, backend in enumerate(service.backends)
        if backend.service is not None or backend.selector is not None
    ]
    if faults:
        raise BadConfiguration("\n".join(faults))
    translated = translate_all(Inputs(objects={service.key: service for service in services}, standalone=True))
    return tuple(each.snapshot for each in translated.values() if each.snapshot is not None)


def session_secret(path: Path | None) -> bytes | None:
    """What the proxies of a service share to sign affinity cookies. Raises BadConfiguration."""
    if path is None:
        return None
    secret = path.read_bytes()
    if len(secret) < KEY_BYTES:
        raise BadConfiguration(f"{path}: holds {len(secret)} bytes, at least {KEY_BYTES} random ones are needed")
    return secret


async def follow(plane: Plane, path: Path, secret: bytes | None) -> None:
    """Keep the plane at what the file says. A bad edit is logged and counted, and the last good one stays in force.

    Raises PortInUse if a port can't be had at the start.
    """
    started = False
    async for found in files.watch(path):
        try:
            if isinstance(found, files.Refused):
                raise BadConfiguration(str(found))
            await _put_in_force(plane, snapshots(path, found.services), secret)
            started = True
        except (BadConfiguration, PortInUse) as error:
            if not started:
                raise
            plane.telemetry.config_rejected += 1
            log.error("configuration refused, the last good one stays", extra={"faults": str(error).splitlines()})


async def _put_in_force(plane: Plane, wanted: tuple[Snapshot, ...], secret: bytes | None) -> None:
    for key in set(plane.snapshots) - {snapshot.key for snapshot in wanted}:
        await plane.forget(key)
        log.info("service removed", extra={"service": "/".join(key)})
    for snapshot in wanted:
        name = "/".join(snapshot.key)
        if secret is not None:
            plane.upstreams.rekey(snapshot.key, Keys(hmac.digest(secret, name.encode(), hashlib.sha256)))
        elif snapshot.affinity is not None and snapshot.key not in plane.snapshots:
            log.warning("affinity cookies end with this process: no --session-key-file", extra={"service": name})
        if await plane.apply(snapshot):
            log.info("configuration in force", extra={"service": name, "version": snapshot.version})
