"""Bulk bytes through a tunnel, which the kernel moves: nothing that a tunnel promises may be different for them."""

from __future__ import annotations

import asyncio
import os
import socket
from random import Random

import msgspec
import pytest

from controller.model.service import Timeouts
from controller.model.snapshot import SnapshotProxy
from controller.proxy.drain import drain
from controller.proxy.splicing import SIZE, Pipe, Pipes
from controller.proxy.tcp import TcpFront
from controller.proxy.tunnel import MOVES
from tests.component.rig import (
    SETTINGS,
    Rig,
    Step,
    Wire,
    half_close,
    no_descriptors,
    recv,
    recv_head,
    rst,
    send,
    stall,
    stop_reading,
    wait_for,
)

MIB = 1024 * 1024
HELD = 512 * 1024  # what one connection may hold in the proxy
BULK = 32 * MIB
THERE, BACK = Random(1).randbytes(BULK), Random(2).randbytes(BULK)
UPGRADE = b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: bytes\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: bytes\r\n\r\n"


async def opened(rig: Rig, *steps: Step, pipes: int = SETTINGS.pipes, **fields: object) -> Wire:
    """A client of a TCP port whose endpoint runs the steps."""
    settings = msgspec.structs.replace(SETTINGS, pipes=pipes, **fields.pop("settings", {}))  # type: ignore[arg-type] # of one test
    await rig.open(settings=settings, protocol="TCP", **fields)
    rig.backend.script(*steps)
    return await rig.connect()


async def ended(rig: Rig) -> None:
    await rig.reached(lambda: not rig.plane.fronts)
    assert rig.plane.pipes.lent == 0


async def stuck(rig: Rig, reader: Wire) -> None:
    """Until the reader doesn't take bytes that are in a pipe for it; the kernel may, a moment later."""
    memory, pipes = rig.plane.memory, rig.plane.pipes
    while True:
        reader.stop_reading()
        await rig.reached(lambda: memory.held > 0)
        if pipes.lent:
            return
        reader.start_reading()
        await rig.reached(lambda: not memory.held or pipes.lent > 0)


def open_pipes() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith("pipe:")
        except FileNotFoundError:  # the directory's own descriptor
            continue
    return found


# What passes.


async def test_bulk_passes_both_ways_at_once_byte_for_byte_and_is_counted(rig: Rig) -> None:
    client = await opened(rig, send(BACK), half_close(), stall())

    await client.send(THERE)
    client.half_close()

    assert await client.to_end() == ("FIN", BACK)
    await ended(rig)
    assert rig.backend.connections[0].received == THERE
    assert rig.plane.pipes.spliced > MIB
    await rig.reached(lambda: bool(rig.log))
    (line,) = rig.log
    assert (line["received"], line["sent"], line["outcome"]) == (BULK, BULK, "carried")


async def test_bulk_through_a_101_is_spliced_too(rig: Rig) -> None:
    await rig.open()
    rig.backend.script(recv_head(), send(SWITCH + BACK), recv(BULK), send(b"all"), stall())
    client = await rig.connect()

    await client.send(UPGRADE)
    assert (await client.response()).status == 101
    await client.send(THERE)

    assert await client.take(BULK) == BACK
    assert await client.take(3) == b"all"
    assert rig.backend.connections[0].received.endswith(THERE)
    assert rig.plane.pipes.spliced > MIB


async def test_small_messages_behind_bulk_pass_as_before(rig: Rig) -> None:
    client = await opened(rig, recv(BULK), send(b"all"), recv(4), send(b"pong"), stall())
    await client.send(THERE)
    assert await client.take(3) == b"all"
    spliced = rig.plane.pipes.spliced

    await client.send(b"ping")

    assert await client.take(4) == b"pong"
    assert rig.plane.pipes.spliced == spliced > 0


# Endings.


@pytest.mark.parametrize("first", ["client", "endpoint"])
async def test_a_half_close_behind_bulk_leaves_the_other_way_open_for_bulk(first: str, rig: Rig) -> None:
    if first == "client":
        client = await opened(rig, stall(), send(BACK), half_close())
        await client.send(THERE)
        client.half_close()
        assert await client.to_end() == ("FIN", BACK)
    else:
        client = await opened(rig, send(BACK), half_close(), recv(BULK))
        assert await client.to_end() == ("FIN", BACK)
        await client.send(THERE)
        client.half_close()

    await ended(rig)
    (upstream,) = rig.backend.connections
    assert await upstream.to_end() == ("FIN", b"" if first == "endpoint" else THERE)
    assert upstream.received == THERE
    assert rig.plane.pipes.spliced > MIB
    assert rig.outcomes == {"carried": 1}


