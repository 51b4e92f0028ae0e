"""The status of one object, as values; `as_dict` makes what server-side apply sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from controller.model.conditions import Fact

LONGEST = 1024  # characters of a message: people read it in a terminal, and it is stored with each object


class BackendStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Counts are of endpoints by the slices; of a hostname, by what the proxies tell."""

    name: str
    resolved: bool
    active: int = 0
    draining: int = 0
    share: str = "0.0%"
    message: str = ""  # what is wrong, if it is not resolved


class PortStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    listen: int


class ProxyStatus(msgspec.Struct, frozen=True, kw_only=True):
    replicas: int = 0
    programmed: int = 0
    version: str = ""
    selector: str = ""
    ports: tuple[PortStatus, ...] = ()


class SidecarStatus(msgspec.Struct, frozen=True, kw_only=True):
    address: str


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    observed_generation: int
    facts: tuple[Fact, ...]  # Accepted, ResolvedRefs, Programmed, Ready
    backends: tuple[BackendStatus, ...] = ()
    endpoints: str = ""
    proxy: ProxyStatus | None = None
    sidecar: SidecarStatus | None = None
    address: str = ""

    def as_dict(self) -> dict[str, Any]:
        """All of `status` but `conditions`, which the writer makes from `facts`; what is empty is left out."""
        fields = {name: value for name, value in msgspec.to_builtins(self).items() if name != "facts"}
        return cast(dict[str, Any], _without_empty(fields))


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_empty(each) for name, each in value.items() if each not in ("", None, ())}
    return [_without_empty(each) for each in value] if isinstance(value, tuple) else value


def told(parts: Sequence[str]) -> str:
    """The parts in one message that is never too long: what does not fit is counted."""
    message = ""
    for index, part in enumerate(parts):
        longer = f"{message}; {part}" if message else part
        if len(longer) > LONGEST:
            return f"{message}; and {len(parts) - index} more" if message else f"{part[: LONGEST - 1]}…"
        message = longer
    return message
