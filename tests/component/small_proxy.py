"""A standalone proxy with a memory budget of its own: `python -m tests.component.small_proxy FILE HOST:PORT BYTES`.

The budget is what a container of three times that size would give it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uvloop

from controller import standalone
from controller.proxy.process import run
from controller.settings import ProxySettings

if __name__ == "__main__":
    _, path, admin, budget = sys.argv
    host, _, port = admin.partition(":")
    settings = ProxySettings(host="127.0.0.1", admin=(host, int(port)), memory=int(budget))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(settings, lambda plane: standalone.follow(plane, Path(path), None)))
