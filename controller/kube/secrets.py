"""Secrets of the operator's own namespace: the one that it keeps, and one that someone else keeps for it.

The former is read by every replica, made by the first, renewed by the leader.

What is in it is decided by `renew`, which is handed in: from the data as it is (None: no Secret yet) to the data as
it should be. Two replicas that write at once meet the `resourceVersion`, and the loser reads again.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping

from controller.kube.api import Api, ApiError, Object
from controller.kube.resources import SECRETS

Data = Mapping[str, bytes]


class OwnSecret:
    """`owner`: an ownerReference to the operator's Deployment, so that the Secret goes with it; None outside one."""

    def __init__(
        self, api: Api, namespace: str, name: str, owner: Object | None, renew: Callable[[Data | None], Data]
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._owner = owner
        self._renew = renew

    async def read(self, *, may_renew: bool) -> Data:
        """What is in force. Makes the Secret if there is none; renews it only with `may_renew`.

        Raises `ApiError` and connection errors; the caller keeps what it has and comes back.
        """
        while True:
            found = await self._get()
            data = _decoded(found) if found else None
            wanted = self._renew(data)
            if data is not None and (dict(wanted) == dict(data) or not may_renew):
                return data
            try:
                return _decoded(await self._write(found, wanted))
            except ApiError as error:
                if error.status != 409:  # another replica was first: read what it wrote
                    raise

    async def _get(self) -> Object | None:
        return await _get(self._api, self._namespace, self._name)

    async def _write(self, found: Object | None, data: Data) -> Object:
        metadata: Object = {
            "name": self._name,
            "namespace": self._namespace,
            "labels": {"app.kubernetes.io/name": "steelyard"},
        }
        if self._owner:
            metadata["ownerReferences"] = [self._owner]
        body: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": metadata,
            "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
        }
        if found is None:
            return await self._api.json("POST", SECRETS.path(self._namespace), body=body)
        metadata["resourceVersion"] = found["metadata"]["resourceVersion"]
        return await self._api.json("PUT", SECRETS.path(self._namespace, self._name), body=body)


async def read_secret(api: Api, namespace: str, name: str) -> Data | None:
    """The data of a Secret; None if there is none. Raises as `OwnSecret.read`."""
    found = await _get(api, namespace, name)
    return None if found is None else _decoded(found)


async def _get(api: Api, namespace: str, name: str) -> Object | None:
    try:
        return await api.json("GET", SECRETS.path(namespace, name))
    except ApiError as error:
        if error.status == 404:
            return None
        raise


def _decoded(secret: Object) -> dict[str, bytes]:
    data = {}
    for name, value in (secret.get("data") or {}).items():
        try:
            data[name] = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            continue  # the API server stores no such thing; to `renew` it is missing
    return data
