"""Each `*.in.yaml` is a workload as its author wrote it; its `*.out.yaml` is the same with the sidecar in its pods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from controller.children import ChildSettings
from controller.injection import Injected, InjectionSettings, Target, inject_workload
from tests.golden.state import to_yaml

HERE = Path(__file__).parent
CASES = sorted(path.name.removesuffix(".in.yaml") for path in HERE.glob("*.in.yaml"))
SETTINGS = InjectionSettings(
    proxy=ChildSettings(
        image="registry.example.com/steelyard-proxy:1.0.0", control="https://steelyard.steelyard-system.svc:19443"
    ),
    version="1.0.0",
)
SERVICES = [
    Target(namespace="store", name="shop", address="127.64.0.1", ports=((80, "HTTP", "http"), (8443, "TCP", "tls"))),
    Target(namespace="store", name="stock", address="127.64.0.2", ports=((8080, "HTTP", "http"),)),
]


@pytest.mark.parametrize("case", CASES)
def test_a_workload_gets_what_is_written_beside_it(case: str, golden: Callable[[Path, str], None]) -> None:
    workload = yaml.safe_load((HERE / f"{case}.in.yaml").read_text())

    result = inject_workload(workload, "store", SERVICES, SETTINGS)

    assert isinstance(result, Injected), result
    golden(HERE / f"{case}.out.yaml", to_yaml(result.pod, {"warnings": list(result.warnings)}))
    assert inject_workload(result.pod, "store", SERVICES, SETTINGS) == result


def test_there_is_an_input_for_every_output() -> None:
    assert sorted(path.name.removesuffix(".out.yaml") for path in HERE.glob("*.out.yaml")) == CASES
