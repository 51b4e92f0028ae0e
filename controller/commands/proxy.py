"""`steelyard proxy`: carry traffic, by a file or by an operator."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from controller.commands import BAD_INPUT, NOT_HAD, options
from controller.commands.values import ControlUrl, HostPort, Service

if TYPE_CHECKING:
    from controller.proxy.sidecar import SidecarService


@click.command()
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="STEELYARD_FILE",
    help="BalancedServices in one YAML file, watched: a good edit is in force within a second and drops nothing, "
    "a bad one is reported and changes nothing.",
)
@click.option(
    "--host",
    default="0.0.0.0",  # noqa: S104 - a proxy faces its clients
    show_default=True,
    envvar="STEELYARD_HOST",
    help="Address that clients connect to.",
)
@click.option(
    "--listen-offset",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    envvar="STEELYARD_LISTEN_OFFSET",
    help="Added to each port of the file: with 8000, port 80 is served on 8080, without privileges.",
)
@options.admin
@options.health
@click.option(
    "--session-key-file",
    type=click.Path(exists=True, path_type=Path, dir_okay=False),
    envvar="STEELYARD_SESSION_KEY_FILE",
    help="At least 32 random bytes that all proxies of a service share, so that affinity cookies hold in each of "
    "them. Without it cookies end with the process.",
)
@click.option(
    "--control",
    "url",
    type=ControlUrl(),
    envvar="STEELYARD_CONTROL",
    help="Follow an operator instead of a file: https://HOST:PORT. The proxies that it deploys do.",
)
@click.option("--namespace", default="default", envvar="STEELYARD_NAMESPACE", help="With --control: the objects'.")
@click.option("--name", "names", multiple=True, help="With --control: a BalancedService to serve; may be repeated.")
@click.option(
    "--token-file",
    "token",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="STEELYARD_TOKEN_FILE",
    help="With --control: a service account token for the audience steelyard.dev/discovery, read for each request.",
)
@click.option(
    "--ca-file",
    "ca",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="STEELYARD_CA_FILE",
    help="With --control: who may sign the operator's certificate, read at each connect.",
)
@click.option(
    "--snapshots",
    "store",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="STEELYARD_SNAPSHOTS",
    help="With --control: keeps the last good configuration, for a start while the operator is away.",
)
@click.option(
    "--identity", default="", envvar="STEELYARD_IDENTITY", help="The pod's uid; makes a fleet's proxies differ."
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    envvar="STEELYARD_WORKERS",
    help="Processes that carry traffic, one a core; they balance as one. A sidecar's few connections need one.",
)
@click.option(
    "--sidecar",
    "services",
    type=Service(),
    multiple=True,
    help="With --control, instead of --name: serve it on a loopback address for the one pod that this proxy is beside, "
    "as in shop=127.64.0.1:80/HTTP/http; may be repeated. The injector writes these.",
)
@click.option(
    "--cluster-domain",
    default="cluster.local",
    show_default=True,
    envvar="STEELYARD_CLUSTER_DOMAIN",
    help="With --sidecar: what Services' whole names end with.",
)
@click.option(
    "--start-timeout",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    envvar="STEELYARD_START_TIMEOUT",
    help="With --sidecar: seconds without a configuration, after which requests go to the ordinary Service until one "
    "comes.",
)
@click.option(
    "--forward-proxy",
    type=HostPort(),
    default=None,
    envvar="STEELYARD_FORWARD_PROXY",
    help="With --sidecar: also serves them to clients that have this as their HTTP_PROXY, such as an application that "
    "listens on a service's port itself.",
)
@click.option(
    "--pod-address",
    default="",
    envvar="STEELYARD_POD_ADDRESS",
    help="With --sidecar: the pod's, which backends and SourceHash see as the client's.",
)
@click.option("--zone", default="", envvar="STEELYARD_ZONE", help="Where this proxy runs, for locality.")
@click.option("--node", default="", envvar="STEELYARD_NODE", help="Where this proxy runs, for locality.")
def proxy(
    path: Path | None,
    session_key_file: Path | None,
    url: str | None,
    namespace: str,
    names: tuple[str, ...],
    token: Path | None,
    ca: Path | None,
    store: Path | None,
    services: tuple[SidecarService, ...],
    cluster_domain: str,
    start_timeout: float,
    forward_proxy: tuple[str, int] | None,
    **rest: Any,
) -> None:
    """Balance: serve the BalancedServices of a file, or those that an operator tells of.

    \b
    A file to begin with, shop.yaml:
      apiVersion: steelyard.dev/v1alpha1
      kind: BalancedService
      metadata: {name: shop, namespace: default}
      spec:
        ports: [{port: 80}]
        backends:
          - {name: all, addresses: [127.0.0.1], port: 9000}

    \b
    Then:
      steelyard proxy --file shop.yaml --listen-offset 8000
      curl http://127.0.0.1:8080/
      curl http://127.0.0.1:19901/endpoints

    Backends are `addresses` or a `hostname`; `service` and `selector` need the operator. SIGTERM drains: the proxy
    turns unready, goes on for `acceptGrace`, stops listening, and lets what is in flight end within `drain`; a
    second signal ends it at once. So do SIGINT and, unless under nohup, SIGHUP.

    Options can come from the environment, too: --file from STEELYARD_FILE, and so on.

    Exit status: 0 after a drain, 1 if a port can't be had, 2 if the file or an option is wrong.
    """
    import uvloop

    from controller import beside, controlled, standalone
    from controller.admin import AdminError
    from controller.discovery.client import Settings
    from controller.log_format import configure_logging
    from controller.proxy.hosting import PortInUse
    from controller.proxy.plane import DataPlane, Plane
    from controller.proxy.process import run
    from controller.proxy.sidecar import Sidecar
    from controller.settings import ProxySettings

    if (path is None) == (url is None):
        raise click.UsageError("give --file FILE, or --control URL to follow an operator; exactly one of them")
    if url is not None and bool(names) == bool(services):
        raise click.UsageError("--control needs --name NAME, the BalancedService to serve (or --sidecar, not both)")
    if services and (url is None or rest["workers"] > 1):
        raise click.UsageError("--sidecar goes with --control and one worker")
    try:
        if path is not None:
            standalone.load(path)
        secret = standalone.session_secret(session_key_file)
    except standalone.BadConfiguration as error:
        click.echo(str(error), err=True)
        sys.exit(BAD_INPUT)
    configure_logging()

    sidecar = Sidecar(
        services=services, domain=cluster_domain, start_timeout=start_timeout, forward_proxy=forward_proxy
    )

    async def feed(plane: Plane) -> None:
        if path is not None:
            await standalone.follow(plane, path, secret)
        elif url is not None:
            asked = names or tuple(service.name for service in services)
            source = Settings(url=url, namespace=namespace, names=asked, token=token, ca=ca, store=store)
            if services:
                assert isinstance(plane, DataPlane)  # one worker
                await beside.follow(plane, source, sidecar)
            else:
                await controlled.follow(plane, source)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(run(ProxySettings(**rest), feed))
        except* (PortInUse, AdminError) as group:
            for failure in group.exceptions:
                click.echo(f"steelyard: {failure}", err=True)
            sys.exit(NOT_HAD)
