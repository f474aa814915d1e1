"""What the operator says about the Jobs API: limits, and whether to be as the system it replaces.

Made by the composition root; read by every module of this package.
"""

from dataclasses import dataclass

from kilnwork.server.jobs import source_sizing as sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits of one server.

    `most_body_bytes`: of one upload as it is sent; None: as the disk has room.
    `most_stored_bytes`: of one input as it is stored, against archives that unpack to more than
    any client wants. `unpacked_bytes`, `unpack_ratio`: what gzip may unpack to, in all and for each
    compressed byte: text gives 5 to 30, the most repetitive logs some 60, and gzip itself 1,032, so
    that 100 refuses what was made to be large; 64 GiB keep a core busy for ten minutes; None: no
    limit. `uploads`: at the same time, others are refused (429).
    `downloads`: the same of results, errors, inputs and manifests, each of which holds some
    `file_bodies.PIECE_BYTES` twice at the most, and a file open for each of up to 32 parts.
    `most_line_bytes`: of a record, whatever a job asks for: that much of it may be in memory, of
    the server and of slots, several times over. `files_per_user`: uploads to `/files` that are not
    complete. `files_bytes_per_user`: of all uploads to `/files` that are there; None: three
    quarters of the disk's room.
    `posts_per_second`: of one user, None: any number; `burst`: as many at once.
    `source_sizing`: the environment of the source system, under
    `kiln up --source-compat`, else None.
    """

    most_body_bytes: int | None = None
    most_stored_bytes: int | None = 1 << 40
    unpacked_bytes: int | None = 64 << 30
    unpack_ratio: int | None = 100
    uploads: int = 64
    downloads: int = 256
    most_line_bytes: int = 64 << 20
    files_per_user: int = 1000
    files_bytes_per_user: int | None = None
    posts_per_second: float | None = None
    burst: int = 100
    source: sources.Source | None = None
