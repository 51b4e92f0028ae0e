"""Every module can be imported alone, with warnings as errors: no import depends on another one's having been done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "controller").rglob("*.py")
)
# One process per module by fork: what others wrote is loaded once, and ours anew in each.
ALONE = """
import importlib, os, sys, traceback
import aiodns, aiohttp.web, click, cryptography.x509, kopf, kubernetes, prometheus_client, uvloop, xxhash, yaml
for module in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        try:
            importlib.import_module(module)
        except BaseException:
            print(module, traceback.format_exc(), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


@pytest.mark.timeout(300)  # two hundred imports: a busy machine takes a minute
def test_each_module_imports_alone() -> None:
    done = subprocess.run(
        (sys.executable, "-W", "error", "-c", ALONE, *MODULES), capture_output=True, text=True, cwd=ROOT, check=False
    )

    assert len(MODULES) > 50
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
