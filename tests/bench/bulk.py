"""A source, a sink, and a proxy between them, for what moving bulk bytes costs.

python -m tests.bench.bulk sink PORT
python -m tests.bench.bulk source PORT CONNECTIONS MIB      each sends so much; ends when the sink has all of it
python -m tests.bench.bulk proxy FILE PIPES
"""

from __future__ import annotations

import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

MIB = 1024 * 1024


def swallow(connection: socket.socket) -> None:
    buffer = bytearray(MIB // 4)
    taken = 0
    with connection:
        while count := connection.recv_into(buffer):
            taken += count
        connection.sendall(b"%d" % taken)


def sink(port: int) -> None:
    with socket.create_server(("127.0.0.1", port), backlog=64) as listener:
        while True:
            connection, _ = listener.accept()
            Thread(target=swallow, args=(connection,), daemon=True).start()


def pour(port: int, mebibytes: int) -> None:
    data = bytes(MIB)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(mebibytes):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        assert int(connection.recv(20)) == mebibytes * MIB


def source(port: int, connections: int, mebibytes: int) -> None:
    with ThreadPoolExecutor(connections) as threads:
        list(threads.map(lambda _: pour(port, mebibytes), range(connections)))


def proxy(path: Path, pipes: int) -> None:
    # Here, since a source that loads them starts five times as slowly.
    import asyncio

    import uvloop

    from controller import standalone
    from controller.proxy.process import run
    from controller.settings import ProxySettings

    settings = ProxySettings(host="127.0.0.1", admin=None, pipes=pipes)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(settings, lambda plane: standalone.follow(plane, path, None)))


if __name__ == "__main__":
    match sys.argv[1:]:
        case "sink", port:
            sink(int(port))
        case "source", port, connections, mebibytes:
            source(int(port), int(connections), int(mebibytes))
        case "proxy", path, pipes:
            proxy(Path(path), int(pipes))
