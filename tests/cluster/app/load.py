"""Send requests at a rate for some seconds; print a report as one line of JSON. "begun" on stderr: the first answer.

    load.py URL [--rate 50] [--concurrency 16] [--seconds 60] [--timeout 5] [--method GET] [--header NAME:VALUE]...
            [--count N]     stop sooner, when so many are sent
            [--fresh]       a new connection for every request
            [--each]        tell of every request by itself
            [--until-eof]   stop sooner, when standard input ends

A request starts at its due time if one of the `concurrency` slots is free, else as soon as one is. The report:

    requests, ok            how many were sent, and answered below 400
    pods, zones, versions   how many answers came from each
    statuses                how many had each status
    failures                each one that is not ok: {at: Unix time, after: seconds it took, reason}
    p50, p99, longest       seconds until the whole answer was there, of the ok ones
    each                    [[at, after, pod, version], ...] of the ok ones, with --each

Who answers is read from the body: the JSON of server.py, or plain text, the version and the pod.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp

LATE = 1.0  # seconds of missed starts that are made up for in a burst; more are dropped


@dataclass
class Report:
    """What came of the requests so far."""

    requests: int = 0
    answers: dict[str, Counter[str]] = field(default_factory=lambda: {k: Counter() for k in ("pod", "zone", "version")})
    statuses: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    each: list[tuple[float, float, str, str]] | None = None

    def ok(self, status: int, body: dict[str, Any], seconds: float) -> None:
        if not self.latencies:
            print("begun", file=sys.stderr, flush=True)
        self.statuses[str(status)] += 1
        self.latencies.append(seconds)
        for name, counter in self.answers.items():
            counter[body.get(name, "")] += 1
        if self.each is not None:
            at = round(time.time() - seconds, 3)
            self.each.append((at, round(seconds, 3), body.get("pod", ""), body.get("version", "")))

    def failed(self, reason: str, seconds: float, status: int | None = None) -> None:
        if status is not None:
            self.statuses[str(status)] += 1
        at = round(time.time() - seconds, 3)
        self.failures.append({"at": at, "after": round(seconds, 3), "reason": reason})

    def as_json(self) -> str:
        ordered = sorted(self.latencies) or [0.0]
        quantiles = {name: round(ordered[int(q * (len(ordered) - 1))], 4) for name, q in (("p50", 0.5), ("p99", 0.99))}
        counts = {f"{name}s": dict(counter) for name, counter in self.answers.items()}
        return json.dumps(
            {"requests": self.requests, "ok": len(self.latencies), "statuses": dict(self.statuses)}
            | counts
            | quantiles
            | {"longest": round(ordered[-1], 4), "failures": self.failures}
            | ({} if self.each is None else {"each": self.each})
        )


def who(text: str) -> dict[str, Any]:
    """Version and pod, and more if it is JSON."""
    if text.startswith("{"):
        found: dict[str, Any] = json.loads(text)
        return found
    return dict(zip(("version", "pod"), text.split(), strict=False))


async def one(session: aiohttp.ClientSession, options: argparse.Namespace, report: Report) -> None:
    """Send one request and enter what came of it."""
    begun = time.monotonic()
    try:
        async with session.request(options.method, options.url, allow_redirects=False) as response:
            text = await response.text()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        report.failed(f"{type(error).__name__}: {error}", time.monotonic() - begun)
        return
    seconds = time.monotonic() - begun
    if response.status >= 400:
        report.failed(f"{response.status} {text[:200]}", seconds, response.status)
    else:
        report.ok(response.status, who(text), seconds)


async def load(options: argparse.Namespace) -> Report:
    """Send requests until told to stop, then wait for the last of them."""
    report, slots, pending = Report(), asyncio.Semaphore(options.concurrency), set()
    report.each = [] if options.each else None
    stopped = asyncio.Event()
    if options.until_eof:
        asyncio.get_running_loop().add_reader(sys.stdin, stopped.set)  # it only ever ends
    connector = aiohttp.TCPConnector(limit=0, force_close=options.fresh)
    timeout = aiohttp.ClientTimeout(total=options.timeout)
    headers = [header.split(":", 1) for header in options.header]
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as session:
        begun = due = time.monotonic()
        while not stopped.is_set() and due - begun < options.seconds and report.requests < options.count:
            await slots.acquire()
            report.requests += 1
            task = asyncio.create_task(one(session, options, report))
            pending.add(task)
            task.add_done_callback(pending.discard)
            task.add_done_callback(lambda _: slots.release())
            due = max(due + 1 / options.rate, time.monotonic() - LATE)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        await asyncio.gather(*pending)
    return report


def main() -> None:
    """Read the command line, send, print the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--timeout", type=float, default=5.0)
    parser.add_argument("--method", default="GET")
    parser.add_argument("--header", action="append", default=[])
    parser.add_argument("--count", type=int, default=sys.maxsize)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--until-eof", action="store_true")
    print(asyncio.run(load(parser.parse_args())).as_json())


if __name__ == "__main__":
    main()
