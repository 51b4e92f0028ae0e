"""The demo's stage: the file that the proxy watches, the processes, the traffic, and what can be seen of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from controller.demo.processes import READY_SECONDS, Backend, NotStarted, Proxy, free_port
from controller.demo.table import Row
from controller.demo.traffic import Traffic
from controller.discovery import files

LOOPBACK = "127.0.0.1"
# Seconds that each backend takes to answer: of different speed, so that a policy has something to learn.
SPEEDS = (0.010, 0.010, 0.020, 0.040)
WINDOW = 4  # samples that "actual" looks back over


class Unsuited(Exception):  # noqa: N818 - what it says is for people
    """The file can't be played; `str` says why."""


class Stage:
    """Starts everything; `backends` in the order of the file."""

    def __init__(self, example: Path, directory: Path) -> None:
        self._object = _read(example)
        self.file = directory / example.name
        self._log = directory / "proxy.log"
        spec = self._object["spec"]
        port = spec["ports"][0]
        port["port"] = free_port(LOOPBACK, port["port"])
        self.backends = []
        for backend, seconds in zip(spec["backends"], SPEEDS, strict=True):
            address = backend["addresses"][0]
            backend["port"] = free_port(address, backend["port"])
            self.backends.append(Backend(backend["name"], address, backend["port"], seconds))
        self.url = f"http://{LOOPBACK}:{port['port']}/"
        admin = f"{LOOPBACK}:{free_port(LOOPBACK)}"
        self._admin = f"http://{admin}"
        self._proxy = Proxy(self.file, admin, self._log)
        self.traffic = Traffic(self.url)
        self._marks: deque[Counter[str]] = deque(maxlen=WINDOW)
        self._session: aiohttp.ClientSession | None = None

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[Stage]:
        """Everything runs inside, and nothing after it."""
        self._write()
        try:
            await asyncio.gather(*(backend.start() for backend in self.backends))
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5), trust_env=False)
            await self._proxy.start()
            await self._ready()
            self.traffic.start()
            yield self
        finally:
            await self.traffic.stop()
            await self._proxy.stop()
            await asyncio.gather(*(backend.kill() for backend in self.backends))
            if self._session is not None:
                await self._session.close()

    async def use_algorithm(self, kind: str) -> None:
        self._object["spec"]["algorithm"] = {"type": kind}
        self._write()

    def _write(self) -> None:
        """By write and rename, as an editor or a mounted ConfigMap would: never half a file."""
        beside = self.file.with_suffix(".new")
        beside.write_text(yaml.safe_dump(self._object, sort_keys=False))
        beside.replace(self.file)

    async def _ready(self) -> None:
        try:
            async with asyncio.timeout(READY_SECONDS):
                while not self._proxy.ended:
                    with contextlib.suppress(aiohttp.ClientConnectionError):
                        assert self._session is not None
                        async with self._session.get(f"{self._admin}/readyz") as response:
                            if response.status == 200:
                                return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pass
        raise NotStarted(f"the proxy: {self._proxy.words() or 'no answer'}")

    async def rows(self) -> list[Row]:
        """The table now. "actual" looks back over the last few calls."""
        assert self._session is not None
        async with self._session.get(f"{self._admin}/endpoints") as response:
            view = await response.json()
        shares = self.traffic.recent(self._marks[0] if self._marks else Counter())
        self._marks.append(self.traffic.answered.copy())
        return [self._row(endpoint, shares) for endpoints in view.values() for endpoint in endpoints]

    def _row(self, endpoint: dict[str, Any], shares: dict[str, float]) -> Row:
        name = endpoint["backend"]
        return Row(
            name=name,
            place=f"{endpoint['address']}:{endpoint['port']}",
            weight=endpoint["weight"],
            expected=(endpoint["share"] or 0.0) / 100,
            actual=shares.get(name, 0.0),
            in_flight=endpoint["inFlight"],
            latency=self.traffic.seconds.get(name),
            state=_state(endpoint),
        )


def _state(endpoint: dict[str, Any]) -> str:
    ejection = endpoint["ejection"]
    if ejection is None:
        return str(endpoint["state"])
    return f"ejected, {ejection['remaining']:.0f} s left" if ejection["remaining"] else "ejected, to be proved"


def _read(example: Path) -> dict[str, Any]:
    """Raises Unsuited for a file that the story can't be played with."""
    found = files.read(example)
    if isinstance(found, files.Refused):
        raise Unsuited(str(found))
    backends = [backend for service in found.services for backend in service.backends]
    suited = [backend for backend in backends if backend.addresses and len(backend.addresses) == 1 and backend.port]
    if len(found.services) != 1 or len(suited) != len(SPEEDS) or len(backends) != len(SPEEDS):
        raise Unsuited(
            f"{example}: one BalancedService is needed, with {len(SPEEDS)} backends of one address and a port"
        )
    item: dict[str, Any] = yaml.safe_load(example.read_text())
    return item
