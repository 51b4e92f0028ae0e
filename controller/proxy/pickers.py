"""The pickers of one upstream: built anew where a set has changed, kept where it has not, swapped in one step.

A large hash table is built beside the loop. Until it lands the pickers that exist go on, without the Nodes that have
left their sets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import inf
from random import Random

from controller.balancing.consistent_hash import prepare
from controller.balancing.eligible import Eligible, Level
from controller.balancing.levels import LevelPicker, Without, nodes_of
from controller.balancing.node import Node
from controller.balancing.picker import CandidateSet, EmptyPicker, Options, Picker, PickRequest
from controller.balancing.policies import POLICIES
from controller.balancing.tables import AUTO_RENDEZVOUS
from controller.model.service import HASHING, Algorithm
from controller.proxy.seat import Seat
from controller.proxy.timers import Timers

NOTHING = Eligible((), (), (), frozenset(), inf)

Pick = Callable[[PickRequest], Node]
Built = dict[int, tuple[CandidateSet, Picker]]  # per priority


class Pickers:
    """`installed` is called after every swap: with the new `pick`, and whether all that it may pick is full."""

    def __init__(
        self,
        seat: Seat,
        name: str,
        random: Random,
        timers: Timers,
        installed: Callable[[Pick, bool], None],
    ) -> None:
        self.levels = LevelPicker((), random, hashing=False)  # knows what is full
        self._seat = seat
        self._name = name
        self._random = random
        self._timers = timers
        self._installed = installed
        self._algorithm = Algorithm()
        self._chosen = NOTHING
        self._built: Built = {}
        self._building = False
        self._install([])

    def build(self, chosen: Eligible, algorithm: Algorithm) -> None:
        """Make this set the one that is picked from."""
        if algorithm != self._algorithm:
            self._built = {}
        self._chosen, self._algorithm = chosen, algorithm
        if not (self._building and self._interim(chosen)):
            self._build(chosen)

    def _build(self, chosen: Eligible) -> None:
        """Swap the set in; where a table is large and older pickers can serve meanwhile, after a build off the loop."""
        algorithm = self._algorithm
        large = [
            level.candidates
            for level in chosen.levels
            if self._kept(level) is None and _is_large(level.candidates, algorithm)
        ]
        if not large or not self._interim(chosen):
            self._adopt(chosen)
            return
        self._building = True
        self._timers.off_loop(
            lambda: [prepare(candidates, algorithm.consistent_hash) for candidates in large],
            lambda _: self._landed(chosen, algorithm),
        )

    def _landed(self, chosen: Eligible, algorithm: Algorithm) -> None:
        """The tables of `chosen` are in memory."""
        self._building = False
        if chosen is self._chosen:
            self._adopt(chosen)
            return
        if algorithm == self._algorithm:
            # Behind the newest change, yet nearer to it than what was: changes that never pause must not starve it.
            self._built = self._made(chosen)
        self._build(self._chosen)

    def _adopt(self, chosen: Eligible) -> None:
        self._built = self._made(chosen)
        self._install([(level, self._built[level.priority][1]) for level in chosen.levels])

    def _made(self, chosen: Eligible) -> Built:
        factory = POLICIES[self._algorithm.type]
        built: Built = {}
        for level in chosen.levels:
            picker = self._kept(level)
            if picker is None:
                picker = factory(level.candidates, self._options(level), self._random)
            built[level.priority] = (level.candidates, picker)
        return built

    def _interim(self, chosen: Eligible) -> bool:
        """Serve by the pickers that exist, without what has left their sets; False if nothing could be picked."""
        levels: list[tuple[Level, Picker]] = []
        for level in chosen.levels:
            if level.priority not in self._built:
                continue
            before, picker = self._built[level.priority]
            old, new = nodes_of(before), nodes_of(level.candidates)
            staying = old & new
            if staying:
                candidates = _cut(level.candidates, staying)
                levels.append((level._replace(candidates=candidates), Without(picker, old - staying)))
        if levels or not chosen.levels:
            self._install(levels)
        return bool(levels)

    def _install(self, levels: list[tuple[Level, Picker]]) -> None:
        self.levels = LevelPicker(levels, self._random, hashing=self._algorithm.type in HASHING)
        if not levels:
            pick = EmptyPicker().pick
        elif (
            len(levels) == 1
            and not levels[0][0].wider
            and not any(node.limit for node in nodes_of(levels[0][0].candidates))
        ):
            pick = levels[0][1].pick
        else:
            pick = self.levels.pick
        self._installed(pick, self.levels.full)

    def _kept(self, level: Level) -> Picker | None:
        before = self._built.get(level.priority)
        return before[1] if before is not None and before[0] == level.candidates else None

    def _options(self, level: Level) -> Options:
        return Options(
            algorithm=self._algorithm,
            scope=str(level.priority),
            seed=self._seat.seed(self._name),
            phase=self._seat.phase(self._name),
            min_slots=2 if self._seat.workers == 1 else 4,
        )


def _is_large(candidates: CandidateSet, algorithm: Algorithm) -> bool:
    table = algorithm.consistent_hash.table
    if algorithm.type != "ConsistentHash" or table == "Rendezvous":
        return False
    if table == "Auto":
        return any(size > AUTO_RENDEZVOUS for size in Counter(member.group for member in candidates.members).values())
    return True


def _cut(candidates: CandidateSet, staying: frozenset[Node]) -> CandidateSet:
    groups = (
        group._replace(candidates=tuple(candidate for candidate in group.candidates if candidate.node in staying))
        for group in candidates.groups
    )
    return candidates._replace(groups=tuple(group for group in groups if group.candidates))
