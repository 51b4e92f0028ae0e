"""The smallest HTTP/1.1 server and load generator that a bench can use: they cost less than what is measured.

python -m tests.bench.raw_peers serve PORT
python -m tests.bench.raw_peers load PORT CONNECTIONS SECONDS      prints the number of answers
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

BODY = b"hello from the backend\n"
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nServer: raw\r\nCache-Control: no-store\r\n"
    b"Vary: Accept-Encoding\r\nContent-Length: %d\r\n\r\n" % len(BODY)
) + BODY
# What a browser sends, in eleven fields.
REQUEST = (
    b"GET /catalogue/items?page=3&sort=price HTTP/1.1\r\n"
    b"Host: shop.example\r\n"
    b"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0 Safari/537.36\r\n"
    b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n"
    b"Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n"
    b"Accept-Encoding: gzip, deflate, br, zstd\r\n"
    b"Referer: https://shop.example/catalogue\r\n"
    b"Cookie: session=4f1c2d9e8b7a6f5e4d3c2b1a; theme=dark; consent=1\r\n"
    b"Cache-Control: no-cache\r\n"
    b"Sec-Fetch-Mode: navigate\r\n"
    b"Upgrade-Insecure-Requests: 1\r\n"
    b"X-Requested-With: fetch\r\n\r\n"
)


class Answering(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        heads = data.count(b"\r\n\r\n")
        if heads:
            self.transport.write(ANSWER * heads)


class Asking(asyncio.Protocol):
    """One request at a time; answers have a Content-Length or chunks, and end with the body's last bytes."""

    def __init__(self) -> None:
        self.answers = 0
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        if BODY not in data:
            self.rest += data
        if BODY in data or BODY in self.rest:
            self.rest = b""
            self.answers += 1
            self.transport.write(REQUEST)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


async def load(port: int, connections: int, seconds: float) -> int:
    loop = asyncio.get_running_loop()
    asking = [(await loop.create_connection(Asking, "127.0.0.1", port))[1] for _ in range(connections)]
    await asyncio.sleep(seconds)
    for each in asking:
        each.transport.abort()
    return sum(each.answers for each in asking)


if __name__ == "__main__":
    what, port = sys.argv[1], int(sys.argv[2])
    if what == "serve":
        uvloop.run(serve(port))
    else:
        print(uvloop.run(load(port, int(sys.argv[3]), float(sys.argv[4]))))
