"""The listening sockets, hosted by aiohttp's runners and sites: one per address, and each can come and go by itself."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, cast

from aiohttp import web

from controller.model.snapshot import Snapshot, SnapshotPort
from controller.proxy.lane import Lane
from controller.proxy.listener import Front
from controller.proxy.tcp import TcpFront
from controller.settings import ProxySettings

UNSENT = 128 * 1024  # bytes per connection that the kernel keeps beyond what is under way
Address = tuple[str, int]
Key = tuple[str, str]
Bind = Callable[[Address], socket.socket]
LAST = 65535


class PortInUse(Exception):  # noqa: N818 - what happened, in the words of the message
    """The address can't be had, since another process or object has it; the message says what to do."""


class Factory:
    """Makes a `Front` or a `TcpFront` per connection. aiohttp tests its truth at the end: it has no length."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane

    def __call__(self) -> Front | TcpFront:
        return TcpFront(self.lane) if self.lane.route.tcp else Front(self.lane)

    def pre_shutdown(self) -> None:
        """Idle connections are closed by the drain, which comes before."""

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - aiohttp's signature
        """What is in flight is ended by the drain, which comes before."""


class ProxyRunner(web.BaseRunner):
    """aiohttp's life cycle around protocols of our own. Signals are the command's."""

    def __init__(self, factory: Factory) -> None:
        super().__init__(handle_signals=False)
        self._factory = factory

    async def shutdown(self) -> None:
        """There are no shutdown hooks."""

    async def _make_server(self) -> web.Server:
        return cast(web.Server, self._factory)  # all that a runner asks of it is there

    async def _cleanup_server(self) -> None:
        """The factory holds nothing."""


class Turned(NamedTuple):
    """A port whose new connections are another lane's now."""

    port: int
    before: Lane
    factory: Factory


class Host:
    """Owns the sockets. `reserve` binds without listening, so that a change is made whole or not at all.

    Once it is told to stop it listens on nothing, whatever it is told besides.
    """

    def __init__(self, settings: ProxySettings, bind: Bind) -> None:
        self._settings = settings
        self._bind = bind
        self._reserved: dict[Address, socket.socket] = {}
        self._runners: dict[Address, tuple[Factory, ProxyRunner]] = {}
        self._stopped = False

    @property
    def addresses(self) -> Mapping[Address, Lane]:
        found = {}
        for factory, runner in self._runners.values():
            for address in runner.addresses:
                found[address[0], address[1]] = factory.lane
        return found

    def reserve(self, addresses: Iterable[Address]) -> None:
        """Bind what isn't bound yet. Raises PortInUse, and then keeps nothing of this call."""
        if self._stopped:
            return
        bound: dict[Address, socket.socket] = {}
        for address in addresses:
            if address not in self._runners and address not in bound:
                try:
                    bound[address] = self._bind(address)
                except OSError as error:
                    for sock in bound.values():
                        sock.close()
                    raise PortInUse(explain(address, error)) from error
        self._reserved.update(bound)

    def turn(self, lanes: Mapping[Address, Lane]) -> list[Turned]:
        """Give connections that come from now on to these lanes, where there is a listener already."""
        turned = []
        for address in lanes.keys() & self._runners.keys():
            factory, runner = self._runners[address]
            before, factory.lane = factory.lane, lanes[address]
            if factory.lane is not before:
                turned += [Turned(each[1], before, factory) for each in runner.addresses]
        return turned

    async def serve(self, lanes: Mapping[Address, Lane], unwanted: Iterable[Address]) -> None:
        """Listen for these lanes, and no longer on what is `unwanted`; what stays drops no connection."""
        for address in unwanted:
            if address in self._runners:
                _, runner = self._runners.pop(address)
                await runner.cleanup()
        for address, lane in lanes.items():
            if address in self._reserved:
                sock, factory = self._reserved.pop(address), Factory(lane)
                runner = ProxyRunner(factory)
                await runner.setup()
                await web.SockSite(runner, sock, backlog=self._settings.backlog).start()
                if self._stopped:  # meanwhile
                    await runner.cleanup()
                else:
                    self._runners[address] = (factory, runner)

    async def stop(self) -> None:
        self._stopped = True
        for sock in self._reserved.values():
            sock.close()
        self._reserved.clear()
        runners, self._runners = self._runners, {}
        for _, runner in runners.values():
            await runner.cleanup()


def bind(address: Address, *, shared: bool = False) -> socket.socket:
    """A socket of the address that doesn't listen yet; `shared` with others of this process. Raises OSError.

    `::` is both families, whatever the kernel's default, and IPv4 alone where there is no IPv6.
    """
    host, port = address
    if port > LAST:
        raise OSError(errno.ERANGE, f"the last port is {LAST}")  # else an OverflowError, which nobody expects
    if host == "::" and not socket.has_dualstack_ipv6():
        host = "0.0.0.0"  # noqa: S104 - all addresses are what was asked for
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if host == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # SO_REUSEPORT lets a second instance share the port silently. This one only skips TIME_WAIT.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Connections inherit it. Else the kernel takes up to 4 MiB off our hands for a client that reads nothing, which
        # is charged to the container and counted by nobody.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
        sock.setblocking(False)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def address_of(snapshot: Snapshot, port: SnapshotPort, settings: ProxySettings) -> Address:
    """What this process listens on for the port."""
    host = snapshot.address if snapshot.mode == "Sidecar" and snapshot.address else settings.host
    return (host, port.listen + settings.listen_offset)


def explain(address: Address, error: OSError) -> str:
    """What is wrong with the address, and the mend."""
    host, port = address
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine; --host names the one to listen on"
    if error.errno == errno.ERANGE:
        return f"port {port} on {host} can't be taken: {error.strerror}; choose a smaller --listen-offset"
    mend = "--listen-offset moves all ports, for instance by 8000"
    if isinstance(error, PermissionError):
        return f"port {port} on {host} may not be taken without privileges; {mend}"
    return f"port {port} on {host} can't be taken: {error.strerror}; another process may listen there; {mend}"


def served(address: Address, owner: Key) -> str:
    """That the address is another object's in this very proxy."""
    host, port = address
    return f"port {port} on {host} is served for {'/'.join(owner)} already; give one of the two another port"
