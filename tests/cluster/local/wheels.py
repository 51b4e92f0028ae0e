"""Python wheels that images install: the locked dependencies, and the project's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cluster.local import cache
from tests.cluster.local.machine import Say

PROJECT = Path(__file__).parents[3]
PYTHON = "3.11"  # the images'; the tests' own may be newer
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
        maturin = (sys.executable, "-m", "maturin", "build", "--release", "--locked", "--quiet")
        _run(*maturin, "--interpreter", f"python{PYTHON}", "--out", str(folder), cwd=PROJECT)

    return cache.entry("wheels", "steelyard", cache.digest(*(PROJECT / source for source in SOURCES)), make)


def _run(*command: str, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise WheelError("\n".join((done.stdout + done.stderr).strip().splitlines()[-20:]))
