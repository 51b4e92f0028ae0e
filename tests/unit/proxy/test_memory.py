"""The memory budget: where it comes from, and its two thresholds."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.proxy.memory import Memory, budget

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
