"""The wheel: `python -m release.wheel --out dist`. The codec is built by maturin, and the hot path compiled by mypyc.

What is built is a copy of the sources: a compiled module beside its source would be preferred to it for good, whatever
is edited.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

PROJECT = Path(__file__).parents[1]
MATURIN = (sys.executable, "-m", "maturin")
HOT_PATH = Path(__file__).with_name("hot_path.py")


class WheelError(Exception):
    """The last lines of what a tool said."""


def build(out: Path, interpreter: str = sys.executable) -> None:
    """Put the wheel for this interpreter into `out`. Raises WheelError.

    C is compiled against the headers of the interpreter that runs this. Where the wheel is for one of another version,
    its hot path stays Python.
    """
    with tempfile.TemporaryDirectory(prefix="steelyard-wheel-") as folder:
        run(*MATURIN, "sdist", "--out", folder, cwd=PROJECT, env=_environment())
        (archive,) = Path(folder).glob("*.tar.gz")
        unpack(archive, Path(folder))
        source = archive.with_name(archive.name.removesuffix(".tar.gz"))
        if tag(interpreter) == sysconfig.get_config_var("SOABI"):
            if not Path(sysconfig.get_path("include"), "Python.h").exists():
                raise WheelError(
                    "missing: Python's headers, for the compiled hot path (Debian: apt install python3-dev)"
                )
            run(sys.executable, str(HOT_PATH), cwd=source, env=_environment() | {"LDFLAGS": "-s"})  # without symbols
        else:
            sys.stderr.write(f"the hot path is not compiled: {interpreter} is another version than {sys.executable}\n")
        pack(source, out, interpreter)


def pack(source: Path, out: Path, interpreter: str) -> None:
    """Build the codec of these sources, and put all that is there into a wheel. Raises WheelError."""
    options = ("--quiet", "--release", "--locked", "--interpreter", interpreter, "--out", str(out.absolute()))
    run(*MATURIN, "build", *options, cwd=source, env=_environment())


def _environment() -> dict[str, str]:
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        # The checkout's folder of build products: most crates are the same, and need no second compilation.
        "CARGO_TARGET_DIR": str(PROJECT / "target"),
    }


def unpack(archive: Path, folder: Path) -> None:
    """As `extractall(filter="data")`, which Python up to 3.11.3 does not know."""
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        packed.extractall(folder)  # noqa: S202 - the archives are our own


def tag(interpreter: str) -> str:
    """What an extension module for it has in its name: `cpython-311-x86_64-linux-gnu`. Raises WheelError."""
    return run(interpreter, "-c", "import sysconfig; print(sysconfig.get_config_var('SOABI'))").strip()


def run(*command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """What it prints. Raises WheelError where it fails."""
    try:
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise WheelError(f"missing: {command[0]}") from None
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()[-20:]
        raise WheelError("\n".join(said) or f"{command[0]} failed without a word")
    return done.stdout


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m release.wheel", description="Build the wheel.")
    parser.add_argument("--out", type=Path, default=Path("dist"), help="the folder that gets it (default: dist)")
    parser.add_argument("--interpreter", default=sys.executable, help="what it is for (default: the running one)")
    given = parser.parse_args()
    try:
        build(given.out, given.interpreter)
    except WheelError as error:
        raise SystemExit(str(error)) from None
