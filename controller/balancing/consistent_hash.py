"""ConsistentHash: a key has an order of preference over the members; the first that may take it gets it.

Groups are ranked first, by weighted rendezvous, so that a removal inside one backend moves no other backend's keys;
then each group's own table: rendezvous up to 128 members, Maglev above, or what `table` names. Passed over are members
that are not eligible, tried, or at their bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from controller.balancing.bounded_load import Bound
from controller.balancing.membership import Membership, memberships, random_key
from controller.balancing.node import Node
from controller.balancing.picker import CandidateSet, Options, Picker, PickRequest
from controller.balancing.rendezvous import Rendezvous
from controller.balancing.shares import flat
from controller.balancing.tables import Table, table
from controller.model.service import ConsistentHash as Terms


def consistent_hash(candidates: CandidateSet, options: Options, random: Random) -> Picker:
    return ConsistentHashPicker(candidates, options, random)


def prepare(candidates: CandidateSet, how: Terms) -> list[Table]:
    """Build the tables, or find them built. Touches no Node, so a thread may do it ahead of `consistent_hash`."""
    return _tables(memberships(candidates), how)


def _tables(groups: list[Membership], how: Terms) -> list[Table]:
    return [table(how.table, group.identities, group.weights, group.heaviest) for group in groups]


class ConsistentHashPicker:
    """Two workers with the same members agree on every key, whatever they have seen."""

    __slots__ = ("_bound", "_first", "_free", "_nodes", "_random", "_ranking", "_single", "_tables")

    def __init__(self, candidates: CandidateSet, options: Options, random: Random) -> None:
        how = options.algorithm.consistent_hash
        groups = memberships(candidates)
        self._nodes = [group.nodes for group in groups]
        self._tables = _tables(groups, how)
        self._ranking = Rendezvous([group.group for group in groups], [group.total for group in groups])
        self._single = len(groups) == 1
        self._first = self._tables[0].first
        self._bound = Bound(flat(candidates), how.bounded_load, options.min_slots, options.scope)
        self._free = options.min_slots  # a load below it needs no look at the bound
        self._random = random

    def pick(self, request: PickRequest) -> Node:
        key = request.key
        if key is None:
            key = random_key(self._random)
        if self._single:
            home = self._nodes[0][self._first(key)]
        else:
            group = self._ranking.first(key)
            home = self._nodes[group][self._tables[group].first(key)]
        if (
            home is not None
            and (not request.tried or home not in request.tried)
            and (home.load() < self._free or self._bound.admits(home, request.now))
        ):
            return home
        return self._further(key, request)

    def _order(self, key: bytes) -> Iterator[Node]:
        groups = (0,) if self._single else self._ranking.order(key)
        for group in groups:
            nodes = self._nodes[group]
            for at in self._tables[group].order(key):
                node = nodes[at]
                if node is not None:
                    yield node

    def _further(self, key: bytes, request: PickRequest) -> Node:
        tried, admits, now = request.tried, self._bound.admits, request.now
        open_nodes = []
        for node in self._order(key):
            if node not in tried:
                if admits(node, now):
                    return node
                open_nodes.append(node)
        # Whoever is under its bound has been tried, or all have been.
        return self._bound.least(open_nodes or list(self._order(key)))
