"""The HTTP/1.1 codec's seam: one native implementation, `_native`; every framing and smuggling rule lives behind it.

Belongs here: what the bytes of a message decide (RFC 9110, RFC 9112). Does not belong here: I/O, time, choices of
an endpoint. Readers are stateful per connection, refuse at the first impossible byte, and own a copy of the head only.
A bug in the native half arrives as `pyo3_runtime.PanicException`, a BaseException.
"""

from typing import final

@final
class Limits:
    """`head_bytes`: of a head, from its first byte to its blank line, and of what lies between two bytes of a body.
    `fields`: of a head or a trailer part. `informational`: 1xx responses to one request."""

    def __init__(self, *, head_bytes: int = 65536, fields: int = 256, informational: int = 32) -> None: ...

@final
class Refused:
    """The message can't be served. `status` is what to answer (or 502 for a response), `reason` a fixed code."""

    @property
    def status(self) -> int: ...
    @property
    def reason(self) -> str: ...

@final
class Forwarding:
    """How requests of one port are rewritten; compiled once per port and snapshot. ValueError: not an address, a CIDR
    or a pseudonym."""

    def __init__(
        self,
        *,
        hop: str,  # the pseudonym in our `Steelyard-Hop` line: `namespace.name.steelyard`
        port: int,  # for X-Forwarded-Port
        trusted: tuple[str, ...] = (),  # CIDRs whose forwarding fields are believed
        pod_address: str | None = None,  # sidecar: the client's address is this, and loopback peers are trusted
    ) -> None: ...

@final
class Identifiers:
    """Makes request ids: `prefix-1`, `prefix-2` … in hexadecimal digits. ValueError: a control byte in the prefix."""

    def __init__(self, prefix: bytes) -> None: ...
    def next(self) -> bytes: ...

@final
class RequestHead:
    @property
    def method(self) -> bytes: ...
    @property
    def target(self) -> bytes:
        """In origin-form, or `*`: as it goes upstream."""
    @property
    def host(self) -> bytes | None:
        """The authority of an absolute target, else `Host`."""
    @property
    def version(self) -> int:
        """10 or 11."""
    @property
    def length(self) -> int:
        """Body bytes; 0 = none, -1 = chunked."""
    @property
    def keep_alive(self) -> bool:
        """The client wants to go on after this request."""
    @property
    def upgrade(self) -> bytes | None:
        """Tokens to forward; None when there are none or the wish is ignored (h2c, TLS, with a body, 1.0)."""
    @property
    def expect(self) -> bool:
        """The client waits for a 100 before it sends the body (which there is)."""
    @property
    def te_trailers(self) -> bool: ...
    @property
    def idempotent(self) -> bool: ...
    @property
    def max_forwards(self) -> int:
        """-1 = absent; only for OPTIONS and TRACE."""
    @property
    def hops(self) -> int:
        """Steelyard-Hop elements that are already there, whoever wrote them."""
    @property
    def plain(self) -> bool:
        """No body, nothing behind it, `hops` 0, no `max_forwards`: the usual request, by one question."""
    def loops(self, forwarding: Forwarding) -> int:
        """Those of them that name this very object: it has been here so many times."""
    @property
    def size(self) -> int:
        """Bytes of the whole head, which it keeps."""
    @property
    def request_id(self) -> bytes | None:
        """A valid X-Request-Id that came with it."""
    def identifier(self, identifiers: Identifiers) -> bytes:
        """That one, or else a new one."""
    def take_rest(self) -> bytes:
        """What followed the head in the last `feed`, once: b"" after that, so that a head doesn't keep it in memory."""
    def field(self, name: bytes) -> bytes | None:
        """Value of the first field with this name, in any case."""
    def cookie(self, name: bytes) -> bytes | None:
        """Value of the first cookie with this name."""
    def query(self, name: bytes) -> bytes | None:
        """Value of the first query parameter with this name: raw bytes, undecoded."""
    def path(self) -> bytes:
        """Raw bytes of the target before `?`."""
    def client(self, forwarding: Forwarding, peer: str) -> str:
        """The client's address: the rightmost hop that isn't trusted; IPv4-mapped addresses as IPv4."""
    def scheme(self, forwarding: Forwarding, peer: str) -> str:
        """ "https" if a trusted peer's X-Forwarded-Proto says so, else "http"."""
    def forward(self, forwarding: Forwarding, peer: str, request_id: bytes, authority: bytes) -> bytes:
        """The head as it goes upstream, with its blank line. `authority`: the endpoint's `address:port`, the Host of
        a 1.0 request without one. `max_forwards` goes out one less. ValueError: a control byte in what we add."""

