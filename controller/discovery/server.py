"""The operator's side of the wire: one stream per proxy, long-poll for people, reports back (aiohttp over TLS).

    GET  /v1/snapshots/NAMESPACE?names=a,b   Accept: application/x-ndjson → a stream of frames
    GET  /v1/snapshots/NAMESPACE?names=a     once; If-None-Match and `Prefer: wait=30` → long-poll
    POST /v1/reports/NAMESPACE               {name: Report}: acknowledgements and health
    POST /v1/relay                           [Relayed]: what another replica heard

401: no valid token. 403: not yours. 429: too many refused attempts. 503: the caches are not synced yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

import msgspec
from aiohttp import web

from controller.discovery import frames
from controller.discovery.hub import Hub, Key, Subscriber
from controller.discovery.tokens import Authenticator, Identity

log = logging.getLogger(__name__)

WRITE_SECONDS = 10.0  # a reader that takes no bytes for this long is closed; it comes back for the newest
REVIEW_SECONDS = 600.0  # how often an open stream must show that its token is still good
MAX_WAIT = 60.0
MAX_NAMES = 256  # objects one proxy may ask for
MAX_REPORT = 1024 * 1024

Counter = Callable[[str], None]
_T = TypeVar("_T")
_REPORTS = msgspec.json.Decoder(dict[str, frames.Report])
_RELAYED = msgspec.json.Decoder(list[frames.Relayed])


class Access(msgspec.Struct, frozen=True):
    """The questions that only the rest of the operator can answer, handed in as callables."""

    allowed: Callable[[Identity, Key], Awaitable[bool]]  # may this identity read that object?
    zone: Callable[[str], str]  # the zone of a node; "" = unknown
    connected: Callable[[Key, str, bool], None]  # an object's proxy (by pod uid) came or left
    reported: Callable[[Key, str, frames.Report], None]
    relayed: Callable[[Key, str, frames.Report], None]  # the same, by way of another replica
    replica: str = ""  # our own account, whose tokens may relay; "" = nobody


class Discovery:
    """The aiohttp application and its open streams. `count` gets an event's name: refused, stream, report, …"""

    def __init__(self, hub: Hub, authenticator: Authenticator, access: Access, count: Counter) -> None:
        self._hub = hub
        self._authenticator = authenticator
        self._access = access
        self._count = count
        self._ending = False
        self.streams = 0
        self.app = web.Application(client_max_size=MAX_REPORT)
        self.app.add_routes(
            [
                web.get("/v1/snapshots/{namespace}", self._snapshots),
                web.post("/v1/reports/{namespace}", self._reports),
                web.post("/v1/relay", self._relay),
            ]
        )

    def end(self) -> None:
        """Tell every stream to reconnect elsewhere, and let it end."""
        self._ending = True
        self._hub.wake_all()

    async def _identify(self, request: web.Request) -> Identity:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else ""
        identity = await self._authenticator.identify(given, request.remote or "")
        if identity == "limited":
            self._count("limited")
            raise web.HTTPTooManyRequests(text="too many refused attempts; wait\n", headers={"Retry-After": "5"})
        if isinstance(identity, str):
            self._count("unauthenticated")
            raise web.HTTPUnauthorized(
                text=f"a service account token for the audience {frames.AUDIENCE} is needed\n",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return identity

    async def _authorise(self, identity: Identity, keys: list[Key]) -> None:
        for key in keys:
            if not await self._access.allowed(identity, key):
                self._count("forbidden")
                log.warning("refused", extra={"account": identity.username, "object": "/".join(key)})
                raise web.HTTPForbidden(text=f"{identity.username} may not read {key[0]}/{key[1]}\n")

    async def _snapshots(self, request: web.Request) -> web.StreamResponse:
        identity = await self._identify(request)
        names = [name for name in request.query.get("names", "").split(",") if name]
        if not names or len(names) > MAX_NAMES:
            raise web.HTTPBadRequest(text=f"names=a,b is needed, with 1 to {MAX_NAMES} names\n")
        keys = [(request.match_info["namespace"], name) for name in names]
        if not self._hub.synced or self._ending:
            raise web.HTTPServiceUnavailable(text="not synced yet\n", headers={"Retry-After": "1"})
        await self._authorise(identity, keys)
        if frames.MEDIA_TYPE in request.headers.get("Accept", ""):
            return await self._stream(request, identity, keys)
        if len(keys) != 1:
            raise web.HTTPBadRequest(text=f"several names come as a stream: Accept: {frames.MEDIA_TYPE}\n")
        return await self._once(request, identity, keys[0])

    async def _once(self, request: web.Request, identity: Identity, key: Key) -> web.Response:
        known = request.headers.get("If-None-Match", "").strip().strip('"')
        try:
            async with asyncio.timeout(wait_seconds(request.headers.get("Prefer", ""))):
                subscriber = self._hub.subscribe([key])
                try:
                    while known and (published := self._hub.get(key)) and published.version == known:
                        subscriber.take()
                        self._count("poll")
                        await subscriber.changed()
                finally:
                    self._hub.unsubscribe(subscriber)
        except TimeoutError:
            return web.Response(status=304, headers={"ETag": f'"{known}"'})
        if known:
            await self._authorise(identity, [key])  # it may be another one's by now
        published = self._hub.get(key)
        if published is None and self._hub.frame(key) is None:
            raise web.HTTPServiceUnavailable(text=f"{key[1]} in {key[0]} can't be served: see its status\n")
        if published is None:
            raise web.HTTPNotFound(text=f"no BalancedService {key[1]} in {key[0]}\n")
        return web.Response(
            body=published.body, content_type="application/json", headers={"ETag": f'"{published.version}"'}
        )

    async def _stream(self, request: web.Request, identity: Identity, keys: list[Key]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": frames.MEDIA_TYPE, "Cache-Control": "no-store"})
        await response.prepare(request)
        subscriber = self._hub.subscribe(keys)
        self.streams += 1
        self._count("stream")
        for key in keys:
            self._access.connected(key, identity.proxy, True)
        try:
            hello = frames.Hello(node=identity.node, zone=self._access.zone(identity.node))
            await self._write(response, frames.encode(hello))
            ended = await self._feed(request, response, subscriber, identity)
            if ended == "ending":
                await self._write(response, frames.encode(frames.Reconnect()))
        except TimeoutError:
            self._count("slow")
            log.info("closed a stream that takes no bytes", extra={"account": identity.username})
            if request.transport is not None:
                request.transport.abort()
        finally:
            self.streams -= 1
            self._hub.unsubscribe(subscriber)
            for key in keys:
                self._access.connected(key, identity.proxy, False)
        return response

    async def _feed(
        self, request: web.Request, response: web.StreamResponse, subscriber: Subscriber, identity: Identity
    ) -> Literal["ending", "refused"]:
        loop = asyncio.get_running_loop()
        review_at, ping_at = loop.time() + REVIEW_SECONDS, loop.time() + frames.FIRST_PING_SECONDS
        try:
            while not self._ending:
                for key in subscriber.take():
                    frame = self._hub.frame(key)
                    if self._hub.get(key) is not None:
                        # What didn't exist when the stream began may be another one's by now.
                        await self._authorise(identity, [key])
                    if frame is not None:
                        await self._write(response, frame)
                try:
                    async with asyncio.timeout_at(ping_at):
                        await subscriber.changed()
                except TimeoutError:
                    ping_at = loop.time() + frames.PING_SECONDS
                    await self._write(response, frames.encode(frames.Ping()))
                if loop.time() >= review_at:
                    review_at = loop.time() + REVIEW_SECONDS
                    await self._identify(request)
        except web.HTTPException:
            return "refused"  # and told why once it comes back
        return "ending"

    @staticmethod
    async def _write(response: web.StreamResponse, data: bytes) -> None:
        async with asyncio.timeout(WRITE_SECONDS):
            await response.write(data)

    async def _reports(self, request: web.Request) -> web.Response:
        identity = await self._identify(request)
        reports = await self._body(request, _REPORTS)
        namespace = request.match_info["namespace"]
        await self._authorise(identity, [(namespace, name) for name in reports])
        for name, report in reports.items():
            self._access.reported((namespace, name), identity.proxy, report)
        self._count("report")
        return web.Response(status=204)

    async def _relay(self, request: web.Request) -> web.Response:
        identity = await self._identify(request)
        if not self._access.replica or identity.username != self._access.replica:
            self._count("forbidden")
            raise web.HTTPForbidden(text="only another replica of the operator may relay\n")
        for relayed in await self._body(request, _RELAYED):
            self._access.relayed((relayed.namespace, relayed.name), relayed.proxy, relayed.report)
        return web.Response(status=204)

    @staticmethod
    async def _body(request: web.Request, decoder: msgspec.json.Decoder[_T]) -> _T:
        try:
            return decoder.decode(await request.read())
        except msgspec.DecodeError as error:
            raise web.HTTPBadRequest(text=f"not a report: {error}\n") from error


def wait_seconds(prefer: str) -> float:
    """The `wait` preference of RFC 7240 in seconds, at most 60; 0 without one."""
    for part in prefer.split(","):
        name, _, value = part.strip().partition("=")
        if name.lower() == "wait" and value.strip().isdecimal():
            return min(MAX_WAIT, float(value))
    return 0.0
