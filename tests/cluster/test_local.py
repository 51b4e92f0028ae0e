"""What the harness leaves on the machine: nothing, however a run ends."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.api import Cluster
from tests.cluster.local import cluster as local
from tests.cluster.local.layout import Layout

OWNER = """
import os, sys, threading
from pathlib import Path
from tests.cluster.local import cluster
from tests.cluster.local.layout import Layout

lifeline, owner = os.pipe()
cluster.start(Layout(Path(sys.argv[1])), lambda line: None, lifeline)
print("up", flush=True)
threading.Event().wait()
"""


def _processes(layout: Layout) -> list[int]:
    """Of the cluster, with what they were started with: all its daemons know its state folder."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            known = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
        except OSError:
            continue  # ended meanwhile
        if str(layout.state).encode() in known:
            found.append(int(folder.name))
    return found


@pytest.mark.timeout(300, func_only=True)  # it starts a cluster of its own
def test_a_killed_owner_takes_its_cluster_along_and_the_next_start_removes_the_rest(cluster: Cluster) -> None:
    if cluster.local is None:
        pytest.skip("of the harness's own cluster")
    layout = Layout(Path(f"{local.KEPT}-{os.getpid()}"))
    cgroups = [path / layout.name for path in Path("/sys/fs/cgroup").iterdir()]

    with subprocess.Popen([sys.executable, "-c", OWNER, str(layout.state)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        said = owner.stdout.readline()
        before, first = _processes(layout), Path(f"/proc/{layout.pid.read_text()}")
        made = [path for path in cgroups if path.exists()]
        owner.kill()
    with open(layout.lock) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # returns when the first process has gone, which holds it
    while first.exists():  # it is the last to go
        os.sched_yield()
    local.sweep()

    assert said == "up\n"
    assert len(before) > 15
    assert made
    assert _processes(layout) == []
    assert not layout.state.exists()
    assert [path for path in cgroups if path.exists()] == []
