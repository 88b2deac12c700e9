"""Files of a log in an object store: what is there, what is not, and stores that answer badly."""

from __future__ import annotations

import builtins
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.env import object_stores
from raftlog.env.errors import Damaged
from raftlog.env.files import OsFiles, join, parent
from raftlog.env.object_stores import (
    StoreError,
    StoreFiles,
    UnknownStore,
    files_at,
    filesystem_at,
    meaning_of,
)
from raftlog.storage.archive import read_segment
from raftlog.storage.segments import log_name
from tests.support.object_stores import (
    environment_of,
    error_answer,
    google_store,
    hostile_server,
    moto_server,
    upload,
)

ENTRIES = {"node": b"n" * 10, "metadata/manifest": b"", "shard-0/archive/1.log": bytes(range(256)) * 300}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("log")
    for name, content in ENTRIES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    with moto_server() as bucket:
        upload(folder, f"{bucket}/a/cluster")
        yield folder, f"{bucket}/a/cluster"


def test_a_store_answers_like_the_directory_that_was_copied_to_it(filled: tuple[Path, str]) -> None:
    assert_alike(*filled)


def test_google_cloud_storage_lists_folders_that_are_no_objects(
    filled: tuple[Path, str], tmp_path: Path
) -> None:
    pytest.importorskip("gcp_storage_emulator", reason="needs gcp-storage-emulator")
    shutil.copytree(filled[0], tmp_path / "a" / "cluster")
    with google_store(tmp_path) as bucket:
        assert_alike(filled[0], f"{bucket}/a/cluster")
        assert files_at(bucket).listdir(bucket) == ["a"]
        assert files_at(f"{bucket}/a").is_dir(f"{bucket}/a/cluster")


def assert_alike(folder: Path, url: str) -> None:
    """Check that a store has what the folder has, and says so for every place in it."""
    here, there = OsFiles(), files_at(url)
    for place in ("", "shard-0", "shard-0/archive"):
        assert there.listdir(join(url, place)) == here.listdir(str(folder / place))
    for name, content in ENTRIES.items():
        path = join(url, name)
        assert there.read(path) == content
        assert there.size(path) == len(content)
        assert there.exists(path)
        assert not there.is_dir(path)
        assert there.is_dir(parent(path))
    file = there.open(join(url, "shard-0/archive/1.log"), "r")
    whole = ENTRIES["shard-0/archive/1.log"]
    assert file.pread(100, 250) == whole[250:350]
    assert file.pread(100, len(whole) - 5) == whole[-5:]
    assert file.pread(100, len(whole) + 5) == b""
    file.close()


def test_s3a_is_read_as_s3(filled: tuple[Path, str]) -> None:
    url = filled[1].replace("s3://", "s3a://")
    assert files_at(url).read(join(url, "node")) == ENTRIES["node"]


def test_what_is_missing_is_not_found(filled: tuple[Path, str]) -> None:
    files, url = files_at(filled[1]), filled[1]
    assert not files.exists(join(url, "nothing"))
    assert not files.is_dir(join(url, "nothing"))
    for call in (files.read, files.size, files.listdir, lambda path: files.open(path, "r")):
        with pytest.raises(FileNotFoundError):
            call(join(url, "nothing", "at all"))
    other = "s3://no-such-bucket/cluster"
    assert not files_at(other).is_dir(other)


def test_a_name_in_an_error_is_not_taken_for_its_cause(filled: tuple[Path, str]) -> None:
    home = filled[1].rpartition("/")[0]
    for name in ("kafka-connect", "SlowDown", "credentials-EXPIRED", "HTTP status 503"):
        with pytest.raises(FileNotFoundError):
            files_at(filled[1]).read(f"{home}/{name}")
    said = (
        "Error performing GET http://h/connect/SlowDown/x in 1s - Server returned error response: status 403"
    )
    assert (meaning_of(OSError(said)) or ("", ""))[1] == "the store refused the credentials"


def test_nothing_is_written(filled: tuple[Path, str]) -> None:
    files, path = files_at(filled[1]), join(filled[1], "node")
    for write in (files.unlink, files.mkdir, files.fsync_dir, files.lock, lambda path: files.open(path, "w")):
        with pytest.raises(OSError, match=r"only read|local directory"):
            write(path)
    assert files.read(path) == ENTRIES["node"]


ANSWERS = {
    "503": (error_answer(503, "ServiceUnavailable"), "overloaded or out of order"),
    "slow down": (error_answer(503, "SlowDown"), "overloaded or out of order"),
    "denied": (error_answer(403, "AccessDenied"), "refused the credentials"),
    "unknown key": (error_answer(403, "InvalidAccessKeyId"), "refused the credentials"),
    "expired": (error_answer(400, "ExpiredToken"), "credentials have expired"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_a_refusal_is_one_clear_line(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, words = ANSWERS[case]
    monkeypatch.setattr(object_stores, "ATTEMPTS_MAX", 2)
    with hostile_server(answer) as endpoint:
        for name, value in environment_of(endpoint).items():
            monkeypatch.setenv(name, value)
        url = "s3://bucket/cluster"
        files = StoreFiles(url)
        for call in (files.is_dir, files.read, files.listdir):
            with pytest.raises(StoreError, match=words) as found:
                call(url)
            assert found.value.filename == url
            assert "\n" not in str(found.value)


def test_a_store_that_resets_or_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_stores, "ATTEMPTS_MAX", 1)
    monkeypatch.setattr(object_stores, "REQUEST_SECONDS", 0.5)
    for resets, words in ((True, "connection to the store was lost"), (False, "did not answer within")):
        with hostile_server(resets=resets) as endpoint:
            for name, value in environment_of(endpoint).items():
                monkeypatch.setenv(name, value)
            with pytest.raises(StoreError, match=words):
                StoreFiles("s3://bucket/cluster").listdir("s3://bucket/cluster")


def test_a_store_that_is_away_is_not_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_stores, "ATTEMPTS_MAX", 1)
    with hostile_server(error_answer(503, "SlowDown")) as endpoint:
        for name, value in environment_of(endpoint).items():
            monkeypatch.setenv(name, value)
        home = "s3://bucket/cluster/shard-0"
        with pytest.raises(StoreError) as found:
            read_segment(StoreFiles(home), home, 1)
        assert not isinstance(found.value, Damaged)
        assert found.value.filename == join(home, log_name(1))


def test_a_url_of_an_unknown_kind_and_a_missing_pyarrow_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownStore, match=r"ftp:// is not supported: give a path or one of s3://"):
        files_at("ftp://host/a")
    with pytest.raises(UnknownStore, match="names no bucket"):
        files_at("s3://")
    real = builtins.__import__

    def without(name: str, *more: object) -> object:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnknownStore, match=r"needs pyarrow: run `pip install -e '\.\[store\]'`"):
        files_at("s3://bucket/a")
    assert isinstance(files_at("/a/b"), OsFiles)


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    assert isinstance(files_at(f"file://{tmp_path}"), OsFiles)
    assert filesystem_at(f"file://{tmp_path}")[1] == str(tmp_path)
