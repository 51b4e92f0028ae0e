"""Lines to a descriptor that may not be read: a thread waits for its reader, and the loop never does.

The descriptor stays as it is. Making it non-blocking would do the same to every process that shares it, such as the
shell of a terminal.
"""

from __future__ import annotations

import os
import select
from collections import deque
from threading import Condition, Thread
from time import monotonic

ROOM = 1024 * 1024  # bytes that wait for the reader: 0.3 s of 10 000 requests a second
PIECE = 4096  # bytes that a pipe takes in one piece (POSIX: at least 512; Linux: 4096), whoever else writes to it


class LineWriter:
    """Writes whole lines in pieces that no other process's can come between; a longer line goes alone.

    Lines that don't fit, and those that the descriptor doesn't take, are dropped and counted. The thread begins with
    the first line, and keeps no process from ending.
    """

    def __init__(self, descriptor: int = 1, room: int = ROOM) -> None:
        self.lost = 0  # lines
        self._descriptor = descriptor
        self._room = room
        self._held = 0
        self._waiting: deque[bytes] = deque()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._closed = False

    def write(self, data: bytes) -> None:
        """Whole lines, each with its end."""
        with self._changed:
            room = 0 if self._closed else self._room - self._held
            kept = data if len(data) <= room else data[: data.rfind(b"\n", 0, max(room, 0)) + 1]
            self.lost += data.count(b"\n", len(kept))
            if not kept:
                return
            self._held += len(kept)
            self._waiting.append(kept)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="lines", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, seconds: float) -> None:
        """Write what there is, for so long at most; the rest is lost."""
        end = monotonic() + seconds
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while self._held and (left := end - monotonic()) > 0:
                self._changed.wait(left)
            self.lost += sum(data.count(b"\n") for data in self._waiting)
            self._waiting.clear()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._closed:
                        return
                    self._changed.wait()
                data = self._waiting.popleft()
            lost = self._put(data)
            with self._changed:
                self.lost += lost
                self._held -= len(data)
                self._changed.notify_all()

    def _put(self, data: bytes) -> int:
        """How many of the lines were not taken."""
        start = 0
        while start < len(data):
            end = data.rfind(b"\n", start, start + PIECE) + 1 or data.find(b"\n", start) + 1 or len(data)
            try:
                start += os.write(self._descriptor, data[start:end])
            except BlockingIOError:  # another process has made it so
                ready = select.poll()
                ready.register(self._descriptor, select.POLLOUT)
                ready.poll()
            except OSError:
                return data.count(b"\n", start)
        return 0
