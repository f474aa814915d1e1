"""nginx of a distribution package, for tests: in the foreground, with a socket opened by the
test.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from support import waiting

PROGRAM = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")

_CONFIGURATION = """
daemon off; worker_processes 1; {user} pid {directory}/pid; error_log {directory}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log {directory}/access.log; default_type application/json; keepalive_requests 3;
  client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi; uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  ssl_certificate {certificate}; ssl_certificate_key {certificate};
  server {{ listen 127.0.0.1:{port} ssl; {server} }}
}}
"""


@contextlib.asynccontextmanager
async def running(directory: Path, certificate: Path, server: str) -> AsyncIterator[str]:
    """Run nginx; yield its base URL.

    `server`: content of the `server` block; `certificate`: with its key. nginx inherits the socket
    (by its variable for upgrades), so no other process can take the port.
    """
    assert PROGRAM is not None
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        text = _CONFIGURATION.format(
            directory=directory,
            certificate=certificate,
            port=port,
            server=server,
            user="" if os.getuid() else "user root root;",  # whose directories are its own
        )
        (directory / "nginx.conf").write_text(text)
        process = subprocess.Popen(
            [
                PROGRAM,
                "-p",
                directory,
                "-c",
                directory / "nginx.conf",
                "-e",
                directory / "error.log",
            ],
            pass_fds=[listening.fileno()],
            env={"NGINX": f"{listening.fileno()};"},
            stderr=subprocess.DEVNULL,
        )
    try:
        await waiting.wait_until_async(
            lambda: (directory / "pid").exists() or process.poll() is not None,
            what="nginx is there",
        )
        assert process.poll() is None, (directory / "error.log").read_text()
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()  # it ends its worker
        await asyncio.to_thread(process.wait, 30)
