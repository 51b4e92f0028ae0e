"""From what the cluster says to what proxies and the API shall hear. Pure.

`translate(inputs, key)` does one object from by-key indexes, so its cost does not grow with the number of others;
`translate_all` does all. The order of what is in `Inputs` changes nothing, equal inputs give equal bytes, and nothing
that `parse` accepts raises. Belongs here: what follows from cluster state alone. Does not belong here: reading or
writing that state (`kube`, or a file), the objects that a BalancedService owns (`children`), a choice per request
(`balancing`).

Read in this order: `inputs`, `resolving` (a backend to endpoints, by `joining` of slices), `allotting` (the numbers
that an object keeps), `assembling` (the snapshot and what else follows), then the status: `fleet` (who
acknowledged), `counting` and `shares`, `facts`.
"""

from __future__ import annotations

from controller.translate.assembling import Translated, translate, translate_all
from controller.translate.gathering import gather
from controller.translate.inputs import BackendHealth, Given, Inputs, Key, ProxyReport, given
from controller.translate.status import Status

__all__ = [
    "BackendHealth",
    "Given",
    "Inputs",
    "Key",
    "ProxyReport",
    "Status",
    "Translated",
    "gather",
    "given",
    "translate",
    "translate_all",
]
