"""What a request, a byte, a connection and an endpoint cost, against nginx, HAProxy, Envoy and Traefik.

python -m tests.bench.peers                              all of it, a quarter of an hour; writes reports/peers/
python -m tests.bench.peers --only nginx envoy           against some
python -m tests.bench.peers --parts requests delays      some measures
python -m tests.bench.peers --rounds 3 --seconds 1       a quick look
python -m tests.bench.peers --nice -10 --real-time       before what else runs on the machine

Every proxy has the last core, backend and load the first one. All run at once and are loaded in turns, so that the
rounds of one and of another see the same machine. A peer that can't be had is skipped, with a line that says so.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.bench.peers import load, programs, report
from tests.bench.peers.contenders import OURS, PEERS, SCALED, Contender, named, steelyard, write
from tests.bench.peers.figures import Figures, bars
from tests.bench.peers.processes import OTHER_CORE, PROXY_CORE, free_port, hasten, resident, running
from tests.bench.peers.profile import profile

KINDS = {  # target, bytes sent
    "64 KiB answers": ("/files/64k", 0),
    "10 MiB answers": ("/files/10m", 0),
    "64 KiB uploads": ("/upload", 65536),
}
COUNTS = (1, 10, 100, 1000)
PEERS_COUNTS = (10, 1000)
IDLE = 1000
PROFILED = 3.0  # seconds
PARTS = ("requests", "bodies", "delays", "endpoints", "memory")


class Bench:
    """The backend and the proxies, running; `measure` fills `figures`."""

    def __init__(self, folder: Path, stack: ExitStack, options: argparse.Namespace) -> None:
        self._folder = folder
        self._stack = stack
        self._options = options
        self._pids: dict[str, int] = {}
        self._contenders: dict[str, Contender] = {}
        self.figures = Figures({}, options.rounds, options.seconds)
        self._backend = free_port()
        self._open_files()

    def _open_files(self) -> None:
        # The workers of nginx, started by root, are somebody else.
        self._folder.chmod(0o755)
        files = self._folder / "files"
        files.mkdir()
        (files / "64k").write_bytes(os.urandom(65536))
        (files / "10m").write_bytes(os.urandom(10 * 2**20))

    def start(self) -> None:
        """Raises MissingError if not even ours can be measured here."""
        nginx = programs.debian("nginx")
        programs.debian("wrk")
        path = write(self._folder, "backend.conf", {"FOLDER": self._folder, "PORT": self._backend})
        self._run("backend", (nginx, "-c", str(path)), self._backend, OTHER_CORE)
        self._begin(partial(steelyard, self._folder, self._backend))
        for name in self._options.only:
            try:
                self._begin(partial(PEERS[name], self._folder, self._backend))
            except programs.MissingError as error:
                self.figures.missing.append(f"{name}: {error}")
                print(f"skipped {name}: {error}", flush=True)
        nice = f", niceness {self._options.nice}" if self._options.nice else ""
        nice += ", delays in real time" if self._options.real_time else ""
        self.figures.machine = f"{_processor()}, {os.cpu_count()} cores, Linux {platform.release()}{nice}"

    def _begin(self, make: Callable[[], Contender]) -> None:
        contender = make()
        self._contenders[contender.name] = contender
        self.figures.versions[contender.name] = contender.version
        self._run(contender.name, contender.command, contender.port, PROXY_CORE)

    def _run(self, name: str, command: tuple[str, ...], port: int, core: int) -> None:
        self._pids[name] = self._stack.enter_context(running(name, command, port, self._folder, core))

    def measure(self) -> None:
        if "memory" in self._options.parts:
            self._memory()
        for name in self._contenders:
            self._burst(name)  # a warm-up: connections, caches
        if {"requests", "delays"} & set(self._options.parts):
            self._requests()
        if "bodies" in self._options.parts:
            self._bodies()
        if "delays" in self._options.parts:
            self._delays()
        if "endpoints" in self._options.parts:
            self._endpoints()

    def _burst(self, name: str, target: str = load.TARGET, upload: int = 0) -> load.Burst:
        port = self._contenders[name].port
        return load.burst(self._pids[name], port, self._options.seconds, target, upload)

    def _rounds(self, title: str) -> range:
        print(title, flush=True)
        return range(self._options.rounds)

    def _round_over(self, **figures: float) -> None:
        self.figures.loads.append(os.getloadavg()[0])
        seen = ", ".join(f"{name} {value:.1f}" for name, value in figures.items())
        print(f"  load {self.figures.loads[-1]:.1f}: {seen}", flush=True)

    def _requests(self) -> None:
        found = self.figures.small
        for _ in self._rounds("CPU-µs per request"):
            for name in self._contenders:
                found.setdefault(name, []).append(self._burst(name))
            self._round_over(**{name: seen[-1].per_answer for name, seen in found.items()})
        try:
            port = self._contenders[OURS].port
            self.figures.profile = profile(self._pids[OURS], port, PROFILED)
        except programs.MissingError as error:
            self.figures.missing.append(f"profile: {error}")
            print(f"skipped the profile: {error}", flush=True)

    def _bodies(self) -> None:
        names = [name for name in (OURS, "nginx") if name in self._contenders]
        for kind, (target, upload) in KINDS.items():
            found = self.figures.bodies.setdefault(kind, {})
            for _ in self._rounds(f"CPU-µs per MiB, {kind}"):
                for name in names:
                    found.setdefault(name, []).append(self._burst(name, target, upload))
                self._round_over(**{name: seen[-1].per_mib for name, seen in found.items()})

    def _delays(self) -> None:
        """At half of what Envoy can at most, or else half of what we can."""
        try:
            programs.debian("h2load")
        except programs.MissingError as error:
            self.figures.missing.append(f"delays: {error}")
            print(f"skipped the delays: {error}", flush=True)
            return
        small = self.figures.small
        self.figures.rate = max(each.rate for each in small.get("envoy", small[OURS])) / 2
        ports = {"direct": self._backend} | {each.name: each.port for each in self._contenders.values()}
        real_time = self._options.real_time
        for pid in self._pids.values() if real_time else ():
            hasten(pid)
        found = self.figures.delays
        for _ in self._rounds(f"p99 in ms, at {self.figures.rate:.0f} requests a second"):
            for name, port in ports.items():
                seen = load.delay(port, round(self._options.seconds) or 1, self.figures.rate, real_time=real_time)
                found.setdefault(name, []).append(seen)
            self._round_over(**{name: seen[-1].p99 / 1000 for name, seen in found.items()})

    def _endpoints(self) -> None:
        names = [name for name in SCALED if name in self._contenders]
        asked = [(name, count) for name in names for count in (COUNTS if name == OURS else PEERS_COUNTS)]
        for name, count in asked:
            if count > 1:
                self._begin(partial(SCALED[name], self._folder, self._backend, count))
                self._burst(named(name, count))
        found = self.figures.endpoints
        for _ in self._rounds("CPU-µs per request, by endpoints"):
            last = {}
            for name, count in asked:
                one = named(name, count)
                load.burst(self._pids[one], self._contenders[one].port, 1)  # its idle connections have been closed
                last[one] = self._burst(one)
                found.setdefault(name, {}).setdefault(count, []).append(last[one])
            self._round_over(**{one: seen.per_answer for one, seen in last.items()})
        for name, count in asked:
            if count > 1:
                del self._contenders[named(name, count)], self.figures.versions[named(name, count)]

    def _memory(self) -> None:
        print(f"memory: at the start; of each of {IDLE} idle connections", flush=True)
        for name, contender in self._contenders.items():
            self.figures.base[name] = resident(self._pids[name])
            load.burst(self._pids[name], contender.port, 1)
            self.figures.idle[name] = load.idle(self._pids[name], contender.port, IDLE)
            print(f"  {name}: {self.figures.base[name] / 1e6:.1f} MB, {self.figures.idle[name]:.0f} B", flush=True)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a round of one proxy")
    parser.add_argument("--only", nargs="*", choices=PEERS, default=list(PEERS), metavar="PEER")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--out", type=Path, default=Path("reports/peers"))
    parser.add_argument("--nice", type=int, default=0, help="of all processes: below 0, as root, where others work too")
    parser.add_argument("--real-time", action="store_true", help="the delays in real time: as root, likewise")
    options = parser.parse_args()
    os.nice(options.nice)
    with tempfile.TemporaryDirectory(prefix="peers-") as folder, ExitStack() as stack:
        bench = Bench(Path(folder), stack, options)
        try:
            bench.start()
        except programs.MissingError as error:
            print(f"skipped the comparison with peers: {error}")
            return 1 if os.environ.get("STEELYARD_REQUIRE_PEERS") else 0
        bench.measure()
    found = bench.figures
    seen = bars(found, OURS)
    print(report.write(found, seen, options.out))
    for bar in seen:
        print(f"{'met   ' if bar.met else 'MISSED'} {report.line(bar)}")
    return 0 if all(bar.met for bar in seen) else 1


if __name__ == "__main__":
    sys.exit(main())
