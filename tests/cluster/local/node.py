"""One node: containerd, a kubelet and kube-proxy, in their own network, mount and UTS namespaces.

What differs from a usual node, and why, is said at each line; all of it is for several nodes on one machine, or for
one without CAP_SYS_RESOURCE (as virtual machines for tests often are).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster.local.daemons import Api, daemon, reap, run, wait_for, write
from tests.cluster.local.layout import HUB, PAUSE_IMAGE, PODS, Layout, Node

# The kubelet insists on these values, and they are the whole machine's: plain files lie over them.
SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}


def main(layout: Layout, node: Node) -> None:
    """Start the node; its kubelet registers it. Then reap for ever."""
    home = layout.state / node.name
    _network(node)
    _privacy(home, node)
    socket = layout.socket(node)
    daemon(
        layout.log / f"{node.name}-containerd",
        "containerd",
        "--log-level=warn",
        "--config",
        _containerd(home, socket, node),
    )
    wait_for("containerd", socket.exists)
    for archive in sorted(layout.images.glob("*.tar")):
        load("ctr", socket, archive)
    wait_for("API server", lambda: Api(layout).get("/readyz"))
    daemon(
        layout.log / f"{node.name}-kubelet",
        *("kubelet", f"--kubeconfig={layout.user(node.name)}", "--config", _kubelet(layout, home, socket, node)),
        *(f"--hostname-override={node.name}", f"--node-ip={node.address}"),
        f"--node-labels=topology.kubernetes.io/zone={node.zone}",
    )
    daemon(layout.log / f"{node.name}-kube-proxy", "kube-proxy", "--config", _kube_proxy(layout, home, node))
    reap()


def load(ctr: str, socket: Path, archive: Path) -> None:
    """Import all images of an archive, by the program `ctr`, into the node whose containerd has this socket."""
    # --local: the transfer service would compress every layer once more, which takes five times as long.
    command = [ctr, "-a", str(socket), "-n", "k8s.io", "images", "import", "--local", str(archive)]
    subprocess.run(command, check=True, capture_output=True)


def _network(node: Node) -> None:
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{node.address}/24", "dev", "eth0")
    run("ip", "link", "set", "eth0", "up")
    run("ip", "route", "add", "default", "via", HUB)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    bridged = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if bridged.exists():  # else kube-proxy misses what goes from one pod of this node to another
        bridged.write_text("1")


def _privacy(home: Path, node: Node) -> None:
    """Whatever a program keeps at a path of its own choice is this node's alone, in memory, and gone with it."""
    for name, value in SYSCTLS.items():
        run("mount", "--bind", write(home / "sysctl" / name, f"{value}\n"), f"/proc/sys/{name}")
    run("hostname", node.name)
    for folder in ("/run", "/var/lib", "/var/log"):
        run("mount", "-t", "tmpfs", "tmpfs", folder)


def _containerd(home: Path, socket: Path, node: Node) -> str:
    plugins = Path(shutil.which("host-local") or "").parent
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isDefaultGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": node.pods}]]},
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}, "backend": "nftables"}
    write(home / "cni" / "pods.conflist", {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]})
    # restrict_oom_score_adj: runc dies if it may not lower the score, which takes CAP_SYS_RESOURCE.
    return write(
        home / "containerd.toml",
        f"""
        version = 3
        root = "/var/lib/containerd"
        state = "/run/containerd"
        grpc.address = "{socket}"
        [plugins."io.containerd.cri.v1.images".pinned_images]
            sandbox = "{PAUSE_IMAGE}"
        [plugins."io.containerd.cri.v1.runtime"]
            restrict_oom_score_adj = true
        [plugins."io.containerd.cri.v1.runtime".cni]
            bin_dirs = ["{plugins}"]
            conf_dir = "{home}/cni"
        [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
            runtime_type = "io.containerd.runc.v2"
        """,
    )


def _kubelet(layout: Layout, home: Path, socket: Path, node: Node) -> str:
    never = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree")
    return write(
        home / "kubelet.yaml",
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{layout.name}/{node.name}",
            "failCgroupV1": False,  # refused by default since 1.35, but works
            "failSwapOn": False,
            "oomScoreAdj": 0,  # as restrict_oom_score_adj
            "authentication": {
                "x509": {"clientCAFile": f"{layout.pki}/ca.crt"},
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
            },
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",  # by default under /usr
            "clusterDNS": [HUB],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            # The machine's disk and memory are not the node's: it neither evicts pods nor collects images.
            "evictionHard": dict.fromkeys(never, "0%"),
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        },
    )


def _kube_proxy(layout: Layout, home: Path, node: Node) -> str:
    return write(
        home / "kube-proxy.yaml",
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": str(layout.user("kube-proxy"))},
            "hostnameOverride": node.name,
            "clusterCIDR": PODS,
            "oomScoreAdj": 0,
            # Zeros leave the machine's connection tracking alone.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        },
    )


if __name__ == "__main__":
    main(Layout(Path(sys.argv[1])), Node(int(sys.argv[2])))
