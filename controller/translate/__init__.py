"""From what the cluster says to what proxies and the API shall hear. Pure.

`translate(inputs, key)` does one object from by-key indexes, so its cost does not grow with the number of others;
`translate_all` does all. The order of what is in `Inputs` changes nothing, equal inputs give equal bytes, and nothing
that `parse` accepts raises. Belongs here: what follows from cluster state alone. Does not belong here: reading or
writing that state (`kube`, or a file), the objects that a BalancedService owns (`children`), a choice per request
(`balancing`).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from controller.model.snapshot import Snapshot
from controller.translate.inputs import BackendHealth, Given, Inputs, Key, ProxyReport, given
from controller.translate.status import Fact, Status

__all__ = [
    "BackendHealth",
    "Fact",
    "Given",
    "Inputs",
    "Key",
    "ProxyReport",
    "Status",
    "Translated",
    "given",
    "translate",
    "translate_all",
]


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """One object's results."""

    snapshot: Snapshot | None  # None = no change: the last good one keeps serving, and no child is written
    status: Status
    admitted: tuple[str, ...] = ()  # Gateway: the ports that may be in its Service: those that ready proxies listen on


def translate(inputs: Inputs, key: Key) -> Translated:
    """Translate the object at `key`, which must be in `inputs.objects`."""
    raise NotImplementedError


def translate_all(inputs: Inputs) -> Mapping[Key, Translated]:
    return {key: translate(inputs, key) for key in sorted(inputs.objects)}
