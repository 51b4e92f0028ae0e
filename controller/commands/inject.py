"""`steelyard inject`: the sidecar into the pods of a file."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from controller.commands import BAD_INPUT, NOT_HAD, options


@click.command()
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
@click.option(
    "--proxy-image",
    default=None,
    envvar="STEELYARD_PROXY_IMAGE",
    help="Image of the sidecar.  [default: steelyard-proxy of this command's version, as the chart has it]",
)
@options.proxy_pull_policy
@click.option(
    "--control",
    default="https://steelyard-controller.steelyard-system.svc:19443",
    show_default=True,
    envvar="STEELYARD_CONTROL",
    help="Where the sidecar reaches the operator.",
)
@options.cluster_domain
@options.sidecar_resources("--resources")
@options.sidecar_start_timeout("--start-timeout")
def inject(
    path: Path,
    namespace: str,
    listed: Path | None,
    kubeconfig: str | None,
    proxy_image: str | None,
    proxy_pull_policy: str,
    control: str,
    cluster_domain: str,
    sidecar_resources: dict[str, object] | None,
    sidecar_start_timeout: float,
) -> None:
    """Put the sidecar into the pods of a file, as the webhook does into those that are made.

    \b
      steelyard inject -f client.yaml | kubectl apply -f -

    Pods, Deployments, StatefulSets, DaemonSets, Jobs and CronJobs are changed; all else passes, without its comments.
    Each pod gets the BalancedServices of its namespace with mode Sidecar, or those that its annotation
    steelyard.dev/services names.

    An application that listens on a service's own port can't start beside it. If a container declares the port, or
    the annotation steelyard.dev/exclude-ports names it, the service keeps its ordinary address in that pod; else let
    the application use HTTP_PROXY=http://127.0.0.1:19915 and exclude the port.

    Exit status: 0; 1 if the API server can't be asked, 2 if the file or an annotation is wrong.
    """
    from importlib.metadata import version

    from msgspec.structs import replace

    from controller import injecting
    from controller.children import ChildSettings
    from controller.discovery.manifests import written
    from controller.injection import InjectionSettings

    own = version("steelyard")
    image = proxy_image or f"steelyard-proxy:{own}"
    settings = InjectionSettings(
        proxy=ChildSettings(image=image, control=control, image_pull_policy=proxy_pull_policy),
        version=own,
        cluster_domain=cluster_domain,
        start_timeout=sidecar_start_timeout,
    )
    if sidecar_resources is not None:
        settings = replace(settings, resources=sidecar_resources)
    try:
        standard = str(path) == "-"
        data = sys.stdin.buffer.read() if standard else path.read_bytes()
        objects = injecting.documents(data, "standard input" if standard else str(path))
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
    click.echo(written(found), nl=False)
