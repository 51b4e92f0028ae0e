"""A proxy without a cluster: a file in the operator's place, through the same parse and translate."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from controller.balancing.affinity import Keys
from controller.discovery import files
from controller.model.service import BalancedService
from controller.model.snapshot import Snapshot
from controller.proxy.holding import apply_or_hold
from controller.proxy.hosting import PortInUse
from controller.proxy.plane import Plane
from controller.translate import Inputs, translate_all

log = logging.getLogger(__name__)

KEY_BYTES = 32

Key = tuple[str, str]  # namespace, name


class BadConfiguration(Exception):  # noqa: N818 - what it is
    """The file or the key can't be used; the message is for its author."""


def load(path: Path) -> tuple[Snapshot, ...]:
    """The file's snapshots. Raises BadConfiguration with every fault, one a line."""
    contents = files.read(path)
    if isinstance(contents, files.Refused):
        raise BadConfiguration(str(contents))
    return snapshots(contents.services)


def snapshots(services: Iterable[BalancedService]) -> tuple[Snapshot, ...]:
    inputs = Inputs(objects={service.key: service for service in services}, standalone=True)
    return tuple(each.snapshot for each in translate_all(inputs).values() if each.snapshot is not None)


def session_secret(path: Path | None) -> bytes | None:
    """What the proxies of a service share to sign affinity cookies. Raises BadConfiguration."""
    if path is None:
        return None
    secret = path.read_bytes()
    if len(secret) < KEY_BYTES:
        raise BadConfiguration(f"{path}: holds {len(secret)} bytes, at least {KEY_BYTES} random ones are needed")
    return secret


async def follow(plane: Plane, path: Path, secret: bytes | None) -> None:
    """Keep the plane at what the file says.

    A bad edit is logged and counted, and the last good one stays in force. So is a service whose ports can't all be
    had; the others are in force, and it is tried again. Raises PortInUse if a port can't be had at the start.
    """
    started = False
    refused: list[str] = []  # what is wrong with ports of the last good one
    async for found in files.watch(path, left=lambda: bool(refused)):
        if isinstance(found, files.Refused):
            if not started:
                raise BadConfiguration(str(found))
            refused.clear()
            _reject(plane, "configuration refused, the last good one stays", str(found).splitlines())
            continue
        faults = await _put_in_force(plane, snapshots(found.services), secret)
        if faults and not started:
            raise faults[0]
        started = True
        before = list(refused)
        refused[:] = map(str, faults)
        if refused and refused != before:
            _reject(plane, "ports refused, they stay as they are", list(refused))


def _reject(plane: Plane, what: str, faults: Sequence[str]) -> None:
    plane.telemetry.config_rejected += 1
    log.error(what, extra={"faults": faults})


async def _put_in_force(plane: Plane, wanted: tuple[Snapshot, ...], secret: bytes | None) -> list[PortInUse]:
    """All that can be; returns what can't."""
    refused, changed = [], set[Key]()
    for snapshot in wanted:
        name = "/".join(snapshot.key)
        if secret is not None:
            plane.upstreams.rekey(snapshot.key, Keys(hmac.digest(secret, name.encode(), hashlib.sha256)))
        elif snapshot.affinity is not None and snapshot.key not in plane.snapshots:
            log.warning("affinity cookies end with this process: no --session-key-file", extra={"service": name})
    gone = set(plane.snapshots) - {snapshot.key for snapshot in wanted}
    for group in passing([snapshot for snapshot, _, _ in plane.snapshots.values()], wanted):
        try:
            changed |= {*await plane.change([each for each in wanted if each.key in group], gone & group)}
        except PortInUse as error:
            refused.append(error)
    for key in gone:
        await plane.forget(key)
        log.info("service removed", extra={"service": "/".join(key)})
    for snapshot in wanted:
        try:
            if await apply_or_hold(plane, snapshot) or snapshot.key in changed:
                about = {"service": "/".join(snapshot.key), "version": snapshot.version}
                log.info("configuration in force", extra=about)
        except PortInUse as error:
            refused.append(error)
    return refused


def passing(before: Iterable[Snapshot], after: Iterable[Snapshot]) -> list[set[Key]]:
    """The services between which ports pass, as of an edit that swaps two; those that must change at once together."""
    owners = {port.listen: snapshot.key for snapshot in before for port in snapshot.ports}
    groups: list[set[Key]] = []
    for snapshot in after:
        for port in snapshot.ports:
            group = {snapshot.key, owners.get(port.listen, snapshot.key)}
            if len(group) > 1:
                group.update(*(other for other in groups if group & other))
                groups = [other for other in groups if not group & other] + [group]
    return groups
