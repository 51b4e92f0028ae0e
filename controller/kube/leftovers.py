"""What a front Service has left from the time when it had a selector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from controller.kube.api import Object
from controller.kube.store import ChildKey
from controller.kube.writers import ownership


def left_over(
    name: str, uid: str, wanted: Sequence[Object], slices: Iterable[str], children: Mapping[ChildKey, Object]
) -> list[str]:
    """The slices of the Service `name` that nobody keeps any more, and that would name dead pods.

    None while it has a selector. Labels alone don't tell whose a slice is: the slices' controllers copy the Service's
    onto theirs.
    """
    front = next((each for each in wanted if each["kind"] == "Service" and each["metadata"]["name"] == name), None)
    if front is None or "selector" in front["spec"]:
        return []
    ours = {each["metadata"]["name"] for each in wanted if each["kind"] == "EndpointSlice"}
    ours |= {
        child
        for (_, kind, child), each in children.items()
        if kind == "EndpointSlice" and ownership(each, uid) == "ours"
    }
    return sorted(set(slices) - ours)