async def test_a_half_close_waits_for_what_a_slow_reader_has_left_in_a_pipe(rig: Rig) -> None:
    client = await opened(rig, send(BACK), half_close(), stall())
    await stuck(rig, client)

    client.start_reading()

    assert await client.to_end() == ("FIN", BACK)


@pytest.mark.parametrize("side", ["client", "endpoint"])
async def test_a_reset_in_the_middle_of_bulk_is_passed_on(side: str, rig: Rig) -> None:
    go = asyncio.Event()
    client = await opened(rig, send(BACK), wait_for(go), rst(), stall())
    await rig.reached(lambda: rig.plane.pipes.spliced > 0)

    if side == "client":
        client.rst(flush=False)
        other = rig.backend.connections[0]
    else:
        go.set()
        other = client
    await other.until(lambda: other.ending != "open")

    assert other.ending == "RST"
    await ended(rig)


@pytest.mark.parametrize("side", ["client", "endpoint"])
async def test_a_reset_of_the_sender_or_the_reader_is_noticed_while_bytes_wait_in_a_pipe(side: str, rig: Rig) -> None:
    client = await opened(rig, send(BACK), stall())
    await stuck(rig, client)
    (upstream,) = rig.backend.connections

    (client if side == "client" else upstream).rst(flush=False)

    await ended(rig)
    other = upstream
    if side == "endpoint":
        other = client
        client.start_reading()
    assert (await other.to_end())[0] == "RST"


# Back-pressure, and bounded memory.


async def test_a_slow_reader_gets_all_of_it_with_memory_flat(rig: Rig) -> None:
    client = await opened(rig, send(BACK), stall())
    most = pipes = stops = 0
    while len(client.received) < BULK:
        client.stop_reading()
        for _ in range(5):
            await asyncio.sleep(0.001)
            most = max(most, rig.plane.memory.held)
            pipes = max(pipes, rig.plane.pipes.lent)
        stops += 1
        seen = len(client.received)
        client.start_reading()
        await client.until(lambda seen=seen: len(client.received) > seen)  # type: ignore[misc] # a default is no annotation

    assert await client.take(BULK) == BACK
    assert stops > 3
    assert rig.plane.pipes.spliced > 0
    assert most <= HELD
    assert pipes <= 1


async def test_an_endpoint_that_stands_still_stops_the_client(rig: Rig) -> None:
    go = asyncio.Event()

    async def read_on(wire: Wire) -> None:
        wire.start_reading()
        await wire.take(BULK)

    client = await opened(rig, send(b"x"), stop_reading(), wait_for(go), read_on, send(b"all"), stall())
    await client.take(1)
    await client.send(THERE)
    await rig.reached(lambda: rig.plane.memory.held > 0)

    assert client.transport.get_write_buffer_size() > MIB
    assert rig.plane.memory.held <= HELD
    go.set()
    assert await client.take(3) == b"all"
    assert rig.backend.connections[0].received == THERE


