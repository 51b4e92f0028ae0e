"""The images that tests run: the project's two, of now and as they were; the test application; pods' sandboxes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.cluster.local import base, cache, wheels
from tests.cluster.local.buildah import Buildah, Image, opened
from tests.cluster.local.layout import PAUSE_IMAGE
from tests.cluster.local.machine import Say

PROJECT = Path(__file__).parents[3]
DOCKERFILE = PROJECT / "Dockerfile"
APP = Path(__file__).parent.parent / "app"


def pause(program: Path) -> Image:
    """The sandbox of every pod: one static program and nothing else."""

    def build(buildah: Buildah, reference: str, context: Path) -> None:
        shutil.copy2(program, context / "pause")
        (context / "Dockerfile").write_text('FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n')
        buildah.build(reference, context)

    return Image(PAUSE_IMAGE, _image("pause", cache.digest(program), build).layout)


def project(say: Say) -> tuple[Image, Image]:
    """The controller's and the proxy's, of the checkout as it is now."""
    wheel = wheels.project(say)  # one for both: a file may change meanwhile
    return _project("controller", wheel, say), _project("proxy", wheel, say)


def earlier(say: Say) -> tuple[Image, Image]:
    """The same of an earlier version, on the dependencies of now."""
    wheel = wheels.earlier(say)
    return _project("controller", wheel, say), _project("proxy", wheel, say)


def _project(target: str, wheel: Path, say: Say) -> Image:
    dependencies = wheels.locked(target, say)

    def build(buildah: Buildah, reference: str, context: Path) -> None:
        say(f"building the image steelyard-{target}")
        base.ensure(buildah, say)
        _fill(context, target, dependencies)
        shutil.copytree(wheel, context / "dist", dirs_exist_ok=True)
        buildah.build(reference, context, "--target", target)

    return _image(f"steelyard-{target}", cache.digest(base.KEY, DOCKERFILE, wheel.name, dependencies.name), build)


def app(say: Say) -> Image:
    """The test application, on the proxy's image without the project in it: their layers are shared."""
    dependencies = wheels.locked("proxy", say)

    def build(buildah: Buildah, reference: str, context: Path) -> None:
        say("building the test application's image")
        base.ensure(buildah, say)
        lower = buildah.work / "proxy-base"
        lower.mkdir()
        _fill(lower, "proxy", dependencies)
        buildah.build("localhost/proxy-base", lower, "--target", "proxy-base")
        shutil.copytree(APP, context, dirs_exist_ok=True)
        buildah.build(reference, context)

    return _image("steelyard-test-app", cache.digest(base.KEY, DOCKERFILE, dependencies.name, APP), build)


def _fill(context: Path, target: str, dependencies: Path) -> None:
    """Lay out what the Dockerfile copies, as it is in a checkout, and nothing else."""
    shutil.copy2(DOCKERFILE, context)
    shutil.copytree(PROJECT / "requirements", context / "requirements")
    shutil.copytree(dependencies, context / "dist" / "wheels" / target)


def _image(name: str, key: str, build: Callable[[Buildah, str, Path], None]) -> Image:
    reference = f"localhost/{name}:{key}"

    def make(folder: Path) -> None:
        with opened() as buildah:
            context = buildah.work / name
            context.mkdir()
            build(buildah, reference, context)
            buildah.export(reference, folder)

    return Image(reference, cache.entry("images", name, key, make))
