"""The proxy that anyone would write first: aiohttp's Application in front, its ClientSession behind. A yardstick.

python -m tests.bench.naive_aiohttp PORT BACKEND_PORT
"""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import uvloop
from aiohttp import web

HOP_BY_HOP = frozenset({"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length"})


async def serve(port: int, backend: int) -> None:
    session = aiohttp.ClientSession(auto_decompress=False)

    async def forward(request: web.Request) -> web.StreamResponse:
        fields = [(name, value) for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP]
        fields.append(("X-Forwarded-For", request.remote or ""))
        url = f"http://127.0.0.1:{backend}{request.raw_path}"
        data = request.content if request.body_exists else None
        async with session.request(request.method, url, headers=fields, data=data, allow_redirects=False) as answer:
            response = web.StreamResponse(status=answer.status, reason=answer.reason)
            for name, value in answer.headers.items():
                if name.lower() not in HOP_BY_HOP:
                    response.headers.add(name, value)
            response.content_length = answer.content_length
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
