"""WebSocket through the tunnel, by the `websockets` library on both sides: the proxy must not be noticed.

Every dialogue is held twice, straight and through the proxy, and the accounts of both ends must be the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from controller.model.endpoints import Endpoint
from tests.component.rig import Rig

Account = list[object]
SIZES = (0, 1, 125, 126, 127, 65_535, 65_536, 1_000_000)  # the frame's length field has three forms (RFC 6455 §5.2)


class Echo:
    """Sends back what comes, and keeps an account of how each connection went."""

    def __init__(self) -> None:
        self.account: Account = []
        self.over = asyncio.Event()

    async def talk(self, connection: ServerConnection) -> None:
        self.account.append((connection.subprotocol, [str(each) for each in connection.protocol.extensions]))
        try:
            async for message in connection:
                self.account.append((type(message), len(message)))
                if message == "close 4321":
                    await connection.close(4321, "as you wish")
                elif message == "fragments":
                    await connection.send(["one ", "two ", "", "three"])
                else:
                    await connection.send(message)
        except ConnectionClosed as end:
            self.account.append(repr(end.rcvd))
        finally:
            self.account.append((connection.close_code, connection.close_reason))
            self.over.set()

    def admit(self, connection: ServerConnection, request: Request) -> Response | None:
        return connection.respond(403, "not here") if request.path == "/private" else None


@asynccontextmanager
async def echoing(rig: Rig, *, compression: str | None) -> AsyncIterator[tuple[Echo, list[int]]]:
    """An echo server; the ports on which it is found straight and through the proxy."""
    echo = Echo()
    server: Server
    async with serve(
        echo.talk,
        "127.0.0.1",
        0,
        process_request=echo.admit,
        compression=compression,
        max_size=None,
        subprotocols=[Subprotocol("chat.v2"), Subprotocol("chat.v1")],
    ) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        await rig.open()
        await rig.apply(endpoints=(Endpoint(id="echo", address="127.0.0.1", port=port),))
        yield echo, [port, rig.port]


async def _sizes(client: ClientConnection, account: Account) -> None:
    random = Random(1)
    for size in SIZES:
        for message in (random.randbytes(size), "é" * (size // 2)):
            await client.send(message)
            account.append((size, await client.recv() == message))


async def _fragments(client: ClientConnection, account: Account) -> None:
    await client.send(["a", "", "b" * 70_000, "c"])
    account.append(len(await client.recv()))
    await client.send("fragments")
    account.append([piece async for piece in client.recv_streaming()])


async def _many(client: ClientConnection, account: Account) -> None:
    """Both directions full at the same time."""
    messages = [bytes([number % 256]) * (number * 37 % 9000) for number in range(400)]

    async def send() -> None:
        for message in messages:
            await client.send(message)

    sending = asyncio.create_task(send())
    account.append([await client.recv() for _ in messages] == messages)
    await sending


async def _pings(client: ClientConnection, account: Account) -> None:
    for data in (b"", b"x" * 125):
        latency = await (await client.ping(data))
        account.append(latency >= 0)


async def _close_by_the_client(client: ClientConnection, account: Account) -> None:
    await client.close(3001, "enough")


async def _close_by_the_server(client: ClientConnection, account: Account) -> None:
    await client.send("close 4321")
    with pytest.raises(ConnectionClosed):
        await client.recv()


async def _a_broken_message(client: ClientConnection, account: Account) -> None:
    """Text that is no UTF-8 must be answered with 1007 by the endpoint itself (RFC 6455 §8.1)."""
    await client.send(b"\xff\xfe", text=True)
    with pytest.raises(ConnectionClosed):
        await client.recv()


async def _no_close_at_all(client: ClientConnection, account: Account) -> None:
    client.transport.abort()
    await client.wait_closed()


DIALOGUES = (
    _sizes,
    _fragments,
    _many,
    _pings,
    _close_by_the_client,
    _close_by_the_server,
    _a_broken_message,
    _no_close_at_all,
)


@pytest.mark.parametrize("compression", [None, "deflate"])
@pytest.mark.parametrize("dialogue", DIALOGUES, ids=lambda dialogue: dialogue.__name__.strip("_"))
async def test_a_dialogue_is_the_same_with_and_without_the_proxy(
    dialogue: Callable[[ClientConnection, Account], Awaitable[None]], compression: str | None, rig: Rig
) -> None:
    accounts: list[tuple[Account, Account]] = []
    async with echoing(rig, compression=compression) as (echo, ports):
        for port in ports:
            echo.account, echo.over = [], asyncio.Event()
            account: Account = []
            client = await connect(
                f"ws://127.0.0.1:{port}/chat?room=1",
                compression=compression,
                max_size=None,
                subprotocols=[Subprotocol("chat.v1")],
            )
            account.append((client.subprotocol, [str(each) for each in client.protocol.extensions]))
            await dialogue(client, account)
            await client.close()
            account.append((client.close_code, client.close_reason))
            await echo.over.wait()
            accounts.append((account, echo.account))

    straight, through = accounts
    assert through == straight
    assert len(straight[0]) > 1


async def test_a_refused_handshake_is_the_servers_own_answer(rig: Rig) -> None:
    found = []
    async with echoing(rig, compression=None) as (_, ports):
        for port in ports:
            with pytest.raises(InvalidStatus) as refused:
                await connect(f"ws://127.0.0.1:{port}/private")
            found.append((refused.value.response.status_code, refused.value.response.body))

    assert found == [(403, b"not here")] * 2


async def test_a_hundred_tunnels_stay_apart(rig: Rig) -> None:
    async def talk(port: int, number: int) -> bool:
        async with connect(f"ws://127.0.0.1:{port}/", subprotocols=[Subprotocol("chat.v2")]) as client:
            for turn in range(20):
                await client.send(f"{number}/{turn}")
                if await client.recv() != f"{number}/{turn}":
                    return False
        return True

    async with echoing(rig, compression="deflate") as (_, (_, port)):
        talks = [talk(port, number) for number in range(100)]
        assert all(await asyncio.gather(*talks))
        await rig.reached(lambda: not rig.plane.fronts)

    assert rig.outcomes == {"1xx": 100}
