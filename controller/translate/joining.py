"""From all EndpointSlices of a Service to one list of endpoints for one of its ports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from controller.model.endpoints import Endpoint, Slice, SliceEndpoint, State

_STATES: tuple[State, ...] = ("ACTIVE", "DRAINING", "PARKED")  # the better condition first
_RANK = {state: rank for rank, state in enumerate(_STATES)}


def join(slices: Iterable[Slice], port: str, families: Sequence[str], *, hints: bool) -> tuple[Endpoint, ...]:
    """The endpoints behind the port of that name, sorted by identity; one per pod, else per address and port.

    The number of a named port may differ from slice to slice; a slice without the port, or without its number, gives
    nothing. A pod listed twice (it moves between slices, or has an address of each family) has the better of its
    conditions, and the address of the Service's first family. Hints are left out where nothing follows them, or each
    change of them would be a new version.
    """
    preferred = families[0] if families else "IPv4"
    best: dict[str, tuple[Any, ...]] = {}
    rank: dict[str, int] = {}
    for piece in slices:
        if piece.address_type not in ("IPv4", "IPv6"):
            continue
        number = next((each.number for each in piece.ports if each.name == port), None)
        if number is None:
            continue
        for entry in piece.endpoints:
            id_ = entry.uid or f"{entry.address}:{number}"
            entry_rank = _RANK[entry.state]
            order = (piece.address_type != preferred, entry_rank, entry.address, number, *_rest(entry))
            if id_ not in best or order < best[id_]:
                best[id_] = order
            rank[id_] = min(rank.get(id_, entry_rank), entry_rank)
    return tuple(_endpoint(id_, best[id_], _STATES[rank[id_]], hints=hints) for id_ in sorted(best))


def _rest(entry: SliceEndpoint) -> tuple[Any, ...]:
    return entry.pod, entry.node, entry.zone, entry.zone_hints, entry.node_hints


def _endpoint(id_: str, order: tuple[Any, ...], state: State, *, hints: bool) -> Endpoint:
    _, _, address, number, pod, node, zone, zone_hints, node_hints = order
    return Endpoint(
        id=id_,
        address=address,
        port=number,
        state=state,
        pod=pod,
        node=node,
        zone=zone,
        zone_hints=zone_hints if hints else (),
        node_hints=node_hints if hints else (),
    )
