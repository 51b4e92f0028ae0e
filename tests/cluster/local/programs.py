"""The cluster's programs, built from the Go modules in `modules/`, each of which lists its programs as tools."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

from tests.cluster.local import cache
from tests.cluster.local.machine import Say, UnavailableError

MODULES = Path(__file__).parent.parent / "modules"
# How Go names a program, and how it is called here, by module.
NAMES = {"kubernetes": ("server", "etcd"), "helm3": ("helm", "helm3")}
PROGRESS = 20.0  # seconds between two lines about a long build


def build(say: Say) -> tuple[Path, ...]:
    """The folders that hold the programs, one a module. The first time on a machine takes some 25 minutes.

    Raises UnavailableError if a module can't be built (no network to fetch it, say).
    """
    return tuple(_built(module, say) for module in sorted(MODULES.iterdir()))


def _built(module: Path, say: Say) -> Path:
    flags = f"-ldflags=-s -w {_version_flags(module)}".strip()

    def make(folder: Path) -> None:
        _compile(module, flags, folder, say)
        if module.name in NAMES:
            made, called = NAMES[module.name]
            (folder / made).rename(folder / called)

    return cache.entry("programs", module.name, cache.digest(module, flags), make)


def _version_flags(module: Path) -> str:
    """Without these, Kubernetes programs call themselves v0.0.0-master, and a chart's `kubeVersion` refuses them."""
    found = re.search(r"k8s\.io/kubernetes v(\d+)\.(\d+)\.\d+", (module / "go.mod").read_text())
    if not found:
        return ""
    variable = "-X k8s.io/component-base/version"
    version, major, minor = found[0].split()[1], found[1], found[2]
    return f"{variable}.gitVersion={version} {variable}.gitMajor={major} {variable}.gitMinor={minor}"


def _compile(module: Path, flags: str, folder: Path, say: Say) -> None:
    if not shutil.which("go"):
        raise UnavailableError("missing a Go toolchain (go in PATH), which builds the cluster's programs")
    command = ["go", "build", "-v", "-o", f"{folder}/", flags, "tool"]
    say(f"building {module.name} from source")
    begun = said = time.monotonic()
    packages, last = 0, ""
    with subprocess.Popen(command, cwd=module, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            last = line.strip() or last
            packages += not last.startswith("go: ")
            if time.monotonic() - said > PROGRESS:
                said = time.monotonic()
                say(f"building {module.name}: {packages} packages compiled, {said - begun:.0f} s")
    if process.returncode != 0:
        raise UnavailableError(f"go build of {module.name} failed: {last}")
