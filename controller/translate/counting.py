"""How many endpoints each backend has, how many of them the proxies find usable, and what share it gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from controller.model.endpoints import State
from controller.model.service import Backend, BalancedService
from controller.translate.inputs import ProxyReport
from controller.translate.resolving import Problem, Target
from controller.translate.shares import Standing, shares
from controller.translate.status import BackendStatus, told


class Count(NamedTuple):
    """One backend; with several ports, each number is that of the port that has the most."""

    backend: Backend
    targets: tuple[Target, ...]
    active: int
    draining: int
    known: int
    usable: int  # of the active ones: the least that any proxy reports, else all
    unseen: bool  # behind a hostname, and no proxy has told yet what it stands for

    @property
    def problems(self) -> list[Problem]:
        """Each once, though it may concern several ports."""
        return list(dict.fromkeys(target.problem for target in self.targets if target.problem))

    @property
    def standing(self) -> Standing:
        # A hostname that nobody has told of is taken to have an endpoint, or every other share would be too high.
        active, usable = (1, 1) if self.unseen else (self.active, self.usable)
        backend = self.backend
        return Standing(
            weight=backend.weight,
            weight_per=backend.weight_per,
            priority=backend.priority,
            active=active,
            usable=usable,
        )


def count(backend: Backend, targets: tuple[Target, ...], reports: Sequence[ProxyReport]) -> Count:
    told = [report.health[backend.name] for report in reports if backend.name in report.health]
    hostname = any(target.hostname for target in targets)
    if hostname:
        known = active = min((each.known for each in told), default=0)
        draining = 0
    else:
        known = max(len(target.endpoints) for target in targets)
        active, draining = _most(targets, "ACTIVE"), _most(targets, "DRAINING")
    usable = min([active, *(each.usable for each in told)])
    return Count(backend, targets, active, draining, known, usable, unseen=hostname and not told)


def _most(targets: Sequence[Target], state: State) -> int:
    return max(sum(endpoint.state == state for endpoint in target.endpoints) for target in targets)


def backend_rows(service: BalancedService, counts: Sequence[Count]) -> tuple[BackendStatus, ...]:
    parts = shares([each.standing for each in counts], service.health.panic_percent)
    return tuple(
        BackendStatus(
            name=each.backend.name,
            resolved=not each.problems,
            active=each.active,
            draining=each.draining,
            share=f"{100 * part:.1f}%",
            message=told([problem.message for problem in each.problems]),
        )
        for each, part in zip(counts, parts, strict=True)
    )


def tally(reports: Sequence[ProxyReport], names: frozenset[str]) -> tuple[int, int] | None:
    """(usable, known) of the proxy that finds the fewest usable endpoints in these backends; None: none has told."""
    told = [[health for name, health in report.health.items() if name in names] for report in reports if report.health]
    return min(((sum(each.usable for each in one), sum(each.known for each in one)) for one in told), default=None)


def column(counts: Sequence[Count], reports: Sequence[ProxyReport]) -> str:
    """The printer column: usable/known, as the least of the proxies has it, else as the slices have it."""
    least = tally(reports, frozenset(each.backend.name for each in counts))
    usable, known = least or (sum(each.active for each in counts), sum(each.known for each in counts))
    return f"{usable}/{known}"
