"""Where the CPU of a proxied request goes: samples of the running proxy by what the code belongs to."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from tests.bench.peers import load, programs

HERTZ = 997
START = 2.0  # seconds that perf may take to attach, on a busy machine
PARTS = (  # by the name of the mapped file, the first that fits
    ("kernel", r"\[kernel|\[k\]|\[guest"),
    ("codec (Rust)", r"_native"),
    ("event loop (uvloop)", r"^loop\."),
    ("interpreter", r"python"),
    ("C library", r"libc[.-]|libm[.-]|ld-linux|\[vdso\]|libpthread"),
)


def profile(pid: int, port: int, seconds: float) -> dict[str, float]:
    """Share of the samples by part, while `burst` loads the proxy. Raises MissingError."""
    perf = programs.debian("perf")
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "data")
        record = (perf, "record", "-q", "-F", str(HERTZ), "-p", str(pid), "-o", data, "--", "sleep", str(seconds))
        with subprocess.Popen(record, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            load.burst(pid, port, START + seconds)
        show = (perf, "report", "-i", data, "--stdio", "--sort", "dso")
        shown = subprocess.run(show, capture_output=True, text=True, check=False).stdout
    rows = re.findall(r"^\s*([\d.]+)%\s+(\S+)", shown, re.MULTILINE)
    if not rows:
        raise programs.MissingError("perf may not sample here")
    shares: dict[str, float] = {}
    for percent, name in rows:
        part = next((part for part, pattern in PARTS if re.search(pattern, name)), "other")
        shares[part] = shares.get(part, 0.0) + float(percent) / 100
    return shares
