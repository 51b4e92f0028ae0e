"""What a newcomer applies is valid, and the demo's file is served as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.discovery.files import Contents, read
from controller.model.parsing import parse
from controller.model.service import BalancedService
from tests.golden.crd.evaluator import refusals

PROJECT = Path(__file__).parents[3]
DEMO = PROJECT / "controller" / "demo" / "example.yaml"
EXAMPLES = [*sorted((PROJECT / "examples").glob("*.yaml")), DEMO]


def services(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each["kind"] == "BalancedService"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_holds_valid_objects(path: Path) -> None:
    found = services(path)

    assert found
    for given in found:
        assert refusals(given) == []
        assert isinstance(parse(given), BalancedService)


def test_the_demo_runs_from_its_file_alone() -> None:
    found = read(DEMO)

    assert isinstance(found, Contents), str(found)
    (service,) = found.services
    assert [(backend.addresses, backend.port) for backend in service.backends] == [
        (("127.0.0.1",), port) for port in range(18081, 18085)
    ]
