"""What the machine must offer before a cluster can run on it: root, and a few Debian packages."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

Say = Callable[[str], None]

# program: Debian package. kube-proxy calls conntrack and nft; the rest is ours, containerd's or buildah's.
PROGRAMS = {
    "buildah": "buildah",
    "conntrack": "conntrack",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "nft": "nftables",
    "runc": "runc",
    "unshare": "util-linux",
}
# inotify instances a user may have. A cluster takes 40, and 128, the kernel's default, would be all of three clusters.
# It is the one setting of the machine that is changed, and stays so until it restarts.
WATCHERS, WATCHERS_WANTED = Path("/proc/sys/fs/inotify/max_user_instances"), 1024
SYSTEM_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class UnavailableError(Exception):
    """This machine can't run the cluster; the message is one line that says what is missing."""


def prepare(say: Say) -> None:
    """Make sure that all of it is there; installs Debian packages where it can. Raises UnavailableError."""
    if os.geteuid() != 0:
        raise UnavailableError("the cluster needs root (namespaces, cgroups, mounts)")
    if not os.access("/sys/fs/cgroup", os.W_OK):
        raise UnavailableError("the cluster needs a writable /sys/fs/cgroup")
    missing = sorted(package for program, package in PROGRAMS.items() if not _program(program))
    if missing:
        _install(missing, say)
    if int(WATCHERS.read_text()) < WATCHERS_WANTED:
        say(f"raising {WATCHERS} to {WATCHERS_WANTED}")
        WATCHERS.write_text(str(WATCHERS_WANTED))


def _program(name: str) -> str | None:
    return shutil.which(name, path=SYSTEM_PATH)


def _install(packages: list[str], say: Say) -> None:
    names = " ".join(packages)
    if not shutil.which("apt-get"):
        raise UnavailableError(f"missing programs, known to Debian as: {names}")
    say(f"installing Debian packages: {names}")
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
    for attempt in (command, ["apt-get", "update", "-q"], command):  # the lists may be old, or absent as in an image
        done = subprocess.run(attempt, env=environment, capture_output=True, text=True, check=False)
        if attempt is command and done.returncode == 0:
            return
    lines = (done.stderr or done.stdout).strip().splitlines()
    raise UnavailableError(f"apt-get could not install {names}: {lines[-1] if lines else 'no message'}")
