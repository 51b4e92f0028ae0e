"""A request's body on its way: framed anew, counted, held until there is a connection, copied for a replay."""

from __future__ import annotations

from controller.proxy.causes import BODY_TOO_LARGE, MALFORMED, Cause
from controller.proxy.codec import Body, Limits, Refused, RequestHead
from controller.proxy.memory import Memory


class Upload:
    """One request's body.

    `feed` gives what may be sent now; until the first `release` everything waits. Copies for a replay are kept while
    they fit in `keep` bytes and the process has memory to spare; `replayable` says whether they are whole.
    """

    __slots__ = ("_body", "_keep", "_kept", "_limit", "_memory", "_released", "ended", "size", "waiting")

    def __init__(self, head: RequestHead, limits: Limits, *, limit: int, keep: int, memory: Memory) -> None:
        self._body = Body(head, None, limits)
        self._limit = limit  # payload bytes; 0 = none
        self._keep = keep
        self._memory = memory
        self._kept: list[bytes] | None = []
        self._released = False
        self.waiting = 0  # bytes held or kept, as the memory budget counts them
        self.size = 0  # payload bytes so far
        self.ended = False

    def feed(self, data: bytes) -> tuple[bytes, bool, bytes] | Cause:
        """Take bytes from the client: what to send (b"" while it waits), whether that ends it, what follows."""
        fed = self._body.feed(data)
        if isinstance(fed, Refused):
            return MALFORMED
        out, payload, self.ended, rest = fed
        self.size += payload
        if self._limit and self.size > self._limit:
            return BODY_TOO_LARGE
        if out and self._kept is not None:
            self._copy(out)
        return (out if self._released else b""), self.ended, rest

    def release(self) -> bytes:
        """All that has come so far, for a new attempt; what comes from now on goes straight through."""
        kept = self._kept
        assert kept is not None, "a replay was begun without its body"
        self._released = True
        whole = b"".join(kept)
        # It may have had to wait for a connection, but be too long to be repeated.
        if whole and (len(whole) > self._keep or not self._memory.may_keep()):
            self.drop()
        return whole

    def hold(self) -> None:
        """A new attempt begins: what comes has to wait for its connection again."""
        self._released = False

    @property
    def replayable(self) -> bool:
        return self._kept is not None

    def drop(self) -> None:
        """Give up the copies."""
        self._kept = None
        self._memory.held -= self.waiting
        self.waiting = 0

    def _copy(self, out: bytes) -> None:
        assert self._kept is not None
        size = self.waiting + len(out)
        if self._released and (size > self._keep or not self._memory.may_keep()):
            self.drop()
            return
        self._kept.append(out)
        self._memory.held += len(out)
        self.waiting = size