@final
class RequestReader:
    """Reads the heads of one client connection. After a Refused it refuses for ever."""

    def __init__(self, limits: Limits) -> None: ...
    def feed(self, data: bytes) -> RequestHead | Refused | None: ...
    @property
    def started(self) -> bool:
        """A byte of the next head has come; empty lines before it don't count."""

@final
class ResponseHead:
    @property
    def status(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def length(self) -> int:
        """Body bytes as they come in; 0 = none (HEAD, 204, 304 too), -1 = chunked, -2 = until close."""
    @property
    def keep_alive(self) -> bool:
        """The upstream connection may be used again, once the body has ended."""
    @property
    def keep_alive_timeout(self) -> int:
        """Seconds of `Keep-Alive: timeout=N`; -1 = absent."""
    @property
    def retry_after(self) -> float:
        """Seconds, of the delta form; -1 = absent."""
    @property
    def upgrade(self) -> bool:
        """A 101 that answers the request's Upgrade; what follows belongs to the tunnel."""
    @property
    def ends_by_close(self) -> bool:
        """The client's connection must close behind this response (1.0 without a Content-Length), whatever `close`
        says: the caller has to know."""
    def take_rest(self) -> bytes:
        """As `RequestHead.take_rest`."""
    def field(self, name: bytes) -> bytes | None: ...
    def forward(self, close: bool, request_id: bytes, date: bytes, extra: bytes = b"") -> bytes:
        """The head as it goes to the client, with its blank line. It says `Connection: close` if `close`, or if the
        request asked for it, or if the response ends by the close. `extra`: complete lines, each with its CRLF.
        Interim (1xx) heads get none of the four. ValueError: arguments that would split the head."""

@final
class ResponseReader:
    """Reads responses on one upstream connection; 1xx heads too, one per `feed`: feed what followed for the next."""

    def __init__(self, limits: Limits) -> None: ...
    def feed(self, data: bytes, request: RequestHead) -> ResponseHead | Refused | None: ...
    def read(
        self, data: bytes, request: RequestHead, request_id: bytes, date: bytes
    ) -> bytes | ResponseHead | Refused | None:
        """As `feed`, but of a plain answer all that the client gets: the head as `ResponseHead.forward` writes it, and
        the body. Plain is the usual one: 200–499 but 429, what follows the head is its whole body, `keep_alive`, the
        client's connection stays, no `keep_alive_timeout`. ValueError as there."""
    @property
    def status(self) -> int:
        """Of the latest plain answer that `read` gave."""
    @property
    def length(self) -> int:
        """Its body's bytes."""
    @property
    def started(self) -> bool: ...

@final
class Complete:
    """The body is whole. `out` goes out yet (the last chunk, where a close-delimited body leaves in chunks)."""

    @property
    def out(self) -> bytes: ...

@final
class Truncated:
    """The body is short: it must not look whole."""

@final
class Body:
    """Carries one body over. In: the framing of `head`; out: the framing that `head.forward` announced. `request` is
    given for a response's body: it tells whether the client reads trailers."""

    def __init__(self, head: RequestHead | ResponseHead, request: RequestHead | None, limits: Limits) -> None: ...
    @property
    def ended(self) -> bool:
        """Nothing is to come: true at once where there is no body."""
    def feed(self, data: bytes) -> tuple[bytes, int, bool, bytes] | Refused:
        """-> (out, payload bytes, ended, rest). `out is data` if nothing changes. A chunked body leaves as one chunk
        per call, and its last chunk only with the end of its trailer part."""
    def eof(self, clean: bool) -> Complete | Truncated:
        """The incoming connection ended: `clean` by FIN, else by RST, a fault or a deadline."""
