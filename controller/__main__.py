"""The commands. Each is one function, which imports its shell inside: a proxy never loads the operator."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from controller.proxy.sidecar import SidecarService

NOT_HAD, BAD_INPUT = 1, 2  # exit statuses


class HostPort(click.ParamType[tuple[str, int] | None]):
    """`HOST:PORT`, an IPv6 host in brackets; `Disabled` for no listener."""

    name = "HOST:PORT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int] | None:
        if not isinstance(value, str):
            return value  # type: ignore[return-value]  # a default, converted already
        if value == "Disabled":
            return None
        host, colon, port = value.rpartition(":")
        if not colon or not port.isdecimal() or not 0 < int(port) <= 65535:
            self.fail(f"{value!r} is not HOST:PORT (for instance 127.0.0.1:19901 or [::]:19902)", param, ctx)
        return host.removeprefix("[").removesuffix("]"), int(port)


class Service(click.ParamType["SidecarService"]):
    """`NAME=ADDRESS:PORT/PROTOCOL/PORTNAME,…`, as the injector writes it."""

    name = "SERVICE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> SidecarService:
        from controller.proxy.sidecar import service

        try:
            return service(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Resources(click.ParamType[dict[str, object] | None]):
    """A container's `resources` as a JSON object."""

    name = "JSON"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, object] | None:
        if not isinstance(value, str):
            return value  # type: ignore[return-value]  # a default, converted already
        try:
            found = json.loads(value)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not found.keys() <= {"requests", "limits"}:
            self.fail(f"{value!r} is no JSON object with requests and limits", param, ctx)
        return found


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="steelyard")
def main() -> None:
    """A Kubernetes-native load balancer: write a BalancedService, and its proxies follow pod readiness.

    Try it without a cluster: `steelyard proxy --help`.
    """
    # A container's first process never hears of a signal that it has no handler for, and a pod may be deleted while it
    # starts. A command that has more to do at its end takes this one's place.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


