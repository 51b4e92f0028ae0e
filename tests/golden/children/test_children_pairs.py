"""Each `*.in.yaml` is a whole state; its `*.out.yaml` holds all that its one BalancedService owns, as it is applied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from controller.children import ChildSettings, authority, children
from controller.model.service import BalancedService
from controller.translate import translate
from tests.golden.state import read_state, to_yaml

HERE = Path(__file__).parent
CASES = sorted(path.name.removesuffix(".in.yaml") for path in HERE.glob("*.in.yaml"))
SETTINGS = ChildSettings(
    image="registry.example.com/steelyard-proxy:1.0.0", control="https://steelyard.steelyard-system.svc:19443"
)


@pytest.mark.parametrize("case", CASES)
def test_an_object_owns_what_is_written_beside_it(case: str, golden: Callable[[Path, str], None]) -> None:
    inputs = read_state(HERE / f"{case}.in.yaml")
    ((key, service),) = inputs.objects.items()
    assert isinstance(service, BalancedService), service

    result = translate(inputs, key)

    assert result.snapshot is not None
    owned = children(service, result.snapshot, result.admitted, SETTINGS, bridged=result.bridged)
    golden(HERE / f"{case}.out.yaml", to_yaml(*owned))


def test_the_authority_of_a_namespace_is_owned_by_each_of_its_objects(golden: Callable[[Path, str], None]) -> None:
    inputs = read_state(HERE / "authority" / "objects.yaml")
    owners = [service for service in inputs.objects.values() if isinstance(service, BalancedService)]

    config_map = authority("store", owners, "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n")

    golden(HERE / "authority" / "config-map.yaml", to_yaml(config_map))
    assert config_map == authority("store", reversed(owners), config_map["data"]["ca.crt"])


def test_there_is_an_input_for_every_output() -> None:
    assert sorted(path.name.removesuffix(".out.yaml") for path in HERE.glob("*.out.yaml")) == CASES
