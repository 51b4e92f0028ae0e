"""Python wheels that images install: the locked dependencies, and the project's own, as it is and as it was."""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

from release import wheel
from tests.cluster.local import cache
from tests.cluster.local.machine import Say

PROJECT = Path(__file__).parents[3]
PYTHON = "3.11"  # the images'; the tests' own may be newer
EARLIER = PROJECT / "tests" / "cluster" / "earlier" / "source.tar.xz"
SOURCES = ("controller", "release", "pyproject.toml", "README.md", "LICENSE", "requirements/dev.txt")


def locked(name: str, say: Say) -> Path:
    """The folder with all wheels that requirements/NAME.txt pins, by its hashes."""
    requirements = PROJECT / "requirements" / f"{name}.txt"

    def make(folder: Path) -> None:
        say(f"downloading the wheels of requirements/{name}.txt")
        options = ("--require-hashes", "--only-binary", ":all:", "--python-version", PYTHON, "--no-deps")
        wheel.run(
            sys.executable, "-m", "pip", "download", "--quiet", *options, "-d", str(folder), "-r", str(requirements)
        )

    return cache.entry("wheels", name, cache.digest(requirements), make)


def project(say: Say, interpreter: str = f"python{PYTHON}") -> Path:
    """The folder with the project's wheel, built from the checkout's sources. Raises WheelError."""

    def make(folder: Path) -> None:
        say("building the project's wheel")
        wheel.build(folder, interpreter)

    return cache.entry("wheels", "steelyard", _key(interpreter), make)


def package(say: Say, interpreter: str = sys.executable) -> Path:
    """The folder with what that wheel installs: a path to import from, and nothing of it is from an older checkout."""

    def make(folder: Path) -> None:
        (archive,) = project(say, interpreter).glob("*.whl")
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)

    return cache.entry("packages", "steelyard", _key(interpreter), make)


def _key(interpreter: str) -> str:
    return cache.digest(wheel.tag(interpreter), *(PROJECT / source for source in SOURCES))


def earlier(say: Say) -> Path:
    """The folder with the wheel of an earlier version, built from its sources."""

    def make(folder: Path) -> None:
        say("building the wheel of an earlier version")
        with tempfile.TemporaryDirectory() as unpacked:
            wheel.unpack(EARLIER, Path(unpacked))
            (source,) = Path(unpacked).iterdir()
            wheel.pack(source, folder, f"python{PYTHON}")

    return cache.entry("wheels", "steelyard-earlier", cache.digest(EARLIER), make)
