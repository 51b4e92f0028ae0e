"""A message as llhttp reads it, the parser of most proxies: the oracle that the codec is compared with."""

from __future__ import annotations

from typing import Any

import httptools


class Seen:
    """All that llhttp saw of one message; `error` is what it gave up with, perhaps behind a complete message."""

    def __init__(self, raw: bytes, *, response: bool = False) -> None:
        self.fields: list[tuple[bytes, bytes]] = []
        self.trailers: list[tuple[bytes, bytes]] = []
        self.target = self.body = b""
        self.head_complete = self.complete = False
        self.error = ""
        parser: Any = (httptools.HttpResponseParser if response else httptools.HttpRequestParser)(self)
        try:
            parser.feed_data(raw)
        except httptools.HttpParserUpgrade:
            self.complete = True
        except httptools.HttpParserError as error:
            self.error = str(error) or type(error).__name__
        self.version = parser.get_http_version() if self.head_complete else ""
        self.method = b"" if response else parser.get_method() if self.head_complete else b""
        self.status = parser.get_status_code() if response and self.head_complete else 0

    @property
    def served(self) -> bool:
        return self.complete and not self.error

    def values(self, name: bytes) -> list[bytes]:
        return [value.strip(b" \t") for key, value in self.fields if key.lower() == name]

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        (self.trailers if self.head_complete else self.fields).append((name, value))

    def on_headers_complete(self) -> None:
        self.head_complete = True

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True
