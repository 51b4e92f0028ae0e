"""The mutating webhook (admission.k8s.io/v1): pods that ask for a sidecar get it when they are made.

No API call is in a request's way: the services come from the store. What is thrown away by a refusal or an outage is
a pod's start, so everything that can be said is said in the answer: why it is refused, and warnings.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from aiohttp import web

from controller.injection import INJECT_LABEL, INJECTED, InjectionSettings, Refused, Target, inject, target
from controller.kube.api import Api, ApiError, Object
from controller.kube.resources import WEBHOOKS
from controller.model.service import BalancedService
from controller.translate.inputs import Inputs

log = logging.getLogger(__name__)

PATH = "/v1/inject"
REVIEW_BYTES = 8 << 20  # the API server's own limit for an object is 3 MiB, and a review may hold two
CHANGED = (
    ("metadata", ("labels", "annotations")),
    ("spec", ("initContainers", "volumes", "hostAliases")),
)


class _Request(msgspec.Struct, frozen=True):
    uid: str
    object: dict[str, Any]
    namespace: str = ""


class _Review(msgspec.Struct, frozen=True):
    request: _Request


_REVIEWS = msgspec.json.Decoder(_Review)


def targets(inputs: Inputs, namespace: str) -> Iterator[Target]:
    """What the pods of a namespace may be given. Two objects with one address, which is soon mended, give none."""
    for address, names in inputs.claims.get(namespace, {}).items():
        for name in names if len(names) == 1 else ():
            service = inputs.objects.get((namespace, name))
            found = target(service, address) if isinstance(service, BalancedService) else None
            if found is not None:
                yield found


class Injector:
    """The aiohttp application. `synced`: the store is complete, and so the answer right."""

    def __init__(self, inputs: Inputs, synced: Callable[[], bool], settings: InjectionSettings) -> None:
        self.counts = {"injected": 0, "refused": 0, "unchanged": 0}
        self.app = web.Application(client_max_size=REVIEW_BYTES)
        self.app.router.add_post(PATH, self._review)
        self._inputs = inputs
        self._synced = synced
        self._settings = settings

    async def _review(self, request: web.Request) -> web.Response:
        if not self._synced():
            raise web.HTTPServiceUnavailable(text="not synced yet\n")
        try:
            review = _REVIEWS.decode(await request.read())
        except msgspec.DecodeError as error:
            raise web.HTTPBadRequest(text=f"not an AdmissionReview: {error}\n") from error
        answer = {"uid": review.request.uid, "allowed": True, **self._answer(review.request)}
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    def _answer(self, request: _Request) -> Mapping[str, Any]:
        pod = request.object
        metadata = pod.get("metadata") or {}
        asks = (metadata.get("labels") or {}).get(INJECT_LABEL) == "enabled"
        if not asks or INJECTED in (metadata.get("annotations") or {}):
            self.counts["unchanged"] += 1
            return {}
        result = inject(pod, request.namespace, targets(self._inputs, request.namespace), self._settings)
        if isinstance(result, Refused):
            self.counts["refused"] += 1
            return {"allowed": False, "status": {"code": 422, "reason": "Invalid", "message": result.message}}
        warnings = {"warnings": list(result.warnings)} if result.warnings else {}
        patch = _patch(pod, result.pod)
        self.counts["injected" if patch else "unchanged"] += 1
        if not patch:
            return warnings
        return warnings | {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}


def _patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, Any]]:
    """RFC 6902. `add` puts a member in another one's place, too."""
    return [
        {"op": "add", "path": f"/{part}/{member}", "value": new[part][member]}
        for part, members in CHANGED
        for member in members
        if member in new.get(part, {}) and (old.get(part) or {}).get(member) != new[part][member]
    ]


class WebhookConfiguration:
    """The static configuration in the chart: only whom to trust is ours to write, since it is made here."""

    def __init__(self, api: Api, name: str) -> None:
        self._api = api
        self._name = name

    async def trust(self, authorities: bytes) -> bool:
        """Whether it is so now; False where there is no configuration. Raises what the API raises."""
        bundle = base64.b64encode(authorities).decode()
        try:
            found = await self._api.json("GET", WEBHOOKS.path(name=self._name))
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        patch = [
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
            for index, webhook in enumerate(found.get("webhooks") or ())
            if webhook["clientConfig"].get("caBundle") != bundle
        ]
        if patch:
            # Another writer may have moved the webhooks: then the next look does it.
            version: Object = {"op": "test", "path": "/metadata/resourceVersion"}
            version["value"] = found["metadata"]["resourceVersion"]
            await self._api.json(
                "PATCH",
                WEBHOOKS.path(name=self._name),
                body=[version, *patch],
                content_type="application/json-patch+json",
            )
            log.info("the webhook is trusted", extra={"configuration": self._name})
        return True
