"""Send requests at a rate for some seconds; print a report as one line of JSON.

    load.py URL [--rate 50] [--concurrency 16] [--seconds 60] [--timeout 5] [--method GET] [--header NAME:VALUE]...
            [--fresh]       a new connection for every request
            [--until-eof]   stop sooner, when standard input ends

A request starts at its due time if one of the `concurrency` slots is free, else as soon as one is. The report:

    requests, ok            how many were sent, and answered below 400
    pods, zones, versions   how many answers came from each
    statuses                how many had each status
    failures                each one that is not ok: {at: Unix time, after: seconds it took, reason}
    p50, p99, longest       seconds until the whole answer was there, of the ok ones
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

    def ok(self, status: int, body: dict[str, Any], seconds: float) -> None:
        self.statuses[str(status)] += 1
        self.latencies.append(seconds)
        for name, counter in self.answers.items():
            counter[body.get(name, "")] += 1

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
        )


async def one(session: aiohttp.ClientSession, options: argparse.Namespace, report: Report) -> None:
    """Send one request and enter what came of it."""
    report.requests += 1
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
        report.ok(response.status, json.loads(text), seconds)


async def load(options: argparse.Namespace) -> Report:
    """Send requests until told to stop, then wait for the last of them."""
    report, slots, pending = Report(), asyncio.Semaphore(options.concurrency), set()
    stopped = asyncio.Event()
    if options.until_eof:
        asyncio.get_running_loop().add_reader(sys.stdin, stopped.set)  # it only ever ends
    connector = aiohttp.TCPConnector(limit=0, force_close=options.fresh)
    timeout = aiohttp.ClientTimeout(total=options.timeout)
    headers = [header.split(":", 1) for header in options.header]
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as session:
        begun = due = time.monotonic()
        while not stopped.is_set() and due - begun < options.seconds:
            await slots.acquire()
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
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--until-eof", action="store_true")
    print(asyncio.run(load(parser.parse_args())).as_json())


if __name__ == "__main__":
    main()
