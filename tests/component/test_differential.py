"""Our request tables through nginx and HAProxy, too: what a backend gets to see, and where they and we differ.

`differences_*.py` list every difference with the RFC's word on who is right; a new one fails here until it is listed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from controller.model.endpoints import Endpoint
from controller.model.service import Health, PassiveHealth
from tests.bench.peers.programs import PACKAGES, SYSTEM_PATH, debian
from tests.component.differences import Group
from tests.component.differences_haproxy import HAPROXY as FROM_HAPROXY
from tests.component.differences_nginx import NGINX as FROM_NGINX
from tests.component.rig import Rig
from tests.unit.codec.cases_smuggling import REQUESTS
from tests.unit.codec.cases_targets import REFUSED, TARGETS

REFUSED_BY_IT = "refused"
LISTED = {"nginx": "1.22.", "haproxy": "2.6."}  # Debian 12's
# Behind each head: a chunked body, of which the first 3 bytes are the body of those that say `Content-Length: 3`.
BODY = b"3\r\nabc\r\n0\r\n\r\n"
CASES = {
    **{case.name: case.raw + BODY for case in REQUESTS},
    **{
        f"{method.decode()} {target!r}": method + b" " + target + b" HTTP/1.1\r\nHost: a.example\r\n\r\n"
        for method, target in (*REFUSED, *((case.method, case.came) for case in TARGETS))
    },
}
SHOWN = (b"content-length", b"transfer-encoding", b"host")  # what decides where a message ends, and whose it is

NGINX = """\
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log crit;
events {{ worker_connections 256; }}
http {{
  access_log off; client_body_temp_path {folder}/bodies; proxy_temp_path {folder}/answers;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{backend}; proxy_http_version 1.1; proxy_request_buffering off;
      proxy_set_header Host $http_host; proxy_set_header Connection ""; proxy_max_temp_file_size 0;
    }}
  }}
}}
"""
HAPROXY = """\
defaults
  mode http
  timeout connect 2s
  timeout client 10s
  timeout server 10s
  retries 0
listen all
  bind 127.0.0.1:{port}
  server one 127.0.0.1:{backend}
"""


class Recorder:
    """A backend that answers each head at once, and remembers the latest."""

    def __init__(self) -> None:
        self.seen = b""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            self.seen = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            while await reader.read(65_536):  # else the answer could be lost to a reset
                pass
        writer.close()

    def account(self) -> str:
        first, *lines = self.seen.rstrip(b"\r\n").split(b"\r\n")
        shown = sorted(line.lower() for line in lines if line.lower().startswith(SHOWN))
        return b" | ".join([first, *shown]).decode("latin-1").replace(str(self.port), "PORT")


async def verdict(port: int, raw: bytes, recorder: Recorder) -> str:
    """What came of a request: what the backend saw of it, or that it was refused."""
    recorder.seen = b""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    with suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        async with asyncio.timeout(2):
            while (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 1"):  # a 100 is no answer yet
                pass
    writer.transport.abort()
    return recorder.account() if recorder.seen else REFUSED_BY_IT


def installed(name: str) -> str:
    required = os.environ.get("STEELYARD_REQUIRE_PEERS") == "1"
    if not required and not shutil.which(name, path=SYSTEM_PATH):
        pytest.skip(f"no {name} (Debian: apt-get install {PACKAGES[name]})")
    program = debian(name)
    told = subprocess.run((program, "-v"), capture_output=True, text=True, check=True)
    if LISTED[name] not in told.stdout + told.stderr and not required:
        pytest.skip(f"the differences are those of {name} {LISTED[name]}")
    return program


@asynccontextmanager
async def peer(name: str, folder: Path, backend: int) -> AsyncIterator[int]:
    """The port of a peer from Debian's package, which is installed where that is required. Else skips without it."""
    program = installed(name)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    file = folder / name
    file.write_text((NGINX if name == "nginx" else HAPROXY).format(folder=folder, port=port, backend=backend))
    arguments = ("-c", str(file), "-p", str(folder)) if name == "nginx" else ("-db", "-f", str(file))
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(20):
            while True:
                with suppress(ConnectionError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                assert process.returncode is None
                await asyncio.sleep(0.05)
        yield port
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.peers
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("name", "differences"), [("nginx", FROM_NGINX), ("haproxy", FROM_HAPROXY)], ids=["nginx", "haproxy"]
)
async def test_every_difference_from_a_peer_is_known(
    name: str, differences: tuple[Group, ...], rig: Rig, tmp_path: Path
) -> None:
    recorder = Recorder()
    server = await asyncio.start_server(recorder.serve, "127.0.0.1", 0)
    backend = recorder.port = server.sockets[0].getsockname()[1]
    await rig.open(health=Health(passive=PassiveHealth(consecutive_failures=0)))
    await rig.apply(endpoints=(Endpoint(id="recorder", address="127.0.0.1", port=backend),))
    found = {}
    async with peer(name, tmp_path, backend) as port:
        for case, raw in CASES.items():
            ours = await verdict(rig.port, raw, recorder)
            theirs = await verdict(port, raw, recorder)
            if ours != theirs:
                found[case] = (ours, theirs)
    server.close()
    await rig.reached(lambda: not rig.plane.fronts)

    known = {each.case: (each.ours, each.theirs) for group in differences for each in group.cases}
    assert found == known
