"""The memory budget: where it comes from, and its two thresholds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from controller.proxy.memory import PIECE, Memory, budget

MIB = 1024 * 1024


@pytest.mark.parametrize(("text", "expected"), [(str(192 * MIB), 64 * MIB), ("max\n", 128 * MIB // 3)])
def test_the_budget_is_a_third_of_the_cgroup(text: str, expected: int, tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text(text)

    assert budget(limit) == expected


def test_without_a_cgroup_a_small_container_is_assumed(tmp_path: Path) -> None:
    assert budget(tmp_path / "none") == 128 * MIB // 3


def test_copies_are_given_up_before_requests_are_refused() -> None:
    memory = Memory(1000)
    found = {}
    for held in (750, 751, 900, 901):
        memory.held = held
        found[held] = (memory.may_keep(), memory.may_serve())

    assert found == {750: (True, True), 751: (False, True), 900: (False, True), 901: (False, False)}
    assert (memory.unkept, memory.refused) == (3, 1)


class Unread:
    """A connection of which so much is unread; `shed` forgets it, as the end of a transport does."""

    def __init__(self, memory: Memory, size: int) -> None:
        self.size = size
        self.gone = False
        self.transport = cast(asyncio.Transport, self)
        self._memory = memory

    def get_write_buffer_size(self) -> int:
        return self.size

    def get_extra_info(self, name: str) -> None:
        """No socket: only what the transport keeps is unsent."""

    def shed(self) -> None:
        self.gone = True
        self._memory.unblock(self)


def test_over_the_budget_the_stillest_of_the_others_goes_and_one_that_reads_stays() -> None:
    memory = Memory(2 * PIECE)
    reading, still, newest = (Unread(memory, 1000) for _ in range(3))
    memory.block(reading)
    memory.block(still)
    reading.size = 900

    memory.block(newest)

    assert [each.gone for each in (reading, still, newest)] == [False, True, False]
    assert memory.held == 2 * PIECE


def test_one_alone_may_hold_more_than_there_is() -> None:
    memory = Memory(PIECE // 2)
    only = Unread(memory, 1000)

    memory.block(only)

    assert not only.gone
    memory.unblock(only)
    assert memory.held == 0
