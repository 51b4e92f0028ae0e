"""How many descriptors this process may have."""

from __future__ import annotations

import resource


def raise_descriptor_limit() -> int:
    """Lift the soft limit to the hard one; returns how many clients fit, at two descriptors each."""
    spare = 128  # listeners, admin, log, pipes, and pooled connections in passing
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(1, (hard - spare) // 2)
