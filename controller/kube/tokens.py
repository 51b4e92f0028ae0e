"""TokenReview: what the API server says of a bearer token (authentication.k8s.io/v1)."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from controller.kube.api import Api
from controller.kube.resources import TOKEN_REVIEWS

I_co = TypeVar("I_co", covariant=True)

EXTRA = "authentication.kubernetes.io/"


class MakesIdentity(Protocol[I_co]):
    """`username` is `system:serviceaccount:NAMESPACE:NAME` for a pod; the rest is "" for a token bound to no pod."""

    def __call__(self, username: str, pod: str, pod_uid: str, node: str) -> I_co: ...


class Reviewer(Generic[I_co]):
    """`await review(token)` is who the token stands for, or None if it is not good for `audience`.

    Raises what the API raises: not to know is not to refuse. Nothing is cached, nothing of the token is logged.
    """

    def __init__(self, api: Api, audience: str, identity: MakesIdentity[I_co]) -> None:
        self._api = api
        self._audience = audience
        self._identity = identity

    async def __call__(self, token: str) -> I_co | None:
        review = await self._api.json(
            "POST",
            TOKEN_REVIEWS.path(),
            body={
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": token, "audiences": [self._audience]},
            },
        )
        status: dict[str, Any] = review.get("status") or {}
        # A server that knows no audiences says `authenticated` all the same, and lists none.
        if not status.get("authenticated") or self._audience not in (status.get("audiences") or ()):
            return None
        user = status.get("user") or {}
        extra = user.get("extra") or {}

        def first(name: str) -> str:
            values = extra.get(EXTRA + name) or [""]
            return str(values[0])

        return self._identity(user.get("username") or "", first("pod-name"), first("pod-uid"), first("node-name"))
