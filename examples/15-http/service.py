"""A slow service that counts the words of a text. Prints its port."""

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TAKES_S = 1.0
begun: dict[str, tuple[float, int]] = {}
"""When each count was asked for, and what it gives; by its path."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/texts":
            self.reply(200, {"texts": ["to be or not to be", "a rose is a rose"]})
            return
        asked, count = begun[self.path]
        if time.monotonic() - asked < TAKES_S:
            self.reply(202, {"state": "counting"})
        else:
            self.reply(200, {"state": "done", "words": count})

    def do_POST(self) -> None:
        """Accept the work, and respond with the URL of its result."""
        if self.headers["Authorization"] != "Bearer let-me-in":
            self.reply(401, {"error": "who are you?"})
            return
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        where = f"/counts/{len(begun) + 1}"
        begun[where] = time.monotonic(), len(text.split())
        self.reply(202, {"state": "accepted"}, location=where)

    def reply(self, status: int, document: object, *, location: str = "") -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
