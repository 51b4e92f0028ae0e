"""A process that stands still amid a write: by SIGSTOP, in a paused virtual machine, or under a starved CPU."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import uvloop
from kubernetes.aio.client import Configuration

from controller.discovery.certificates import renewed
from controller.discovery.tls import use
from controller.kube.api import Api
from controller.kube.writers import NotLeadingError, Writers


class SlowServer:
    """Its TLS handshake waits for `go`. `shaken` once its part of that is sent; `heard` is what it was asked."""

    def __init__(self, directory: Path) -> None:
        authority = renewed(None, ["localhost"], datetime.now(UTC))
        self.authority = directory / "ca.crt"
        self.authority.write_bytes(authority.trusted)
        self.came, self.go, self.shaken, self.over = (threading.Event() for _ in range(4))
        self.heard = b""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        use(self._context, authority.leaf)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    @contextmanager
    def serving(self) -> Iterator[None]:
        thread = threading.Thread(target=self._serve, name="slow server")
        thread.start()
        try:
            yield
        finally:
            self.go.set()
            thread.join()
            self._listener.close()

    def _serve(self) -> None:
        plain, _ = self._listener.accept()
        plain.settimeout(8)
        plain.recv(1, socket.MSG_PEEK)  # the client's part of the handshake
        self.came.set()
        self.go.wait(8)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = self._context.wrap_bio(incoming, outgoing, server_side=True)
        steps = [server.do_handshake, self._hear(server), server.unwrap]
        try:
            while data := plain.recv(65536):
                incoming.write(data)
                try:
                    while steps:
                        steps[0]()
                        del steps[0]
                except ssl.SSLWantReadError:
                    pass
                plain.sendall(outgoing.read())
                self.shaken.set()
        except OSError:
            pass  # the client has left in the middle
        finally:
            plain.close()
            self.over.set()

    def _hear(self, server: ssl.SSLObject) -> Callable[[], None]:
        def hear() -> None:
            self.heard = server.read()  # a request, or a farewell

        return hear


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SlowServer]:
    server = SlowServer(tmp_path)
    with server.serving():
        yield server


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_write_whose_connection_opens_after_the_lease_was_lost_is_never_sent(
    server: SlowServer, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_stand_still(server))

    assert server.heard == b""


async def _stand_still(server: SlowServer) -> None:
    async def configure() -> Configuration:
        configuration = Configuration(host=f"https://localhost:{server.port}")
        configuration.ssl_ca_cert = str(server.authority)
        configuration.retries = None
        return configuration

    api = Api(configure, "steelyard/test")
    lost = time.monotonic() + 1.0
    writers = Writers(api, lambda: max(0.0, lost - time.monotonic()))
    write = asyncio.create_task(writers.status(("store", "shop"), "owner", {}))
    await asyncio.to_thread(server.came.wait, 8)

    server.go.set()
    server.shaken.wait(8)  # the loop stands still, and what it waits for is there
    time.sleep(max(0.0, lost - time.monotonic()) + 0.01)  # noqa: ASYNC251 - so it does

    with pytest.raises(NotLeadingError):
        await write
    await api.close()
    assert await asyncio.to_thread(server.over.wait, 8)
