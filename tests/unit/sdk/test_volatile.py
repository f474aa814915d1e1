"""What homes left in the temporary folder that were killed with all their processes."""

import fcntl
import os
from pathlib import Path

from kilnwork.sdk import volatile


def test_only_old_folders_that_nobody_holds_are_swept(tmp_path: Path) -> None:
    prefix = f"kiln-{os.getuid()}-"
    for name in (
        f"{prefix}old",
        f"{prefix}held",
        f"{prefix}young",
        "kiln-w-x",
        f"kiln-{1 << 30}-x",
    ):
        (tmp_path / name / "blobs").mkdir(parents=True)
    (tmp_path / f"{prefix}link").symlink_to(tmp_path / "kiln-w-x")
    now = (tmp_path / f"{prefix}young").stat().st_mtime
    for name in (f"{prefix}old", f"{prefix}held"):
        os.utime(tmp_path / name, (now - 3600, now - 3600))
    held = os.open(tmp_path / f"{prefix}held", os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        volatile.sweep(tmp_path, now=now)
    finally:
        os.close(held)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {
        f"{prefix}held",
        f"{prefix}young",
        f"{prefix}link",
        "kiln-w-x",
        f"kiln-{1 << 30}-x",
    }
    volatile.sweep(tmp_path / "gone", now=now)
