"""The chart's default as plain objects, for `kubectl apply`, and its copy of the CRD: `python -m release.manifest`.

Without HELM= (a path) the `helm` of the PATH renders.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PROJECT = Path(__file__).parents[1]
CHART = PROJECT / "charts" / "steelyard"
CRD = PROJECT / "crds" / "balancedservices.yaml"
COPY = CHART / "files" / "balancedservices.yaml"
MANIFEST = PROJECT / "deploy" / "operator.yaml"
NAMESPACE = "steelyard-system"

HEAD = f"""\
# The operator as the chart installs it by default, rendered by `make chart`. Apply crds/balancedservices.yaml first.
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    app.kubernetes.io/name: steelyard
    pod-security.kubernetes.io/enforce: restricted
"""


def render(helm: str, *options: str, namespace: str = NAMESPACE) -> str:
    """`helm template`, without the hooks of `helm test`. Raises CalledProcessError with what Helm said in `stderr`."""
    command = [helm, "template", "steelyard", str(CHART), "--namespace", namespace, "--skip-tests", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def manifest(helm: str) -> str:
    return HEAD + render(helm, "--set", "crds.enabled=false")


if __name__ == "__main__":
    shutil.copyfile(CRD, COPY)
    MANIFEST.write_text(manifest(os.environ.get("HELM") or "helm"))
