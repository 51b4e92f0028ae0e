"""Many sidecars' clients in one process, each with a token and a stream of its own, for all services of a namespace.

    python -m tests.cluster.sidecar_fleet FOLDER URL NAMESPACE COUNT NAME...

FOLDER holds `ca.crt`, a token `sidecar-N` for each, and `hosts`, by which the name in URL is found: here, and nowhere
else, it lies over /etc/hosts. They come in stages, so that a machine with few cores is not all handshakes. Says
"connected SECONDS" once each has a snapshot of each name; then, for each change that all of them have, a line of JSON:
[an address of it that no earlier snapshot had, [monotonic time at each]]. Then they acknowledge it, since sidecars are
on many machines, where one that has its news does not keep the next from it. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import uvloop

from controller.discovery.client import Client, Settings, Update

STAGE = 50  # that may be on their way at a time


class Fleet:
    def __init__(self, folder: Path, url: str, namespace: str, count: int, names: tuple[str, ...]) -> None:
        self._folder, self._url, self._namespace, self._names = folder, url, namespace, names
        self._count = count
        self._coming = asyncio.Semaphore(STAGE)
        self._complete = 0
        self._begun = time.monotonic()
        self._arrived: list[float] = []
        self._held: list[tuple[Client, Update]] = []

    async def run(self) -> None:
        tasks = [asyncio.create_task(self._follow(number)) for number in range(self._count)]
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, number: int) -> None:
        settings = Settings(
            url=self._url,
            namespace=self._namespace,
            names=self._names,
            token=self._folder / f"sidecar-{number}",
            ca=self._folder / "ca.crt",
        )
        client = Client(settings, time.monotonic, Random(number), lambda _: {})
        missing, complete = set(self._names), False
        await self._coming.acquire()
        async for event in client.events():
            if not isinstance(event, Update):
                continue
            at = time.monotonic()
            news = [each for each in addresses(event) if each.startswith("198.18.")]
            if missing or not news:
                client.ack(event.snapshot.name, event.version)
                missing.discard(event.snapshot.name)
                if not missing and not complete:
                    complete = True
                    self._came()
            else:
                self._note(at, client, event, news[0])

    def _came(self) -> None:
        self._coming.release()
        self._complete += 1
        if self._complete == self._count:
            print(f"connected {time.monotonic() - self._begun:.1f}", flush=True)

    def _note(self, at: float, client: Client, update: Update, address: str) -> None:
        self._arrived.append(at)
        self._held.append((client, update))
        if len(self._held) == self._count:
            print(json.dumps([address, self._arrived]), flush=True)
            held, self._held, self._arrived = self._held, [], []
            for each, told in held:
                each.ack(told.snapshot.name, told.version)


def addresses(update: Update) -> list[str]:
    return [each.address for each in update.snapshot.ports[0].backends[0].endpoints]


def command(folder: Path, url: str, namespace: str, count: int, names: list[str]) -> list[str]:
    """The command line of all this."""
    words = (sys.executable, "-m", "tests.cluster.sidecar_fleet", str(folder), url, namespace, str(count), *names)
    return ["unshare", "--mount", *words]


if __name__ == "__main__":
    folder, url, namespace, count, *names = sys.argv[1:]
    # This process has a mount namespace of its own: see `command`.
    subprocess.run(["mount", "--bind", f"{folder}/hosts", "/etc/hosts"], check=True)
    uvloop.run(Fleet(Path(folder), url, namespace, int(count), tuple(names)).run())
