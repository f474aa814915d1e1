"""A function that greets at once, or after a while by callback. Listens on $PORT, as Knative
requires.
"""

import json
import os
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

waiting: dict[str, threading.Timer] = {}
"""Greetings that are still to come, by whom they greet."""


def call_back(url: str, whom: str) -> None:
    body = json.dumps(f"hello {whom}, at last").encode()
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, body, headers, method="POST"), timeout=30)
    waiting.pop(whom, None)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.reply(200, f"hello {self.path.rpartition('/')[2]}")

    def do_POST(self) -> None:
        """Accept the work, to send its result later."""
        whom, _, seconds = self.path.rpartition("/")[2].partition("?after=")
        url = self.headers["Kiln-Callback-Url"]
        waiting[whom] = threading.Timer(float(seconds), call_back, (url, whom))
        waiting[whom].start()
        self.reply(202, "accepted")

    def do_DELETE(self) -> None:
        """End the work of a task that was killed."""
        timer = waiting.pop(self.path.rpartition("/")[2], None)
        if timer is not None:
            timer.cancel()
        self.reply(200 if timer is not None else 404, "it has ended")

    def reply(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
