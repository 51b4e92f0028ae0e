"""The proxies of one object: which of them count, and what they acknowledged."""

from __future__ import annotations

from typing import NamedTuple

from controller.model.endpoints import ServiceRecord
from controller.model.service import BalancedService, Mode
from controller.translate.inputs import Inputs, Key, ProxyReport

SILENT = 30.0  # seconds: three times the operator's ping, which each proxy answers


class Fleet(NamedTuple):
    mode: Mode
    expected: int  # Gateway: the proxies that are ready; else the connected ones
    counted: tuple[ProxyReport, ...]  # of the expected, those that are not silent
    programmed: tuple[ProxyReport, ...]  # of the counted, those that serve this generation
    replicas: int

    @property
    def complete(self) -> bool:
        return bool(self.counted) and len(self.programmed) == len(self.counted)


def fleet(inputs: Inputs, service: BalancedService, version: str, front: ServiceRecord | None) -> Fleet:
    """A Gateway's ready proxies are those that `front`'s slices call ready; who else connects is not asked.

    An endpoint's coming and going makes a new version of the same generation, so an acknowledgement of any version of
    this generation will do: else a busy service would never be `Programmed`.
    """
    heard = {report.proxy: report for report in inputs.reports.get(service.key, ())}
    if service.proxy.mode == "Gateway":
        pieces = inputs.slices.get(front.key, ()) if front else ()
        own = [entry for piece in pieces if not piece.ours for entry in piece.endpoints if entry.uid]
        ready = {entry.uid for entry in own if entry.state == "ACTIVE"}
        expected = [heard.get(uid) or ProxyReport(proxy=uid) for uid in sorted(ready)]
        replicas = inputs.replicas.get(service.key, len({entry.uid for entry in own if not entry.terminating}))
    else:
        expected = [heard[uid] for uid in sorted(heard)]
        replicas = len(expected)
    counted = tuple(report for report in expected if report.age <= SILENT)
    programmed = tuple(report for report in counted if _serves(report, version, service.generation))
    return Fleet(service.proxy.mode, len(expected), counted, programmed, replicas)


def heard(inputs: Inputs, key: Key) -> tuple[ProxyReport, ...]:
    """All proxies of an object that are not silent, whatever its mode: for an object that can't be read."""
    reports = sorted(inputs.reports.get(key, ()), key=lambda report: report.proxy)
    return tuple(report for report in reports if report.age <= SILENT)


def _serves(report: ProxyReport, version: str, generation: int) -> bool:
    return not report.error and (report.version == version or (report.generation == generation and generation > 0))
