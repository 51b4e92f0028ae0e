"""The base image that the Dockerfile names, python:3.11-slim: pulled, or where no registry answers, made here.

Ours is what Debian 12 packages, in the same shape: Python 3.11 as `python` on the PATH, able to make a virtual
environment, no compiler. It lacks what an image never runs (apt, perl, manuals, translations).
"""

from __future__ import annotations

import os
import shutil
import subprocess

from tests.cluster.local import cache
from tests.cluster.local.buildah import Buildah, BuildError
from tests.cluster.local.machine import SYSTEM_PATH, Say, UnavailableError

REFERENCE = "docker.io/library/python:3.11-slim"
SUITE = "bookworm"
PACKAGES = "ca-certificates,python3,python3-venv"
UNUSED = (
    *("etc/apt", "usr/bin/apt*", "usr/lib/apt", "usr/lib/*/libapt*", "usr/bin/perl*", "usr/lib/*/perl-base"),
    *("usr/share/perl5", "usr/lib/*/gconv", "usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale"),
    *("var/cache/*", "var/log/*", "var/lib/apt", "var/lib/dpkg", "dev/*"),
)
PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
KEY = cache.digest(REFERENCE, SUITE, PACKAGES, *UNUSED)


def ensure(buildah: Buildah, say: Say) -> None:
    """Have the base image in the store, under its usual name; takes a minute the first time.

    Raises UnavailableError.
    """
    mark = f"localhost/base:{KEY}"
    if buildah.has(mark):
        return
    try:
        buildah("pull", "--quiet", "--retry", "0", REFERENCE)
    except BuildError:
        say(f"no registry answers: making {REFERENCE} of Debian packages, about a minute")
        _bootstrap(buildah)
    buildah("tag", REFERENCE, mark)


def _bootstrap(buildah: Buildah) -> None:
    root, context = buildah.work / "root", buildah.work / "base"
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root), *_mirror()]
    environment = dict(os.environ, PATH=SYSTEM_PATH)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UnavailableError(f"debootstrap failed: {done.stdout.strip().splitlines()[-1]}")
    for pattern in UNUSED:
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    context.mkdir()
    subprocess.run(["tar", "--numeric-owner", "-C", str(root), "-cf", str(context / "root.tar"), "."], check=True)
    (context / "Dockerfile").write_text(f'FROM scratch\nADD root.tar /\nENV PATH={PATH}\nCMD ["python3"]\n')
    buildah.build(REFERENCE, context)


def _mirror() -> list[str]:
    """This machine's Debian mirror; without one, debootstrap knows the usual."""
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", f"Codename: {SUITE}"],
        capture_output=True,
        text=True,
        check=False,
    )
    return targets.stdout.split()[:1]
