"""The demo's processes: four backends, and the proxy as `steelyard proxy --file`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from pathlib import Path

READY_SECONDS = 20.0  # for a process to start on a busy machine


class NotStarted(Exception):  # noqa: N818 - what it says is for people
    """A process of the demo did not come up; `str` says which and what it printed."""


class Backend:
    """One backend process: start, slow down, kill, start again on the same port."""

    def __init__(self, name: str, address: str, port: int, seconds: float) -> None:
        self.name, self.address, self.port, self.seconds = name, address, port, seconds
        self._process: asyncio.subprocess.Process | None = None

    @property
    def place(self) -> str:
        return f"{self.address}:{self.port}"

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # nothing of the working directory is imported
            "-m",
            "controller.demo.backend",
            self.name,
            self.address,
            str(self.port),
            str(self.seconds),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches the demo only, which ends them in order
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        try:
            async with asyncio.timeout(READY_SECONDS):
                line = await self._process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            await self.kill()
            words = (await self._process.stderr.read()).decode(errors="replace").strip().splitlines()
            raise NotStarted(f"backend {self.name} on {self.place}: {words[-1] if words else 'no answer'}")

    async def slow_down(self, seconds: float) -> None:
        self.seconds = seconds
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n".encode())
        await self._process.stdin.drain()

    async def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


class Proxy:
    """`steelyard proxy` on a file. `log` keeps what it says, for when it does not start."""

    def __init__(self, file: Path, admin: str, log: Path) -> None:
        self._file, self._admin, self._log = file, admin, log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "controller",
                "proxy",
                "--file",
                str(self._file),
                "--admin",
                self._admin,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.returncode is not None

    def words(self) -> str:
        return self._log.read_text(errors="replace").strip()

    async def stop(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(10):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def free_port(address: str, preferred: int = 0) -> int:
    """`preferred` if nobody listens there, else one that the system gives."""
    for port in (preferred, 0):
        with contextlib.closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise NotStarted(f"no free port on {address}")
