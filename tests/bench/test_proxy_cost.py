"""What a proxied request costs in CPU, as a share of what the proxy that anyone would write first needs.

Both run at once, each in front of the same backend, and are loaded in turns: rounds of one and of the other see the
same machine. CPU comes from the kernel's account of the proxy process alone. The bar is on the median of the rounds'
ratios.
"""

from __future__ import annotations

import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.raw_peers import REQUEST

CONNECTIONS = 32
SECONDS = 1
ROUNDS = 9
BAR = 0.20

FILE = """\
apiVersion: steelyard.dev/v1alpha1
kind: BalancedService
metadata: {{name: shop, namespace: bench}}
spec:
  ports: [{{port: {port}}}]
  backends:
    - {{name: all, addresses: [127.0.0.1], port: {backend}}}
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def running(port: int, *command: str) -> Iterator[int]:
    """The process's id, once it listens."""
    process = subprocess.Popen((sys.executable, "-m", *command), stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with socket.socket() as sock:
                if sock.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, f"{command} ended with {process.returncode}"
            time.sleep(0.05)
        else:
            raise AssertionError(f"{command} doesn't listen")
        yield process.pid
    finally:
        process.kill()
        process.wait()


def cpu(pid: int) -> float:
    """Seconds on a processor, of all threads."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9


def load(port: int) -> int:
    """Answers in one round, by wrk where there is one: it costs the machine least."""
    wrk = shutil.which("wrk")
    if wrk is None:
        command = (sys.executable, "-m", "tests.bench.raw_peers", "load", str(port), str(CONNECTIONS), str(SECONDS))
        return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout)
    first, *fields = REQUEST.decode().strip().split("\r\n")
    options = [part for field in fields for part in ("-H", field)]
    url = f"http://127.0.0.1:{port}{first.split()[1]}"
    command = (wrk, "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", *options, url)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    found = re.search(r"(\d+) requests in", done.stdout)
    assert found is not None, done.stdout
    assert "Non-2xx" not in done.stdout, done.stdout
    return int(found[1])


def cost(pid: int, port: int) -> float:
    """CPU-microseconds per request in one round."""
    before = cpu(pid)
    answers = load(port)
    assert answers > 500
    return (cpu(pid) - before) / answers * 1e6


def test_a_request_costs_a_fifth_of_what_the_naive_proxy_needs(tmp_path: Path) -> None:
    backend, ours, naive = free_port(), free_port(), free_port()
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.format(port=ours, backend=backend))
    options = ("proxy", "--file", str(path), "--host", "127.0.0.1", "--admin", "Disabled")
    with ExitStack() as stack:
        stack.enter_context(running(backend, "tests.bench.raw_peers", "serve", str(backend)))
        our_pid = stack.enter_context(running(ours, "controller", *options))
        naive_pid = stack.enter_context(running(naive, "tests.bench.naive_aiohttp", str(naive), str(backend)))
        cost(our_pid, ours)  # a warm-up: connections, caches
        cost(naive_pid, naive)
        rounds = [(cost(our_pid, ours), cost(naive_pid, naive)) for _ in range(ROUNDS)]

    ratios = sorted(mine / theirs for mine, theirs in rounds)
    mine, theirs = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(
        f"\nCPU per request: {mine:.1f} µs against {theirs:.1f} µs; ratio {statistics.median(ratios):.3f}, all {ratios}"
    )
    assert statistics.median(ratios) <= BAR
