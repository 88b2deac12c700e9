"""Logs in an object store: the same rows, few requests, and one line when the store does not answer."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")
pytest.importorskip("pyspark", reason="needs the extra spark")
pytest.importorskip("moto.server", reason="needs moto[s3] and flask-cors")

from quorate.spark.errors import InputError, OptionError
from quorate.spark.source.datasource import SegmentReader
from quorate.spark.source.following import FollowedInput
from quorate.spark.source.inputs import open_input
from quorate.spark.source.options import parse_options
from quorate.spark.source.plan import plan, plan_records
from quorate.spark.source.reading import read_bundle, read_task
from quorate.spark.source.verifying import readable, verify
from raftlog.env.object_stores import StoreFiles
from raftlog.env.settings import CHAIN_STRIDE
from raftlog.storage.segments import log_name
from tests.pipeline.growing import SHARD, Growing
from tests.pipeline.source_rows import rows_of
from tests.support.object_stores import (
    client,
    environment_of,
    error_answer,
    hostile_server,
    upload,
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Growing:
    """Return three nodes with some archived, some sealed and some open segments."""
    made = Growing(tmp_path_factory.mktemp("stores") / "cluster")
    for _ in range(8):
        made.write(CHAIN_STRIDE)
        for disk in made.disks:
            made.replicate(disk)
            disk.cut()
        made.commit()
    made.settle()
    for disk in made.disks:
        disk.seal()
    made.disks[0].archive()
    return made


@pytest.fixture(scope="module")
def url(bucket: str, cluster: Growing) -> str:
    upload(cluster.folder, f"{bucket}/whole")
    return f"{bucket}/whole"


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The listings and opened objects."""
    made: list[str] = []
    select, opened = StoreFiles._select, StoreFiles.open

    def selecting(files: StoreFiles, path: str, *, recursive: bool) -> object:
        made.append(path)
        return select(files, path, recursive=recursive)

    def opening(files: StoreFiles, path: str, mode: str) -> object:
        made.append(path)
        return opened(files, path, mode)  # type: ignore[arg-type]

    monkeypatch.setattr(StoreFiles, "_select", selecting)
    monkeypatch.setattr(StoreFiles, "open", opening)
    return made


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_log_in_a_store_has_the_same_rows(url: str, cluster: Growing, scheme: str) -> None:
    there = url.replace("s3://", f"{scheme}://")
    assert rows_of(there) == rows_of(cluster.folder)
    assert rows_of(f"{there}/node-2/") == rows_of(cluster.folder / "node-2")
    ours, theirs = rows_of(there, rows="entries"), rows_of(cluster.folder, rows="entries")
    assert ours == theirs


@pytest.mark.parametrize("is_there", [True, False])
def test_a_log_may_be_the_whole_of_a_bucket(bucket: str, cluster: Growing, is_there: bool) -> None:
    name = f"whole-{is_there}".lower()
    client().create_bucket(Bucket=name)  # type: ignore[attr-defined]
    if not is_there:
        with pytest.raises(InputError):
            open_input(f"s3://{name}")
        return
    upload(cluster.folder, f"s3://{name}")
    assert rows_of(f"s3://{name}") == rows_of(cluster.folder)


def test_the_source_reads_a_store_as_spark_calls_it(url: str, cluster: Growing) -> None:
    """Spark's own processes have the environment of its start, from before the store was."""
    reader = SegmentReader(parse_options({"path": url}))
    rows = sum(batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))
    assert rows == len(rows_of(cluster.folder))


def test_opening_asks_for_no_segment_by_itself(url: str, requests: list[str]) -> None:
    log = open_input(url)
    assert len(log.shards[SHARD].segments) >= 8
    archived = [path for path in requests if "/archive/0" in path]
    assert not archived
    assert len(requests) <= 80
    again = [*requests]
    requests.clear()
    open_input(url, remembered=log.to_remember())
    assert len(requests) <= len(again)


def test_an_object_that_is_damaged_or_gone_is_read_from_another_node(bucket: str, cluster: Growing) -> None:
    there = f"{bucket}/damaged"
    upload(cluster.folder, there)
    whole = rows_of(there)
    log = open_input(there)
    shard = log.shards[SHARD]
    first, second = shard.segments[1], shard.segments[3]
    store, name = client(), bucket.removeprefix("s3://")
    keys = [one["Key"] for one in store.list_objects_v2(Bucket=name, Prefix="damaged/")["Contents"]]  # type: ignore[attr-defined]
    mine = [key for key in keys if key.startswith(shard.directory.removeprefix(f"{bucket}/"))]
    (damaged,) = [key for key in mine if key.endswith(log_name(first.first_index))]
    (gone,) = [key for key in mine if key.endswith(log_name(second.first_index))]
    body = bytearray(store.get_object(Bucket=name, Key=damaged)["Body"].read())  # type: ignore[attr-defined]
    body[len(body) // 2] ^= 1
    store.put_object(Bucket=name, Key=damaged, Body=bytes(body))  # type: ignore[attr-defined]
    store.delete_object(Bucket=name, Key=gone)  # type: ignore[attr-defined]
    assert rows_of(there) == whole
    notes: list[object] = []
    tasks = plan_records(log, {SHARD: (1, shard.decided_index)})
    assert sum(batch.num_rows for task in tasks for batch in read_bundle(task, notes.append)) > 0
    assert len(notes) == 2
    assert not [one for task in tasks for one in verify(task).lost]
    assert readable(log, SHARD, 1, 100) == ((1, 100),)


def test_a_growing_log_in_a_store_is_followed(bucket: str, tmp_path: Path) -> None:
    alone = Growing(tmp_path / "cluster", num_nodes=1)
    alone.write(5)
    there = f"{bucket}/growing"
    upload(alone.folder, there)
    followed = FollowedInput(there)
    assert followed.look()[SHARD].index == 5
    alone.write(3)
    upload(alone.folder, there)
    assert followed.look()[SHARD].index == 8


def test_a_store_that_goes_away_during_a_read_is_no_damage(url: str) -> None:
    tasks = plan(parse_options({"path": url, "mode": "permissive"}))
    with (
        hostile_server(error_answer(503, "SlowDown")) as endpoint,
        mock.patch.dict(os.environ, environment_of(endpoint)),
        pytest.raises(InputError, match="overloaded") as refused,
    ):
        list(read_task(tasks[0]))
    assert "\n" not in str(refused.value)


def test_a_store_that_refuses_is_one_line(url: str) -> None:
    with (
        hostile_server(error_answer(403, "AccessDenied")) as endpoint,
        mock.patch.dict(os.environ, environment_of(endpoint)),
        pytest.raises(InputError, match="refused the credentials") as refused,
    ):
        open_input(url)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("path", ["ftp://host/log", "s3://"])
def test_a_url_of_no_known_store_is_refused(path: str) -> None:
    with pytest.raises((OptionError, InputError)):
        plan(parse_options({"path": path}))


def test_a_place_without_a_log_is_refused(bucket: str) -> None:
    with pytest.raises(InputError, match="expected the data directory of one node"):
        open_input(f"{bucket}/nothing")
