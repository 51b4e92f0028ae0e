"""Python wheels that images install: the locked dependencies, and the project's own, as it is and as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.local import cache
from tests.cluster.local.machine import Say

PROJECT = Path(__file__).parents[3]
PYTHON = "3.11"  # the images'; the tests' own may be newer
EARLIER = PROJECT / "tests" / "cluster" / "earlier" / "source.tar.xz"
SOURCES = ("controller", "pyproject.toml", "README.md", "LICENSE")


class WheelError(Exception):
    """The last lines of pip or maturin."""


def locked(name: str, say: Say) -> Path:
    """The folder with all wheels that requirements/NAME.txt pins, by its hashes."""
    requirements = PROJECT / "requirements" / f"{name}.txt"

    def make(folder: Path) -> None:
        say(f"downloading the wheels of requirements/{name}.txt")
        options = ("--require-hashes", "--only-binary", ":all:", "--python-version", PYTHON, "--no-deps")
        _run(sys.executable, "-m", "pip", "download", "--quiet", *options, "-d", str(folder), "-r", str(requirements))

    return cache.entry("wheels", name, cache.digest(requirements), make)


def project(say: Say) -> Path:
    """The folder with the project's wheel, built from the checkout's sources."""

    def make(folder: Path) -> None:
        say("building the project's wheel")
        _build(PROJECT, folder)

    return cache.entry("wheels", "steelyard", cache.digest(*(PROJECT / source for source in SOURCES)), make)


def earlier(say: Say) -> Path:
    """The folder with the wheel of an earlier version, built from its sources."""

    def make(folder: Path) -> None:
        say("building the wheel of an earlier version")
        with tempfile.TemporaryDirectory() as unpacked, tarfile.open(EARLIER) as archive:
            archive.extractall(unpacked, filter="data")
            (source,) = Path(unpacked).iterdir()
            _build(source, folder)

    return cache.entry("wheels", "steelyard-earlier", cache.digest(EARLIER), make)


def _build(source: Path, folder: Path) -> None:
    maturin = (sys.executable, "-m", "maturin", "build", "--release", "--locked", "--quiet")
    # The checkout's folder of build products: most crates are the same, and need no second compilation.
    environment = os.environ | {"CARGO_TARGET_DIR": str(PROJECT / "target")}
    _run(*maturin, "--interpreter", f"python{PYTHON}", "--out", str(folder), cwd=source, env=environment)


def _run(*command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise WheelError("\n".join((done.stdout + done.stderr).strip().splitlines()[-20:]))
