"""Options that more than one command has."""

from __future__ import annotations

from collections.abc import Callable

import click

from controller.commands.values import HostPort, Resources

admin = click.option(
    "--admin",
    type=HostPort(),
    default="127.0.0.1:19901",
    show_default=True,
    envvar="STEELYARD_ADMIN",
    help="Serves /healthz /readyz /metrics /config /endpoints; Disabled for none.",
)
health = click.option(
    "--health",
    type=HostPort(),
    default=None,
    envvar="STEELYARD_HEALTH",
    help="A second listener with only /healthz /readyz /metrics, for probes from elsewhere.",
)
cluster_domain = click.option(
    "--cluster-domain",
    default="cluster.local",
    show_default=True,
    envvar="STEELYARD_CLUSTER_DOMAIN",
    help="What Services' whole names end with.",
)
proxy_pull_policy = click.option(
    "--proxy-pull-policy",
    type=click.Choice(["Always", "IfNotPresent", "Never"]),
    default="IfNotPresent",
    show_default=True,
    envvar="STEELYARD_PROXY_PULL_POLICY",
    help="When nodes pull that image.",
)


def sidecar_resources(flag: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        flag,
        "sidecar_resources",
        type=Resources(),
        default=None,
        envvar="STEELYARD_SIDECAR_RESOURCES",
        help="Of a sidecar's container as JSON, where the pod names none.  [default: 20m CPU, 96Mi memory at most]",
    )


def sidecar_start_timeout(flag: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        flag,
        "sidecar_start_timeout",
        type=click.FloatRange(min=0),
        default=10.0,
        show_default=True,
        envvar="STEELYARD_SIDECAR_START_TIMEOUT",
        help="Seconds without a configuration, after which a sidecar goes by the ordinary Services until one comes.",
    )
