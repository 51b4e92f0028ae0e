"""SourceHash: the client's address, hashed modulo the weighted members (as nginx's ip_hash, with weights).

An unavailable target is hashed again, never renumbered: ejecting an endpoint moves its own clients only, and they come
back with it. A change of *membership* moves all but one in N of the clients; ConsistentHash is for who minds. The key
is the address's bytes: IPv4 as 4, an IPv4-mapped IPv6 address as IPv4, IPv6 as the 8 of its /64.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from math import gcd
from random import Random

from xxhash import xxh64_intdigest

from controller.balancing.membership import memberships, random_key
from controller.balancing.node import Node
from controller.balancing.picker import CandidateSet, Options, Picker, PickRequest

ATTEMPTS = 20  # then in a circle: with half of the weight unavailable, one key in a million comes so far


def source_hash(candidates: CandidateSet, options: Options, random: Random) -> Picker:
    return SourceHash(candidates, random)


class SourceHash:
    """O(1) with equal weights, else O(log N)."""

    __slots__ = ("_circle", "_groups", "_offsets", "_random", "_sums", "_total")

    def __init__(self, candidates: CandidateSet, random: Random) -> None:
        groups = memberships(candidates)
        divisor = gcd(*(group.total for group in groups))
        self._sums = list(accumulate(group.total // divisor for group in groups))
        self._total = self._sums[-1]
        self._groups = [list(accumulate(group.weights)) for group in groups]
        self._offsets = [0, *accumulate(len(group.nodes) for group in groups)]
        self._circle = [node for group in groups for node in group.nodes]
        self._random = random

    def pick(self, request: PickRequest) -> Node:
        key = request.key if request.key is not None else random_key(self._random)
        at = 0
        for attempt in range(ATTEMPTS):
            at = self._target(key, 2 * attempt)
            node = self._circle[at]
            if node is not None and node not in request.tried:
                return node
        after = self._circle[at:] + self._circle[:at]
        eligible = [node for node in after if node is not None]
        untried = [node for node in eligible if node not in request.tried]
        return untried[0] if untried else eligible[0]

    def _target(self, key: bytes, seed: int) -> int:
        """Return the place in the circle. One seed for group and member would leave half of two pairs unused."""
        group = 0
        if len(self._groups) > 1:
            group = bisect_right(self._sums, xxh64_intdigest(key, seed + 1) % self._total)
        sums = self._groups[group]
        return self._offsets[group] + bisect_right(sums, xxh64_intdigest(key, seed) % sums[-1])
