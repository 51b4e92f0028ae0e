"""The proxies that are compared, each with its configuration in this folder, in front of the same backend."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.bench.peers import programs
from tests.bench.peers.processes import free_port

HERE = Path(__file__).parent
OURS = "steelyard"
LISTED = 250  # addresses a backend; 256 are allowed


@dataclass(frozen=True)
class Contender:
    """`command` serves `port`, from the folder that it was made for."""

    name: str
    version: str
    command: tuple[str, ...]
    port: int


def write(folder: Path, template: str, values: Mapping[str, object], name: str = "") -> Path:
    """The configuration of this folder with its `@NAMES@` filled in."""
    text = (HERE / template).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    path = folder / (name or template)
    path.write_text(text)
    return path


def _values(folder: Path, backend: int) -> dict[str, object]:
    return {"FOLDER": folder, "BACKEND": backend, "PORT": free_port(), "ADMIN": free_port()}


def _addresses(endpoints: int) -> list[str]:
    """Of the loopback network, all of it the backend's."""
    return [f"127.1.{each // 200}.{each % 200 + 1}" for each in range(endpoints)]


def named(name: str, endpoints: int) -> str:
    return name if endpoints == 1 else f"{name}-{endpoints}"


def steelyard(folder: Path, backend: int, endpoints: int = 1) -> Contender:
    """With its admin listener, in an optimised interpreter."""
    python = programs.interpreter()
    name = named(OURS, endpoints)
    addresses = _addresses(endpoints)
    lists = [", ".join(addresses[at : at + LISTED]) for at in range(0, endpoints, LISTED)]
    backends = [f"    - {{name: list-{at}, addresses: [{each}], port: {backend}}}" for at, each in enumerate(lists)]
    values = _values(folder, backend) | {"BACKENDS": "\n".join(backends)}
    path = write(folder, "steelyard.yaml", values, f"{name}.yaml")
    command = (
        *("/usr/bin/env", f"PYTHONPATH={programs.package()}", python, "-P", "-m", "controller"),
        *("proxy", "--file", str(path), "--host", "127.0.0.1", "--admin", f"127.0.0.1:{values['ADMIN']}"),
    )
    version = said(python, "-c", "import sys; print('Python', sys.version)")
    return Contender(name, f"{version}, {programs.OPTIMISED}", command, int(str(values["PORT"])))


def nginx(folder: Path, backend: int, endpoints: int = 1) -> Contender:
    """Over several endpoints by two random choices, as ours."""
    program, name = programs.debian("nginx"), named("nginx", endpoints)
    servers = "\n".join(f"server {each}:{backend} max_fails=5;" for each in _addresses(endpoints))
    values = _values(folder, backend) | {
        "BALANCE": "random two least_conn;" if endpoints > 1 else "",
        "SERVERS": servers,
        "KEPT": 128 + 4 * endpoints,
        "NAME": name,
    }
    path = write(folder, "nginx.conf", values, f"{name}.conf")
    return Contender(name, said(program, "-v"), (program, "-c", str(path)), int(str(values["PORT"])))


def haproxy(folder: Path, backend: int, endpoints: int = 1) -> Contender:
    """As nginx."""
    program, name = programs.debian("haproxy"), named("haproxy", endpoints)
    servers = "\n    ".join(f"server s{place} {each}:{backend}" for place, each in enumerate(_addresses(endpoints)))
    values = _values(folder, backend) | {
        "BALANCE": "random(2)" if endpoints > 1 else "leastconn",
        "SERVERS": servers,
    }
    path = write(folder, "haproxy.cfg", values, f"{name}.cfg")
    return Contender(name, said(program, "-v"), (program, "-db", "-f", str(path)), int(str(values["PORT"])))


def envoy(folder: Path, backend: int) -> Contender:
    program = programs.wheel("envoy")
    values = _values(folder, backend)
    path = write(folder, "envoy.yaml", values)
    command = (program, "-c", str(path), "--concurrency", "1", "--disable-hot-restart", "--log-level", "error")
    return Contender("envoy", said(program, "--version"), command, int(str(values["PORT"])))


def traefik(folder: Path, backend: int) -> Contender:
    program = programs.wheel("traefik")
    values = _values(folder, backend)
    write(folder, "traefik-routes.yaml", values)
    path = write(folder, "traefik.yaml", values)
    command = ("/usr/bin/env", "GOMAXPROCS=1", program, f"--configFile={path}")
    return Contender("traefik", said(program, "version"), command, int(str(values["PORT"])))


PEERS: Mapping[str, Callable[[Path, int], Contender]] = {
    "nginx": nginx,
    "haproxy": haproxy,
    "envoy": envoy,
    "traefik": traefik,
}


# Those that can be had over many endpoints, too.
SCALED: Mapping[str, Callable[[Path, int, int], Contender]] = {OURS: steelyard, "nginx": nginx, "haproxy": haproxy}


def said(*command: str) -> str:
    """The version in what a program prints of itself."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ, PYTHONPATH=""))
    found = re.search(r"\d+\.\d+\.\d+(?=[^0-9a-f.]|$)", done.stdout + done.stderr)
    assert found is not None, done.stdout + done.stderr
    return found[0]
