"""Endpoints, and the records of Services and EndpointSlices that they come from.

The records hold the few fields that are read, made from raw JSON; the rules are pure functions over them.
"""

from __future__ import annotations

from typing import Literal

from controller.model.service import Struct

State = Literal["ACTIVE", "DRAINING", "PARKED"]


class Endpoint(Struct, frozen=True, kw_only=True):
    """One address that may be picked for one port of one backend."""

    id: str  # the identity: pod uid, else `address:port`. State belongs to it
    address: str  # an IP literal, IPv6 without brackets
    port: int
    state: State = "ACTIVE"
    pod: str = ""  # `namespace/name` of the pod; "" when there is none
    node: str = ""
    zone: str = ""
    zone_hints: tuple[str, ...] = ()
    node_hints: tuple[str, ...] = ()

    def hash_identity(self, by: Literal["Pod", "Address"]) -> str:
        """What the hash policies know it by: survives a new IP with `Pod`."""
        return f"{self.pod}:{self.port}" if by == "Pod" and self.pod else f"{self.address}:{self.port}"
