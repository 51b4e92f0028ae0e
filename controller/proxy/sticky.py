"""Affinity cookies: which endpoint a client is bound to, and the line that binds it (RFC 6265)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.balancing.node import Node
from controller.model.service import Cookie

if TYPE_CHECKING:
    from controller.proxy.forward import Exchange


def bound(exchange: Exchange) -> Node | None:
    """The endpoint that the client's affinity cookie names, if it may serve and has a free slot in the whole pod."""
    token = exchange.head.cookie(exchange.route.cookie_name)
    node = exchange.lane.upstream.bound(token) if token else None
    exchange.binding = node is None
    return None if node is None or node.crowded() else node


def cookie(exchange: Exchange, node: Node) -> bytes:
    """The field line that binds the client to `node`, if it isn't bound already."""
    cookie = exchange.route.affinity
    if cookie is None or not exchange.binding:
        return b""
    https = cookie.secure == "Auto" and exchange.head.scheme(exchange.route.forwarding, exchange.front.peer) == "https"
    return set_cookie(cookie, exchange.lane.upstream.token_for(node), https=https)


def set_cookie(cookie: Cookie, token: bytes, *, https: bool) -> bytes:
    """The field line, CRLF included, that binds a client (RFC 6265)."""
    line = f"Set-Cookie: {cookie.name}={token.decode()}; Path={cookie.path}; HttpOnly; SameSite={cookie.same_site}"
    if cookie.lifetime == "Permanent":
        line += f"; Max-Age={int(cookie.ttl)}"
    if cookie.secure == "Always" or (cookie.secure == "Auto" and https):
        line += "; Secure"
    return f"{line}\r\n".encode()
