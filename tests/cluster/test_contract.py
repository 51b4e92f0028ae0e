"""The CRD in a real API server: it is established, accepts what is valid, and refuses the rest naming the field."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.api import ApiError, Cluster
from tests.cluster.namespace import Namespace
from tests.golden.crd.cases import ACCEPTED, refused

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.yaml"))
STRICT = "?dryRun=All&fieldValidation=Strict"


def _post(namespace: Namespace, body: dict[str, Any]) -> None:
    body = copy.deepcopy(body)
    body["metadata"].pop("namespace", None)
    namespace.cluster.call("POST", namespace.path("steelyard.dev/v1alpha1/balancedservices") + STRICT, body)


def test_every_valid_object_is_accepted(crd: Cluster, namespace: Namespace) -> None:
    refusals = {}
    for name, body in ACCEPTED.items():
        try:
            _post(namespace, body)
        except ApiError as refusal:
            refusals[name] = refusal.message

    assert refusals == {}


def test_every_spoilt_object_is_refused_with_a_message_that_names_the_field(crd: Cluster, namespace: Namespace) -> None:
    wrong = {}
    for case in refused():
        try:
            _post(namespace, case.object)
        except ApiError as refusal:
            if case.path not in refusal.message:
                wrong[case.name] = f"{case.path} is not in: {refusal.message}"
        else:
            wrong[case.name] = "accepted"

    assert wrong == {}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_an_example_is_accepted(crd: Cluster, namespace: Namespace, file: Path) -> None:
    ours = [body for body in yaml.safe_load_all(file.read_text()) if body and body["kind"] == "BalancedService"]

    for body in ours:
        _post(namespace, body)


def test_kubectl_explains_the_fields(crd: Cluster) -> None:
    text = crd.kubectl("explain", "bsvc.spec.backends")

    assert "DESCRIPTION" in text
    assert "<empty>" not in text
