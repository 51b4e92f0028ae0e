"""The workqueue: each key at most once, never two workers on one, nothing lost."""

from __future__ import annotations

import asyncio

import pytest

from controller.kube.workqueue import TokenBucket, Workqueue


async def test_a_burst_of_one_key_is_one_run() -> None:
    queue = Workqueue[str]()
    for _ in range(5000):
        queue.add("a")

    assert await queue.get() == "a"
    queue.done("a")
    assert repr(queue) == "<Workqueue ready=0 processing=0 later=0 failing=0>"


async def test_a_key_added_while_processed_runs_once_more_afterwards() -> None:
    queue = Workqueue[str]()
    queue.add("a")
    key = await queue.get()
    queue.add("a")
    queue.add("a")

    assert repr(queue) == "<Workqueue ready=0 processing=1 later=0 failing=0>"
    queue.done(key)
    assert await queue.get() == "a"
    queue.done("a")
    assert repr(queue) == "<Workqueue ready=0 processing=0 later=0 failing=0>"


async def test_two_workers_never_have_the_same_key() -> None:
    queue = Workqueue[int]()
    busy: set[int] = set()
    runs = 0

    async def work() -> None:
        nonlocal runs
        while True:
            key = await queue.get()
            assert key not in busy
            busy.add(key)
            await asyncio.sleep(0)
            if runs < 200:
                queue.add(key)
            runs += 1
            busy.discard(key)
            queue.done(key)
            if runs >= 200 and not queue:
                finished.set()

    finished = asyncio.Event()
    for key in range(3):
        queue.add(key)
    async with asyncio.TaskGroup() as tasks:
        workers = [tasks.create_task(work()) for _ in range(4)]
        await asyncio.wait_for(finished.wait(), 5)
        for worker in workers:
            worker.cancel()

    assert runs >= 200


async def test_failures_are_repeated_ever_more_rarely_and_success_forgets() -> None:
    queue = Workqueue[str]()

    assert [queue.retry("a") for _ in range(4)] == [0.005, 0.01, 0.02, 0.04]
    queue.forget("a")
    assert queue.retry("a") == 0.005
    assert [queue.retry("b") for _ in range(30)][-1] == 120.0
    queue.close()


async def test_all_repetitions_together_pass_one_bucket() -> None:
    queue = Workqueue[int]()

    pauses = [queue.retry(key) for key in range(150)]

    assert pauses[99] == 0.005
    assert pauses[149] == pytest.approx(5.0, abs=0.2)  # 100 at once, then 10 a second
    queue.close()


async def test_the_earlier_of_two_times_holds() -> None:
    queue = Workqueue[str]()
    queue.after("a", 60.0)
    queue.after("a", 0.0)
    queue.after("a", 60.0)

    assert await asyncio.wait_for(queue.get(), 5) == "a"


def test_a_bucket_saves_no_more_than_its_burst() -> None:
    now = 0.0
    bucket = TokenBucket(rate=2.0, burst=3.0, clock=lambda: now)
    now = 100.0

    assert [bucket.take() for _ in range(5)] == [0.0, 0.0, 0.0, 0.5, 1.0]
    assert not bucket.spend()
    now = 102.0
    assert bucket.spend()
