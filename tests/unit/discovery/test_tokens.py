"""Who may fail how often, by a clock that is handed in."""

from __future__ import annotations

from controller.discovery.tokens import FAILURES, Authenticator, Identity


async def test_a_clock_that_is_set_back_shuts_nobody_out() -> None:
    now = 10_000.0

    async def review(token: str) -> Identity | None:
        return Identity(username="system:serviceaccount:store:shop-lb", pod_uid="uid") if token == "good" else None

    authenticator = Authenticator(review, lambda: now)
    for _ in range(FAILURES // 2):
        assert await authenticator.identify("bad", "10.0.0.1") == "unauthenticated"

    now -= 600.0

    assert isinstance(await authenticator.identify("good", "10.0.0.1"), Identity)
