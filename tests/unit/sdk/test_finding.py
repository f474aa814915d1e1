"""The former name of a module stays importable for pickles of earlier versions."""

import pickle

import kilnwork as kiln


def test_pickles_of_earlier_versions_find_public_functions() -> None:
    for name in ("future", "retry"):
        old = f"ckilnwork.sdk.finding\n{name}\n.".encode()  # protocol 0: GLOBAL, STOP
        assert pickle.loads(old) is getattr(kiln, name)  # noqa: S301
