"""One worker process as its parent sees it."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from controller.proxy.messages import SOCKETS, Begin, Channel, Done, FromWorker, Message

UNSENT = 64 * 1024 * 1024  # bytes that a worker may leave unread; beyond, it hangs


class Subordinate:
    """`hear` gets its messages. Once it is `gone` nothing more is sent, and whoever waits for it goes on."""

    def __init__(self, index: int, hear: Callable[[int, FromWorker], None]) -> None:
        self.index = index
        self.gone = False
        self.synced = False  # it has every snapshot in force
        self._done = 0  # the latest change that it has put in force
        self._up = False
        self._hear = hear
        self._changed = asyncio.Event()
        self._channel: Channel[FromWorker] = Channel(FromWorker, self._heard, self._ended)
        self._sockets: socket.socket
        self._process: asyncio.subprocess.Process

    async def start(self, begin: Begin, memory: int) -> None:
        """Begin the process, and wait for nothing. `memory`: the descriptor of the counters.

        Raises OSError where the system has no room for it; then nothing is left of it.
        """
        with ExitStack() as failed:
            ours, theirs = map(failed.enter_context, socket.socketpair())
            sockets = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._sockets, their_sockets = map(failed.enter_context, sockets)
            descriptors = (theirs.fileno(), their_sockets.fileno())
            # -P: nothing is imported from the working directory, which may hold a package of the same name.
            words = ("-P", "-m", "controller.proxy.worker", *map(str, descriptors))
            self._process = await asyncio.create_subprocess_exec(sys.executable, *words, pass_fds=descriptors)
            failed.callback(self.kill)
            socket.send_fds(self._sockets, [b"m"], [memory])
            await asyncio.get_running_loop().create_unix_connection(lambda: self._channel, sock=ours)
            failed.pop_all()
        theirs.close()
        their_sockets.close()
        self.send(begin)

    def send(self, message: Message) -> None:
        if not self.gone:
            self._channel.send(message)
            if self._channel.unsent > UNSENT:
                self.kill()

    def send_listeners(self, listeners: Sequence[socket.socket]) -> None:
        """To be called right before the message that names their addresses. A worker that can't take them is killed."""
        if not self.gone:
            try:
                for at in range(0, len(listeners), SOCKETS):
                    socket.send_fds(self._sockets, [b"l"], [each.fileno() for each in listeners[at : at + SOCKETS]])
            except OSError:  # it is ending, or holds too many that it hasn't taken
                self.kill()

    async def up(self, limit: float) -> None:
        """Until it has said anything; killed after `limit` seconds."""
        await self._until(lambda: self._up, limit)

    async def done(self, number: int, limit: float) -> None:
        """Until change `number` is in force there, or the worker is gone; killed after `limit` seconds."""
        await self._until(lambda: self._done >= number, limit)

    async def _until(self, test: Callable[[], bool], limit: float) -> None:
        try:
            async with asyncio.timeout(limit):
                while not (test() or self.gone):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            self.kill()

    def _heard(self, message: FromWorker) -> None:
        self._up = True
        if isinstance(message, Done):
            self._done = message.number
        else:
            self._hear(self.index, message)
        self._changed.set()

    def _ended(self) -> None:
        self.gone = True
        self._changed.set()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def wait(self) -> int:
        """Its exit status, once it has ended and all that it said was heard."""
        status = await self._process.wait()
        while not self.gone:
            self._changed.clear()
            await self._changed.wait()
        self._channel.close()
        self._sockets.close()
        return status

    @property
    def pid(self) -> int:
        return self._process.pid

    def __repr__(self) -> str:
        state = "gone" if self.gone else "synced" if self.synced else "starting"
        return f"<Subordinate {self.index} {state} done={self._done}>"
