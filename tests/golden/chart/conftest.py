"""Helm for the chart's tests: of the test cluster's programs (`make test` builds them before), else of the PATH."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

from tests.cluster.local import cache


@pytest.fixture(scope="session")
def helm() -> str:
    """Its path. Skips where there is none, unless STEELYARD_REQUIRE_CLUSTER=1."""
    return _built("helm") or shutil.which("helm") or _missing("helm")


@pytest.fixture(scope="session")
def helm3() -> str:
    """The same of Helm 3."""
    return _built("helm3") or _missing("Helm 3")


def _built(name: str) -> str | None:
    found = sorted(cache.root().glob(f"programs/{name}-*/{name}"), key=lambda path: path.stat().st_mtime)
    return str(found[-1]) if found else None


def _missing(name: str) -> NoReturn:
    reason = f"no {name} here: `make cluster` builds it"
    if os.environ.get("STEELYARD_REQUIRE_CLUSTER") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
