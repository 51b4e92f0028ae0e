"""HTTP/1.1 heads and bodies, by one native implementation; `__init__.pyi` is the seam and its documentation."""

from __future__ import annotations

from ._native import (
    Body,
    Complete,
    Forwarding,
    Identifiers,
    Limits,
    Refused,
    RequestHead,
    RequestReader,
    ResponseHead,
    ResponseReader,
    Truncated,
)

__all__ = [
    "Body",
    "Complete",
    "Forwarding",
    "Identifiers",
    "Limits",
    "Refused",
    "RequestHead",
    "RequestReader",
    "ResponseHead",
    "ResponseReader",
    "Truncated",
]
