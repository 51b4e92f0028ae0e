"""The first process of a cluster: it makes the network, starts the control plane and the nodes, and reaps.

Runs as PID 1 of its own namespaces (see `layout`), so its end, by whatever cause, is the end of all the rest.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from tests.cluster.local.daemons import Api, daemon, reap, run, wait_for, write
from tests.cluster.local.layout import API, FIRST_SERVICE, HUB, SERVICES, Layout, Node
from tests.cluster.local.pki import Authority

ETCD = "http://127.0.0.1:2379"
ISSUER = "https://kubernetes.default.svc.cluster.local"
# What service accounts write, each request once: tests ask which pod wrote what. kube-system's write all the time.
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {
            "level": "Metadata",
            "userGroups": ["system:serviceaccounts"],
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
        },
        {"level": "None"},
    ],
}
NAMES = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]


def main(layout: Layout, nodes: list[Node], port: int, listener: int, lifeline: int | None) -> None:
    """Start all of it; `ready` appears when every node is. Then reap for ever.

    `listener` is a listening socket of the machine's on loopback `port`; `lifeline` the end of a pipe that closes when
    the cluster's owner is no more.
    """
    if lifeline is not None:
        threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    layout.log.mkdir()
    _hub(layout)
    authority = Authority(layout.pki)
    authority.server("apiserver", [*NAMES, HUB, FIRST_SERVICE, "127.0.0.1"])
    authority.kubeconfig(layout.inside, API, "admin", "system:masters")
    api = Api(layout)
    _api_server(layout)
    daemon(layout.log / "relay", sys.executable, "-m", "tests.cluster.local.relay", str(listener), pass_fds=(listener,))
    authority.kubeconfig(layout.user("kube-proxy"), API, "system:kube-proxy")
    for node in nodes:
        authority.kubeconfig(layout.user(node.name), API, f"system:node:{node.name}", "system:nodes")
        _node(layout, node)
    wait_for("API server", lambda: api.get("/readyz"))
    _controllers(layout, authority)
    wait_for("nodes", lambda: len(_ready(api)) == len(nodes))
    wait_for("service account", lambda: api.get("/api/v1/namespaces/default/serviceaccounts/default"))
    authority.kubeconfig(layout.kubeconfig, f"https://127.0.0.1:{port}", "admin", "system:masters")
    layout.ready.touch()
    reap()


def _end_with(lifeline: int) -> None:
    os.read(lifeline, 1)  # nobody writes: it returns when the last other end is closed, by a kill -9 too
    os._exit(0)


def _hub(layout: Layout) -> None:
    """The network in the middle. It has no interface to the machine and no default route: nothing can get out."""
    names = write(layout.state / "resolv.conf", f"nameserver {HUB}\nsearch svc.cluster.local cluster.local\n")
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    run("mount", "--bind", names, "/etc/resolv.conf")
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "hub0", "type", "bridge")
    run("ip", "address", "add", f"{HUB}/24", "dev", "hub0")
    run("ip", "link", "set", "hub0", "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _api_server(layout: Layout) -> None:
    # Not synced to disk: it lives in memory anyway, and ends with the cluster.
    daemon(
        layout.log / "etcd",
        *("etcd", "--data-dir=/run/etcd", "--unsafe-no-fsync", "--log-level=warn"),
        *(f"--listen-client-urls={ETCD}", f"--advertise-client-urls={ETCD}"),
    )
    pki = layout.pki
    daemon(
        layout.log / "kube-apiserver",
        *("kube-apiserver", f"--etcd-servers={ETCD}", f"--advertise-address={HUB}"),
        *(f"--service-cluster-ip-range={SERVICES}", "--allow-privileged"),
        *("--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"),
        *(f"--client-ca-file={pki}/ca.crt", f"--tls-cert-file={pki}/apiserver.crt"),
        f"--tls-private-key-file={pki}/apiserver.key",
        *(f"--kubelet-client-certificate={pki}/inside.crt", f"--kubelet-client-key={pki}/inside.key"),
        "--kubelet-preferred-address-types=InternalIP",
        *(f"--service-account-issuer={ISSUER}", f"--service-account-signing-key-file={pki}/sa.key"),
        f"--service-account-key-file={pki}/sa.key",
        *(f"--audit-policy-file={write(layout.state / 'audit.yaml', AUDIT)}", f"--audit-log-path={layout.audit}"),
    )


def _node(layout: Layout, node: Node) -> None:
    """Start a node in its own network. Node 1 serves the hub's packets to Services: tests' and calls of webhooks."""
    link = f"hub-{node.name}"
    run("ip", "netns", "add", node.name)
    run("ip", "link", "add", link, "master", "hub0", "up", "type", "veth", "peer", "name", "eth0", "netns", node.name)
    run("ip", "route", "add", node.pods, "via", node.address, "dev", "hub0", "onlink")
    if node.number == 1:
        run("ip", "route", "add", SERVICES, "via", node.address, "dev", "hub0", "onlink")
    daemon(
        layout.log / node.name,
        *("nsenter", f"--net=/run/netns/{node.name}", "unshare", "--mount", "--propagation=shared", "--uts"),
        *(sys.executable, "-m", "tests.cluster.local.node", str(layout.state), str(node.number)),
    )


def _controllers(layout: Layout, authority: Authority) -> None:
    manager, scheduler, dns = (layout.user(n) for n in ("kube-controller-manager", "kube-scheduler", "coredns"))
    pki = layout.pki
    authority.kubeconfig(manager, API, "system:kube-controller-manager")
    authority.kubeconfig(scheduler, API, "system:kube-scheduler")
    authority.kubeconfig(dns, API, "system:coredns")
    daemon(
        layout.log / "kube-controller-manager",
        *("kube-controller-manager", f"--kubeconfig={manager}", "--leader-elect=false"),
        *(f"--service-account-private-key-file={pki}/sa.key", f"--root-ca-file={pki}/ca.crt"),
        *(f"--cluster-signing-cert-file={pki}/ca.crt", f"--cluster-signing-key-file={pki}/ca.key"),
        "--use-service-account-credentials",
        # With an account for each controller, the default of 20 requests a second delays the start by 5 s.
        *("--kube-api-qps=500", "--kube-api-burst=1000"),
        f"--flex-volume-plugin-dir={layout.state}/flex",  # it makes that folder, by default under /usr
    )
    daemon(layout.log / "kube-scheduler", "kube-scheduler", f"--kubeconfig={scheduler}", "--leader-elect=false")
    run("kubectl", "create", "clusterrolebinding", "coredns", "--clusterrole=view", "--user=system:coredns")
    zones = f".:53 {{\n errors\n cache 5\n kubernetes cluster.local in-addr.arpa {{\n  kubeconfig {dns}\n }}\n}}\n"
    daemon(layout.log / "coredns", "coredns", "-conf", write(layout.state / "Corefile", zones))


def _ready(api: Api) -> list[str]:
    found = json.loads(api.get("/api/v1/nodes") or '{"items": []}')["items"]
    up = {"type": "Ready", "status": "True"}
    return [n["metadata"]["name"] for n in found if any(up.items() <= c.items() for c in n["status"]["conditions"])]


if __name__ == "__main__":
    state, count, port, listener, lifeline = sys.argv[1:]
    main(
        Layout(Path(state)),
        [Node(number) for number in range(1, int(count) + 1)],
        int(port),
        int(listener),
        int(lifeline) if lifeline != "-" else None,
    )
