"""TokenReview as the operator asks for it, and what it believes of the answer."""

from __future__ import annotations

from typing import Any

import pytest

from controller.discovery.tokens import Identity
from controller.kube.api import ApiError
from controller.kube.tokens import Reviewer
from tests.component.fake_api import FakeApi, refusal, reply, serving

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
AUDIENCE = "steelyard.dev/discovery"
USER = {
    "username": "system:serviceaccount:store:shop-lb",
    "extra": {
        "authentication.kubernetes.io/pod-name": ["shop-lb-1"],
        "authentication.kubernetes.io/pod-uid": ["uid-1"],
        "authentication.kubernetes.io/node-name": ["n1"],
    },
}


async def reviewed(status: dict[str, Any]) -> Identity | None:
    fake = FakeApi()
    fake.on("POST", PATH, reply({"status": status}, 201))
    async with serving(fake) as api:
        found = await Reviewer(api, AUDIENCE, Identity)("token")
    assert fake.bodies("POST", PATH)[0]["spec"] == {"token": "token", "audiences": [AUDIENCE]}
    return found


async def test_a_good_token_says_account_pod_and_node() -> None:
    found = await reviewed({"authenticated": True, "audiences": [AUDIENCE], "user": USER})

    assert found == Identity(USER["username"], "shop-lb-1", "uid-1", "n1")


@pytest.mark.parametrize(
    "status",
    [
        {"authenticated": False, "error": "expired"},
        {},
        {"authenticated": True, "user": USER},  # a server that knows no audiences
        {"authenticated": True, "audiences": None, "user": USER},
        {"authenticated": True, "audiences": ["https://kubernetes.default.svc"], "user": USER},
    ],
)
async def test_a_token_that_is_not_good_for_our_audience_is_nobody(status: dict[str, Any]) -> None:
    assert await reviewed(status) is None


async def test_not_to_know_is_not_to_refuse() -> None:
    fake = FakeApi()
    fake.on("POST", PATH, refusal(500, "InternalError"))
    async with serving(fake) as api:
        with pytest.raises(ApiError, match="500"):
            await Reviewer(api, AUDIENCE, Identity)("token")
