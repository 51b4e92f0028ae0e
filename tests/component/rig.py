"""A raw-socket rig around the real proxy: the bytes on both sides are the test, so no HTTP library is used.

One uvloop loop holds three parties:

- `Rig`: the real `DataPlane`, fed with snapshots made by `rig.snapshot(...)`, listening on a free port;
- `Backend`: scripted; a script is a row of steps that each connection to it runs. It keeps every connection, with the
  exact bytes that came over it and how it ended;
- `Wire`: a raw connection; what `rig.connect()` gives to a test, and what a backend's steps work on.

    rig.backend.script(recv_head(), send(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nhi"))
    client = await rig.connect()
    await client.send(b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
    assert (await client.response()).body == b"hi"

`rig.close()` (the fixture calls it) asserts that nothing is left: no attempt in flight, no waiter, no byte held, no
task, no timer, no open socket. Waiting is always for an event; `LIMIT` seconds only end a test that hangs.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import msgspec
import uvloop

from controller.balancing.node import Kind, Node
from controller.model.endpoints import Endpoint
from controller.model.snapshot import Snapshot, SnapshotBackend, SnapshotPort
from controller.proxy.lane import Lane
from controller.proxy.plane import DataPlane
from controller.settings import ProxySettings
from controller.telemetry import Telemetry

LIMIT = 15.0
TICK = 0.02  # the coarse timer, so that timeouts of 0.1 s can be told apart
SETTINGS = ProxySettings(host="127.0.0.1", coarse_tick=TICK, continue_wait=0.1, lingering=0.5, flush=0.5)

Step = Callable[["Wire"], Awaitable[None]]


class RigLoop(uvloop.Loop):
    """Remembers its timers, so that a test can ask which are still armed."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[tuple[asyncio.TimerHandle, object]] = []  # with what they call

    def call_later(self, delay: float, callback: Any, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        handle = super().call_later(delay, callback, *args, **kwargs)
        if hasattr(handle, "when"):  # none for a delay below a millisecond: uvloop calls that soon
            self.timers.append((handle, callback))
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, **kwargs)
        if hasattr(handle, "when"):
            self.timers.append((handle, callback))
        return handle

    def armed(self) -> list[object]:
        """What is going to be called yet."""
        now = self.time() + 0.001  # libuv rounds to milliseconds, so a timer may have fired half of one early
        return [call for handle, call in self.timers if not handle.cancelled() and handle.when() > now]


class RigPolicy(uvloop.EventLoopPolicy):
    def new_event_loop(self) -> RigLoop:
        return RigLoop()


class Response(NamedTuple):
    status: int
    fields: list[tuple[str, str]]  # names in lower case
    body: bytes  # as it came: chunks are not taken apart
    raw: bytes

    def get(self, name: str) -> str | None:
        return next((value for key, value in self.fields if key == name), None)


