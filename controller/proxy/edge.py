"""The one edge where a bug ends: it is logged, counted and answered 500, and costs its own request only.

Everything that the loop calls for a request (bytes, ends, timers, deadlines) comes in through `guarded` or does the
same by itself where a call more would be felt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVarTuple

Arguments = TypeVarTuple("Arguments")

# A panic of the codec. It is no Exception, and each extension module makes a class of its own: only the name is fixed.
PANIC = "PanicException"


class Costly(Protocol):
    """A client connection, which pays for a bug."""

    def bug(self, error: BaseException) -> None: ...


def is_bug(error: BaseException) -> bool:
    """Not a cancellation or the process's end."""
    return isinstance(error, Exception) or type(error).__name__ == PANIC


def guarded(front: Costly, call: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
    """Call; a bug is the connection's."""
    try:
        call(*arguments)
    except BaseException as error:  # `is_bug` lets all pass that is none
        if not is_bug(error):
            raise
        front.bug(error)
