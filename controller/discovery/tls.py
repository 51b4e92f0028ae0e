"""The server's certificate, in an SSL context that is already serving."""

from __future__ import annotations

import ssl
import tempfile

from controller.discovery.certificates import Pair


def use(context: ssl.SSLContext, leaf: Pair) -> None:
    """For connections from now on. OpenSSL takes a key from a file only; it is gone at once.

    Raises ssl.SSLError for a pair that is none, and for a key that is encrypted.
    """
    with tempfile.NamedTemporaryFile() as file:
        file.write(leaf.certificate + b"\n" + leaf.key)
        file.flush()
        # Without a password OpenSSL would ask for it on the terminal.
        context.load_cert_chain(file.name, password="")
