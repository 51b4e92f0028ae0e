"""Outlier ejection against a naive model: a plain log per endpoint, read anew for every question."""

from __future__ import annotations

from math import floor
from random import Random
from statistics import fmean, pstdev

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller.balancing.node import Kind, Node
from controller.balancing.outlier import Outlier
from controller.model.endpoints import Endpoint
from controller.model.service import PassiveHealth, SuccessRate

SIZE = 7
TERMS = PassiveHealth(
    consecutive_failures=3,
    ejection=30,
    max_ejection=70,
    max_ejected_percent=40,
    success_rate=SuccessRate(  # no round numbers: a rate is never just at the bar, where rounding would decide
        min_requests=4, deviations=1.53, min_gap_percent=23
    ),
)


class Steady(Random):
    def random(self) -> float:
        return 0.0


class Log:
    """What happened to one endpoint, in order: "+", "-" for answers, "|" for a sweep, "E", "R" for out and back."""

    def __init__(self) -> None:
        self.events = ""
        self.until = 0.0
        self.times = 0
        self.healthy = True

    @property
    def out(self) -> bool:
        return max(self.events.rfind("E"), 0) > max(self.events.rfind("R"), 0) or (
            "E" in self.events and "R" not in self.events
        )

    def streak(self) -> int:
        answers = [event for event in self.events[self.events.rfind("R") + 1 :] if event in "+-"]
        return len(answers) - 1 - max((at for at, event in enumerate(answers) if event == "+"), default=-1)

    def interval(self) -> str:
        """The answers that count for the success rate."""
        start = max(self.events.rfind("|"), self.events.rfind("R")) + 1
        return "".join(event for event in self.events[start:] if event in "+-")

    def was_out(self) -> bool:
        """At any time since the last sweep."""
        return self.out or "R" in self.events[self.events.rfind("|") + 1 :]


class OutlierAgainstItsLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.outlier = Outlier(TERMS, Steady(), lambda node: None)
        self.nodes = [
            Node(Endpoint(id=f"{at}", address="10.0.0.1", port=80), 0.0, (self.outlier.observe,)) for at in range(SIZE)
        ]
        self.logs = [Log() for _ in self.nodes]
        self.base = set(range(SIZE))
        self.outlier.base = self.nodes

    def _usable(self, at: int) -> bool:
        log = self.logs[at]
        return log.healthy and (not log.out or log.until <= self.now)

    def _eject(self, at: int) -> None:
        log = self.logs[at]
        if log.out and log.until > self.now:
            return
        others = self.base - {at}
        if at not in self.base or not any(self._usable(other) for other in others):
            return
        if sum(self.logs[other].out for other in others) + 1 > max(1, floor(len(self.base) * 0.4)):
            return
        log.times += 1
        log.until = self.now + min(30 * log.times, 70)
        log.events += "E"

    @rule(at=st.integers(0, SIZE - 1), kind=st.sampled_from(Kind), count=st.integers(1, 4))
    def answer(self, at: int, kind: Kind, count: int) -> None:
        for _ in range(count):
            self.nodes[at].answered(self.now, kind, 0.01)
            self._expect(at, kind)

    def _expect(self, at: int, kind: Kind) -> None:
        log = self.logs[at]
        if kind in (Kind.CANCELLED, Kind.PUSHBACK):
            return
        log.events += "+" if kind is Kind.OK else "-"
        if kind is Kind.OK and log.out and log.until <= self.now:
            log.events += "R"
        if kind is not Kind.OK and (log.out or log.streak() >= 3):
            self._eject(at)

    @rule(seconds=st.sampled_from([0.5, 10.0, 29.5, 30.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(quiet=st.sets(st.integers(0, SIZE - 1), max_size=2))
    def load(self, quiet: set[int]) -> None:
        """A burst of good answers everywhere but at a few, which fail every other time: work for the success rate."""
        for _ in range(3):
            for at in range(SIZE):
                self.answer(at, Kind.OK, 1)
                self.answer(at, Kind.ERROR if at in quiet else Kind.OK, 1)

    @rule()
    def sweep(self) -> None:
        self.outlier.sweep(self.now, self.nodes)
        rated = {at: log.interval() for at, log in enumerate(self.logs) if at in self.base}
        rates = {at: answers.count("+") / len(answers) for at, answers in rated.items() if len(answers) >= 4}
        if len(rates) >= 5:
            gap = max(1.53 * pstdev(rates.values()), 0.23)
            for at, rate in sorted(rates.items()):
                if rate < fmean(rates.values()) - gap:
                    self._eject(at)
        for log in self.logs:
            if not log.was_out():
                log.times = max(0, log.times - 1)
            log.events += "|"

    @rule(at=st.integers(0, SIZE - 1))
    def flip_the_active_check(self, at: int) -> None:
        self.nodes[at].healthy = self.logs[at].healthy = not self.nodes[at].healthy

    @precondition(lambda self: len(self.base) > 1)
    @rule(at=st.integers(0, SIZE - 1))
    def leave_or_join(self, at: int) -> None:
        self.base ^= {at}
        self.outlier.base = [node for number, node in enumerate(self.nodes) if number in self.base]

    @invariant()
    def both_agree(self) -> None:
        for node, log in zip(self.nodes, self.logs, strict=True):
            assert (node.ejected_until is not None) == log.out
            assert node.ejected_until is None or node.ejected_until == log.until
            assert node.times == log.times
            assert (node in self.outlier.causes) == log.out
            assert (node.ok, node.total) == (log.interval().count("+"), len(log.interval()))


OutlierAgainstItsLog.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestOutlierAgainstItsLog = OutlierAgainstItsLog.TestCase
