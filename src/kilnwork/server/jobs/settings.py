"""Settings of the Jobs API: limits, and emulation of aksjobscheduler, which kilnwork replaces.

Created by the composition roots; read by `app` and the handlers.
"""

from dataclasses import dataclass

from kilnwork.server.jobs import aksjobscheduler_settings as sources


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsApiSettings:
    """Settings of the Jobs API of one server."""

    most_body_bytes: int | None = None
    """Maximum size of one upload as it is sent; None: limited by disk space."""
    most_stored_bytes: int | None = 1 << 40
    """Maximum size of one input as it is stored, against archives that unpack to more than any
    client wants; None: no limit.
    """
    unpacked_bytes: int | None = 64 << 30
    """Maximum size to which gzip may unpack; None: no limit. 64 GiB keep a core busy for ten
    minutes."""
    unpack_ratio: int | None = 100
    """Maximum number of bytes to which one compressed byte may unpack; None: no limit. Text gives 5
    to 30, the most repetitive logs some 60, and gzip itself up to 1,032, so that 100 refuses only
    archives that were made to unpack to a large size."""
    uploads: int = 64
    """Maximum number of concurrent uploads; others are refused (429)."""
    downloads: int = 256
    """Maximum number of concurrent downloads of results, errors, inputs and manifests. Each holds
    at most `file_bodies.PIECE_BYTES` twice, and has up to 32 files open, one per part."""
    most_line_bytes: int = 64 << 20
    """Maximum size of a record, whatever a job asks for: the server and slots may have that much in
    memory several times over."""
    files_per_user: int = 1000
    """Maximum number of incomplete uploads to `/files` of one user."""
    files_bytes_per_user: int | None = None
    """Maximum total size of one user's uploads to `/files`; None: three quarters of the space that
    is free on the disk or used by these uploads.
    """
    posts_per_second: float | None = None
    """Maximum rate of new jobs of one user; None: no limit."""
    burst: int = 100
    """Number of new jobs that one user may create at once."""
    source: sources.Source | None = None
    """Settings of the emulated aksjobscheduler (`kiln up --source-compat`); None: no emulation."""
