"""Compiles what every request passes through, in the folder that this is started in: `python release/hot_path.py`.

The modules are ordinary Python, typed strictly, and run as they are wherever nothing was compiled: mypyc makes a C
extension beside each, which Python prefers. A request then costs a tenth less CPU in all, a third less outside the
kernel.

A module here defines no `msgspec.Struct`: compiled code would compare two of them by identity. Values of its own are
NamedTuples. Nor may a class outside derive from one that is defined here.
"""

from __future__ import annotations

import sys
from pathlib import Path

BALANCING = "controller/balancing/*.py"
# fmt: off
PROXY = [
    "again", "answering", "attempt", "client_connection", "connections", "edge", "endings", "forward",
    "hash_key", "lane", "listener", "memory", "pickers", "retries", "route", "sharing", "splicing", "sticky",
    "tcp", "tcp_socket", "tunnel", "upload", "upstream", "waiting",
]
# fmt: on
NAME = "steelyard"  # of the one library that all of them share


def modules(root: Path) -> list[str]:
    """Their paths, relative to the folder that holds the package."""
    balancing = (path.relative_to(root) for path in root.glob(BALANCING) if path.name != "__init__.py")
    return [*sorted(map(str, balancing)), *(f"controller/proxy/{name}.py" for name in PROXY)]


def compile_here() -> None:
    """Raises SystemExit with what mypyc or the C compiler says."""
    from mypyc.build import mypycify
    from setuptools import setup

    extensions = mypycify(modules(Path()), opt_level="2", debug_level="0", group_name=NAME)
    setup(name=NAME, packages=[], ext_modules=extensions, script_args=["--quiet", "build_ext", "--inplace"])


if __name__ == "__main__":
    sys.path.pop(0)  # this folder: nothing is imported from beside
    compile_here()
