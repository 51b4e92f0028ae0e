"""The check of `helm test`: this pod is the backend of a BalancedService, and its client too."""

import os
import sys
import time
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

SERVICE, ANSWER, REQUESTS, PATIENCE = os.environ["SERVICE"], os.environ["HOSTNAME"].encode(), 100, 120.0


class Backend(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_):
        pass


def ask():
    """What comes back through the proxies: this pod's own name, or what is wrong."""
    connection = HTTPConnection(SERVICE, timeout=5)
    try:
        connection.request("GET", "/")
        response = connection.getresponse()
        body = response.read()
        return body if response.status == 200 else f"{response.status} {body.decode(errors='replace').strip()}"
    except (OSError, HTTPException) as error:
        return f"no answer: {error}"
    finally:
        connection.close()


Thread(target=ThreadingHTTPServer(("", 8080), Backend).serve_forever, daemon=True).start()
begun = time.monotonic()
while (found := ask()) != ANSWER:
    if time.monotonic() - begun > PATIENCE:
        sys.exit(f"{SERVICE} does not answer after {PATIENCE:.0f} s: {found}")
    time.sleep(0.25)
print(f"first answer through {SERVICE} after {time.monotonic() - begun:.1f} s", flush=True)
wrong = [found for found in (ask() for _ in range(REQUESTS)) if found != ANSWER]
print(f"{REQUESTS - len(wrong)} of {REQUESTS} requests answered by the backend")
sys.exit(f"first of those that were not: {wrong[0]}" if wrong else 0)