def swallow(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        while connection.recv(MIB):
            pass


def pour(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(8):
            connection.sendall(THERE)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)


async def test_others_have_their_turn_after_a_few_moves(rig: Rig) -> None:
    """Source and sink are threads: what is read is there again at once, and would be read on for ever."""
    await rig.open(protocol="TCP")
    most = before = 0

    def turn() -> None:
        nonlocal most, before, handle
        moves = sum(front._tunnel.client.moves for front in rig.plane.fronts if front._tunnel)  # type: ignore[union-attr] # all are of a TCP port
        most, before = max(most, moves - before), moves
        handle = rig.loop.call_soon(turn)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        await rig.apply(endpoints=(rig.endpoint(rig.backend, port=listener.getsockname()[1]),))
        sinking = asyncio.create_task(asyncio.to_thread(swallow, listener))
        handle = rig.loop.call_soon(turn)
        await asyncio.to_thread(pour, rig.port)
        handle.cancel()
        await sinking

    assert 0 < most <= MOVES
    await ended(rig)


async def test_short_of_memory_one_that_stands_still_is_cut_and_its_pipe_is_free(rig: Rig) -> None:
    client = await opened(rig, send(BACK), stall(), settings={"memory": 300_000})
    await stuck(rig, client)

    await ended(rig)

    assert rig.outcomes == {"memory": 1}


async def test_one_that_stands_still_is_silent_and_is_closed(rig: Rig) -> None:
    client = await opened(rig, send(BACK), stall(), timeouts=Timeouts(tcp_idle=1))
    await stuck(rig, client)

    await ended(rig)

    assert rig.outcomes == {"idle": 1}


async def test_the_drain_ends_bulk_that_outlasts_it(rig: Rig) -> None:
    client = await opened(rig, send(BACK), stall(), proxy=SnapshotProxy(accept_grace=0, drain=0.1))
    await stuck(rig, client)

    assert await drain(rig.plane, asyncio.Event()) == 1

    await ended(rig)
    assert rig.outcomes == {"drain_cut": 1}


# Pipes.


async def test_an_idle_connection_keeps_no_pipe_and_the_process_one(rig: Rig) -> None:
    before = open_pipes()
    client = await opened(rig, recv(BULK), send(BACK), stall())
    await client.send(THERE)
    await client.take(BULK)

    (front,) = rig.plane.fronts
    assert isinstance(front, TcpFront)
    assert rig.plane.pipes.spliced > 0
    assert rig.plane.pipes.lent == 0
    assert open_pipes() - before == 2  # its two ends


async def test_without_pipes_bulk_passes_by_reading_and_writing(rig: Rig) -> None:
    client = await opened(rig, send(BACK), half_close(), stall(), pipes=0)

    await client.send(THERE)
    client.half_close()

    assert await client.to_end() == ("FIN", BACK)
    await ended(rig)
    assert rig.backend.connections[0].received == THERE
    assert rig.plane.pipes.spliced == 0


async def test_while_the_only_pipe_is_full_others_pass_by_reading_and_writing(rig: Rig) -> None:
    client = await opened(rig, send(BACK), half_close(), stall(), pipes=1)
    await stuck(rig, client)
    other = await rig.connect()

    assert await other.to_end() == ("FIN", BACK)

    client.start_reading()
    assert await client.to_end() == ("FIN", BACK)


async def test_where_there_is_no_descriptor_for_a_pipe_bulk_passes_by_reading_and_writing(rig: Rig) -> None:
    go = asyncio.Event()
    client = await opened(rig, recv(1), wait_for(go), send(BACK), stall())
    await client.send(b"x")
    await rig.backend.connection()

    with no_descriptors():
        go.set()
        assert await client.take(BULK) == BACK

    assert (rig.plane.pipes.spliced, rig.plane.pipes.lent) == (0, 0)


def test_a_pipe_takes_only_what_waits_and_leaves_an_error_to_who_reads() -> None:
    pipes = Pipes(limit=2)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.sendall(b"abc")

        assert pipes.fill(ours.fileno(), 4) is None
        assert ours.recv(9) == b"abc"
        theirs.close()
        assert pipes.fill(ours.fileno(), 1) is None
        assert ours.recv(9) == b""
    assert repr(pipes) == "<Pipes lent=0/2 spliced=0>"
    pipes.close()


def test_there_are_no_more_pipes_than_allowed() -> None:
    pipes = Pipes(limit=1)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"abc")
        pipe = pipes.fill(ours.fileno(), 1)
        theirs.sendall(b"def")

        assert pipe is not None
        assert pipes.fill(ours.fileno(), 1) is None
        assert pipe.read(SIZE) == b"abc"
        pipes.give_back(pipe)
        assert pipes.fill(ours.fileno(), 1) is pipe
        pipes.give_back(pipe)  # with what it holds, so it is closed
    assert repr(pipes) == "<Pipes lent=0/1 spliced=6>"
    pipes.close()


def test_what_cannot_be_spliced_is_left_to_who_reads() -> None:
    pipe = Pipe()
    read, write = os.pipe()
    try:
        pipe.fill(write)  # the wrong end
        assert pipe.held == 0
        os.write(write, b"x" * 100)
        pipe.fill(read)
        assert (pipe.held, pipe.pour(read)) == (100, False)
        assert pipe.read(SIZE) == b"x" * 100
    finally:
        pipe.close()
        os.close(read)
        os.close(write)
