"""`make bench`: what a pick, a head, a translation and a request cost, and how well the policies balance.

Everything is a ratio within one run, since machines are shared and noisy. The figures are printed as they come; the
simulator also writes reports/simulation/, with a plot a scenario, the comparison with peers reports/peers/.
"""

from __future__ import annotations

import os
import subprocess
import sys

PARTS = (
    ("Costs, as ratios", ("-m", "pytest", "-q", "-s", "tests/bench", "--ignore=tests/bench/test_simulation.py")),
    ("Against peers", ("-m", "tests.bench.peers")),
    ("Fuzzing, a minute a target", ("-m", "tests.bench.fuzz")),
    ("Soak, ten minutes", ("-m", "tests.bench.soak")),
    ("Sidecars, on a cluster", ("-m", "pytest", "-q", "-s", "tests/cluster/test_sidecar_scale.py")),
    ("Translation", ("-m", "tests.bench.translate_cost")),
    ("Balance, simulated", ("-m", "tests.bench.simulate")),
)


def main() -> int:
    failed = []
    for title, command in PARTS:
        print(f"\n== {title}", flush=True)
        # What `make test` does a fifth of, too, is done whole.
        if subprocess.run((sys.executable, *command), env=os.environ | {"STEELYARD_LONG": "1"}, check=False).returncode:
            failed.append(title)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
