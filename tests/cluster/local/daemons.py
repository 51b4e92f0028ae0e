"""What the processes inside the cluster share: starting daemons, waiting for them, asking the API server."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.local.layout import API, Layout

START = 120.0  # seconds until a part must be there; it takes 1 to 3 on two free cores


def daemon(log: Path, *command: str, pass_fds: tuple[int, ...] = ()) -> None:
    """Start a program whose output goes to `log`. Nobody holds its handle: the first process reaps it."""
    with open(log, "ab") as output:
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, pass_fds=pass_fds
        )


def run(*command: str) -> None:
    """Run to the end; raises CalledProcessError."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def wait_for(what: str, check: Callable[[], Any]) -> None:
    """Poll until `check` returns something true; ends this process if that takes too long."""
    begun = time.monotonic()
    while not check():
        if time.monotonic() - begun > START:
            raise SystemExit(f"{what}: not there after {START:.0f} s")
        time.sleep(0.05)
    print(f"{what}: {time.monotonic() - begun:.1f} s", flush=True)


def reap() -> None:
    """Wait for children for ever: the first process of a PID namespace inherits every orphan."""
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            time.sleep(1)
        else:
            print(f"process {pid} ended with status {status}", flush=True)


def write(path: Path, content: str | dict[str, Any]) -> str:
    """Write text, or an object as JSON (which is YAML, too); returns the path for a command line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return str(path)


class Api:
    """Reads from the API server, as its administrator. (A poll by kubectl would cost 0.2 s of CPU each time.)"""

    def __init__(self, layout: Layout) -> None:
        self._tls = ssl.create_default_context(cafile=str(layout.pki / "ca.crt"))
        self._tls.load_cert_chain(layout.pki / "inside.crt", layout.pki / "inside.key")

    def get(self, path: str) -> str | None:
        """The body; None if the server does not answer, or with an error."""
        try:
            with urllib.request.urlopen(API + path, context=self._tls, timeout=5) as response:
                body: str = response.read().decode()
                return body
        except OSError:
            return None
