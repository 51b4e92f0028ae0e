"""Names and addresses of one cluster on this machine, from its state folder.

    network namespace "hub": bridge 10.99.0.1            etcd, API server, controllers, scheduler, DNS; no way out
      network namespace n1: eth0 10.99.0.11              containerd, kubelet, kube-proxy
        bridge cni0 10.244.1.1                           pods 10.244.1.2 and on, each in its own namespace
      network namespace n2: eth0 10.99.0.12 ...

All of that descends from one process, the first of its own PID, mount, network, UTS and IPC namespaces. So two
clusters on a machine may use the same addresses, and the end of that process is the end of everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HUB = "10.99.0.1"
API = f"https://{HUB}:6443"
SERVICES = "10.96.0.0/16"
FIRST_SERVICE = "10.96.0.1"  # the `kubernetes` Service; the API server always takes the first
PODS = "10.244.0.0/16"
PAUSE_IMAGE = "localhost/pause:1"


@dataclass(frozen=True)
class Node:
    """One node of the cluster, by its number from 1."""

    number: int

    @property
    def name(self) -> str:
        return f"n{self.number}"

    @property
    def zone(self) -> str:
        return f"zone-{chr(ord('a') + self.number - 1)}"

    @property
    def address(self) -> str:
        return f"10.99.0.{10 + self.number}"

    @property
    def pods(self) -> str:
        return f"10.244.{self.number}.0/24"


@dataclass(frozen=True)
class Layout:
    """The files of one cluster. `kubeconfig` is for the machine, `inside` for commands in the cluster's network."""

    state: Path

    @property
    def name(self) -> str:
        """Of its cgroup, under the root of every hierarchy."""
        return self.state.name

    @property
    def lock(self) -> Path:
        """Locked as long as the first process lives, and that is how others know."""
        return self.state / "lock"

    @property
    def pid(self) -> Path:
        return self.state / "pid"

    @property
    def ready(self) -> Path:
        return self.state / "ready"

    @property
    def log(self) -> Path:
        return self.state / "log"

    @property
    def audit(self) -> Path:
        """What service accounts wrote, a line of JSON for each request."""
        return self.log / "audit"

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def images(self) -> Path:
        return self.state / "images"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def inside(self) -> Path:
        return self.user("inside")

    def user(self, name: str) -> Path:
        return self.state / f"{name}.kubeconfig"

    def socket(self, node: Node) -> Path:
        """containerd's."""
        return self.state / f"{node.name}.sock"

    def environment(self) -> dict[str, str]:
        """For kubectl and Helm: no cache or configuration of the user's is read or written."""
        helm = {f"HELM_{kind}_HOME": f"{self.state}/helm" for kind in ("CACHE", "CONFIG", "DATA")}
        return {"KUBECONFIG": str(self.inside), "KUBECACHEDIR": f"{self.state}/kubectl", **helm}
