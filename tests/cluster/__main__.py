"""A test cluster to work with by hand: `make cluster` and `make cluster-down`.

python -m tests.cluster build           build its programs, among them the Helm that the chart's tests want
python -m tests.cluster package         print the folder of the package as it ships, its hot path compiled
python -m tests.cluster up              start it, or bring the images of the one that runs up to date
python -m tests.cluster exec CMD...     run a command in its network: kubectl, helm, curl http://ADDRESS/
python -m tests.cluster down            end it; nothing stays
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial

from release.wheel import WheelError
from tests.cluster.local import cluster as local
from tests.cluster.local import images, machine, programs, wheels
from tests.cluster.local.buildah import BuildError
from tests.cluster.local.layout import Layout
from tests.cluster.local.machine import UnavailableError

LAYOUT = Layout(local.KEPT)


def say(line: str) -> None:
    print(f"{time.strftime('%X')} {line}", flush=True)


def build() -> None:
    """Whatever else can be had is built when it is wanted; tests of the chart want Helm and no cluster."""
    machine.prepare(say)
    programs.build(say)


def up() -> None:
    """Start it unless it runs; load the project's images; say how to use it."""
    own = local.LocalCluster(LAYOUT, say) if local.running(LAYOUT) else local.start(LAYOUT, say)
    built = [*images.project(say), images.app(say)]
    own.load("project", built)
    print("Images on every node:", *(f"\n    {image.reference}" for image in built), sep="")
    print(f"\nFrom this machine:\n    export KUBECONFIG={LAYOUT.kubeconfig}")
    print(f"    STEELYARD_TEST_KUBECONFIG={LAYOUT.kubeconfig} {sys.executable} -m pytest tests/cluster")
    print("In the cluster's network, where names and addresses of Services and pods are reachable:")
    print(f"    {sys.executable} -m tests.cluster exec kubectl get nodes\nTo end it:\n    make cluster-down")


def run(command: list[str]) -> None:
    """Become the command, inside."""
    if not local.running(LAYOUT):
        raise SystemExit("no cluster runs: make cluster")
    own = local.LocalCluster(LAYOUT, say)
    argv = own.enter(*command)
    os.execvpe(argv[0], argv, own.environment)


if __name__ == "__main__":
    try:
        match sys.argv[1:]:
            case ["build"]:
                build()
            case ["package"]:
                print(wheels.package(partial(print, file=sys.stderr)))
            case ["up"]:
                up()
            case ["exec", *command] if command:
                run(command)
            case ["down"]:
                local.end(LAYOUT)
                local.sweep()
            case _:
                raise SystemExit(__doc__)
    except (UnavailableError, BuildError, WheelError, local.StartError) as reason:
        raise SystemExit(str(reason)) from None
