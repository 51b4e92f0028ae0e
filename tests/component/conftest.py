"""The `rig` fixture, and the loop that it runs on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from tests.component.rig import Rig, RigLoop, RigPolicy


@pytest.fixture
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """uvloop, as in production, for tests that use the rig."""
    return RigPolicy() if "rig" in request.fixturenames else asyncio.get_event_loop_policy()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """Open it with `await rig.open(...)`; at the test's end it asserts that nothing is left."""
    rig = Rig(cast(RigLoop, asyncio.get_running_loop()))
    yield rig
    await rig.close()
