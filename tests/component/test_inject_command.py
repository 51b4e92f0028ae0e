"""`steelyard inject` as a process: what passes, what is changed, and what is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.commands.inject import inject as command
from controller.discovery import manifests
from tests import pages

SERVICES = """\
apiVersion: v1
kind: List
items:
  - apiVersion: steelyard.dev/v1alpha1
    kind: BalancedService
    metadata: {name: shop, namespace: store}
    spec:
      ports: [{port: 80}]
      backends: [{name: all, service: {name: shop-v1}}]
      proxy: {mode: Sidecar}
    status: {sidecar: {address: 127.64.0.1}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: store}
spec: {containers: [{name: app, image: app}]}
"""


MANIFESTS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: größe 😀}
data: {ssh: 22:22, at: 2024-01-02T03:04:05Z, "on": "1e3", script: "#!/bin/sh\\n  exec a\\n"}
---
# nothing
---
apiVersion: v1
kind: List
items:
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: client, namespace: store, labels: &labels {quoted: "yes", app: web}}
    spec:
      template:
        metadata: {labels: {<<: *labels, tier: "1"}}
        spec:
          containers: [{name: app, args: [--window, 12:30:45, -x, "0644", yes, =]}]
          volumes: [{name: v, configMap: {name: c, defaultMode: 0644}}]
---
apiVersion: example.com/v1
kind: AllowList
metadata: {name: mine}
spec: {allowed: [10.0.0.0/8], big: 123456789012345678, ratio: 1e-3, 1: one, never: ~}
"""


def inject(
    given: str | bytes, tmp_path: Path, *options: str, services: str | bytes = SERVICES, **environment: str
) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "services.yaml"
    path.write_bytes(services if isinstance(services, bytes) else services.encode())
    done = subprocess.run(
        (sys.executable, "-m", "controller", "inject", "--services", str(path), *options),
        input=given if isinstance(given, bytes) else given.encode(),
        capture_output=True,
        timeout=30,
        check=False,
        env=os.environ | environment,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def sidecar_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = pod_of(yaml.safe_load(done.stdout))["spec"]["initContainers"][0]
    return found


def pod_of(item: dict[str, Any]) -> dict[str, Any]:
    while "containers" not in item.get("spec", {}):
        spec = item["spec"]
        item = spec.get("jobTemplate") or spec["template"]
    return item


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("v1", "Pod"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "DaemonSet"),
        ("batch/v1", "Job"),
        ("batch/v1", "CronJob"),
    ],
)
def test_each_kind_that_makes_pods_is_injected(version: str, kind: str, tmp_path: Path) -> None:
    pod: dict[str, Any] = {"spec": {"containers": [{"name": "app"}]}}
    spec: dict[str, Any] = {"template": pod} if kind != "CronJob" else {"jobTemplate": {"spec": {"template": pod}}}
    item = {"apiVersion": version, "kind": kind, "metadata": {"name": "c"}} | (pod if kind == "Pod" else {"spec": spec})

    done = inject(yaml.safe_dump(item), tmp_path, "--namespace=store")

    assert done.returncode == 0, done.stderr
    assert pod_of(yaml.safe_load(done.stdout))["spec"]["initContainers"][0]["name"] == "steelyard"


def test_what_makes_no_pods_passes_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "other"}}

    once = inject(f"{POD}---\n{yaml.safe_dump(service)}", tmp_path)
    twice = inject(once.stdout, tmp_path)

    pod, other = yaml.safe_load_all(once.stdout)
    assert pod["spec"]["hostAliases"][0]["ip"] == "127.64.0.1"
    assert other == service
    assert once.stdout == twice.stdout


def test_values_are_to_kubectl_what_they_were(tmp_path: Path) -> None:
    done = inject(MANIFESTS, tmp_path, PYTHONIOENCODING="ascii")

    assert done.returncode == 0, done.stderr
    config, workloads, own = [each for _, each in manifests.read(MANIFESTS.encode())]
    assert config["data"]["ssh"] == "22:22"
    found = [each for _, each in manifests.read(done.stdout.encode())]
    assert [found[0], found[2]] == [config, own]
    (workload,) = workloads["items"]
    assert found[1]["metadata"] == workload["metadata"]
    before, after = workload["spec"]["template"], found[1]["spec"]["template"]
    assert after["spec"]["containers"] == before["spec"]["containers"]
    assert after["spec"]["volumes"][0] == before["spec"]["volumes"][0]
    assert after["metadata"]["labels"] == before["metadata"]["labels"] | {"steelyard.dev/inject": "enabled"}


def test_the_sidecars_image_is_by_default_the_charts(tmp_path: Path) -> None:
    assert sidecar_of(inject(POD, tmp_path))["image"] == f"steelyard-proxy:{version('steelyard')}"
    assert sidecar_of(inject(POD, tmp_path, "--proxy-image=mirror/proxy:2"))["image"] == "mirror/proxy:2"


