"""What is listed as inside an image is what its lock files pin."""

from __future__ import annotations

import tomllib

import pytest

from release.sbom import PROJECT, bill


@pytest.mark.parametrize("target", ["proxy", "controller"])
def test_every_locked_dependency_is_listed_once(target: str) -> None:
    lock = (PROJECT / "requirements" / f"{target}.txt").read_text()
    pinned = [line.split(";")[0].strip(" \\") for line in lock.splitlines() if "==" in line and line[0] not in " #"]
    compiled = tomllib.loads((PROJECT / "controller" / "proxy" / "codec" / "Cargo.lock").read_text())["package"]

    listed = [each["purl"] for each in bill(target)["components"]]

    expected = [f"pkg:pypi/{each.replace('==', '@')}" for each in pinned]
    expected += [f"pkg:cargo/{each['name']}@{each['version']}" for each in compiled if "source" in each]
    assert listed == expected
    assert len(set(listed)) == len(listed)


def test_a_proxy_holds_nothing_that_speaks_to_kubernetes() -> None:
    listed = {each["name"] for each in bill("proxy")["components"]}

    assert "aiohttp" in listed
    assert not {"kopf", "kubernetes", "cryptography"} & listed


def test_the_same_sources_give_the_same_list() -> None:
    assert bill("proxy") == bill("proxy")
    assert bill("proxy")["serialNumber"] != bill("controller")["serialNumber"]
