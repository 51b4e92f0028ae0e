"""The cgroups below which a cluster's kubelets make those of pods; with the state folder, all that outlives it.

A kubelet wants its root to exist in every hierarchy: with cgroup v1 there is one a controller, with v2 one for all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
GONE = 10.0  # seconds; a cgroup can't be removed until the kernel has buried its last process


def _hierarchies() -> list[Path]:
    return (
        [ROOT] if (ROOT / "cgroup.controllers").exists() else sorted(path for path in ROOT.iterdir() if path.is_dir())
    )


def make(name: str, nodes: Iterable[str]) -> None:
    """Make NAME/NODE for every node, usable for processes."""
    for hierarchy in _hierarchies():
        for node in nodes:
            path = hierarchy
            for part in (name, node):
                _delegate(path)
                path = path / part
                path.mkdir(exist_ok=True)
                for file in (*path.glob("cpuset.cpus"), *path.glob("cpuset.mems")):  # v1: empty means unusable
                    file.write_text((hierarchy / file.name).read_text())
            _delegate(path)


def _delegate(path: Path) -> None:
    """v2: children get a controller only if the parent says so."""
    if (path / "cgroup.subtree_control").exists():
        controllers = (path / "cgroup.controllers").read_text().split()
        (path / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in controllers))


def remove(name: str) -> None:
    """Remove NAME and all below it; its processes must have been killed."""
    end = time.monotonic() + GONE
    for hierarchy in _hierarchies():
        for folder, _, _ in os.walk(hierarchy / name, topdown=False):
            while True:
                try:
                    os.rmdir(folder)
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.02)
