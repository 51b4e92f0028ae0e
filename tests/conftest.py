"""STEELYARD_PACKAGE=FOLDER tests the package in that folder, as it ships, in the sources' place."""

from __future__ import annotations

import os
import sys

PACKAGE = os.environ.get("STEELYARD_PACKAGE")
if PACKAGE:
    sys.path.insert(0, PACKAGE)
    os.environ |= {"PYTHONPATH": PACKAGE, "PYTHONSAFEPATH": "1"}  # of processes that tests start
