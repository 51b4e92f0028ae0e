"""Helm for the chart's tests: of the test cluster's programs, else of the PATH."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.cluster.local import cache


@pytest.fixture(scope="session")
def helm() -> str:
    """Its path. Skips where there is none, unless STEELYARD_REQUIRE_CLUSTER=1."""
    built = sorted(cache.root().glob("programs/helm-*/helm"), key=lambda path: path.stat().st_mtime)
    found = str(built[-1]) if built else shutil.which("helm")
    if found is None:
        reason = "no helm here: `make cluster` builds it"
        if os.environ.get("STEELYARD_REQUIRE_CLUSTER") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found
