"""The console script: `steelyard COMMAND`."""

from __future__ import annotations

import signal
import sys

import click

from controller.commands.controller import controller
from controller.commands.demo import demo
from controller.commands.inject import inject
from controller.commands.proxy import proxy


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="steelyard")
def main() -> None:
    """A Kubernetes-native load balancer: write a BalancedService, and its proxies follow pod readiness.

    Try it without a cluster: `steelyard proxy --help`.
    """
    # A container's first process never hears of a signal that it has no handler for, and a pod may be deleted while it
    # starts. A command that has more to do at its end takes this one's place.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


for command in (proxy, demo, controller, inject):
    main.add_command(command)


if __name__ == "__main__":
    main()
