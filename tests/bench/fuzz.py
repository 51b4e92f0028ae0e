"""Fuzzes the codec's heads, both ways, and chunked bodies: `python -m tests.bench.fuzz [--seconds N] [--keep]`.

libFuzzer starts from the corpus in the repository, one archive a target, and goes on from there. What it learns is
written back by `--keep`, merged to the fewest inputs of at most `LONGEST` bytes that reach the same edges. A finding
stays in reports/fuzz/, and the run fails.

The flags are those that cargo-fuzz gives to rustc, so neither it nor a nightly compiler is needed, only a C++ compiler.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PROJECT = Path(__file__).parents[2]
FUZZ = PROJECT / "controller/proxy/codec/fuzz"
REPORTS = PROJECT / "reports/fuzz"
TARGETS = ("request", "response", "chunked")
LONGEST = 300
COVERAGE = ("level=4", "inline-8bit-counters", "pc-table", "trace-compares")
FLAGS = (
    "--cfg fuzzing -Cdebug-assertions -Ccodegen-units=1 -Cpasses=sancov-module",
    *(f"-Cllvm-args=-sanitizer-coverage-{each}" for each in COVERAGE),
)


def build() -> Path:
    """The directory of the targets' programs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "steelyard/fuzz"
    host = subprocess.run(("rustc", "-vV"), check=True, capture_output=True, text=True).stdout
    triple = next(line.removeprefix("host: ") for line in host.splitlines() if line.startswith("host: "))
    # With a target named, the flags are not for build scripts.
    subprocess.run(
        ("cargo", "build", "--quiet", "--release", "--locked", "--target", triple),
        check=True,
        cwd=FUZZ,
        env=os.environ | {"CARGO_TARGET_DIR": str(cache), "RUSTFLAGS": " ".join(FLAGS)},
    )
    return cache / triple / "release"


def corpus(target: str) -> dict[str, bytes]:
    """The inputs that are kept, by name."""
    with zipfile.ZipFile(FUZZ / "corpus" / f"{target}.zip") as archive:
        return {name: archive.read(name) for name in sorted(archive.namelist())}


def fuzz(program: Path, target: str, inputs: Path, seconds: int) -> bool:
    """Whether nothing was found."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    log = REPORTS / f"{target}.log"
    with log.open("wb") as out:
        code = subprocess.run(
            (program, inputs, f"-max_total_time={seconds}", "-max_len=4096", f"-artifact_prefix={REPORTS}/{target}-"),
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    lines = log.read_text(errors="replace").splitlines()
    print(f"{target}: {lines[-1] if not code else f'a finding, see {log}'}", flush=True)
    return code == 0


def keep(program: Path, target: str, inputs: Path) -> None:
    with tempfile.TemporaryDirectory() as merged:
        subprocess.run(
            (program, "-merge=1", "-use_counters=0", f"-max_len={LONGEST}", merged, inputs),
            check=True,
            capture_output=True,
        )
        with zipfile.ZipFile(FUZZ / "corpus" / f"{target}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for each in sorted(Path(merged).iterdir()):
                archive.writestr(zipfile.ZipInfo(each.name), each.read_bytes(), zipfile.ZIP_DEFLATED)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fuzz", description="Fuzz the HTTP codec.")
    parser.add_argument("--seconds", type=int, default=60, help="for each of the three targets (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="merge what was learnt into the corpus of the repository")
    arguments = parser.parse_args()
    if not shutil.which("c++"):
        print("missing: a C++ compiler (Debian: apt-get install g++), for libFuzzer", file=sys.stderr)
        return 1
    programs = build()
    sound = True
    for target in TARGETS:
        with tempfile.TemporaryDirectory() as inputs:
            for name, data in corpus(target).items():
                (Path(inputs) / name).write_bytes(data)
            sound &= fuzz(programs / target, target, Path(inputs), arguments.seconds)
            if arguments.keep:
                keep(programs / target, target, Path(inputs))
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
