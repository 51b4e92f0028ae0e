"""The ConfigMap by which the proxies of a namespace know the operator's certificate authority."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from controller.children.meta import OWNER_LABEL, owner_reference
from controller.model.names import CA_CONFIG_MAP
from controller.model.service import BalancedService


def authority(namespace: str, owners: Iterable[BalancedService], certificates: str) -> dict[str, Any]:
    """`certificates` is PEM, during a rotation of two authorities.

    Every object of the namespace owns it and none controls it, so it goes with the last of them.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": CA_CONFIG_MAP,
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/name": "steelyard",
                "app.kubernetes.io/managed-by": "steelyard",
                OWNER_LABEL: "",
            },
            "ownerReferences": [
                owner_reference(service, controller=False) for service in sorted(owners, key=lambda each: each.name)
            ],
        },
        "data": {"ca.crt": certificates},
    }
