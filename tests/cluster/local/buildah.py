"""Container images without a container engine: buildah, with a store of its own in the cache.

Builds have no network: what they install is downloaded before, by its hash. Images leave as OCI layouts, whose blobs
several images of one archive share.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from tests.cluster.local import cache

STORE_BYTES = 6 << 30  # of layers kept to build the next image on; past that the store starts anew


class BuildError(Exception):
    """buildah's last lines."""


@dataclass(frozen=True)
class Image:
    """An image ready to be imported: its name, and the folder with its OCI layout."""

    reference: str
    layout: Path


class Buildah:
    """Commands of buildah in the one store. `work` is a folder for contexts, emptied before the next use."""

    def __init__(self, store: Path, work: Path) -> None:
        self.work = work
        run = work / "run"
        self._options = ["--storage-driver", "overlay", "--root", str(store), "--runroot", str(run)]

    def __call__(self, command: str, *argv: str) -> str:
        """Run one command; returns its output. Raises BuildError."""
        # In a mount namespace of its own: buildah leaves mounts behind, more of them when it is killed.
        line = ["unshare", "--mount", "buildah", command, *self._options, *argv]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError("\n".join((done.stdout + done.stderr).strip().splitlines()[-30:]))
        return done.stdout.strip()

    def has(self, reference: str) -> bool:
        try:
            self("inspect", "--type", "image", reference)
        except BuildError:
            return False
        return True

    def build(self, reference: str, context: Path, *options: str) -> None:
        # --layers: a layer is made again only if what it is copied or computed from has changed.
        fixed = ("--layers", "--pull-never", "--isolation", "oci", "--network", "none", "--timestamp", "0")
        self("build", "--quiet", *fixed, *options, "--tag", reference, str(context))

    def export(self, reference: str, layout: Path) -> None:
        # zstd: a node unpacks it in half of gzip's time.
        self("push", "--quiet", "--compression-format", "zstd", reference, f"oci:{layout}:{reference}")


@contextmanager
def opened() -> Iterator[Buildah]:
    """buildah with the cache's store, which one process at a time may use."""
    store, work = cache.root() / "containers", cache.root() / "work"
    with cache.locked("containers"):
        if store.exists() and _size(store) > STORE_BYTES:
            shutil.rmtree(store)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        yield Buildah(store, work)
        shutil.rmtree(work)


def _size(folder: Path) -> int:
    done = subprocess.run(["du", "-s", "--block-size=1", str(folder)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])


def archive(images: Iterable[Image], path: Path) -> None:
    """Write one OCI archive with all of these images; a layer that several have is in it once."""
    written: set[str] = set()
    manifests = []
    with tarfile.open(path, "w") as tar:
        for image in images:
            (manifest,) = json.loads((image.layout / "index.json").read_text())["manifests"]
            manifests.append(manifest | {"annotations": {"io.containerd.image.name": image.reference}})
            for blob in sorted((image.layout / "blobs" / "sha256").iterdir()):
                if blob.name not in written:
                    written.add(blob.name)
                    tar.add(blob, f"blobs/sha256/{blob.name}")
        for name, content in (
            ("oci-layout", {"imageLayoutVersion": "1.0.0"}),
            ("index.json", {"schemaVersion": 2, "manifests": manifests}),
        ):
            data = json.dumps(content).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, BytesIO(data))
