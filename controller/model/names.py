"""The names of what an object owns: each cut to what Kubernetes allows, and never two alike."""

from __future__ import annotations

import hashlib

LONGEST = 63  # of a label, and of a Service's name (RFC 1035)
CA_CONFIG_MAP = "steelyard-ca"  # one per namespace that has objects


def short_hash(*parts: str) -> str:
    """Ten hex digits that tell ("a", "b-c") from ("a-b", "c"): no part of a Kubernetes name holds a NUL."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:10]


def fitted(name: str) -> str:
    """The name itself, or, when it is too long, its start and a hash of the whole."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 11].rstrip('-.')}-{short_hash(name)}"


def proxy_name(name: str) -> str:
    """Of the Deployment, ServiceAccount and PodDisruptionBudget."""
    return fitted(f"{name}-lb")


def headless_name(name: str, backend: str) -> str:
    """Of the headless Service behind a `selector` backend.

    Always with the hash of both, or `a` with backend `b-c` would meet `a-b` with backend `c`.
    """
    digest = short_hash(name, backend)
    return f"{f'{name}-{backend}'[: LONGEST - 11].rstrip('-.')}-{digest}"
