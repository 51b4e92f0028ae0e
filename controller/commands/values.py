"""Kinds of option values that click doesn't know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from controller.proxy.sidecar import SidecarService


class HostPort(click.ParamType[tuple[str, int] | None]):
    """`HOST:PORT`, an IPv6 host in brackets; `Disabled` for no listener."""

    name = "HOST:PORT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int] | None:
        if not isinstance(value, str):
            return value  # type: ignore[return-value]  # a default, converted already
        if value == "Disabled":
            return None
        host, colon, port = value.rpartition(":")
        if not colon or not port.isdecimal() or not 0 < int(port) <= 65535:
            self.fail(f"{value!r} is not HOST:PORT (for instance 127.0.0.1:19901 or [::]:19902)", param, ctx)
        return host.removeprefix("[").removesuffix("]"), int(port)


class ControlUrl(click.ParamType[str]):
    """`https://HOST:PORT`; in the clear only on loopback, since a token goes over it."""

    name = "URL"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        parts = urlsplit(str(value))
        clear = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
        if not parts.hostname or not (parts.scheme == "https" or clear):
            self.fail(f"{value!r} is not https://HOST:PORT", param, ctx)
        return str(value)


class Service(click.ParamType["SidecarService"]):
    """`NAME=ADDRESS:PORT/PROTOCOL/PORTNAME,…`, as the injector writes it."""

    name = "SERVICE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> SidecarService:
        from controller.proxy.sidecar import service

        try:
            return service(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Resources(click.ParamType[dict[str, object] | None]):
    """A container's `resources` as a JSON object."""

    name = "JSON"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, object] | None:
        if not isinstance(value, str):
            return value  # type: ignore[return-value]  # a default, converted already
        try:
            found = json.loads(value)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not found.keys() <= {"requests", "limits"}:
            self.fail(f"{value!r} is no JSON object with requests and limits", param, ctx)
        return found
