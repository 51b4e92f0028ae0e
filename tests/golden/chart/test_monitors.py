"""What is scraped: by the labels and port names that the operator and the injector give."""

from __future__ import annotations

from typing import Any

from controller.children import ChildSettings
from controller.children.pods import deployment
from controller.injection import Injected, InjectionSettings, Target, inject
from controller.model.service import BalancedService
from tests.golden.chart.objects import Object, of, rendered
from tests.golden.chart.test_policy import added

OPTIONS = ("--set", "monitoring.podMonitor.enabled=true,monitoring.serviceMonitor.enabled=true")
CHILDREN = ChildSettings(image="proxy:1", control="https://operator")


def scraped(helm: str, pod: Object, *options: str) -> list[int]:
    """The ports of a pod that the PodMonitors find."""
    monitors = [each["spec"] for each in rendered(helm, *OPTIONS, *options) if each["kind"] == "PodMonitor"]
    containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
    ports = [port for each in containers for port in each.get("ports", ())]
    return [
        port["containerPort"]
        for monitor in monitors
        if monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        for endpoint in monitor["podMetricsEndpoints"]
        for port in ports
        if port["name"] == endpoint["port"] and endpoint["path"] == "/metrics"
    ]


def client(**parts: Any) -> Object:
    """A pod that asks for a sidecar, and has ports of its own."""
    container = {"name": "app", "ports": [{"name": "health", "containerPort": 8081}]}
    return {
        "metadata": {"labels": {"steelyard.dev/inject": "enabled", "app": "client"}},
        "spec": {"containers": [container]} | parts,
    }


def test_proxies_are_scraped(helm: str) -> None:
    service = BalancedService(namespace="store", name="shop", uid="u", generation=1, ports=(), backends=())

    assert scraped(helm, deployment(service, CHILDREN)["spec"]["template"]) == [19902]


def test_sidecars_of_the_injector_are_scraped(helm: str) -> None:
    shop = Target(namespace="store", name="shop", address="127.64.0.1", ports=((80, "HTTP", "http"),))

    made = inject(client(), "store", [shop], InjectionSettings(proxy=CHILDREN, version="1"))

    assert isinstance(made, Injected)
    assert scraped(helm, made.pod) == [19912]


def test_sidecars_of_the_policy_are_scraped(helm: str) -> None:
    (sidecar,) = added(helm)["/spec/initContainers/0"]

    assert scraped(helm, client(initContainers=[sidecar]), "--set", "injection.mode=Policy") == [19912]


def test_the_operator_is_scraped(helm: str) -> None:
    objects = rendered(helm, *OPTIONS)
    monitor, service = of(objects, "ServiceMonitor")["spec"], of(objects, "Service")

    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (port,) = [port for port in service["spec"]["ports"] if port["name"] == monitor["endpoints"][0]["port"]]
    (container,) = of(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert port["targetPort"] in {each["name"] for each in container["ports"]}


def test_only_pods_of_watched_namespaces_are_scraped(helm: str) -> None:
    objects = rendered(helm, *OPTIONS, "--set", "watchNamespaces={store,warehouse}")
    monitors = [each for each in objects if each["kind"] == "PodMonitor"]

    assert [each["metadata"]["name"] for each in monitors] == ["steelyard-proxies", "steelyard-sidecars"]
    for each in monitors:
        assert each["spec"]["namespaceSelector"] == {"matchNames": ["store", "warehouse"]}
