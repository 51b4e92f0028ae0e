"""The HTTP/1.1 codec's seam: one native implementation, `_native`; every framing and smuggling rule lives behind it.

Readers are stateful per connection, refuse at the first impossible byte, and own a copy of the head only.
"""

from typing import final

@final
class Limits:
    def __init__(self, *, head_bytes: int = 65536, fields: int = 256, informational: int = 32) -> None: ...

@final
class Refused:
    """The message can't be served. `status` is what to answer (or 502 for a response), `reason` a fixed code."""

    status: int
    reason: str

@final
class Forwarding:
    """How requests of one port are rewritten; compiled once per port and snapshot."""

    def __init__(
        self,
        *,
        hop: str,  # the pseudonym in our `Steelyard-Hop` line: `namespace.name.steelyard`
        port: int,  # for X-Forwarded-Port
        trusted: tuple[str, ...] = (),  # CIDRs whose forwarding fields are believed
        pod_address: str | None = None,  # sidecar: the client's address is this, and loopback peers are trusted
    ) -> None: ...

@final
class RequestHead:
    method: bytes
    target: bytes  # origin-form as it goes upstream
    host: bytes | None
    version: int  # 10 or 11
    length: int  # body bytes; 0 = none, -1 = chunked
    keep_alive: bool
    upgrade: bytes | None  # tokens to forward; None when there is none or it is ignored (UPG2)
    expect: bool  # Expect: 100-continue
    te_trailers: bool
    idempotent: bool
    max_forwards: int  # -1 = absent; only for OPTIONS and TRACE
    hops: int  # Steelyard-Hop lines already there
    request_id: bytes | None  # a valid X-Request-Id that came with it
    rest: bytes  # what followed the head in the last `feed`

    def field(self, name: bytes) -> bytes | None: ...
    def cookie(self, name: bytes) -> bytes | None: ...
    def query(self, name: bytes) -> bytes | None: ...
    def path(self) -> bytes: ...
    def client(self, forwarding: Forwarding, peer: str) -> str: ...
    def scheme(self, forwarding: Forwarding, peer: str) -> str: ...  # "http" or "https" (FWD3)
    def forward(
        self, forwarding: Forwarding, peer: str, request_id: bytes, authority: bytes, max_forwards: int = -1
    ) -> bytes: ...

@final
class RequestReader:
    def __init__(self, limits: Limits) -> None: ...
    def feed(self, data: bytes) -> RequestHead | Refused | None: ...
    @property
    def started(self) -> bool: ...  # a byte of the next head has come

@final
class ResponseHead:
    status: int
    version: int
    length: int  # 0 = none, -1 = chunked, -2 = until close
    keep_alive: bool
    keep_alive_timeout: int  # seconds of `Keep-Alive: timeout=N`; -1 = absent
    retry_after: float  # seconds, of the delta form; -1 = absent
    upgrade: bool
    rest: bytes

    def field(self, name: bytes) -> bytes | None: ...
    def forward(self, close: bool, request_id: bytes, date: bytes, extra: bytes = b"") -> bytes: ...

@final
class ResponseReader:
    """Reads responses on one upstream connection; 1xx heads too, one per `feed`."""

    def __init__(self, limits: Limits) -> None: ...
    def feed(self, data: bytes, request: RequestHead) -> ResponseHead | Refused | None: ...
    @property
    def started(self) -> bool: ...

@final
class Complete:
    out: bytes

@final
class Truncated: ...

@final
class Body:
    """Carries one body over. In: the framing of `head`; out: the framing that `head.forward` announced."""

    def __init__(self, head: RequestHead | ResponseHead, request: RequestHead | None, limits: Limits) -> None: ...
    def feed(self, data: bytes) -> tuple[bytes, int, bool, bytes] | Refused:
        """-> (out, payload bytes, ended, rest). `out is data` if nothing changes."""
    def eof(self, clean: bool) -> Complete | Truncated: ...