class Wire(asyncio.Protocol):
    """A raw connection. `ending` is "open", "FIN" or "RST"."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.taken = 0  # bytes that steps and `response` have used up
        self.ending = "open"
        self.closed = False
        self.transport: Any = None
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._changed.set()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._changed.set()

    def eof_received(self) -> bool:
        self.ending = "FIN"
        self._changed.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if exc is not None:
            self.ending = "RST"
        self._changed.set()

    async def until(self, test: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT):
            while not test():
                self._changed.clear()
                await self._changed.wait()

    async def send(self, data: bytes) -> None:
        if not self.closed:
            self.transport.write(data)
        await asyncio.sleep(0)

    async def take_head(self) -> bytes:
        """The next head, with its blank line; its bytes are used up."""
        await self.until(lambda: self.received.find(b"\r\n\r\n", self.taken) >= 0 or self.ending != "open")
        end = self.received.find(b"\r\n\r\n", self.taken) + 4
        assert end > 3, f"ended ({self.ending}) before a head: {bytes(self.received[self.taken :])!r}"
        head = bytes(self.received[self.taken : end])
        self.taken = end
        return head

    async def take(self, count: int) -> bytes:
        await self.until(lambda: len(self.received) >= self.taken + count or self.ending != "open")
        data = bytes(self.received[self.taken : self.taken + count])
        self.taken += len(data)
        return data

    async def take_to(self, marker: bytes) -> bytes:
        await self.until(lambda: marker in self.received[self.taken :] or self.ending != "open")
        at = self.received.find(marker, self.taken)
        assert at >= 0, f"ended ({self.ending}) without {marker!r}: {bytes(self.received[self.taken :])!r}"
        data = bytes(self.received[self.taken : at + len(marker)])
        self.taken = at + len(marker)
        return data

    async def response(self, *, bodyless: bool = False) -> Response:
        """The next response, its body read by `Content-Length`, by chunks, or to the end."""
        head = await self.take_head()
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        fields = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        status = int(first.split()[1])
        found = dict(fields)
        if bodyless or status in (204, 304) or status < 200:
            body = b""
        elif "content-length" in found:
            body = await self.take(int(found["content-length"]))
        elif "transfer-encoding" in found:
            body = await self.take_to(b"0\r\n\r\n")
        else:
            body = (await self.to_end())[1]
        return Response(status, fields, body, head)

    async def to_end(self) -> tuple[str, bytes]:
        """How the connection ended, and all that hasn't been taken yet."""
        await self.until(lambda: self.ending != "open")
        if self.ending == "FIN":
            await asyncio.sleep(0)
        data = bytes(self.received[self.taken :])
        self.taken = len(self.received)
        return self.ending, data

    def half_close(self) -> None:
        self.transport.write_eof()

    def fin(self) -> None:
        self.transport.close()

    def rst(self, *, flush: bool = True) -> None:
        """A reset, behind what was sent or instead of it."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if flush:
            self.transport.close()
        else:
            self.transport.abort()

    def stop_reading(self) -> None:
        self.transport.pause_reading()

    def start_reading(self) -> None:
        self.transport.resume_reading()


# Steps of a backend's script.


def recv_head() -> Step:
    async def step(wire: Wire) -> None:
        await wire.take_head()

    return step


def recv(count: int) -> Step:
    async def step(wire: Wire) -> None:
        await wire.take(count)

    return step


def recv_to(marker: bytes) -> Step:
    async def step(wire: Wire) -> None:
        await wire.take_to(marker)

    return step


def send(data: bytes) -> Step:
    async def step(wire: Wire) -> None:
        await wire.send(data)

    return step


def send_bytewise(data: bytes) -> Step:
    async def step(wire: Wire) -> None:
        for at in range(len(data)):
            wire.transport.write(data[at : at + 1])
            await asyncio.sleep(0)

    return step


def wait_for(event: asyncio.Event) -> Step:
    async def step(wire: Wire) -> None:
        async with asyncio.timeout(LIMIT):
            await event.wait()

    return step


def signal(event: asyncio.Event) -> Step:
    async def step(wire: Wire) -> None:
        event.set()

    return step


def _call(method: Callable[[Wire], None]) -> Callable[[], Step]:
    def make() -> Step:
        async def step(wire: Wire) -> None:
            method(wire)

        return step

    return make


fin = _call(Wire.fin)
rst = _call(Wire.rst)
half_close = _call(Wire.half_close)
stop_reading = _call(Wire.stop_reading)


def stall() -> Step:
    """Nothing more, until the other side or the rig ends it."""

    async def step(wire: Wire) -> None:
        await wire.until(lambda: wire.ending != "open")

    return step


def serve(response: bytes) -> Step:
    """The same answer to every head, for as long as the connection lives. Requests have no bodies."""

    async def step(wire: Wire) -> None:
        while True:
            await wire.until(lambda: wire.received.find(b"\r\n\r\n", wire.taken) >= 0 or wire.ending != "open")
            if wire.ending != "open":
                return
            await wire.take_head()
            await wire.send(response)

    return step


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Backend:
    """A scripted endpoint. The n-th connection runs the n-th script, later ones the last."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connections: list[Wire] = []
        self._scripts: list[tuple[Step, ...]] = [(serve(OK),)]
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._came = asyncio.Event()

    def script(self, *steps: Step) -> None:
        self._scripts = [steps]

    def scripts(self, *scripts: Iterable[Step]) -> None:
        self._scripts = [tuple(steps) for steps in scripts]

    async def start(self, port: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    def _accept(self) -> Wire:
        wire = Wire()
        steps = self._scripts[min(len(self.connections), len(self._scripts) - 1)]
        self.connections.append(wire)
        task = asyncio.get_running_loop().create_task(self._run(wire, steps), name=f"script of {self.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._came.set()
        return wire

    async def _run(self, wire: Wire, steps: tuple[Step, ...]) -> None:
        await wire.until(lambda: wire.transport is not None)
        for step in steps:
            await step(wire)

    async def connection(self, number: int = 0) -> Wire:
        """The n-th connection, once it is there."""
        async with asyncio.timeout(LIMIT):
            while len(self.connections) <= number:
                self._came.clear()
                await self._came.wait()
        return self.connections[number]

    def refuse(self) -> None:
        """Stop listening: connects are refused from now on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        self.refuse()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result  # a step that failed is a fault of the test
        for wire in self.connections:
            if not wire.closed:
                wire.transport.abort()
        for wire in self.connections:
            await wire.until(lambda wire=wire: wire.closed)


class LogLines:
    """Decodes the access log's lines into `log`."""

    def __init__(self, log: list[dict[str, Any]]) -> None:
        self.lost = 0
        self._log = log

    def write(self, data: bytes) -> None:
        self._log += [msgspec.json.decode(line) for line in data.splitlines()]

    def close(self, seconds: float) -> None:
        """Nothing waits."""


class Rig:
    """See the module's docstring. `rig.start()` is called by the fixture with the defaults; call it again to change."""

    def __init__(self, loop: RigLoop) -> None:
        self.loop = loop
        self.backends: list[Backend] = []
        self.clients: list[Wire] = []
        self.log: list[dict[str, Any]] = []  # access log lines
        self.learnt: list[Kind] = []
        self.bugs = 0  # that the test provokes
        self._sockets = _sockets()
        self._watched: set[Node] = set()

    @property
    def backend(self) -> Backend:
        return self.backends[0]

    @property
    def lane(self) -> Lane:
        return self.plane.lanes[0]

    @property
    def outcomes(self) -> dict[str, int]:
        """Ended exchanges by outcome word."""
        found: dict[str, int] = {}
        for counts in self.telemetry.by_backend.values():
            for word, number in counts.outcomes.items():
                found[word] = found.get(word, 0) + number
        return found

    async def open(self, settings: ProxySettings = SETTINGS, backends: int = 1, **fields: Any) -> None:
        """A proxy in front of so many backends; `fields` are the Snapshot's."""
        self.telemetry = Telemetry()
        self.plane = DataPlane(settings, self.telemetry, LogLines(self.log))
        for number in range(backends):
            backend = Backend(f"b{number}")
            await backend.start()
            self.backends.append(backend)
        self.fields = fields
        await self.apply()

    async def apply(self, **fields: Any) -> None:
        """Change the snapshot in force."""
        self.fields |= fields
        await self.plane.apply(self.snapshot(**self.fields))
        for node in self.lane.upstream.nodes:
            self._watched.add(node)
            if self._learn not in node.observers:
                node.observers = (*node.observers, self._learn)

    def snapshot(self, **fields: Any) -> Snapshot:
        endpoints = fields.pop("endpoints", None) or tuple(self.endpoint(backend) for backend in self.backends)
        backend = SnapshotBackend(name="all", weight=1, weight_per="Endpoint", endpoints=endpoints)
        protocol = fields.pop("protocol", "HTTP")
        port = SnapshotPort(name="http", port=80, listen=0, protocol=protocol, backends=(backend,))
        proxy = msgspec.structs.replace(fields.pop("proxy", Snapshot(namespace="", name="").proxy), access_log="JSON")
        return Snapshot(namespace="store", name="shop", **({"ports": (port,), "proxy": proxy} | fields))

    def endpoint(self, backend: Backend, **fields: Any) -> Endpoint:
        return Endpoint(**({"id": backend.name, "address": "127.0.0.1", "port": backend.port} | fields))

    @property
    def port(self) -> int:
        (address,) = self.plane.addresses
        return address[1]

    async def connect(self) -> Wire:
        _, wire = await self.loop.create_connection(Wire, "127.0.0.1", self.port)
        self.clients.append(wire)
        return wire

    async def ask(self, request: bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") -> Response:
        """One request on a connection of its own."""
        client = await self.connect()
        await client.send(request)
        response = await client.response(bodyless=request.startswith(b"HEAD"))
        client.fin()
        return response

    async def settled(self) -> None:
        """Until no exchange is served."""
        await self.reached(lambda: all(front.exchange is None for front in self.plane.fronts))

    async def reached(self, state: Callable[[], bool]) -> None:
        """Until the proxy is in a state that it tells by no event."""
        async with asyncio.timeout(LIMIT):
            while not state():  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.001)

    async def close(self) -> None:
        """End everything, and assert that nothing is left."""
        for client in self.clients:
            if not client.closed:
                client.rst(flush=False)  # a FIN would be a half-close to a tunnel
        faults = []
        try:
            async with asyncio.timeout(LIMIT):
                await self.plane.emptied()
        except TimeoutError:
            faults.append(f"client connections stay: {self.plane.fronts}")
        faults += [f"in flight: {node}" for node in self._watched if node.inflight]
        faults += [f"waiting: {lane}" for lane in self.plane.lanes if len(lane.queue)]
        faults += [f"bytes held: {self.plane.memory}"] * bool(self.plane.memory.held)
        faults += [f"pipes: {self.plane.pipes}"] * bool(self.plane.pipes.lent)
        faults += [f"lingering: {self.plane.lingering}"] * bool(self.plane.lingering)
        faults += [f"bugs caught: {self.telemetry.bugs}"] * (self.telemetry.bugs != self.bugs)
        # A loop with an open handle can't be closed: first let go of all, then tell.
        await self.plane.stop_listening()
        self.plane.close()
        for backend in self.backends:
            await backend.close()
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(LIMIT):
                while _sockets() > self._sockets:  # noqa: ASYNC110 - the kernel tells no event
                    await asyncio.sleep(0.001)
        except TimeoutError:
            faults.append(f"sockets stay open: {_sockets() - self._sockets}")
        faults += [f"task: {task}" for task in asyncio.all_tasks() - {asyncio.current_task()}]
        faults += [f"timer: {timer}" for timer in self.loop.armed()]
        if faults:
            raise AssertionError("left behind: " + "; ".join(faults))

    def _learn(self, node: Node, now: float, kind: Kind, seconds: float, retry_after: float | None) -> None:
        self.learnt.append(kind)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """The process may open none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def black_hole() -> Iterator[int]:
    """A port that answers no SYN: a listener whose accept queue is full."""
    with ExitStack() as held:
        listener = held.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            filler = held.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def _sockets() -> int:
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except FileNotFoundError:  # the directory's own descriptor
            continue
    return count