@main.command()
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
@click.option(
    "--admin",
    type=HostPort(),
    default="127.0.0.1:19901",
    show_default=True,
    envvar="STEELYARD_ADMIN",
    help="Serves /healthz /readyz /metrics /config /endpoints; Disabled for none.",
)
@click.option(
    "--health",
    type=HostPort(),
    default=None,
    envvar="STEELYARD_HEALTH",
    help="A second listener with only /healthz /readyz /metrics, for probes from elsewhere.",
)
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
    metavar="URL",
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
    help="With --control: a service account token for the audience steelyard.dev/discovery, read at each connect.",
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
    **options: Any,
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
    turns unready, goes on for `acceptGrace`, stops listening, and lets what is in flight end within `drain`.

    Options can come from the environment, too: --file from STEELYARD_FILE, and so on.

    Exit status: 0 after a drain, 1 if a port can't be had, 2 if the file or an option is wrong.
    """
    import uvloop

    from controller import beside, controlled, standalone
    from controller.admin import AdminError
    from controller.discovery.client import Settings
    from controller.proxy.hosting import PortInUse
    from controller.proxy.plane import DataPlane, Plane
    from controller.proxy.process import run
    from controller.proxy.sidecar import Sidecar
    from controller.settings import ProxySettings
    from controller.telemetry import configure_logging

    if (path is None) == (url is None):
        raise click.UsageError("give --file FILE, or --control URL to follow an operator; exactly one of them")
    if url is not None and bool(names) == bool(services):
        raise click.UsageError("--control needs --name NAME, the BalancedService to serve (or --sidecar, not both)")
    if services and (url is None or options["workers"] > 1):
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
            runner.run(run(ProxySettings(**options), feed))
        except* (PortInUse, AdminError) as group:
            for failure in group.exceptions:
                click.echo(f"steelyard: {failure}", err=True)
            sys.exit(NOT_HAD)


@main.command()
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    default=Path(__file__).parent.parent / "examples" / "demo.yaml",
    help="What to balance; four backends with one loopback address each.  [default: examples/demo.yaml]",
)
@click.option("--once", is_flag=True, help="End after the last act instead of at Ctrl-C.")
def demo(path: Path, once: bool) -> None:
    """See it work: four backends, a proxy and live traffic, all on loopback.

    The algorithm changes while requests run, one backend is slowed, one is killed and comes back. Ctrl-C ends it.

    Exit status: 0; 1 if a process could not be started, 2 if the file is wrong.
    """
    from controller.demo.processes import NotStarted
    from controller.demo.show import play
    from controller.demo.stage import Unsuited

    try:
        asyncio.run(play(path, once=once))
    except Unsuited as error:
        click.echo(str(error), err=True)
        sys.exit(BAD_INPUT)
    except NotStarted as error:
        click.echo(f"steelyard demo: not started: {error}", err=True)
        sys.exit(NOT_HAD)
    except KeyboardInterrupt:
        pass


@main.command()
@click.option(
    "--proxy-image",
    required=True,
    envvar="STEELYARD_PROXY_IMAGE",
    help="Image of the proxies that the operator deploys.",
)
@click.option(
    "--proxy-pull-policy",
    type=click.Choice(["Always", "IfNotPresent", "Never"]),
    default="IfNotPresent",
    show_default=True,
    envvar="STEELYARD_PROXY_PULL_POLICY",
    help="When nodes pull that image.",
)
@click.option(
    "--proxy-pull-secret",
    "proxy_pull_secrets",
    multiple=True,
    envvar="STEELYARD_PROXY_PULL_SECRETS",
    help="A Secret for that image, by its name in each object's namespace; may be repeated.",
)
@click.option(
    "--proxy-priority-class",
    default="",
    envvar="STEELYARD_PROXY_PRIORITY_CLASS",
    help="Of the proxies' pods, where the object names none.",
)
@click.option(
    "--proxy-resources",
    type=Resources(),
    default=None,
    envvar="STEELYARD_PROXY_RESOURCES",
    help="Of a proxy's container as JSON, where the object names none.  [default: 100m CPU, 128Mi memory at most]",
)
@click.option(
    "--max-rollouts",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    envvar="STEELYARD_MAX_ROLLOUTS",
    help="How many Deployments of proxies may roll to a new pod template at the same time.",
)
@click.option(
    "--namespace",
    default="steelyard-system",
    show_default=True,
    envvar="STEELYARD_NAMESPACE",
    help="The operator's own: its Lease and its Secret are there.",
)
@click.option(
    "--watch-namespace",
    "watch",
    multiple=True,
    envvar="STEELYARD_WATCH_NAMESPACES",
    help="Look at this namespace only; may be repeated. Default: all.",
)
@click.option(
    "--kubeconfig", envvar="STEELYARD_KUBECONFIG", help="Default: the pod's own account, else kubectl's default."
)
@click.option("--pod", default="", envvar="STEELYARD_POD", help="The operator's own pod, by name.")
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    envvar="STEELYARD_ADDRESS",
    help="Where other replicas of the operator reach this one.",
)
@click.option(
    "--deployment",
    default="",
    envvar="STEELYARD_DEPLOYMENT",
    help="The operator's own Deployment: what the operator makes in its namespace goes with it.",
)
@click.option("--account", default="", envvar="STEELYARD_ACCOUNT", help="The operator's own ServiceAccount.")
@click.option(
    "--service",
    default="steelyard-controller",
    show_default=True,
    envvar="STEELYARD_SERVICE",
    help="The Service by which proxies reach the operator; the certificate is made out to it.",
)
@click.option(
    "--lease",
    default="steelyard-controller",
    show_default=True,
    envvar="STEELYARD_LEASE",
    help="The Lease whose holder writes, in the operator's namespace.",
)
@click.option(
    "--secret",
    default="steelyard-controller",
    show_default=True,
    envvar="STEELYARD_SECRET",
    help="The Secret with the operator's authority and keys, in its namespace; made if it is not there.",
)
@click.option(
    "--discovery",
    type=HostPort(),
    default="[::]:19443",
    show_default=True,
    envvar="STEELYARD_DISCOVERY",
    help="Serves snapshots to proxies, over TLS.",
)
@click.option(
    "--discovery-port",
    type=click.IntRange(1, 65535),
    default=19443,
    show_default=True,
    envvar="STEELYARD_DISCOVERY_PORT",
    help="The Service's port for it.",
)
@click.option(
    "--webhook",
    type=HostPort(),
    default=None,
    envvar="STEELYARD_WEBHOOK",
    help="Gives pods labelled steelyard.dev/inject=enabled a sidecar when they are made, over TLS; default: none.",
)
@click.option(
    "--webhook-configuration",
    default="",
    envvar="STEELYARD_WEBHOOK_CONFIGURATION",
    help="The MutatingWebhookConfiguration that names it; its caBundle is kept by the operator.",
)
@click.option(
    "--cluster-domain",
    default="cluster.local",
    show_default=True,
    envvar="STEELYARD_CLUSTER_DOMAIN",
    help="What Services' whole names end with.",
)
@click.option(
    "--sidecar-resources",
    type=Resources(),
    default=None,
    envvar="STEELYARD_SIDECAR_RESOURCES",
    help="Of a sidecar's container as JSON, where the pod names none.  [default: 20m CPU, 96Mi memory at most]",
)
@click.option(
    "--sidecar-start-timeout",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    envvar="STEELYARD_SIDECAR_START_TIMEOUT",
    help="Seconds without a configuration, after which a sidecar goes by the ordinary Services until one comes.",
)
@click.option(
    "--token-file",
    envvar="STEELYARD_TOKEN_FILE",
    help="A token for the audience steelyard.dev/discovery, shown to other replicas of the operator.",
)
@click.option(
    "--admin",
    type=HostPort(),
    default="127.0.0.1:19901",
    show_default=True,
    envvar="STEELYARD_ADMIN",
    help="Serves /healthz /readyz /metrics /config /endpoints; Disabled for none.",
)
@click.option(
    "--health",
    type=HostPort(),
    default=None,
    envvar="STEELYARD_HEALTH",
    help="A second listener with only /healthz /readyz /metrics, for probes from elsewhere.",
)
def controller(watch: tuple[str, ...], **options: Any) -> None:
    """Run the operator: watch BalancedServices, keep their proxies, and tell these where to send what.

    Several replicas may run: each serves the proxies that come to it, and the holder of a Lease writes.
    """
    import uvloop

    from controller.admin import AdminError
    from controller.control_plane import run
    from controller.settings import OperatorSettings
    from controller.telemetry import configure_logging

    configure_logging()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(run(OperatorSettings(watch=frozenset(watch), **options)))
        except AdminError as failure:
            click.echo(f"steelyard: {failure}", err=True)
            sys.exit(NOT_HAD)


@main.command()
@click.option(
    "-f",
    "--filename",
    "path",
    type=click.Path(path_type=Path, dir_okay=False, exists=True, allow_dash=True),
    default="-",
    help="YAML, several documents if need be; by default standard input.",
)
@click.option("-n", "--namespace", default="default", show_default=True, help="Of objects that name none.")
@click.option(
    "--services",
    "listed",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="BalancedServices as `kubectl get balancedservices -o yaml` writes them, instead of asking the API server.",
)
@click.option(
    "--kubeconfig", envvar="STEELYARD_KUBECONFIG", help="Whom to ask. Default: as kubectl does ($KUBECONFIG)."
)
@click.option("--proxy-image", required=True, envvar="STEELYARD_PROXY_IMAGE", help="Image of the sidecar.")
@click.option(
    "--proxy-pull-policy",
    type=click.Choice(["Always", "IfNotPresent", "Never"]),
    default="IfNotPresent",
    show_default=True,
    envvar="STEELYARD_PROXY_PULL_POLICY",
    help="When nodes pull that image.",
)
@click.option(
    "--control",
    default="https://steelyard-controller.steelyard-system.svc:19443",
    show_default=True,
    envvar="STEELYARD_CONTROL",
    help="Where the sidecar reaches the operator.",
)
@click.option(
    "--cluster-domain",
    default="cluster.local",
    show_default=True,
    envvar="STEELYARD_CLUSTER_DOMAIN",
    help="What Services' whole names end with.",
)
def inject(
    path: Path,
    namespace: str,
    listed: Path | None,
    kubeconfig: str | None,
    proxy_image: str,
    proxy_pull_policy: str,
    control: str,
    cluster_domain: str,
) -> None:
    """Put the sidecar into the pods of a file, as the webhook does into those that are made.

    \b
      steelyard inject -f client.yaml | kubectl apply -f -

    Pods, Deployments, StatefulSets, DaemonSets, Jobs and CronJobs are changed; all else passes. Each pod gets the
    BalancedServices of its namespace with mode Sidecar, or those that its annotation steelyard.dev/services names.

    An application that listens on a service's own port can't start beside it. If a container declares the port, or
    the annotation steelyard.dev/exclude-ports names it, the service keeps its ordinary address in that pod; else let
    the application use HTTP_PROXY=http://127.0.0.1:19915 and exclude the port.

    Exit status: 0; 1 if the API server can't be asked, 2 if the file or an annotation is wrong.
    """
    from importlib.metadata import version

    from controller import injecting
    from controller.children import ChildSettings
    from controller.injection import InjectionSettings

    settings = InjectionSettings(
        proxy=ChildSettings(image=proxy_image, control=control, image_pull_policy=proxy_pull_policy),
        version=version("steelyard"),
        cluster_domain=cluster_domain,
    )
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        objects = injecting.documents(text, "standard input" if str(path) == "-" else str(path))
        if listed is not None:
            services = injecting.from_file(listed)
        else:
            asked = asyncio.run(injecting.ask(kubeconfig, injecting.needed(objects, namespace)))
            services = asked.__getitem__
        found = list(
            injecting.injected(
                objects, namespace, services, settings, lambda line: click.echo(f"warning: {line}", err=True)
            )
        )
    except injecting.Unusable as error:
        click.echo(f"steelyard inject: {error}", err=True)
        sys.exit(BAD_INPUT)
    except injecting.Unreachable as error:
        click.echo(f"steelyard inject: {error}", err=True)
        sys.exit(NOT_HAD)
    click.echo(injecting.text(found), nl=False)


if __name__ == "__main__":
    main()
