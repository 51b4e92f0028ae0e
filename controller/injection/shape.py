"""What is looked into here has the shape that the API demands. In a file it may have any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class _Port(msgspec.Struct):
    containerPort: int | float = 0  # noqa: N815 - the API's names; 8e1 is 80 to it


class _Container(msgspec.Struct):
    ports: list[_Port] | None = None


class _Alias(msgspec.Struct):
    ip: str = ""
    hostnames: list[str] | None = None


class _Volume(msgspec.Struct):
    name: str = ""


class _Spec(msgspec.Struct):
    containers: list[_Container] | None = None
    initContainers: list[_Container] | None = None  # noqa: N815 - the API's
    volumes: list[_Volume] | None = None
    hostAliases: list[_Alias] | None = None  # noqa: N815 - the API's


class _Metadata(msgspec.Struct):
    labels: dict[str, str | None] | None = None
    annotations: dict[str, str | None] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata | None = None
    spec: _Spec | None = None


def misshapen(pod: Mapping[str, Any]) -> str | None:
    """What is wrong and where, for the author; None if nothing is."""
    try:
        msgspec.convert(pod, _Pod)
    except msgspec.ValidationError as error:
        return str(error).replace("`$.", "`")
    return None
