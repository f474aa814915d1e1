"""Tasks that print more than is kept: nothing is counted twice, and what is missing is reported."""

import os
import re
from pathlib import Path

import pytest

import kilnwork as kiln

pytestmark = pytest.mark.timeout(120)

LINE = b"x" * 99 + b"\n"
BLOCKS = 1500
BLOCK = LINE * 1000
LOSS_NOTICE = re.compile(
    rb"\n?\[kilnwork: (?:the first )?(\d+) bytes of (?:the log|output)[^\]]*\]\n"
)


@kiln.task
def chatty() -> int:
    for _ in range(BLOCKS):
        os.write(1, BLOCK)
    print("the last line")
    return os.getpid()


def test_output_of_a_call_is_kept_or_its_loss_reported(tmp_path: Path) -> None:
    """150 MB, of which the last 8 to 16 MiB are kept."""
    with kiln.start(tmp_path, slots=1):
        future = chatty.submit()
        future.result(60)
        directory = tmp_path / "logs" / future.id
        files = [directory / "1-1.log.1", directory / "1-1.log"]
        text = b"".join(file.read_bytes() for file in files if file.exists())
        rotated = directory / "1-1.log.rotated"
    gone = (int(rotated.read_text()) - 1) * (8 << 20) if rotated.exists() else 0
    assert text.endswith(b"x\nthe last line\n")
    lost = [int(count) for count in LOSS_NOTICE.findall(text)]
    kept = len(LOSS_NOTICE.sub(b"", text))
    total = BLOCKS * len(BLOCK) + len("the last line\n")
    assert kept + sum(lost) <= total
    if not gone:
        assert kept + sum(lost) == total
