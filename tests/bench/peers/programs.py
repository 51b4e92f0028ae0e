"""Where the peers come from: Debian's packages, and wheels that bring binaries, locked in requirements/peers.txt.

Both are installed where that may be: packages as root, wheels into a virtual environment under .make/peers. What can't
be had is one line of text, and the comparison goes on without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from release.wheel import WheelError
from tests.cluster.local import wheels

ROOT = Path(__file__).parents[3]
HOME = ROOT / ".make" / "peers"
SYSTEM_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
PACKAGES = {
    "nginx": "nginx-light",
    "haproxy": "haproxy",
    "wrk": "wrk",
    "h2load": "nghttp2-client",
    "perf": "linux-perf",
    "slowhttptest": "slowhttptest",
}
BINARIES = {"envoy": "envoy/_bin/envoy", "traefik": "bin/traefik"}  # in the environment
# Debian's interpreter is optimised by a profile (PGO); what pyenv builds by default costs a fifth to a half more.
OPTIMISED = "/usr/bin/python3"


class MissingError(Exception):
    """A program can't be had here; the message is one line that says why."""


@cache
def debian(name: str) -> str:
    """The path of a program that is one of Debian's, installed if it may be. Raises MissingError."""
    found = shutil.which(name, path=SYSTEM_PATH)
    if found:
        return found
    package = PACKAGES[name]
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise MissingError(f"no {name} (Debian: apt-get install {package})")
    # A policy of 101 keeps services from being started: the program is wanted, not its daemon.
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", package]
        for command in (install, ["apt-get", "update", "-q"], install):  # the lists may be old, or absent
            environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
            subprocess.run(command, env=environment, capture_output=True, check=False)
            found = shutil.which(name, path=SYSTEM_PATH)
            if found:
                return found
    finally:
        if ours:
            policy.unlink()
    raise MissingError(f"no {name}: apt-get could not install {package}")


@cache
def wheel(name: str) -> str:
    """The path of a program that a wheel brings. Raises MissingError."""
    environment = _environment(HOME / "programs", sys.executable)
    lock = ROOT / "requirements" / "peers.txt"
    stamp = HOME / "programs" / "installed"
    if not stamp.exists() or stamp.read_text() != lock.read_text():
        _pip(environment, "--require-hashes", "--only-binary", ":all:", "-r", str(lock))
        stamp.write_text(lock.read_text())
    for found in (HOME / "programs").rglob(BINARIES[name]):
        return str(found)
    raise MissingError(f"no {name} in the wheel of requirements/peers.txt for this machine")


@cache
def interpreter() -> str:
    """An optimised interpreter with the locked dependencies. Raises MissingError."""
    if not Path(OPTIMISED).exists():
        raise MissingError(f"no {OPTIMISED}")
    environment = _environment(HOME / "interpreter", OPTIMISED)
    lock = ROOT / "requirements" / "proxy.txt"
    stamp = HOME / "interpreter" / "installed"
    if not stamp.exists() or stamp.read_text() != lock.read_text():
        _pip(environment, "--require-hashes", "-r", str(lock))
        stamp.write_text(lock.read_text())
    return environment


@cache
def package() -> Path:
    """Where the checkout's modules are as they ship, for the interpreter's path. Raises MissingError."""
    try:
        return wheels.package(print, OPTIMISED)
    except WheelError as error:
        raise MissingError(f"the wheel could not be built: {str(error).splitlines()[-1]}") from error


def _environment(folder: Path, python: str) -> str:
    """The interpreter of a virtual environment, made without pip: ours installs into it."""
    inside = folder / "bin" / "python"
    if not inside.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run(python, "-m", "venv", "--without-pip", str(folder), what=f"{python} can't make an environment")
    return str(inside)


def _pip(python: str, *what: str) -> None:
    pip = (sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check", "install")
    _run(*pip, *what, what="pip could not install")


def _run(*command: str, what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise MissingError(f"{what}: {lines[-1] if lines else 'no message'}")
