"""A backend that says who answers. Environment: POD, NODE, ZONE, VERSION; argument: the port (8080).

    any path                        who answers, and what it received, as JSON
    /slow/SECONDS                   the same, later
    /status/CODE                    the same, with that status
    /stream/COUNT/INTERVAL          COUNT numbered lines, one each INTERVAL seconds, as chunks
    /ready                          200, or 503 while the file /tmp/unready exists

On SIGTERM it stops accepting, finishes what is in flight, and ends.
"""

from __future__ import annotations

import asyncio
import os
import sys

from aiohttp import web

UNREADY = "/tmp/unready"  # in the pod's own emptyDir
IDENTITY = {name: os.environ.get(name.upper(), "") for name in ("pod", "node", "zone", "version")}
FINISH = 60.0  # seconds for requests in flight after SIGTERM; the pod's grace period ends sooner


async def who(request: web.Request, status: int = 200) -> web.Response:
    """Who answers; headers are listed as received, so that a test sees what a proxy has made of them."""
    body = await request.read()
    headers = [[name, value] for name, value in request.headers.items()]
    received = {"method": request.method, "path": request.raw_path, "headers": headers, "bytes": len(body)}
    return web.json_response(IDENTITY | received, status=status)


async def slow(request: web.Request) -> web.Response:
    await asyncio.sleep(float(request.match_info["seconds"]))
    return await who(request)


async def status(request: web.Request) -> web.Response:
    return await who(request, int(request.match_info["code"]))


async def stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"X-Pod": IDENTITY["pod"]})
    await response.prepare(request)
    for number in range(int(request.match_info["count"])):
        await response.write(f"{number}\n".encode())
        await asyncio.sleep(float(request.match_info["interval"]))
    await response.write_eof()
    return response


async def ready(_: web.Request) -> web.Response:
    there = os.path.exists(UNREADY)  # noqa: ASYNC240 - a stat in memory does not block
    return web.Response(status=503 if there else 200)


def application() -> web.Application:
    app = web.Application()
    app.router.add_get("/ready", ready)
    app.router.add_route("*", "/slow/{seconds}", slow)
    app.router.add_route("*", "/status/{code}", status)
    app.router.add_get("/stream/{count}/{interval}", stream)
    app.router.add_route("*", "/{path:.*}", who)
    return app


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    web.run_app(application(), port=port, shutdown_timeout=FINISH, access_log=None, print=lambda _: None)
