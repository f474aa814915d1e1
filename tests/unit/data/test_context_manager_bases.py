"""The end of a `with` block closes what was committed, and aborts what was not."""

import pytest

from kilnwork.data import context_manager_bases


class Closed(context_manager_bases.Closeable):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def close(self) -> None:
        self.calls.append("close")


class Aborted(context_manager_bases.Abortable):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def abort(self) -> None:
        self.calls.append("abort")


@pytest.mark.parametrize(("kind", "call"), [(Closed, "close"), (Aborted, "abort")])
def test_with_block_ends_with_one_call(kind: type[Closed] | type[Aborted], call: str) -> None:
    with kind() as opened:
        assert opened.calls == []
    assert opened.calls == [call]


@pytest.mark.parametrize("kind", [Closed, Aborted])
def test_error_in_with_block_is_not_suppressed(kind: type[Closed] | type[Aborted]) -> None:
    made = kind()
    with pytest.raises(OSError, match="disk"), made:
        raise OSError("disk")
    assert len(made.calls) == 1
