"""An operator on the machine itself, under the same account and permissions, which tests can look into and disturb.

It has a kubeconfig with a token of the operator's account. With the same Lease as the deployed replicas it is one more
of them; alone it leads. What it has published is read from its admin port.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import yaml

from tests.cluster.api import Cluster, Object
from tests.cluster.deployed import OWN
from tests.cluster.faults import until

ACCOUNT = "steelyard-controller"
AUDIENCE = "steelyard.dev/discovery"


def token(cluster: Cluster, namespace: str, account: str, *audiences: str) -> str:
    """A token of that account for an hour; without an audience for the API server."""
    spec: Object = {"expirationSeconds": 3600, **({"audiences": list(audiences)} if audiences else {})}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    found: str = cluster.call("POST", path, {"spec": spec})["status"]["token"]
    return found


def address(cluster: Cluster) -> tuple[str, int]:
    """Of the API server, from the machine."""
    parts = urlsplit(yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


class Outside:
    """Runs `steelyard controller` while entered. `api` is where it finds the API server: a relay's address, say."""

    def __init__(self, cluster: Cluster, folder: Path, *options: str, api: tuple[str, int] | None = None) -> None:
        self.discovery, self.admin = _free_port(), _free_port()
        self._log = folder / "operator.log"
        host, port = api or address(cluster)
        known = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": known | {"server": f"https://{host}:{port}"}}],
            "users": [{"name": "test", "user": {"token": token(cluster, OWN, ACCOUNT)}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
        (folder / "token").write_text(token(cluster, OWN, ACCOUNT, AUDIENCE))
        self._command = [
            *(
                str(Path(sys.executable).with_name("steelyard")),
                "controller",
                "--proxy-image=none",
                f"--namespace={OWN}",
            ),
            *(f"--kubeconfig={folder / 'kubeconfig'}", f"--token-file={folder / 'token'}", f"--account={ACCOUNT}"),
            *(f"--discovery=127.0.0.1:{self.discovery}", f"--admin=127.0.0.1:{self.admin}", *options),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    def __enter__(self) -> Outside:
        self._output = self._log.open("wb")
        self._process = subprocess.Popen(self._command, stdout=self._output, stderr=self._output)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._output is not None
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def ready(self, seconds: float = 60.0) -> float:
        """Wait until it serves; returns how many seconds that took."""
        return until(lambda: self._get("/readyz") is not None, seconds)

    def published(self) -> dict[str, Any]:
        """Snapshots by NAMESPACE/NAME."""
        found: dict[str, Any] = json.loads(self._get("/endpoints") or "{}")
        return found

    def metrics(self) -> dict[str, float]:
        return samples(self._get("/metrics") or "")

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self) -> float:
        """Of memory, resident, the most so far."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024

    def _get(self, path: str) -> str | None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the operator ended:\n{self.log[-4000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=10) as answer:
                body: str = answer.read().decode()
                return body
        except urllib.error.URLError:  # refused, or 503
            return None


def samples(exposition: str) -> dict[str, float]:
    """Prometheus text as {name{labels}: value}."""
    lines = [line.rpartition(" ") for line in exposition.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
