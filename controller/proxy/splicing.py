"""Bulk bytes stay in the kernel: spliced from one socket through a pipe into the other, they are never copied.

A read that comes back full says that more is waiting than a read brings. Where as much again waits behind it, one
`splice` takes up to a pipe of it at once. Small messages never come here, so they cost what they did, and the end of
the stream, a reset and back-pressure stay the transports' to tell: only bytes that are known to wait are spliced.

A pipe is lent for one move. Only what the other side doesn't take stays in it, until it does: so pipes are few, and
whoever gets none goes on by reading and writing. Their bytes are the kernel's, as those in a socket's own buffers are;
the number of pipes bounds them, not the budget of `Memory`.
"""

from __future__ import annotations

import array
import fcntl
import os
import termios

# A slot of a pipe holds one page, or one segment from the wire, so a small pipe moves little at a time and gains
# nothing. This is what /proc/sys/fs/pipe-max-size lets anyone have.
SIZE = 1024 * 1024


class Pipe:
    """What one side has sent and the other has yet to take."""

    __slots__ = ("_read", "_write", "held")

    def __init__(self) -> None:
        """Raises OSError where there are no descriptors, or the user's pipes have too many pages."""
        self.held = 0
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.fcntl(self._write, fcntl.F_SETPIPE_SZ, SIZE)
        except OSError:
            self.close()
            raise

    def fill(self, descriptor: int) -> None:
        """Take from a socket that has bytes; an empty pipe only."""
        try:
            self.held = os.splice(descriptor, self._write, SIZE, flags=os.SPLICE_F_NONBLOCK)
        except OSError:  # forbidden or unknown where we run: reading tells
            self.held = 0

    def pour(self, descriptor: int) -> bool:
        """Give to a socket; False: it takes nothing, now or for ever."""
        try:
            given = os.splice(self._read, descriptor, self.held, flags=os.SPLICE_F_NONBLOCK)
        except OSError:
            return False
        self.held -= given
        return given > 0

    def read(self, most: int) -> bytes:
        data = os.read(self._read, min(most, self.held))
        self.held -= len(data)
        return data

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


class Pipes:
    """The pipes of one process: at most `limit` at a time, and one of them is kept between two moves."""

    __slots__ = ("_limit", "_spare", "_waiting", "lent", "spliced")

    def __init__(self, limit: int) -> None:
        self.lent = 0
        self.spliced = 0  # bytes
        self._limit = limit
        self._spare: Pipe | None = None
        self._waiting = array.array("i", [0])

    def fill(self, descriptor: int, least: int) -> Pipe | None:
        """A pipe with what waits in a socket; None: less than `least` bytes wait, or there is no pipe to be had.

        A socket without bytes is left alone: splicing would take its error away, and the transport never hear of it.
        """
        if self.lent >= self._limit:
            return None
        fcntl.ioctl(descriptor, termios.FIONREAD, self._waiting)
        if self._waiting[0] < least:
            return None
        pipe, self._spare = self._spare, None
        if pipe is None:
            try:
                pipe = Pipe()
            except OSError:
                return None
        self.lent += 1
        pipe.fill(descriptor)
        if not pipe.held:
            self.give_back(pipe)
            return None
        self.spliced += pipe.held
        return pipe

    def give_back(self, pipe: Pipe) -> None:
        """Whatever is still in it is for nobody."""
        self.lent -= 1
        if pipe.held or self._spare is not None:
            pipe.close()
        else:
            self._spare = pipe

    def close(self) -> None:
        """Release the kept one."""
        pipe, self._spare = self._spare, None
        if pipe is not None:
            pipe.close()

    def __repr__(self) -> str:
        return f"<Pipes lent={self.lent}/{self._limit} spliced={self.spliced}>"
