"""`steelyard controller`: the operator."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from controller.commands import BAD_INPUT, NOT_HAD, options
from controller.commands.values import HostPort, Resources


@click.command()
@click.option(
    "--proxy-image",
    required=True,
    envvar="STEELYARD_PROXY_IMAGE",
    help="Image of the proxies that the operator deploys.",
)
@options.proxy_pull_policy
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
    "--tls-secret",
    default="",
    envvar="STEELYARD_TLS_SECRET",
    help="A Secret of that namespace with tls.crt, tls.key and ca.crt, kept by someone else: shown instead of a "
    "certificate of the operator's own authority, and followed when it is renewed.",
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
    "--injection-policy",
    is_flag=True,
    envvar="STEELYARD_INJECTION_POLICY",
    help="Pods are given their sidecars by a MutatingAdmissionPolicy: watch those that ask for one, as with --webhook.",
)
@options.cluster_domain
@options.sidecar_resources("--sidecar-resources")
@options.sidecar_start_timeout("--sidecar-start-timeout")
@click.option(
    "--token-file",
    envvar="STEELYARD_TOKEN_FILE",
    help="A token for the audience steelyard.dev/discovery, shown to other replicas of the operator.",
)
@options.admin
@options.health
def controller(watch: tuple[str, ...], **rest: Any) -> None:
    """Run the operator: watch BalancedServices, keep their proxies, and tell these where to send what.

    Several replicas may run: each serves the proxies that come to it, and the holder of a Lease writes.
    """
    if rest["tls_secret"] == rest["secret"]:
        raise click.UsageError("--tls-secret must be another Secret than --secret, which the operator keeps itself")
    import uvloop

    from controller.admin import AdminError
    from controller.control_plane import run
    from controller.kube.api import ConfigException
    from controller.log_format import configure_logging
    from controller.settings import OperatorSettings

    configure_logging()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(run(OperatorSettings(watch=frozenset(watch), **rest)))
        except AdminError as failure:
            click.echo(f"steelyard: {failure}", err=True)
            sys.exit(NOT_HAD)
        except ConfigException as failure:
            click.echo(f"steelyard: no cluster to speak to: {failure}; --kubeconfig names a kubeconfig", err=True)
            sys.exit(BAD_INPUT)
