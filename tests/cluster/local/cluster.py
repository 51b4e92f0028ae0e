"""Starting, entering, loading and ending a cluster on this machine.

Two things outlive its first process: the state folder and empty cgroups. `sweep` removes those of clusters whose owner
was killed, so the next start finds a clean machine.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tests.cluster.local import cache, cgroups, images, machine, node, programs
from tests.cluster.local.buildah import Image, archive
from tests.cluster.local.layout import Layout, Node
from tests.cluster.local.machine import SYSTEM_PATH, Say

PROJECT = Path(__file__).parents[3]
PREFIX = "steelyard-cluster-"
KEPT = Path(tempfile.gettempdir()) / f"{PREFIX}kept"  # that of `make cluster`, which outlives its command
START = 240.0  # seconds; 5 on two free cores
NODES = 3  # each in a zone of its own
NAMESPACES = ("--pid", "--mount", "--net", "--uts", "--ipc")


class StartError(Exception):
    """The last lines of the first process's log, and the last of every daemon's."""


class LocalCluster:
    """A running cluster, known by its state folder. Its programs are found in the cache, by content."""

    def __init__(self, layout: Layout, say: Say = print) -> None:
        self.layout = layout
        folders = [str(folder) for folder in programs.build(say)]
        self.environment = {**os.environ, **layout.environment(), "PATH": ":".join([*folders, SYSTEM_PATH])}

    def enter(self, *command: str) -> list[str]:
        """The command line that runs `command` in the cluster's network; it wants `environment`."""
        return ["nsenter", f"--target={self.layout.pid.read_text()}", *NAMESPACES, f"--wdns={os.getcwd()}", *command]

    def program(self, name: str) -> str:
        """The path of one of the cluster's programs, such as kubectl."""
        return shutil.which(name, path=self.environment["PATH"]) or name

    def load(self, name: str, wanted: Iterable[Image]) -> None:
        """Give images to every node. Layers that a node has already are skipped."""
        path = self.layout.images / f"{name}.tar"
        archive(wanted, path)
        for number in range(1, NODES + 1):
            node.load(self.program("ctr"), self.layout.socket(Node(number)), path)

    def stop(self) -> None:
        """End it and remove all of it; returns when nothing is left."""
        end(self.layout)


def start(layout: Layout, say: Say, lifeline: int | None = None) -> LocalCluster:
    """Start a cluster whose state folder `layout` does not exist yet; returns when its nodes are ready.

    It ends when `lifeline`, the read end of a pipe, does; without one it stays until `end`.
    Raises UnavailableError where the machine can't, StartError where it should but didn't.
    """
    machine.prepare(say)
    pause = next(folder / "pause" for folder in programs.build(say) if (folder / "pause").exists())
    loaded = [images.pause(pause), images.app(say)]
    begun = time.monotonic()
    with cache.locked("cluster"):  # nobody takes the new folder for a dead one before its lock is held
        _sweep()
        layout.state.mkdir()
        lock = os.open(layout.lock, os.O_CREAT | os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    cluster = LocalCluster(layout, say)
    try:
        layout.images.mkdir()
        archive(loaded, layout.images / "always.tar")
        cgroups.make(layout.name, [Node(number).name for number in range(1, NODES + 1)])
        _first_process(cluster, lock, lifeline)
    except BaseException:
        end(layout)
        raise
    finally:
        os.close(lock)  # the first process holds it now
    say(f"cluster of {NODES} nodes ready after {time.monotonic() - begun:.1f} s")
    return cluster


def _first_process(cluster: LocalCluster, lock: int, lifeline: int | None) -> None:
    layout = cluster.layout
    log = layout.state / "first.log"
    with socket.create_server(("127.0.0.1", 0)) as listener, open(log, "wb") as output:
        port, kept = listener.getsockname()[1], [lock, listener.fileno(), *([] if lifeline is None else [lifeline])]
        words = [layout.state, NODES, port, listener.fileno(), "-" if lifeline is None else lifeline]
        process = subprocess.Popen(
            [
                *("unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", sys.executable),
                *("-m", "tests.cluster.local.control", *(str(word) for word in words)),
            ],
            cwd=PROJECT,
            env=cluster.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=kept,
            start_new_session=True,  # Ctrl-C is for the owner, who then ends it in order
        )
    threading.Thread(target=process.wait, daemon=True).start()  # reaps it, whoever ends it
    limit = time.monotonic() + START
    try:
        while not layout.ready.exists():
            if not layout.pid.exists() and (child := _child(process.pid)):
                layout.pid.write_text(str(child))
            if process.returncode is not None or time.monotonic() > limit:
                raise StartError("\n".join([*log.read_text().splitlines()[-20:], *_last_words(layout)]))
            time.sleep(0.05)
    except BaseException:
        process.kill()  # and so the first process, whether its pid is known yet or not
        raise


def _last_words(layout: Layout) -> list[str]:
    logs = {log.name: log.read_text(errors="replace").splitlines() for log in sorted(layout.log.glob("*"))}
    return [f"{name}: {lines[-1]}" for name, lines in logs.items() if lines]


def _child(parent: int) -> int | None:
    """The one child of a process, or None if it has none yet."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if f"\nPPid:\t{parent}\n" in status.read_text():
                return int(status.parent.name)
        except OSError:
            continue  # ended meanwhile
    return None


def running(layout: Layout) -> bool:
    """Whether its first process lives: that, and nothing else, holds the lock."""
    try:
        with open(layout.lock) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def end(layout: Layout) -> None:
    """Kill the first process if it lives, and remove what it left. Harmless if there is nothing."""
    if layout.pid.exists() and running(layout):
        pid = int(layout.pid.read_text())
        with suppress(ProcessLookupError):  # it may just have ended by itself
            os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}").exists():  # it goes last, once the kernel has ended all the others
            time.sleep(0.02)
    cgroups.remove(layout.name)
    shutil.rmtree(layout.state, ignore_errors=True)


def sweep() -> None:
    """Remove what killed clusters have left."""
    with cache.locked("cluster"):
        _sweep()


def _sweep() -> None:
    for state in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if not running(Layout(state)):
            end(Layout(state))
