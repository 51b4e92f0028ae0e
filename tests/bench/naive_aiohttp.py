"""The proxy that anyone would write first: aiohttp's Application in front, its ClientSession behind, all by default.

python -m tests.bench.naive_aiohttp PORT BACKEND_PORT
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

from aiohttp import ClientSession, web
from multidict import CIMultiDict

# The least that a proxy must leave out; the lengths are aiohttp's to say.
HOP_BY_HOP = frozenset({"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length"})


def application(backend: int) -> web.Application:
    session = web.AppKey("session", ClientSession)

    async def connected(app: web.Application) -> AsyncIterator[None]:
        async with ClientSession() as app[session]:
            yield

    async def forward(request: web.Request) -> web.Response:
        fields = passing(request.headers)
        fields["X-Forwarded-For"] = request.remote or ""
        url = f"http://127.0.0.1:{backend}{request.path_qs}"
        data = await request.read() if request.body_exists else None
        async with request.app[session].request(request.method, url, headers=fields, data=data) as answer:
            return web.Response(status=answer.status, headers=passing(answer.headers), body=await answer.read())

    app = web.Application()
    app.cleanup_ctx.append(connected)
    app.router.add_route("*", "/{path:.*}", forward)
    return app


def passing(fields: object) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in fields.items() if name.lower() not in HOP_BY_HOP)  # type: ignore[attr-defined]


if __name__ == "__main__":
    web.run_app(application(int(sys.argv[2])), host="127.0.0.1", port=int(sys.argv[1]), print=None)
