"""Who may roll, and what is written of one that must wait."""

from __future__ import annotations

from typing import Any

from controller.kube.rollouts import Rollouts, held, rolling, rolls


def deployment(name: str = "a", *, image: str = "proxy:1", generation: int = 1, **status: Any) -> dict[str, Any]:
    done = {"observedGeneration": generation, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": generation},
        "spec": {
            "replicas": 2,
            "template": {"metadata": {"creationTimestamp": None}, "spec": {"containers": [_container(image)]}},
        },
        "status": done | status,
    }


def _container(image: str) -> dict[str, Any]:
    return {"name": "proxy", "image": image, "terminationMessagePath": "/dev/termination-log"}


def desired(name: str = "a", *, image: str = "proxy:2", replicas: int = 2) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "proxy", "image": image}]}}},
    }


def test_a_deployment_rolls_until_every_replica_is_new_and_available_and_none_is_old() -> None:
    assert not rolling(deployment())
    assert rolling(deployment(observedGeneration=0))
    assert rolling(deployment(updatedReplicas=1))
    assert rolling(deployment(replicas=3))
    assert rolling(deployment(availableReplicas=1))
    assert rolling(deployment() | {"status": {}})


def test_one_that_made_no_progress_for_its_deadline_counts_no_more() -> None:
    stuck = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}

    assert not rolling(deployment(availableReplicas=0, conditions=[stuck]))
    assert rolling(deployment(availableReplicas=0, conditions=[stuck], observedGeneration=0))


def test_one_whose_pods_went_missing_after_it_was_complete_holds_up_nobody() -> None:
    """Its nodes went, or a scale-up has no room: the API server judges no deadline after completion."""
    complete = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}

    assert not rolling(deployment(availableReplicas=0, conditions=[complete]))
    assert not rolling(deployment(replicas=1, updatedReplicas=1, conditions=[complete]))
    assert rolling(deployment(updatedReplicas=0, conditions=[complete])), "back to a ReplicaSet that there was before"
    assert rolling(deployment(availableReplicas=0, conditions=[complete], observedGeneration=0))


def test_only_what_replaces_pods_rolls() -> None:
    assert rolls(deployment(), desired())
    assert not rolls(deployment(image="proxy:2"), desired(replicas=9))


def test_at_most_the_limit_are_admitted_before_any_status_has_changed() -> None:
    fleet = [deployment(name) for name in "abcd"]
    rollouts = Rollouts(2)

    assert [rollouts.admit(each, fleet) for each in fleet] == [True, True, False, False]


def test_a_finished_one_makes_room_and_a_rolling_one_does_not() -> None:
    a, b, c = (deployment(name) for name in "abc")
    rollouts = Rollouts(1)
    assert rollouts.admit(a, [a, b, c])

    begun = deployment("a", image="proxy:2", generation=2, observedGeneration=1)
    assert not rollouts.admit(b, [begun, b, c])

    ended = deployment("a", image="proxy:2", generation=2)
    assert rollouts.admit(b, [ended, b, c])
    assert not rollouts.admit(c, [ended, b, c])


def test_one_that_rolls_may_change_again_at_any_time() -> None:
    a, b = deployment("a", availableReplicas=1), deployment("b", availableReplicas=1)

    assert Rollouts(1).admit(a, [a, b])


def test_one_that_was_not_written_or_is_gone_gives_its_turn_back() -> None:
    a, b, c = (deployment(name) for name in "abc")
    rollouts = Rollouts(1)
    assert rollouts.admit(a, [a, b, c])

    rollouts.withdraw(a)
    assert rollouts.admit(b, [a, b, c])

    assert rollouts.admit(c, [a, c])


def test_one_that_waits_gets_all_but_its_template() -> None:
    live = deployment()

    assert held(live, desired()) is None
    found = held(live, desired(replicas=5))
    assert found is not None
    assert found["spec"]["replicas"] == 5
    assert found["spec"]["template"] == {"metadata": {}, "spec": {"containers": [_container("proxy:1")]}}
