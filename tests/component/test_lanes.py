"""What stays of a port that is gone: as much as its clients need, for as long as they are there."""

from __future__ import annotations

import asyncio
import gc

from controller.proxy.lane import Lane
from tests.component.rig import OK, Rig, recv_head, send, serve, signal, wait_for

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def test_a_port_that_no_client_was_on_leaves_no_lane_behind(rig: Rig) -> None:
    await rig.open()

    for _ in range(50):
        await rig.apply()
        await rig.plane.forget(("store", "shop"))
        assert rig.plane.lanes == ()

    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, Lane) and each.plane is rig.plane]


async def test_a_lane_without_a_port_goes_with_its_last_client(rig: Rig) -> None:
    await rig.open()
    asked, go = asyncio.Event(), asyncio.Event()
    rig.backend.script(recv_head(), signal(asked), wait_for(go), send(OK), serve(OK))
    served, idle = await rig.connect(), await rig.connect()
    await served.send(GET)
    await asked.wait()
    (lane,) = rig.plane.lanes

    await rig.plane.forget(("store", "shop"))
    assert (await idle.to_end())[0] == "FIN"
    assert rig.plane.lanes == (lane,)
    go.set()
    response = await served.response()

    assert (response.status, response.get("connection")) == (200, "close")
    await rig.reached(lambda: rig.plane.lanes == ())


async def test_an_object_that_is_back_at_once_has_a_lane_of_its_own(rig: Rig) -> None:
    await rig.open()
    asked, go = asyncio.Event(), asyncio.Event()
    rig.backend.scripts((recv_head(), signal(asked), wait_for(go), send(OK)), (serve(OK),))
    client = await rig.connect()
    await client.send(GET)
    await asked.wait()
    before = rig.lane

    await rig.plane.forget(("store", "shop"))
    await rig.apply()
    assert (await rig.ask()).status == 200
    assert [lane is before for lane in rig.plane.lanes] == [False, True]
    go.set()

    assert (await client.response()).status == 200
    await rig.reached(lambda: len(rig.plane.lanes) == 1)
