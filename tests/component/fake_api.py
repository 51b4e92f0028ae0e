"""A fake of the API server's far side: it plays a script, answer by answer, and keeps no objects.

For what a real server can't be made to do at a chosen moment: 410, 429, a torn line, silence. Whatever needs a store
(pruning, defaulting, apply) belongs to the tests on a real cluster.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from kubernetes.aio.client import Configuration

from controller.kube.api import Api

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def reply(body: object, status: int = 200, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()})

    return answer


def refusal(status: int, reason: str = "", **headers: str) -> Answer:
    body = {"kind": "Status", "code": status, "reason": reason, "message": f"scripted {status}"}
    return reply(body, status, **headers)


def listing(*items: dict[str, Any], version: str = "100", more: str = "") -> Answer:
    return reply({"items": list(items), "metadata": {"resourceVersion": version, "continue": more}})


class Stream:
    """A watch: events are sent while it is open; `end`, `tear` and silence are up to the test."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.closed = asyncio.Event()
        self._todo: asyncio.Queue[bytes | None] = asyncio.Queue()

    def send(self, kind: str, item: dict[str, Any]) -> None:
        self._todo.put_nowait(json.dumps({"type": kind, "object": item}).encode() + b"\n")

    def raw(self, data: bytes) -> None:
        self._todo.put_nowait(data)

    def end(self) -> None:
        self._todo.put_nowait(None)

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        self.opened.set()
        try:
            while (data := await self._todo.get()) is not None:
                await response.write(data)
        finally:
            self.closed.set()
        return response


class FakeApi:
    """Answers by (verb, path), in the order of the script; the last one again and again.

    The verb is the method, or LIST and WATCH for a collection; a script for `PATH?SELECTOR` is for requests with that
    label selector only. What has no script gets 404. `asked` holds verb, path,
    query and body of each request.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self._script: dict[tuple[str, str], list[Answer]] = defaultdict(list)
        self._news = asyncio.Condition()

    def on(self, verb: str, path: str, *answers: Answer) -> None:
        """Adds to the script."""
        self._script[verb, path] += answers

    def again(self, verb: str, path: str, *answers: Answer) -> None:
        """Replaces what is left of the script."""
        self._script[verb, path] = list(answers)

    def count(self, verb: str, path: str) -> int:
        return sum((v, p) == (verb, path) for v, p, _, _ in self.asked)

    def bodies(self, verb: str, path: str) -> list[Any]:
        return [body for v, p, _, body in self.asked if (v, p) == (verb, path)]

    async def until(self, verb: str, path: str, count: int = 1) -> None:
        """Waits until so many requests came."""
        async with self._news:
            await asyncio.wait_for(self._news.wait_for(lambda: self.count(verb, path) >= count), 8)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        verb = request.method
        text = await request.text()
        script = self._script.get((verb, request.path))
        if script is None and verb == "GET":
            verb = "WATCH" if "watch" in query else "LIST"
            selected = f"{request.path}?{query.get('labelSelector')}"
            script = self._script.get((verb, selected)) or self._script.get((verb, request.path))
        async with self._news:
            self.asked.append((verb, request.path, query, json.loads(text) if text else None))
            self._news.notify_all()
        if not script:
            return await refusal(404, "NotFound")(request)
        return await (script.pop(0) if len(script) > 1 else script[0])(request)


@asynccontextmanager
async def serving(fake: FakeApi) -> AsyncIterator[Api]:
    """An `Api` whose server is `fake`."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", fake.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]

    async def configure() -> Configuration:
        configuration = Configuration(host=f"http://{host}:{port}")
        configuration.retries = None
        return configuration

    api = Api(configure, "steelyard/test")
    try:
        yield api
    finally:
        await api.close()
        await runner.cleanup()
