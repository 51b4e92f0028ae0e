"""Load from the other core: closed by wrk, at a set rate by h2load, idle connections by plain sockets."""

from __future__ import annotations

import socket
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.bench.peers import programs
from tests.bench.peers.processes import OTHER_CORE, cpu, pinned, resident
from tests.bench.raw_peers import REQUEST

CONNECTIONS = 32
_FIRST, *_FIELDS = REQUEST.decode().strip().split("\r\n")
TARGET = _FIRST.split()[1]


class Burst(NamedTuple):
    """One round of one proxy."""

    answers: int
    moved: int  # bytes read by the load, or sent as bodies
    seconds: float
    cpu: float  # seconds, of the proxy

    @property
    def per_answer(self) -> float:
        """CPU-microseconds."""
        return self.cpu / self.answers * 1e6

    @property
    def per_mib(self) -> float:
        """CPU-microseconds."""
        return self.cpu / self.moved * 2**20 * 1e6

    @property
    def rate(self) -> float:
        return self.answers / self.seconds


class Delay(NamedTuple):
    """Microseconds from a request to the end of its answer."""

    p50: float
    p99: float
    answers: int


def _headers() -> list[str]:
    return [part for field in _FIELDS for part in ("-H", field)]


def burst(pid: int, port: int, seconds: float, target: str = TARGET, upload: int = 0) -> Burst:
    """As many requests as 32 keep-alive connections make, one after the other; 11 fields each."""
    script = Path(__file__).with_name("wrk.lua")
    url = f"http://127.0.0.1:{port}{target}"
    wrk = (programs.debian("wrk"), "-t1", f"-c{CONNECTIONS}", f"-d{seconds:g}s", "--timeout", "60s", "-s", str(script))
    command = [*wrk, *_headers(), url]
    if upload:
        command += ["--", "upload", str(upload)]
    before = cpu(pid)
    done = subprocess.run(pinned(OTHER_CORE, command), capture_output=True, text=True, check=True, timeout=120)
    spent = cpu(pid) - before
    line = next(line for line in done.stdout.splitlines() if line.startswith("figures "))
    answers, read, microseconds, errors = map(int, line.split()[1:])
    if errors or not read:
        raise RuntimeError(f"{errors} errors, {answers} answers: {done.stdout}")
    return Burst(answers, answers * upload if upload else read, microseconds / 1e6, spent)


def delay(port: int, seconds: int, rate: float, *, real_time: bool = False) -> Delay:
    """Requests at `rate` per second over all connections, for as long as `seconds`."""
    each = max(1, round(rate / CONNECTIONS))
    fields = [f"--header={field}" for field in _FIELDS if not field.startswith("Host:")]  # it sends one of its own
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        h2load = (programs.debian("h2load"), "--h1", "-t1", f"-c{CONNECTIONS}", f"--rps={each}", f"--log-file={log}")
        url = f"http://127.0.0.1:{port}{TARGET}"
        command = (*h2load, f"-n{each * CONNECTIONS * seconds}", *fields, url)
        prefix = ("chrt", "--rr", "1") if real_time else ()
        subprocess.run((*prefix, *pinned(OTHER_CORE, command)), capture_output=True, check=True, timeout=120)
        rows = [line.split("\t") for line in log.read_text().splitlines()]
    bad = [row[1] for row in rows if row[1] != "200"]
    if bad or not rows:
        raise RuntimeError(f"{len(bad)} of {len(rows)} answers are not 200: {set(bad)}")
    times = sorted(int(row[2]) for row in rows)
    return Delay(times[len(times) // 2], times[len(times) * 99 // 100], len(times))


def idle(pid: int, port: int, count: int) -> float:
    """Resident bytes that each of `count` keep-alive connections costs once it has had an answer.

    The dearer half of twice as many: the first ones go into memory that an earlier load has left behind.
    """
    costs = []
    with ExitStack() as stack:
        for _ in range(2):
            before = resident(pid)
            for _ in range(count):
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
                sock.sendall(REQUEST)
                _answer(sock)
            costs.append((resident(pid) - before) / count)
    return max(costs)


def _answer(sock: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < _length(data):
        more = sock.recv(65536)
        assert more, data
        data += more


def _length(data: bytes) -> int:
    for line in data.partition(b"\r\n\r\n")[0].split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise AssertionError(data)
