"""What can go wrong with a process or a connection, done on purpose. Only in the harness's own cluster.

Every process of the cluster, pods' too, is seen from its first process's PID namespace, and is found there by a word of
its command line or environment that nothing else has.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Literal

import pytest

from tests.cluster.api import Cluster, CommandError

API_SERVER = "kube-apiserver\0--etcd-servers="
START = 120.0  # seconds until the API server answers again
CHUNK = 65536

_FIND = """
import os, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        known = open(f"/proc/{pid}/cmdline", "rb").read() + b"\\0" + open(f"/proc/{pid}/environ", "rb").read()
    except OSError:
        continue
    if sys.argv[1].encode() in known.replace(b"\\0", b"|") and int(pid) != os.getpid():
        print(pid)
"""
_SIGNAL = "import os, sys; os.kill(int(sys.argv[1]), int(sys.argv[2]))"
_STOP_WAITING = """
import os, platform, signal, sys, time
pid, epoll_pwait = int(sys.argv[1]), {"x86_64": "281", "aarch64": "22"}[platform.machine()]
for attempt in range(2000):
    os.kill(pid, signal.SIGSTOP)
    while "T (stopped)" not in open(f"/proc/{pid}/status").read():
        time.sleep(0.001)
    call = open(f"/proc/{pid}/syscall").read().split()
    if call[0] == epoll_pwait and call[4] != "0x0":
        sys.exit()
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.001)
sys.exit("it never waits")
"""


class Process:
    """One process, by its number in the cluster."""

    def __init__(self, cluster: Cluster, word: str) -> None:
        """`word` is part of its command line or environment, NUL between two entries."""
        if cluster.local is None:
            pytest.skip("of the harness's own cluster")
        self._cluster = cluster
        found = _pids(cluster, word)
        if len(found) != 1:
            raise CommandError(f"{len(found)} processes with {word!r}")
        self.pid = found[0]

    def signal(self, number: signal.Signals) -> None:
        self._cluster.inside(sys.executable, "-c", _SIGNAL, self.pid, str(number.value))

    @contextlib.contextmanager
    def stopped(self, *, waiting: bool = False) -> Iterator[None]:
        """It stands still, its sockets stay: to others it is a peer that says nothing.

        `waiting`: in libuv's wait for what comes next, and not between two instructions, such as a last look
        at a clock and the sending that depends on it.
        """
        if waiting:
            self._cluster.inside(sys.executable, "-c", _STOP_WAITING, self.pid)
        else:
            self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)


def _pids(cluster: Cluster, word: str) -> list[str]:
    return cluster.inside(sys.executable, "-c", _FIND, word.replace("\0", "|")).split()


def restart_api_server(cluster: Cluster) -> None:
    """Kill it and start it anew, as it was. It answers, and has forgotten the history of its watches."""
    process = Process(cluster, API_SERVER)
    command = cluster.inside("cat", f"/proc/{process.pid}/cmdline").split("\0")[:-1]
    process.signal(signal.SIGKILL)
    assert cluster.local is not None
    log = cluster.local.layout.log / "kube-apiserver"
    cluster.inside("sh", "-c", f"while [ -e /proc/{process.pid}/exe ]; do sleep 0.05; done")

    def up() -> bool:
        """Started again where it has ended, as a kubelet does it: it gives up where a check at its start takes long."""
        if not _pids(cluster, API_SERVER):
            cluster.inside("sh", "-c", f'setsid "$@" >>{log} 2>&1 </dev/null &', "sh", *command)
        return _answers(cluster)

    until(up, START)


def _answers(cluster: Cluster) -> bool:
    try:
        return cluster.kubectl("get", "--raw", "/readyz", "--request-timeout=2s") == "ok"
    except CommandError:
        return False


def until(holds: Callable[[], bool], seconds: float, pause: float = 0.05) -> float:
    """Ask until it holds, for what nobody tells by himself; returns how many seconds it took."""
    begun = time.monotonic()
    while not holds():
        if time.monotonic() - begun > seconds:
            raise TimeoutError(f"not so after {seconds:.0f} s")
        time.sleep(pause)
    return time.monotonic() - begun


class Relay:
    """A TCP relay on loopback before a server on loopback. `frozen`: nothing passes, either way, and nobody is told."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._open = threading.Event()
        self._open.set()
        self._sockets: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._open.set()

    def freeze(self) -> None:
        self._open.clear()

    def cut(self) -> None:
        """End every connection, then let new ones through."""
        for each in list(self._sockets):
            _shut(each, socket.SHUT_RDWR)
        self._open.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with client:
            self._sockets.add(client)
            self._open.wait()
            with contextlib.suppress(OSError), socket.create_connection(self._target, timeout=5) as server:
                server.settimeout(None)
                self._sockets.add(server)
                back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
                back.start()
                self._pump(client, server)
                back.join()
                self._sockets.discard(server)
            self._sockets.discard(client)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                self._open.wait()
                sink.sendall(data)
        for each, how in ((sink, socket.SHUT_WR), (source, socket.SHUT_RD)):
            _shut(each, how)


def _shut(each: socket.socket, how: Literal[0, 1, 2] | int) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(how)
