"""Digests are those of SHA-256, whichever implementation made them."""

import hashlib
import subprocess
import sys

import pytest

from kilnwork.kit import digests


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 1 << 20])
def test_both_implementations_return_the_same_digest(size: int) -> None:
    content = bytes(number % 251 for number in range(size))
    expected = hashlib.sha256(content).digest()
    views = [memoryview(content)[: size // 3], memoryview(content)[size // 3 :]]
    assert digests.sha256_of(views) == expected
    hashed = digests.sha256()
    for view in views:
        hashed.update(view)
    assert hashed.digest() == expected


def test_openssl_is_loaded_for_large_values_only() -> None:
    program = (
        "import sys; from kilnwork.kit import digests;"
        "digests.sha256_of([b'x' * 2048] * 2); small = '_hashlib' in sys.modules;"
        "digests.sha256_of([b'x' * 2048] * 3); print(small, '_hashlib' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True"]
