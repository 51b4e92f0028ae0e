"""A deleted object leaves nothing behind, however it is deleted, and whether the operator runs or not."""

from __future__ import annotations

import time

from tests.cluster.deployed import Operator, balanced, programmed
from tests.cluster.namespace import Namespace

LIMIT = 30.0  # seconds: `acceptGrace`, the end of a proxy without requests, and the garbage collector's turns
CASCADES = ("background", "foreground")
PASSING = {"events", "events.events.k8s.io"}  # they expire by themselves


def test_nothing_is_left_while_the_operator_runs(operator: Operator, namespace: Namespace) -> None:
    before = everything(namespace)
    made = everything_of_two_objects(namespace) - before

    delete(namespace, made)

    assert everything(namespace) == before


def test_nothing_is_left_while_the_operator_is_away(operator: Operator, namespace: Namespace) -> None:
    before = everything(namespace)
    made = everything_of_two_objects(namespace) - before

    operator.scale(0)
    try:
        delete(namespace, made)
        assert everything(namespace) == before
    finally:
        operator.scale(2)


def everything(namespace: Namespace) -> set[str]:
    """What `kubectl get` finds of every kind that there is: `deployment.apps/shop-lb`, ..."""
    kinds = namespace.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
    return set(namespace.kubectl("get", ",".join(sorted(set(kinds) - PASSING)), "-o", "name").split())


def everything_of_two_objects(namespace: Namespace) -> set[str]:
    """One to be deleted in each way: with backends by a selector, so that every kind of child is there."""
    pods = {"name": "pods", "selector": {"matchLabels": {"app": "shop-v1"}}, "port": 8080}
    namespace.apply(*(balanced(cascade, backends=[pods]) for cascade in CASCADES))
    for cascade in CASCADES:
        programmed(namespace, cascade, proxies=2)
    return everything(namespace)


def delete(namespace: Namespace, made: set[str]) -> None:
    """Delete both objects and wait for the end of all that was made for them, no longer than the limit."""
    begun = time.monotonic()
    for cascade in CASCADES:
        namespace.kubectl("delete", f"bsvc/{cascade}", f"--cascade={cascade}", "--wait=false")
    left = LIMIT - (time.monotonic() - begun)
    namespace.kubectl("wait", "--for=delete", *sorted(made), f"--timeout={left:.0f}s", timeout=LIMIT + 10)
