"""What the hash policies build on: the members of each share group, and which of them may be picked now.

Tables are made over *all* members, ejected ones included, so that an ejection never renumbers: an unavailable member
is passed over, and only its keys move. Order and weights come from identities alone, so all proxies agree.
"""

from __future__ import annotations

from math import gcd
from random import Random
from typing import NamedTuple

from controller.balancing.node import Node
from controller.balancing.picker import CandidateSet
from controller.balancing.shares import flat


class Membership(NamedTuple):
    """One group's members by (hash identity, id); the three tuples run in parallel."""

    group: str
    identities: tuple[str, ...]
    weights: tuple[int, ...]  # over their greatest common divisor: equal ones are 1
    nodes: tuple[Node | None, ...]  # None: a member that may not be picked now
    total: int  # of the weights as given: the group's own weight
    heaviest: float  # as told by the members, over the divisor; 0 = not told


def memberships(candidates: CandidateSet) -> list[Membership]:
    """Return the groups in the order of their names."""
    eligible = {node.id: node for node in flat(candidates)}
    found = []
    for group in sorted({member.group for member in candidates.members}):
        members = sorted(
            (member for member in candidates.members if member.group == group),
            key=lambda member: (member.identity, member.id),
        )
        divisor = gcd(*(member.weight for member in members))
        found.append(
            Membership(
                group,
                tuple(member.identity for member in members),
                tuple(member.weight // divisor for member in members),
                tuple(eligible.get(member.id) for member in members),
                sum(member.weight for member in members),
                max(member.heaviest for member in members) / divisor,
            )
        )
    return found


def random_key(random: Random) -> bytes:
    """Return a key for a request that has none."""
    return random.randbytes(8)
