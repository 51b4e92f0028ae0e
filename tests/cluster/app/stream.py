"""Read one response off a raw socket and say when each piece of it came.

stream.py HOST:PORT PATH [HOST-HEADER]

The first line says who answers, as soon as the head is there (its X-Pod); the second, at the end, is JSON:

status      of the response's head
head        seconds until the head was complete
pieces      [[seconds, text], ...] of each chunk's content
complete    whether the last chunk (the empty one) came before the connection ended
error       what ended it otherwise, or null
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

TIMEOUT = 60.0  # seconds for the whole


async def read(address: str, path: str, host: str) -> dict[str, Any]:
    """Send the request and follow the response, chunk by chunk (RFC 9112 §7.1)."""
    name, _, port = address.rpartition(":")
    found: dict[str, Any] = {"status": None, "head": None, "pieces": [], "complete": False, "error": None}
    begun = time.monotonic()
    try:
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_connection(name, int(port))
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            found["status"], found["head"] = int(head.split()[1]), round(time.monotonic() - begun, 3)
            fields = dict(line.partition(b": ")[::2] for line in head.splitlines())
            print(fields.get(b"X-Pod", b"").decode(), flush=True)
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                content = (await reader.readexactly(size + 2))[:-2]
                found["pieces"].append([round(time.monotonic() - begun, 3), content.decode(errors="replace")])
            found["complete"] = True
            writer.close()
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        if found["head"] is None:
            print(flush=True)
        found["error"] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    where = sys.argv[1]
    print(json.dumps(asyncio.run(read(where, sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else where))))
