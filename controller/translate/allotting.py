"""Numbers that an object keeps for as long as it lives: what its proxies listen on.

Each is a function of the object and of what its status already says, so every replica of the operator gets the same
before anything is written.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Collection, Iterable, Mapping

from controller.translate.inputs import LISTEN

RETIRED_KEPT = 16  # beside at most 16 living ones

_LOOPBACK = ipaddress.ip_network("127.64.0.0/10")


def listen_numbers(given: Mapping[str, int], names: Collection[str]) -> dict[str, int]:
    """The number of every port name: kept where given, else the next one that was never used.

    Retired names stay, the newest of them, so that a proxy that still listens for one never meets another port on its
    number; past the last number the lowest free one is taken.
    """
    retired = sorted((name for name in given if name not in names), key=lambda name: given[name])[-RETIRED_KEPT:]
    numbers = {name: number for name, number in given.items() if name in names or name in retired}
    for name in names:
        if name not in numbers:
            numbers[name] = _next(set(numbers.values()))
    return numbers


def _next(used: set[int]) -> int:
    following = max(used, default=LISTEN.start - 1) + 1
    return following if following in LISTEN else next(number for number in LISTEN if number not in used)


def loopback_address(namespace: str, name: str, given: str, claims: Mapping[str, Iterable[str]]) -> str:
    """The address on which sidecars of this namespace serve the object; `claims` are those in the statuses there.

    A new one starts from a hash of the name and goes on to the first unclaimed: an object that is deleted and made
    anew keeps its address, and two new ones can only meet by chance (1 in 4 million); then the first by name keeps it.
    """
    if is_loopback(given) and min(claims.get(given, ()), default=name) >= name:
        return given
    size = _LOOPBACK.num_addresses
    start = int.from_bytes(hashlib.sha256(f"{namespace}/{name}".encode()).digest()[:8], "big")
    candidates = (str(_LOOPBACK[(start + step) % size]) for step in range(size))
    return next(address for address in candidates if all(other == name for other in claims.get(address, ())))


def is_loopback(address: str) -> bool:
    """Whether it is one of those given out here."""
    try:
        return ipaddress.ip_address(address) in _LOOPBACK
    except ValueError:
        return False