def test_what_the_chart_can_be_told_of_sidecars_can_be_told_here(tmp_path: Path) -> None:
    resources = {"limits": {"memory": "64Mi"}}

    made = sidecar_of(inject(POD, tmp_path, f"--resources={json.dumps(resources)}", "--start-timeout=2.5"))
    plain = sidecar_of(inject(POD, tmp_path))

    assert made["resources"] == resources
    assert "--start-timeout=2.5" in made["args"]
    assert plain["resources"] == {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "96Mi"}}
    assert "--start-timeout=10" in plain["args"]


def test_each_of_the_charts_values_is_said_by_the_option_that_the_page_tells() -> None:
    values = yaml.safe_load((pages.PROJECT / "charts" / "steelyard" / "values.yaml").read_text())
    options = {option.opts[0]: option.envvar for option in command.params}
    rows = pages.table("sidecars.md", "## By the command line")[1:]

    told = {each for row in rows for each in re.findall("`([^`]+)`", row[0])}
    for value in told:
        here = values
        for name in value.split("."):
            here = here[name]
    assert {"injection.resources", "injection.startTimeout"} < told
    for _, option, variable in rows:
        assert options[re.findall("`([^`]+)`", option)[0]] == variable.strip("`")


def test_resources_that_are_none_are_refused(tmp_path: Path) -> None:
    done = inject(POD, tmp_path, "--resources=64Mi")

    assert (done.returncode, done.stdout) == (2, "")
    assert "is no JSON object with requests and limits" in done.stderr


def test_a_warning_goes_beside_the_output(tmp_path: Path) -> None:
    listening = POD.replace("image: app", "image: app, ports: [{containerPort: 80}]")

    done = inject(listening, tmp_path)

    assert done.returncode == 0
    assert "warning: Pod client: shop goes by its ordinary Service" in done.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a: [", "standard input:1: is not YAML"),
        ("just words", "standard input:1: is no Kubernetes object"),
        (f"{POD}---\nkind: List\nitems: [a]\n", "standard input:6: is no Kubernetes object"),
        ("kind: Pod\nmetadata: name\n", "standard input:1: metadata is no mapping"),
        (POD.replace("namespace: store", "namespace: 1"), "standard input:1: metadata is no mapping, or its namespace"),
        (POD.replace("image: app", "image: app, ports: 80"), "Pod client: Expected `array | null`, got `int` - at"),
        (b"kind: Pod\nmetadata: {name: \xff}\n", "standard input:2: is not UTF-8 text"),
        (POD.replace("namespace: store", "namespace: store, annotations: {steelyard.dev/services: shpo}"), "shpo"),
        (POD.replace("spec: {", "spec: {hostNetwork: true, "), "Pod client: a pod with hostNetwork"),
    ],
)
def test_what_is_wrong_is_refused_with_its_reason_and_nothing_is_written(
    given: str | bytes, message: str, tmp_path: Path
) -> None:
    done = inject(given, tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("services", "message"),
    [
        (SERVICES.replace("    status: {sidecar: {address: 127.64.0.1}}\n", ""), "has no status.sidecar.address"),
        (SERVICES.replace("port: 80", "port: 70000"), "spec.ports[0].port"),
        (b"a: \xff\n", "services.yaml:1: is not UTF-8 text"),
    ],
)
def test_services_that_cannot_be_used_are_refused(services: str | bytes, message: str, tmp_path: Path) -> None:
    done = inject(POD, tmp_path, services=services)

    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_no_text_is_told_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "bin.yaml"
    path.write_bytes(b"\x7fELF\x02\x01\xff")

    done = inject("", tmp_path, f"--filename={path}")

    assert (done.returncode, done.stderr) == (2, f"steelyard inject: {path}:1: is not UTF-8 text\n")


def test_an_api_server_that_cannot_be_asked_is_told_with_the_way_out(tmp_path: Path) -> None:
    config = tmp_path / "config"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config.write_text(
        yaml.safe_dump({"clusters": [cluster], "contexts": [context], "users": [{"name": "u"}], "current-context": "c"})
    )
    arguments = (sys.executable, "-m", "controller", "inject", "--kubeconfig", str(config))

    done = subprocess.run(arguments, input=POD, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert "--services FILE" in done.stderr


def test_an_installation_without_the_client_of_the_api_is_told_what_is_missing() -> None:
    program = "import sys; sys.modules['kubernetes'] = None; from controller.__main__ import main; main()"

    done = subprocess.run(
        (sys.executable, "-c", program, "inject"), input=POD, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert "install steelyard[controller]" in done.stderr
