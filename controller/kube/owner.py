"""The operator's own Deployment, so that what it makes beside it goes with it."""

from __future__ import annotations

import logging

import aiohttp

from controller.kube.api import Api, ApiError, Object
from controller.kube.resources import DEPLOYMENTS

log = logging.getLogger(__name__)


async def own_deployment(api: Api, namespace: str, name: str) -> Object | None:
    """An ownerReference to it; None outside a cluster (`name` is "") or when it can't be read."""
    if not name:
        return None
    try:
        found = await api.json("GET", DEPLOYMENTS.path(namespace, name))
    except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
        log.warning("own deployment not found", extra={"deployment": name, "error": str(error)})
        return None
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": found["metadata"]["uid"]}
