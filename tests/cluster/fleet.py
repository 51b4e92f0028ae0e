"""Many proxies' clients in one process, which tell when what they follow has changed.

    python -m tests.cluster.fleet FOLDER URL NAMESPACE COUNT

FOLDER holds `ca.crt`, a token `proxy-N` for each, and `hosts`, by which the name in URL is found: here, and nowhere
else, it lies over /etc/hosts. Client N follows the object shop-M, M being N // 2. Says "connected" once each has a
snapshot; then, for each that comes, a line of JSON: [monotonic time, addresses of the first backend]. It ends with its
standard input.
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


class Fleet:
    def __init__(self, folder: Path, url: str, namespace: str, count: int) -> None:
        self._missing = count
        self._clients = [
            Client(
                Settings(
                    url=url,
                    namespace=namespace,
                    names=(f"shop-{number // 2}",),
                    token=folder / f"proxy-{number}",
                    ca=folder / "ca.crt",
                ),
                time.monotonic,
                Random(number),
                lambda _: {},
            )
            for number in range(count)
        ]

    async def run(self) -> None:
        tasks = [asyncio.create_task(self._follow(client)) for client in self._clients]
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, client: Client) -> None:
        first = True
        async for event in client.events():
            if not isinstance(event, Update):
                continue
            at = time.monotonic()
            client.ack(event.snapshot.name, event.version)
            if first:
                first = False
                self._missing -= 1
                if not self._missing:
                    print("connected", flush=True)
            else:
                endpoints = event.snapshot.ports[0].backends[0].endpoints
                print(json.dumps([at, [each.address for each in endpoints]]), flush=True)


def command(folder: Path, url: str, namespace: str, count: int) -> list[str]:
    """The command line of all this."""
    words = (sys.executable, "-m", "tests.cluster.fleet", str(folder), url, namespace, str(count))
    return ["unshare", "--mount", *words]


if __name__ == "__main__":
    folder, url, namespace, count = sys.argv[1:]
    # This process has a mount namespace of its own: see `command`.
    subprocess.run(["mount", "--bind", f"{folder}/hosts", "/etc/hosts"], check=True)
    uvloop.run(Fleet(Path(folder), url, namespace, int(count)).run())
