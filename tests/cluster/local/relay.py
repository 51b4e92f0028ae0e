"""The way in: a loopback port of the machine, relayed to the API server.

The cluster has no interface to the machine, so no packet of a test can leave it by accident. A socket, however,
belongs to the network it was made in: this process runs in the cluster's, with a listening socket of the machine's.
"""

from __future__ import annotations

import asyncio
import socket
import sys

from tests.cluster.local.layout import HUB

CHUNK = 65536


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # one side is gone; the other learns it by the close
    finally:
        writer.close()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        server_reader, server_writer = await asyncio.open_connection(HUB, 6443)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_pump(reader, server_writer), _pump(server_reader, writer))


async def main(descriptor: int) -> None:
    """Relay every connection that the listening socket accepts, for ever."""
    server = await asyncio.start_server(_relay, sock=socket.socket(fileno=descriptor))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
