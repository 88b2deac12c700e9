"""Stores by their URLs, and what a run says when one fails: nothing is lost, and it is told in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from quorate.spark.errors import OutputError
from quorate.spark.tables import Output, Store
from quorate.spark.tables.failures import WORDS_MAX, told
from tests.pipeline.lake import CLUSTER, expected, rows_of, run_at, seen, written
from tests.support.object_stores import bucket_at, error_answer, hostile_server


@pytest.mark.parametrize(
    ("given", "url", "root"),
    [
        ("/data/out/", "file:///data/out", "/data/out"),
        ("file:///data/out", "file:///data/out", "/data/out"),
        ("file:/data/out", "file:///data/out", "/data/out"),
        ("s3://bucket/a//b/", "s3://bucket/a/b", "bucket/a/b"),
        ("s3a://bucket", "s3://bucket", "bucket"),
        ("gs://bucket/a", "gs://bucket/a", "bucket/a"),
        ("hdfs://host:8020/a", "hdfs://host:8020/a", "/a"),
        (
            *("abfss://box@account.dfs.core.windows.net/a", "abfss://box@account.dfs.core.windows.net/a"),
            "box/a",
        ),
    ],
)
def test_a_place_is_normalised(given: str, url: str, root: str) -> None:
    place = Store.at(given)
    assert (place.url, place.root) == (url, root)
    assert place.below("x").path("y") == f"{root}/x/y"


def test_a_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Store.at("out").url == f"file://{tmp_path.resolve()}/out"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://host/a", "is not supported"),
        ("s3:///a", "names no bucket"),
        ("file://host/a", "names another host"),
        ("/data/50%20more", "has a % in its name"),
        ("s3://bucket/a?region=x", "AWS_ENDPOINT_URL"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused(url: str, words: str) -> None:
    with pytest.raises(OutputError, match=words):
        Store.at(url)


def test_a_store_takes_endpoint_and_region_from_the_environment_and_no_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (
        ("AWS_ENDPOINT_URL", "http://h:1"),
        ("AWS_REGION", "r"),
        ("AWS_SECRET_ACCESS_KEY", "s3cret"),
    ):
        monkeypatch.setenv(name, value)
    place = Store.at("s3://bucket/a")
    options = place.storage_options()
    assert (options["AWS_ENDPOINT_URL"], options["AWS_ALLOW_HTTP"], options["AWS_REGION"]) == (
        "http://h:1",
        "true",
        "r",
    )
    assert "s3cret" not in repr(place) + repr(options)
    assert Store.at("/data").storage_options() == {}


def test_an_error_of_a_library_becomes_one_line(tmp_path: Path) -> None:
    for error, hint in [
        (OSError(28, "No space left on device"), "free space and run again"),
        (OSError("AWS Error ACCESS_DENIED during PutObject"), "check the credentials"),
        (OSError("ExpiredToken: The provided token has expired"), "renew the credentials"),
        (OSError(30, "Read-only file system"), "check the permissions"),
        (DeltaError("Kernel error: Json error: Truncated record whilst reading escape"), "restore the files"),
        (pa.ArrowInvalid("Parquet magic bytes not found in footer"), "restore the files"),
        (pa.ArrowInvalid("line\n  another" + "x" * 999), "run again once the store answers"),
    ]:
        with pytest.raises(OutputError) as caught, told("write"):
            raise error
        assert caught.value.hint == f"the tables are unchanged: {hint}" or hint in caught.value.hint
        assert "\n" not in str(caught.value)
        assert len(caught.value.message) <= len("cannot write: ") + WORDS_MAX


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(503, "SlowDown", "out of order.*; try again later"), (400, "ExpiredToken", "; renew the credentials")],
)
def test_a_store_that_fails_is_told_after_bounded_attempts_and_the_next_run_goes_on(
    status: int, code: str, words: str, few_attempts: None, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bucket_at(s3_endpoint) as bucket:
        url = f"{bucket}/out"
        run_at(url, 1)
        working = os.environ["AWS_ENDPOINT_URL"]
        with hostile_server(error_answer(status, code)) as failing:
            monkeypatch.setenv("AWS_ENDPOINT_URL", failing)
            with pytest.raises(OutputError, match=words) as caught:
                run_at(url, 2)
        assert "\n" not in str(caught.value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", working)
        assert seen(url) == expected(1)
        run_at(url, 2)
        assert seen(url) == expected(1, 2)


def test_a_store_that_does_not_answer_is_told(few_attempts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(
        OutputError,
        match=r"cannot open the table progress in s3://bucket/out: .*lost or refused; check the network",
    ):
        Output.open("s3://bucket/out", cluster_id=CLUSTER)


def test_a_disk_that_is_full_while_files_are_written_is_told_and_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_at(str(tmp_path), 1)
    before = set(tmp_path.rglob("*.parquet"))

    def full(path: str) -> None:
        raise OSError(28, "No space left on device")

    with Output.open(str(tmp_path), cluster_id=CLUSTER) as output:
        monkeypatch.setattr("quorate.spark.tables.files.synced", full)
        with pytest.raises(OutputError, match="the disk is full; the tables are unchanged: free space"):
            written(output, "moves", rows_of("moves", "a"))
    assert set(tmp_path.rglob("*.parquet")) == before
