"""Who this process is among all that balance the same endpoints: what keeps a fleet from moving in step.

Orders are the pod's (its workers share one, so that their starts can be even), starts are the worker's, random
numbers are the worker's and the upstream's. Never the time, and never a generator that forked workers would inherit.
"""

from __future__ import annotations

from random import Random

import msgspec
from xxhash import xxh64_intdigest

from controller.balancing.locality import Place


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    identity: str  # the pod's uid, or random
    worker: int = 0
    workers: int = 1
    place: Place = Place()

    def random(self, upstream: str) -> Random:
        return Random(xxh64_intdigest(f"{self.identity}/{self.worker}/{upstream}".encode()))

    def seed(self, upstream: str) -> int:
        return int(xxh64_intdigest(f"{self.identity}/{upstream}".encode()))

    def phase(self, upstream: str) -> float:
        """In [0, 1): even between the workers of a pod (van der Corput's sequence), random between pods."""
        offset, step, rest = 0.0, 0.5, self.worker
        while rest:
            offset += step * (rest & 1)
            rest >>= 1
            step /= 2
        return (self.seed(upstream) / 2**64 + offset) % 1.0
