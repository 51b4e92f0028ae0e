"""A file instead of an operator: what is read, how faults are told, and which changes are noticed."""

# ruff: noqa: ASYNC240 - a write to a small file of its own holds a test up for nothing

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.discovery.files import Contents, Refused, read, watch

GOOD = """\
apiVersion: steelyard.dev/v1alpha1
kind: BalancedService
metadata:
  name: shop
spec:
  ports:
    - port: 8080
  backends:
    - name: a
      addresses: [127.0.0.1]
"""
INTERVAL = 0.01


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(GOOD)
    return path


def faults(path: Path, text: str | bytes) -> list[str]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = read(path)
    assert isinstance(found, Refused)
    return [line.removeprefix(f"{path}:").strip() for line in str(found).splitlines()]


def names(found: Contents | Refused) -> list[str]:
    assert isinstance(found, Contents), str(found)
    return [f"{service.namespace}/{service.name}" for service in found.services]


def test_one_file_may_hold_several_documents(file: Path) -> None:
    other = GOOD.replace("name: shop", "name: cart\n  namespace: store").replace("8080", "8081")
    file.write_text(f"---\n{GOOD}---\n# nothing here\n---\n{other}---\n")

    assert names(read(file)) == ["default/shop", "store/cart"]


def test_every_fault_is_told_with_its_line_and_path(file: Path) -> None:
    text = GOOD.replace("port: 8080", "prot: 8080").replace("[127.0.0.1]", "\n        - localhost\n      weight: -1")

    found = faults(file, text)

    assert [line.split(": ")[:2] for line in found] == [
        ["7", "spec.ports[0].prot"],
        ["7", "spec.ports[0].port"],
        ["11", "spec.backends[0].addresses[0]"],
        ["12", "spec.backends[0].weight"],
    ]
    assert found[3] == "12: spec.backends[0].weight: must be a whole number from 0 to 1000000, not -1"


def test_faults_of_later_documents_have_the_lines_of_the_file(file: Path) -> None:
    broken = GOOD.replace("name: shop", "name: cart").replace("8080", "99999")

    assert faults(file, f"{GOOD}---\n{broken}") == [
        "18: spec.ports[0].port: must be a whole number from 1 to 65535, not 99999"
    ]


def test_a_key_given_twice_is_refused(file: Path) -> None:
    assert faults(file, f"{GOOD}      weight: 1\n      weight: 2\n") == [
        "11: spec.backends[0].weight: is given twice, again in line 12: remove one"
    ]


def test_what_is_no_yaml_is_told_with_its_line(file: Path) -> None:
    assert faults(file, f"{GOOD}  algorithm: [\n") == [
        "12: is not YAML: expected the node content, but found '<stream end>'"
    ]


def test_control_characters_are_no_yaml(file: Path) -> None:
    (found,) = faults(file, "a: \x07")

    assert found.startswith("is not YAML: unacceptable character #x0007")


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n---\n"])
def test_an_empty_file_is_refused(file: Path, text: str) -> None:
    assert "is empty: write a BalancedService" in faults(file, text)[0]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (GOOD.replace("kind: BalancedService", "kind: List"), "2: kind: must be BalancedService, not List"),
        (GOOD.replace("kind: BalancedService\n", ""), "1: kind: must be given: kind: BalancedService"),
        (GOOD.replace("v1alpha1", "v1"), '1: apiVersion: must be steelyard.dev/v1alpha1, not "steelyard.dev/v1"'),
        (GOOD.replace("apiVersion: steelyard.dev/v1alpha1\n", ""), "1: apiVersion: must be given"),
        ("- a\n- b\n", "1: must be a mapping with apiVersion, kind, metadata and spec"),
        (f"{GOOD}---\n{GOOD}", "15: metadata.name: default/shop is in this file already: rename one"),
        (f"{GOOD}---\n{GOOD.replace('name: shop', 'name: cart')}", "18: spec.ports[0].port: 8080 is already taken"),
        (GOOD.replace("name: a", "<<: {name: a}"), "9: spec.backends[0]: uses <<"),
        (GOOD.replace("name: a", "name: !secret a"), "9: spec.backends[0].name: has the tag !secret"),
        (GOOD.replace("port: 8080", "port: !!int many"), "7: spec.ports[0].port: has the tag"),
        (GOOD.replace("[127.0.0.1]", "&loop [*loop]"), "10: spec.backends[0].addresses[0]: refers to itself"),
        (f"{GOOD}      ? [a]\n      : b\n", "9: spec.backends[0]: has a key that is no single word"),
        (f"{GOOD}  off: 1\n", "11: spec.False: is not a field"),
        ("[" * 5000, "is nested too deeply"),
        (b"a: \xff\n", "1: is not UTF-8 text"),
        (b"# " + b"x" * (4 << 20), "is larger than 4 MiB"),
    ],
)
def test_a_file_that_can_not_be_meant_is_refused(file: Path, text: str | bytes, fault: str) -> None:
    assert any(found.startswith(fault) for found in faults(file, text)), faults(file, text)


