"""HTTP sources: versions, ranges, credentials sent to no other server, addresses that are
guarded."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.data import errors
from kilnwork.data.pond import blob_fetch, origins, store
from kilnwork.pond import http_source
from support import file_server, ponds

FILES = {"a.csv": b"1\n2\n" * 5000, "d/ä b.csv": b"3\n", "empty": b""}


@pytest.fixture
def lake() -> Iterator[file_server.FileServer]:
    with file_server.FileServer(FILES) as served:
        yield served


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[store.PondStore]:
    made = ponds.opened(tmp_path / "pond")
    yield made
    made.close()


def source_of(
    lake: file_server.FileServer,
    *,
    path: str = "",
    secrets: Path | None = None,
    allow: str = "127.0.0.0/8",
) -> http_source.HttpSource:
    return http_source.HttpSource("lake", lake.uri + path, secrets=secrets, allow=[allow])


ALL = origins.Selection(paths=tuple(FILES))


def test_files_are_named(kept: store.PondStore, lake: file_server.FileServer) -> None:
    found = ponds.pin(kept, source_of(lake), ALL)

    assert found.manifest.digest == ponds.manifest_of(FILES).digest
    assert sorted(lake.gets) == sorted(FILES)


def test_single_file_is_a_source(kept: store.PondStore, lake: file_server.FileServer) -> None:
    found = ponds.pin(kept, source_of(lake, path="d/%C3%A4%20b.csv"))

    assert found.manifest.digest == ponds.manifest_of({"ä b.csv": b"3\n"}).digest


def test_unchanged_files_are_not_read_again(
    kept: store.PondStore, lake: file_server.FileServer
) -> None:
    ponds.pin(kept, source_of(lake), ALL)
    lake.requests.clear()

    ponds.pin(kept, source_of(lake), ALL)

    assert lake.gets == []


def test_files_of_a_server_without_versions_are_read_again(
    kept: store.PondStore, lake: file_server.FileServer
) -> None:
    lake.tags = False
    ponds.pin(kept, source_of(lake), ALL)
    lake.files["d/ä b.csv"] = b"4\n"

    found = ponds.pin(kept, source_of(lake), ALL)

    assert found.manifest.digest == ponds.manifest_of(lake.files).digest


def test_a_server_without_head_is_asked_otherwise(
    kept: store.PondStore, lake: file_server.FileServer
) -> None:
    lake.heads = False

    assert ponds.pin(kept, source_of(lake), ALL).manifest.digest == (
        ponds.manifest_of(FILES).digest
    )


def test_a_cut_connection_is_gone_on_with(
    kept: store.PondStore, lake: file_server.FileServer
) -> None:
    lake.cut = 7000
    for _ in range(2):
        with pytest.raises(errors.SourceUnreachable):
            ponds.pin(kept, source_of(lake), origins.Selection(paths=("a.csv",)))
    lake.cut = None

    found = ponds.pin(kept, source_of(lake), origins.Selection(paths=("a.csv",)))

    ranges = [asked for method, _, asked in lake.requests if method == "GET"]
    assert ranges == ["", "bytes=7000-", "bytes=14000-"]
    assert lake.sent == len(FILES["a.csv"])
    assert kept.missing(found.manifest.files) == []


def test_another_version_is_read_from_its_beginning(
    kept: store.PondStore, lake: file_server.FileServer
) -> None:
    lake.cut = 7000
    with pytest.raises(errors.SourceUnreachable):
        ponds.pin(kept, source_of(lake), origins.Selection(paths=("a.csv",)))
    lake.cut, lake.files["a.csv"] = None, b"x" * 20_000

    found = ponds.pin(kept, source_of(lake), origins.Selection(paths=("a.csv",)))

    assert found.manifest.digest == ponds.manifest_of({"a.csv": b"x" * 20_000}).digest


def test_a_server_without_ranges_is_read_from_the_beginning(
    kept: store.PondStore, lake: file_server.FileServer
) -> None:
    lake.cut, lake.ranges = 7000, False
    with pytest.raises(errors.SourceUnreachable):
        ponds.pin(kept, source_of(lake), origins.Selection(paths=("a.csv",)))
    lake.cut = None

    found = ponds.pin(kept, source_of(lake), origins.Selection(paths=("a.csv",)))

    assert kept.missing(found.manifest.files) == []


def test_a_version_that_changes_between_two_requests_is_not_mixed(
    lake: file_server.FileServer,
) -> None:
    source = source_of(lake)
    [listed] = source.list(origins.Selection(paths=("a.csv",)))
    lake.files["a.csv"] = b"y" * 30_000

    with source.open("a.csv", offset=5000, stamp=listed.stamp) as content:
        assert content.start == 0
        assert content.stamp != listed.stamp
        assert b"".join(content.pieces()) == b"y" * 30_000


def test_a_blob_is_fetched_from_where_it_stopped(
    kept: store.PondStore, lake: file_server.FileServer
) -> None:
    file = ponds.manifest_of(FILES).files[0]
    digest, source = bytes.fromhex(file.digest[7:]), source_of(lake)
    origin = origins.Origin(
        "lake", False, lambda offset, stamp: source.open("a.csv", offset=offset, stamp=stamp)
    )
    lake.cut = 7000
    with pytest.raises(errors.SourceUnreachable):
        blob_fetch.fetch(kept, digest, file.size, where=[origin], progress=blob_fetch.Progress())
    lake.cut = None

    blob_fetch.fetch(kept, digest, file.size, where=[origin], progress=blob_fetch.Progress())

    assert lake.sent == file.size


# credentials and addresses


def test_token_is_sent_and_read_for_each_request(
    lake: file_server.FileServer, tmp_path: Path
) -> None:
    lake.token = "first"
    source = source_of(lake, secrets=tmp_path)
    selection = origins.Selection(paths=("empty",))
    with pytest.raises(errors.SourceRefused, match="secretName"):
        source.list(selection)

    (tmp_path / "token").write_text("first\n")
    assert len(source.list(selection)) == 1
    lake.token = "second"
    (tmp_path / "token").write_text("second")
    assert len(source.list(selection)) == 1


def test_a_password_is_shown(lake: file_server.FileServer, tmp_path: Path) -> None:
    (tmp_path / "username").write_text("me")
    (tmp_path / "password").write_text("open:sesame")
    headers: list[str] = []
    lake.seen = headers.append

    source_of(lake, secrets=tmp_path).list(origins.Selection(paths=("empty",)))

    assert headers == ["Basic bWU6b3BlbjpzZXNhbWU="]


def test_a_secret_does_not_follow_a_redirect_to_another_server(
    kept: store.PondStore, lake: file_server.FileServer, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("secret")
    with file_server.FileServer(FILES) as other:
        headers: list[str] = []
        other.seen = headers.append
        lake.redirects["a.csv"] = other.uri + "a.csv"

        ponds.pin(kept, source_of(lake, secrets=tmp_path), origins.Selection(paths=("a.csv",)))

        assert set(headers) == {""}
        assert other.gets == ["a.csv"]


def test_redirects_end(lake: file_server.FileServer) -> None:
    lake.redirects["a.csv"] = lake.uri + "a.csv"

    with pytest.raises(errors.SourceRefused, match="redirects more than"):
        source_of(lake).list(origins.Selection(paths=("a.csv",)))


@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://x/y", "gopher://x"])
def test_redirects_lead_to_http_only(lake: file_server.FileServer, to: str) -> None:
    lake.redirects["a.csv"] = to

    with pytest.raises(errors.SourceRefused, match="a redirect"):
        source_of(lake).list(origins.Selection(paths=("a.csv",)))


def test_addresses_of_this_machine_are_refused_unless_allowed(lake: file_server.FileServer) -> None:
    source = http_source.HttpSource("lake", lake.uri)

    with pytest.raises(errors.SourceRefused, match=r"loopback.*allowAddresses"):
        source.list(origins.Selection(paths=("empty",)))
    assert lake.requests == []


def test_a_redirect_is_guarded_too(lake: file_server.FileServer) -> None:
    with file_server.FileServer(FILES) as other:
        lake.redirects["a.csv"] = other.uri + "a.csv"
        source = source_of(lake, allow=f"127.0.0.1:{lake.port}")

        with pytest.raises(errors.SourceRefused, match="loopback"):
            source.list(origins.Selection(paths=("a.csv",)))
        assert other.requests == []


@pytest.mark.parametrize(
    ("selection", "why"),
    [
        (origins.Selection(), "is a directory"),
        (origins.Selection(glob="*"), "cannot be listed"),
        (origins.Selection(paths=("../a",)), "component"),
        (origins.Selection(paths=("a\r\nX: y",)), "control character"),
    ],
)
def test_selections_that_http_does_not_have(
    lake: file_server.FileServer, selection: origins.Selection, why: str
) -> None:
    with pytest.raises(errors.SourceRefused, match=why):
        source_of(lake).list(selection)
    assert lake.requests == []


def test_missing_file_raises_source_missing(lake: file_server.FileServer) -> None:
    with pytest.raises(errors.SourceMissing, match="no is not there"):
        source_of(lake).list(origins.Selection(paths=("no",)))


def test_a_server_that_is_away(lake: file_server.FileServer) -> None:
    source = http_source.HttpSource("lake", "http://127.0.0.1:1/", allow=["127.0.0.1"])

    with pytest.raises(errors.SourceUnreachable, match=r"127\.0\.0\.1:1 cannot be read"):
        source.list(origins.Selection(paths=("a",)))


def test_a_connection_is_used_again(lake: file_server.FileServer) -> None:
    source = source_of(lake)
    for _ in range(5):
        with source.open("empty", offset=0, stamp="") as content:
            assert list(content.pieces()) == []

    assert lake.connections == 1


@pytest.mark.parametrize(
    "location", ["http://[::1/", "http://a..b/", f"http://{'a' * 70}.x/", "http://x:99999999/"]
)
def test_a_redirect_to_what_is_no_address_is_refused(
    lake: file_server.FileServer, location: str
) -> None:
    lake.redirects["a.csv"] = location

    with pytest.raises(errors.SourceRefused):
        source_of(lake, path="a.csv").list(origins.Selection())
