"""The last good snapshots on disk, so that a proxy that restarts while the operator is away serves on.

One file per object in a directory of the proxy's own (in a pod an `emptyDir`), written beside and renamed, with a
checksum inside; a file that is torn, foreign or of another schema counts as none. When it reaches the disk is left to
the kernel, since the loop that writes carries traffic: a crash of the process loses nothing, one of the node at worst
the copy. Files are 0600: they hold the keys that sign affinity cookies.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import logging
import os
from pathlib import Path

import msgspec

from controller.model.snapshot import SCHEMA, Snapshot, decode

log = logging.getLogger(__name__)


class Stored(msgspec.Struct, frozen=True):
    snapshot: Snapshot
    version: str
    keys: tuple[bytes, ...]


class _File(msgspec.Struct, frozen=True):
    schema: int
    checksum: str
    version: str
    keys: tuple[str, ...]
    snapshot: str


class Copies:
    """Saves, loads and drops copies in `directory`; None keeps nothing. Errors of the disk are logged, never raised."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def save(self, name: str, body: bytes, version: str, keys: tuple[bytes, ...]) -> None:
        if self._directory is None:
            return
        record = _File(
            schema=SCHEMA,
            checksum=_checksum(body, version),
            version=version,
            keys=tuple(base64.b64encode(key).decode() for key in keys),
            snapshot=body.decode(),
        )
        target = self._path(name)
        beside = target.with_suffix(".new")
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(record))
            beside.replace(target)
        except OSError as error:
            log.warning("the last good snapshot could not be stored", extra={"path": str(target), "error": str(error)})

    def load(self, name: str) -> Stored | None:
        if self._directory is None:
            return None
        path = self._path(name)
        try:
            record = msgspec.json.decode(path.read_bytes(), type=_File)
            body = record.snapshot.encode()
            if record.schema != SCHEMA or record.checksum != _checksum(body, record.version):
                raise ValueError("another schema, or a wrong checksum")
            keys = tuple(base64.b64decode(key) for key in record.keys)
            return Stored(snapshot=decode(body), version=record.version, keys=keys)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, msgspec.DecodeError) as error:
            log.warning("the stored snapshot is not usable", extra={"path": str(path), "error": str(error)})
            return None

    def drop(self, name: str) -> None:
        if self._directory is not None:
            with contextlib.suppress(FileNotFoundError):
                self._path(name).unlink()

    def _path(self, name: str) -> Path:
        assert self._directory is not None
        return self._directory / f"{name}.json"


def _checksum(body: bytes, version: str) -> str:
    return hashlib.sha256(version.encode() + b"\n" + body).hexdigest()
