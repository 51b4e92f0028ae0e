"""What a hash policy hashes of a request: the first of `hashOn` that is present. Pure."""

from __future__ import annotations

from collections.abc import Callable
from socket import AF_INET, AF_INET6, inet_pton

from controller.model.service import HASHING, Algorithm, HashOn
from controller.proxy.codec import Forwarding, RequestHead

HashKey = Callable[[RequestHead, str], bytes | None]  # the head, the peer's address
_MAPPED = bytes(10) + b"\xff\xff"


def address_key(address: str) -> bytes:
    """IPv4: its 4 bytes, mapped or not. IPv6: the 8 bytes of its /64, which is what one customer has."""
    if ":" not in address:
        return inet_pton(AF_INET, address)
    packed = inet_pton(AF_INET6, address)
    return packed[12:] if packed.startswith(_MAPPED) else packed[:8]


def compile_hash_key(algorithm: Algorithm, forwarding: Forwarding) -> HashKey | None:
    """None for the policies that do not hash."""

    def client(head: RequestHead, peer: str) -> bytes:
        return address_key(head.client(forwarding, peer))

    if algorithm.type == "SourceHash":
        return client
    if algorithm.type != "ConsistentHash":
        return None
    sources = tuple(client if source.client_address else _source(source) for source in algorithm.hash_on)
    if len(sources) == 1:
        return sources[0]

    def first(head: RequestHead, peer: str) -> bytes | None:
        for source in sources:
            key = source(head, peer)
            if key is not None:
                return key
        return None

    return first


def compile_address_key(algorithm: Algorithm, pod_address: str | None) -> Callable[[str], bytes] | None:
    """The same for connections, by the peer's address; in a sidecar the client is the pod (`pod_address`)."""
    if algorithm.type not in HASHING:
        return None
    if pod_address is None:
        return address_key
    key = address_key(pod_address)
    return lambda peer: key


def _source(source: HashOn) -> HashKey:
    if source.header is not None:
        header = source.header.encode()
        return lambda head, peer: head.field(header)
    if source.cookie is not None:
        cookie = source.cookie.encode()
        return lambda head, peer: head.cookie(cookie)
    if source.query is not None:
        query = source.query.encode()
        return lambda head, peer: head.query(query)
    return lambda head, peer: head.path()
