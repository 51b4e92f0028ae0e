"""Processes of a bench: started on one core, their CPU and memory as the kernel accounts them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_CORES = sorted(os.sched_getaffinity(0))
PROXY_CORE = _CORES[-1]
OTHER_CORE = _CORES[0]  # of the backend and the load
START = 30.0  # seconds until a process must listen
_SETPRIV = shutil.which("setpriv")
# Also when the bench itself is killed: a forgotten proxy would weigh on every later figure.
_ENDS_WITH_US = (_SETPRIV, "--pdeathsig", "KILL") if _SETPRIV else ()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def running(name: str, command: Sequence[str], port: int, folder: Path, core: int) -> Iterator[int]:
    """The process's id, once it listens on `port`. What it says goes to a file of its name in `folder`."""
    with (folder / f"{name}.out").open("wb") as out:
        bound = (*_ENDS_WITH_US, *pinned(core, command))
        process = subprocess.Popen(bound, stdout=out, stderr=out, cwd=folder, start_new_session=True)
    try:
        end = time.monotonic() + START
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{name} does not listen: {(folder / f'{name}.out').read_text()[-800:]}")
            time.sleep(0.05)
        yield process.pid
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def pinned(core: int, command: Sequence[str]) -> tuple[str, ...]:
    """The command on one core, as nice as this process is."""
    taskset = shutil.which("taskset")
    return (taskset, "-c", str(core), *command) if taskset else tuple(command)


def hasten(pid: int) -> None:
    """All its threads run in real time from now on: whatever else is at work does not delay them. Needs root."""
    for each in family(pid):
        for task in Path(f"/proc/{each}/task").iterdir():
            os.sched_setscheduler(int(task.name), os.SCHED_RR, os.sched_param(1))


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def family(pid: int) -> list[int]:
    """The process and all that came of it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


def cpu(pid: int) -> float:
    """Seconds on a processor: all processes, all threads."""
    return (
        sum(
            int((task / "schedstat").read_text().split()[0])
            for each in family(pid)
            for task in Path(f"/proc/{each}/task").iterdir()
        )
        / 1e9
    )


def resident(pid: int) -> int:
    """Resident bytes of all its processes; a page that two share counts for both."""
    page = os.sysconf("SC_PAGESIZE")
    return sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) * page for each in family(pid))
