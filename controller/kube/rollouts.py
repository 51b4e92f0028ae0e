"""How many Deployments of proxies roll to a new pod template at a time.

A new version of the operator brings a new image for all of them. Rolled at once they would ask the cluster for a
quarter more of every fleet's pods in the same minute, and a bad image would be everywhere before anyone looks. So a
template changes only while fewer than the limit are rolling; who must wait keeps its old pods and gets all else.
A Deployment that is rolling already may change again at any time: that may be what mends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from controller.kube.api import Object
from controller.kube.store import ChildKey
from controller.kube.writers import covers
from controller.translate.inputs import Key


def rolling(deployment: Object) -> bool:
    """As `kubectl rollout status` tells it, but a fleet of someone's that can't start must not hold up all others.

    So one counts no more that has made no progress for its deadline, as the API server says after ten minutes; nor one
    whose pods went missing after it was complete, of which the API server never says so.
    """
    status = deployment.get("status") or {}
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 1):
        return True
    reasons = [each.get("reason") for each in status.get("conditions") or () if each.get("type") == "Progressing"]
    replicas, updated = status.get("replicas", 0), status.get("updatedReplicas", 0)
    if "ProgressDeadlineExceeded" in reasons or ("NewReplicaSetAvailable" in reasons and replicas == updated):
        return False
    unfinished = updated < deployment["spec"].get("replicas", 1) or replicas > updated
    return bool(unfinished or status.get("availableReplicas", 0) < updated)


def rolls(live: Object, desired: Object) -> bool:
    """Whether writing `desired` over `live` would replace pods."""
    return not covers(live["spec"]["template"], desired["spec"]["template"])


def held(live: Object, desired: Object) -> Object | None:
    """What may be written while the template must wait: all but the template; None if that is there already."""
    rest = desired | {"spec": {key: value for key, value in desired["spec"].items() if key != "template"}}
    if covers(live, rest):
        return None
    template = live["spec"]["template"]
    meta = {key: value for key, value in (template.get("metadata") or {}).items() if value is not None}
    return desired | {"spec": desired["spec"] | {"template": template | {"metadata": meta}}}


def deployments(children: Mapping[Key, Mapping[ChildKey, Object]]) -> Iterator[Object]:
    """All of ours, of a store's children."""
    for found in children.values():
        yield from (child for (_, kind, _), child in found.items() if kind == "Deployment")


class Rollouts:
    """Turns. What was admitted counts at once, not only when its Deployment's status comes back and says so."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._admitted: dict[str, int] = {}  # uid: the generation before the write

    def __repr__(self) -> str:
        return f"<Rollouts limit={self._limit} admitted={len(self._admitted)}>"

    def admit(self, live: Object, others: Iterable[Object]) -> bool:
        """Whether this Deployment may roll now. `others` are all of ours, as last heard of."""
        known = {each["metadata"]["uid"]: each for each in others}
        self._admitted = {
            uid: generation
            for uid, generation in self._admitted.items()
            if uid in known and known[uid]["metadata"].get("generation", 1) == generation
        }
        busy = {uid for uid, each in known.items() if uid in self._admitted or rolling(each)}
        uid = live["metadata"]["uid"]
        if uid not in busy and len(busy) >= self._limit:
            return False
        self._admitted[uid] = live["metadata"].get("generation", 1)
        return True

    def withdraw(self, live: Object) -> None:
        """It was not written after all."""
        self._admitted.pop(live["metadata"]["uid"], None)
