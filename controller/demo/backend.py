"""One small backend of the demo, a process of its own, so that killing it is a real kill.

`python -m controller.demo.backend NAME ADDRESS PORT SECONDS` answers every request with its name after that time.
It reads new times from its standard input, a line each, and ends when that closes: it can't outlive the demo.
"""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web


async def serve(name: str, address: str, port: int, seconds: float) -> None:
    delay = seconds

    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(delay)
        return web.Response(text=f"{name}\n")

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=75, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, address, port, reuse_address=True).start()
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    print("ready", flush=True)  # noqa: T201 - the parent waits for it
    while line := await commands.readline():
        delay = float(line)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
