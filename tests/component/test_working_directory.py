"""Started in a folder that holds another package of our name, no process of ours imports it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controller.demo import processes
from tests.component.rig import RigPolicy
from tests.component.test_proxy_command import FILE, fetch, free_port, until
from tests.component.test_workers import Pod, pod

__all__ = ["pod"]  # a fixture


@pytest.fixture
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    return RigPolicy()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "controller"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('an unrelated package')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)  # which would be the mend


async def test_workers_serve_though_the_working_directory_has_a_package_of_our_name(pod: Pod) -> None:
    await pod.open()

    assert await pod.ask() == 200
    assert pod.fleet.telemetry.worker_restarts == 0


async def test_the_demo_begins_though_the_working_directory_has_a_package_of_our_name(tmp_path: Path) -> None:
    file, admin = tmp_path / "shop.yaml", f"127.0.0.1:{free_port()}"
    backend = processes.Backend("one", "127.0.0.1", free_port(), 0)
    file.write_text(FILE.format(port=free_port(), backend=backend.port))
    proxy = processes.Proxy(file, admin, tmp_path / "proxy.log")

    try:
        await backend.start()
        await proxy.start()
        await asyncio.to_thread(until, lambda: fetch(f"http://{admin}/readyz")[0] == 200)
    finally:
        await backend.kill()
        await proxy.stop()
