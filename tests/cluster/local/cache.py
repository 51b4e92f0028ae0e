"""What is expensive to make is kept by its content, outside the checkout, so that every clone on a machine finds it.

A name ends in a digest of all that went into the thing, so an entry is never wrong and never changes: it is made in a
folder beside, under a lock, and renamed when it is complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

DERIVED = frozenset({"__pycache__", "target", ".so"})  # names of folders, suffixes
KEPT = 4  # entries of a name: some branches' worth, and a cluster's binaries are 800 MB


def root() -> Path:
    """The folder of all entries: $XDG_CACHE_HOME/steelyard, by default ~/.cache/steelyard."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "steelyard"


def digest(*parts: Path | str) -> str:
    """Twelve hexadecimal digits of SHA-256 over texts and files; a folder counts with the names of all its files.

    What is derived from other files (DERIVED) does not count.
    """
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            total.update(b"text\0" + part.encode() + b"\0")
            continue
        files = sorted(filter(_counts, part.rglob("*"))) if part.is_dir() else [part]
        for file in files:
            total.update(b"file\0" + str(file.relative_to(part)).encode() + b"\0")
            total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:12]


def _counts(path: Path) -> bool:
    return path.is_file() and DERIVED.isdisjoint(path.parts) and path.suffix not in DERIVED


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Only one process of the machine is inside at a time; the kernel frees the lock of one that is killed."""
    folder = root() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / name, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def entry(kind: str, name: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder of this content; `make(folder)` fills it if it is not there yet. Old ones of the same name go."""
    path = root() / kind / f"{name}-{key}"
    with locked(f"{kind}-{name}"):
        if not path.is_dir():
            unfinished = path.with_name(f"{path.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            make(unfinished)
            unfinished.rename(path)
        os.utime(path)
        others = sorted(path.parent.glob(f"{name}-{'[0-9a-f]' * 12}"), key=lambda other: other.stat().st_mtime)
        for old in others[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return path
