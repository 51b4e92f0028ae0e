"""A file instead of an operator: BalancedServices from one YAML file, read again whenever it changes.

`read` gives every service or every fault, with its line; never a part of the file. `watch` notices a write in place, a
write and rename, and the swap of the `..data` link of a mounted ConfigMap.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec

from controller.discovery.documents import Document, documents
from controller.discovery.words import Unreadable, unreadable
from controller.model.parsing import API_VERSION, parse
from controller.model.service import KIND, BalancedService, Fault, Invalid

_BYTES = 4 * 1024 * 1024  # read at most: a thousand services are half of it
INTERVAL = 0.2  # seconds between two looks at the file; a change is read once it has been quiet for one
AGAIN = 10  # looks


class FileFault(msgspec.Struct, frozen=True):
    """One mistake in the file."""

    line: int  # 1 is the first; 0 = the file as a whole
    path: str  # as in `spec.backends[0].weight`; "" = the document or the file as a whole
    message: str


class Contents(msgspec.Struct, frozen=True):
    """What a good file says."""

    services: tuple[BalancedService, ...]


class Refused(msgspec.Struct, frozen=True):
    """What is wrong with a bad one; as a string, one line each, as compilers write them."""

    file: str
    faults: tuple[FileFault, ...]

    def __str__(self) -> str:
        return "\n".join(
            ": ".join(part for part in (f"{self.file}:{fault.line}" if fault.line else self.file, fault.path) if part)
            + f": {fault.message}"
            for fault in self.faults
        )


def read(path: Path) -> Contents | Refused:
    """All services of the file, or all of its faults in the order of their lines. Raises nothing for a bad file."""
    try:
        with path.open("rb") as file:
            data = file.read(_BYTES + 1)
    except OSError as error:
        return _refused(path, 0, f"can't be read: {error.strerror}")
    if len(data) > _BYTES:
        return _refused(path, 0, f"is larger than {_BYTES >> 20} MiB: give each proxy a file of its own")
    try:
        with unreadable():
            found = list(documents(data.decode("utf-8-sig")))
    except Unreadable as error:
        return _refused(path, error.line, str(error))
    if not found:
        return _refused(path, 0, f"is empty: write a {KIND} ({API_VERSION}) into it")
    return _together(path, found)


def _refused(path: Path, line: int, message: str) -> Refused:
    return Refused(str(path), (FileFault(line, "", message),))


def _together(path: Path, found: list[Document]) -> Contents | Refused:
    services: list[BalancedService] = []
    faults: list[FileFault] = []
    ports: dict[int, str] = {}
    for document in found:
        service = _service(document)
        wrong = [service] if isinstance(service, Fault) else []
        if isinstance(service, Invalid):
            wrong = list(service.faults)
        elif isinstance(service, BalancedService):
            wrong = [*_homeless(service), *_clashes(service, services, ports)]
            services.append(service)
        wrong = [*document.faults, *wrong]
        faults += [FileFault(document.line_of(each.path), each.path, each.message) for each in wrong]
    if faults:
        return Refused(str(path), tuple(sorted(faults, key=lambda fault: fault.line)))
    return Contents(tuple(services))


def _service(document: Document) -> BalancedService | Invalid | Fault:
    value = document.value
    if isinstance(value, dict):
        if "kind" not in value:
            return Fault("kind", f"must be given: kind: {KIND}")
        if value["kind"] != KIND:
            return Fault("kind", f"must be {KIND}, not {value['kind']}: remove this document from the file")
        if "apiVersion" not in value:
            return Fault("apiVersion", f"must be given: apiVersion: {API_VERSION}")
    return parse(value)


def _homeless(service: BalancedService) -> Iterator[Fault]:
    for index, backend in enumerate(service.backends):
        for field in ("service", "selector"):
            if getattr(backend, field) is not None:
                mend = "can't be found without a cluster: give addresses or a hostname"
                yield Fault(f"spec.backends[{index}].{field}", mend)


def _clashes(service: BalancedService, others: list[BalancedService], ports: dict[int, str]) -> Iterator[Fault]:
    """What can't be in one file, since one proxy serves all of it; adds to `ports`."""
    title = "/".join(service.key)
    if any(other.key == service.key for other in others):
        yield Fault("metadata.name", f"{title} is in this file already: rename one")
    for index, port in enumerate(service.ports):
        first = ports.setdefault(port.port, title)
        if first != title:
            yield Fault(f"spec.ports[{index}].port", f"{port.port} is already taken by {first}: change one")


async def watch(
    path: Path, interval: float = INTERVAL, *, left: Callable[[], bool] = lambda: False
) -> AsyncIterator[Contents | Refused]:
    """What the file says now, and again after each change that makes a difference; never ends.

    `interval`: seconds between two looks. A fault is a value like any other: who keeps what was good is the caller.
    While something is `left` to be done about it, an unchanged file is told again every `AGAIN` looks.
    """
    seen = _signature(path)
    last = await asyncio.to_thread(read, path)
    yield last
    looks = 0
    while True:
        await asyncio.sleep(interval)
        signature = _signature(path)
        looks += 1
        if signature == seen:
            if looks >= AGAIN and left():
                looks = 0
                yield last
            continue
        while True:  # until its writer has paused
            await asyncio.sleep(interval)
            seen, signature = signature, _signature(path)
            if signature == seen:
                break
        found = await asyncio.to_thread(read, path)
        if found != last or left():
            last = found
            looks = 0
            yield found


def _signature(path: Path) -> tuple[int, ...] | None:
    """Differs after every change, also of a link on the way; None where there is no file."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)
