"""The forward proxy of a sidecar (RFC 9110 §3.7): for clients that are told of it by `HTTP_PROXY`.

It takes requests for the services that the sidecar serves, by any of their names, and nothing else: it is no way out
of the pod. A connection may ask for another service with each request.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import msgspec
from aiohttp import web

from controller import admin
from controller.balancing.affinity import Keys
from controller.model.snapshot import Snapshot, SnapshotPort
from controller.proxy.codec import Refused, RequestHead, RequestReader
from controller.proxy.hosting import Factory, ProxyRunner
from controller.proxy.lane import Lane
from controller.proxy.listener import Front
from controller.proxy.plane import DataPlane
from controller.proxy.route import Route
from controller.proxy.seat import Seat
from controller.proxy.timers import LoopTimers
from controller.proxy.upstream import Upstream


class ForwardProxy:
    """Finds the lane for an authority. Its own lane counts what asks for no service of ours."""

    def __init__(self, plane: DataPlane, namespace: str, domain: str) -> None:
        self._plane = plane
        self._namespace = namespace
        self._suffixes = ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.{domain}")
        port = SnapshotPort(name="http", port=80, listen=80)
        snapshot = Snapshot(namespace=namespace, name="forward-proxy", mode="Sidecar", ports=(port,))
        keys = Keys(secrets.token_bytes(32))
        self._upstream = Upstream(port, snapshot, Seat(identity="forward-proxy"), LoopTimers(), keys)
        self.lane = Lane(plane, self._upstream, Route(snapshot, port, plane.settings))

    def close(self) -> None:
        self._upstream.close()

    def find(self, authority: bytes) -> Lane | None:
        """`host` or `host:port`; the port is 80 by default."""
        host, _, port = authority.decode("latin-1").lower().partition(":")
        if not (port or "80").isascii() or not (port or "80").isdecimal():
            return None
        name, dot, rest = host.removesuffix(".").partition(".")
        if dot + rest not in self._suffixes:
            return None
        for lane in self._plane.lanes:
            upstream = lane.upstream
            if upstream.snapshot.key == (self._namespace, name) and upstream.port.port == int(port or 80):
                return None if lane.route.tcp else lane
        return None


class _Elsewhere(msgspec.Struct, frozen=True):
    """As the codec's `Refused`: a request for what isn't ours."""

    status: int = 403


class _ChoosingReader:
    """Reads heads, and moves the connection to the lane that each asks for."""

    def __init__(self, front: Front, proxy: ForwardProxy) -> None:
        self._front = front
        self._proxy = proxy
        self._reader = RequestReader(front.limits)

    @property
    def started(self) -> bool:
        return self._reader.started

    def feed(self, data: bytes) -> RequestHead | Refused | _Elsewhere | None:
        head = self._reader.feed(data)
        if type(head) is not RequestHead:
            return head
        lane = self._proxy.find(head.host or b"")
        if lane is None:
            return _Elsewhere()
        self._front.move(lane)
        return head


class _ProxyFactory(Factory):
    def __init__(self, proxy: ForwardProxy) -> None:
        super().__init__(proxy.lane)
        self._proxy = proxy

    def __call__(self) -> Front:
        front = Front(self.lane)
        front.reader = cast(RequestReader, _ChoosingReader(front, self._proxy))
        return front


@asynccontextmanager
async def serving(plane: DataPlane, namespace: str, domain: str, address: tuple[str, int]) -> AsyncIterator[None]:
    """Listen on `address` meanwhile. Raises AdminError if it can't be had."""
    proxy = ForwardProxy(plane, namespace, domain)
    runner = ProxyRunner(_ProxyFactory(proxy))
    await runner.setup()
    try:
        try:
            await web.SockSite(runner, admin.bound(*address)).start()
        except OSError as error:
            raise admin.AdminError(f"can't listen on {address[0]}:{address[1]}: {error.strerror or error}") from error
        yield
    finally:
        await runner.cleanup()
        proxy.close()
