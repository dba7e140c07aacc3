"""Work of a provider's own that returns its input: a Python function, and a server (`python -m … PORT`)."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROGRAM = "cat"
"""The same as a program."""


def same(data: bytes) -> bytes:
    return data


class SameHandler(BaseHTTPRequestHandler):
    """Returns the body of a POST."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


class SameServer(ThreadingHTTPServer):
    """Takes as many connections at once as there are callers: by default five may wait, and more are reset."""

    request_queue_size = 128


if __name__ == "__main__":
    SameServer(("127.0.0.1", int(sys.argv[1])), SameHandler).serve_forever()
