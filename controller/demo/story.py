"""What happens in the demo, act by act. An act is a title, what is done, and how long it is watched."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from controller.demo.stage import Stage


class Act(NamedTuple):
    title: str
    do: Callable[[Stage], Awaitable[None]]
    seconds: float


async def _nothing(stage: Stage) -> None:
    """Watch."""


def _algorithm(kind: str) -> Callable[[Stage], Awaitable[None]]:
    async def change(stage: Stage) -> None:
        await stage.use_algorithm(kind)

    return change


async def _slow(stage: Stage) -> None:
    await stage.backends[0].slow_down(0.25)


async def _fast(stage: Stage) -> None:
    await stage.backends[0].slow_down(stage.backends[0].seconds / 25)


async def _kill(stage: Stage) -> None:
    await stage.use_algorithm("PowerOfTwoChoices")
    await stage.backends[1].kill()


async def _revive(stage: Stage) -> None:
    await stage.backends[1].start()


ACTS: Sequence[Act] = (
    Act("Round robin: the weights decide, whatever the speed", _nothing, 4),
    Act("The file now says PowerOfTwoChoices: the less loaded of two", _algorithm("PowerOfTwoChoices"), 4),
    Act("The first backend becomes 25 times slower", _slow, 4),
    Act("The file now says PeakEWMA: latency counts too", _algorithm("PeakEWMA"), 5),
    Act("It is fast again", _fast, 3),
    Act("PowerOfTwoChoices again, and the second backend is killed", _kill, 5),
    Act("It is back", _revive, 5),
)
