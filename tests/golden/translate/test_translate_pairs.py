"""Each `*.in.yaml` is a whole state; its `*.out.yaml` is what proxies and the API hear of it.

Of a snapshot only what differs from the defaults is shown, and instead of its version that the status tells the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.model.endpoints import Endpoint
from controller.model.snapshot import Snapshot, SnapshotBackend, decode
from controller.translate import Translated, translate_all
from tests.golden.state import read_state, to_yaml

HERE = Path(__file__).parent
CASES = sorted(path.name.removesuffix(".in.yaml") for path in HERE.glob("*.in.yaml"))


@pytest.mark.parametrize("case", CASES)
def test_a_state_gives_the_snapshots_and_statuses_written_beside_it(
    case: str, golden: Callable[[Path, str], None]
) -> None:
    inputs = read_state(HERE / f"{case}.in.yaml")

    results = translate_all(inputs)

    for result in results.values():
        assert result.snapshot is None or decode(result.snapshot.encode()) == result.snapshot
    golden(HERE / f"{case}.out.yaml", to_yaml({f"{key[0]}/{key[1]}": shown(result) for key, result in results.items()}))


def test_there_is_an_input_for_every_output() -> None:
    assert sorted(path.name.removesuffix(".out.yaml") for path in HERE.glob("*.out.yaml")) == CASES


def shown(result: Translated) -> dict[str, Any]:
    status = {"conditions": [condition(each) for each in msgspec.to_builtins(result.status.facts)]}
    status |= result.status.as_dict()
    if result.snapshot is None:
        return {"snapshot": None, "status": status}
    assert status["proxy"].pop("version") == result.snapshot.version
    return {
        "snapshot": brief_snapshot(result.snapshot),
        "admitted": " ".join(result.admitted),
        "status": status,
    }


def condition(fact: dict[str, str]) -> str:
    message = f": {fact['message']}" if fact["message"] else ""
    return f"{fact['type']}={fact['status']} {fact['reason']}{message}"


def brief_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    brief = without(plain(snapshot), plain(Snapshot(namespace="", name="")))
    for port in brief["ports"]:
        port["backends"] = [brief_backend(each) for each in port["backends"]]
    return brief


def brief_backend(backend: dict[str, Any]) -> dict[str, Any]:
    brief = without(backend, plain(SnapshotBackend(name="", weight=1, weight_per="Backend")))
    if "endpoints" in brief:
        usual = plain(Endpoint(id="", address="", port=0)) | {"state": "always shown"}
        brief["endpoints"] = [without(each, usual) for each in brief["endpoints"]]
    return brief


def plain(value: msgspec.Struct) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return decoded


def without(fields: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value != usual[name]}