def test_aliases_of_aliases_end(file: Path) -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for before, name in zip("abcdefg", "bcdefgh", strict=True):
        bomb += f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"

    assert any("has more than 200000 values" in found for found in faults(file, bomb))


def test_words_are_read_as_kubectl_reads_them(file: Path) -> None:
    file.write_text(f'{GOOD}  proxy: {{podAnnotations: {{a: "on", b: 2020-01-01, c: 1:30, d: 1:30.5}}}}\n')

    found = read(file)

    assert isinstance(found, Contents), str(found)
    assert found.services[0].proxy.pod_annotations == {"a": "on", "b": "2020-01-01", "c": "1:30", "d": "1:30.5"}


def test_status_in_a_file_is_ignored(file: Path) -> None:
    file.write_text(f"{GOOD}status: {{endpoints: 4/4}}\n")

    assert names(read(file)) == ["default/shop"]


def test_a_file_that_is_not_there_or_no_file_is_a_value(tmp_path: Path) -> None:
    assert str(read(tmp_path / "none.yaml")) == f"{tmp_path}/none.yaml: can't be read: No such file or directory"
    assert str(read(tmp_path)) == f"{tmp_path}: can't be read: Is a directory"


async def following(watched: AsyncIterator[Contents | Refused]) -> Contents | Refused:
    async with asyncio.timeout(5):
        return await anext(watched)


async def test_the_first_value_is_what_the_file_says_now(file: Path) -> None:
    assert names(await following(watch(file, INTERVAL))) == ["default/shop"]


async def test_a_write_in_place_is_noticed(file: Path) -> None:
    watched = watch(file, INTERVAL)
    await following(watched)

    file.write_text(GOOD.replace("name: shop", "name: cart"))

    assert names(await following(watched)) == ["default/cart"]


async def test_a_write_and_rename_is_noticed(file: Path) -> None:
    watched = watch(file, INTERVAL)
    await following(watched)
    stat = file.stat()

    other = file.with_name("other")
    other.write_text(GOOD.replace("name: shop", "name: cart"))
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.rename(file)

    assert names(await following(watched)) == ["default/cart"]


async def test_the_swap_of_a_mounted_config_map_is_noticed(tmp_path: Path) -> None:
    for version, name in (("..v1", "shop"), ("..v2", "cart")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "shop.yaml").write_text(GOOD.replace("name: shop", f"name: {name}"))
    (tmp_path / "..data").symlink_to("..v1")
    (tmp_path / "shop.yaml").symlink_to("..data/shop.yaml")
    watched = watch(tmp_path / "shop.yaml", INTERVAL)
    await following(watched)

    (tmp_path / "..data_tmp").symlink_to("..v2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    assert names(await following(watched)) == ["default/cart"]


async def test_a_bad_edit_is_a_value_and_its_mend_is_noticed(file: Path) -> None:
    watched = watch(file, INTERVAL)
    good = await following(watched)

    file.write_text(GOOD.replace("8080", "0"))
    bad = await following(watched)
    file.write_text(GOOD)

    assert isinstance(bad, Refused)
    assert await following(watched) == good


async def test_a_file_that_goes_and_comes_back_is_noticed(file: Path) -> None:
    watched = watch(file, INTERVAL)
    await following(watched)

    file.unlink()
    gone = await following(watched)
    file.write_text(GOOD)

    assert "No such file" in str(gone)
    assert names(await following(watched)) == ["default/shop"]


async def test_a_change_that_makes_no_difference_is_none(file: Path) -> None:
    watched = watch(file, INTERVAL)
    await following(watched)
    following_value = asyncio.ensure_future(anext(watched))

    file.write_text(f"# a comment\n{GOOD}")
    done, _ = await asyncio.wait([following_value], timeout=20 * INTERVAL)
    file.write_text(GOOD.replace("name: shop", "name: cart"))

    assert not done
    assert names(await asyncio.wait_for(following_value, 5)) == ["default/cart"]
