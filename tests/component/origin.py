"""A backend that is a process of its own and remembers in a file what reached it: `python origin.py PORT LOG`.

It answers each request with the CRC-32 and the length of the body that it read. To the log go `read ID` once a request
is whole, and `answer ID` before the first byte of its answer leaves: ID is the value of `X-Id`. SIGTERM is a pod's
graceful end: nothing more is accepted, what is in flight is answered, idle connections close.

Plain sockets and threads, and nothing but the standard library's small modules: tests start many of these.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import zlib

LOOK = 0.05  # seconds between two looks at whether the end has come
stopping = threading.Event()


class Connection:
    """One connection, served to its end."""

    def __init__(self, sock: socket.socket, log: int) -> None:
        sock.settimeout(LOOK)
        self._sock = sock
        self._log = log
        self._rest = b""

    def serve(self) -> None:
        with self._sock:
            try:
                while self._request():
                    pass
            except OSError:  # the other side has reset it
                return

    def _request(self) -> bool:
        head = self._to(b"\r\n\r\n", idle=True)
        if not head:
            return False
        lines = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
        fields = {name.lower(): value.strip() for name, _, value in lines}
        body = (
            self._chunks() if b"transfer-encoding" in fields else self._exactly(int(fields.get(b"content-length", 0)))
        )
        self._note(b"read", fields[b"x-id"])
        text = b"%d %d" % (zlib.crc32(body), len(body))
        close = b"Connection: close\r\n" if stopping.is_set() else b""
        self._note(b"answer", fields[b"x-id"])
        self._sock.sendall(b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (close, len(text), text))
        return not close

    def _note(self, word: bytes, identity: bytes) -> None:
        os.write(self._log, word + b" " + identity + b"\n")

    def _more(self, *, idle: bool = False) -> bool:
        while True:
            try:
                data = self._sock.recv(262_144)
            except TimeoutError:
                if idle and not self._rest and stopping.is_set():
                    return False
                continue
            self._rest += data
            return bool(data)

    def _to(self, marker: bytes, *, idle: bool = False) -> bytes:
        while marker not in self._rest:
            if not self._more(idle=idle):
                if idle:
                    return b""
                raise ConnectionError
        part, _, self._rest = self._rest.partition(marker)
        return part

    def _exactly(self, count: int) -> bytes:
        while len(self._rest) < count:
            if not self._more():
                raise ConnectionError
        part, self._rest = self._rest[:count], self._rest[count:]
        return part

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self._to(b"\r\n"), 16):
            body += self._exactly(size)
            self._exactly(2)
        self._to(b"\r\n")
        return body


def main(port: int, path: str) -> None:
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    threads = []
    with socket.create_server(("127.0.0.1", port), backlog=512) as listener:
        listener.settimeout(LOOK)
        print("listening", flush=True)
        while not stopping.is_set():
            try:
                sock, _ = listener.accept()
            except TimeoutError:
                continue
            threads.append(threading.Thread(target=Connection(sock, log).serve, daemon=True))
            threads[-1].start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
