"""A node's directory: format once, open by one, boot ids, clear errors; simulated disk and real one."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import records
from raftlog.env.files import Files, OsFiles
from raftlog.env.simulated_files import SimFiles
from raftlog.offline.reader import ShardReader
from raftlog.storage.directory import (
    AlreadyRunning,
    Corrupt,
    NodeIdentity,
    NotEmpty,
    NotFormatted,
    format_node,
    open_node,
    read_identity,
)
from raftlog.storage.metafile import write_meta
from raftlog.storage.segments import METADATA_SHARD
from tests.support.manual_host import ManualHost
from tests.support.single_replica import IDENTITY, PATH


@pytest.fixture(params=["simulated", "real"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    return (SimFiles(), "/a/b") if request.param == "simulated" else (OsFiles(), f"{tmp_path}/a/b")


def _ids() -> ManualHost:
    return ManualHost(SimFiles())


def test_format_open_and_identity(place: tuple[Files, str]) -> None:
    files, path = place
    identity = NodeIdentity(cluster_id="Grüße", node_id=3, incarnation="i", num_shards=4)
    format_node(files, path, identity)
    assert read_identity(files, path) == identity
    assert files.listdir(path) == [
        "boot",
        "lock",
        "metadata",
        "node",
        "shard-0",
        "shard-1",
        "shard-2",
        "shard-3",
    ]
    assert identity.shards == [-1, 0, 1, 2, 3]
    node = open_node(files, path, lambda: "boot-1")
    assert (node.boot_id, node.previous_boot_id) == ("boot-1", "")
    node.close()
    node = open_node(files, path, lambda: "boot-2")
    assert (node.boot_id, node.previous_boot_id) == ("boot-2", "boot-1")
    assert node.shard_path(-1) == f"{path}/metadata"


def test_the_format_and_the_records_number_the_metadata_shard_alike() -> None:
    assert METADATA_SHARD == records.METADATA_SHARD


def test_one_process_at_a_time(place: tuple[Files, str]) -> None:
    files, path = place
    format_node(files, path, IDENTITY)
    node = open_node(files, path, _ids().fresh_id)
    with pytest.raises(AlreadyRunning, match="another process uses"):
        open_node(files, path, _ids().fresh_id)
    assert node.boot_id
    node.close()
    open_node(files, path, _ids().fresh_id).close()


def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = f"{tmp_path}/node"
    format_node(OsFiles(), path, IDENTITY)
    code = (
        "import os, sys\n"
        "from raftlog.env.files import OsFiles\n"
        "from raftlog.storage.directory import open_node\n"
        "node = open_node(OsFiles(), sys.argv[1], lambda: 'other'); print('up', flush=True)\n"
        "sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        with pytest.raises(AlreadyRunning):
            open_node(OsFiles(), path, lambda: "mine")
        child.kill()
    node = open_node(OsFiles(), path, lambda: "mine")
    assert node.previous_boot_id == "other"
    node.close()


def test_an_unformatted_directory_is_not_started_on(place: tuple[Files, str]) -> None:
    files, path = place
    with pytest.raises(NotFormatted, match="format it first, with `quorate node format`"):
        open_node(files, path, _ids().fresh_id)


def test_formatting_refuses_what_it_did_not_make(place: tuple[Files, str]) -> None:
    files, path = place
    format_node(files, path, IDENTITY)
    with pytest.raises(NotEmpty, match="is already formatted"):
        format_node(files, path, IDENTITY)
    files.unlink(f"{path}/node")
    format_node(files, path, IDENTITY)  # as after an interrupted format
    files.unlink(f"{path}/node")
    files.open(f"{path}/holiday.jpg", "x").close()
    with pytest.raises(NotEmpty, match=r"holiday\.jpg is in it"):
        format_node(files, path, IDENTITY)
    assert files.exists(f"{path}/holiday.jpg")


def test_a_damaged_identity_gives_the_lock_back(place: tuple[Files, str]) -> None:
    files, path = place
    format_node(files, path, IDENTITY)
    files.open(f"{path}/boot", "w").pwrite(b"?", 0)
    for _ in range(2):
        with pytest.raises(Corrupt, match="boot: byte 0: begins with"):
            open_node(files, path, _ids().fresh_id)


def test_two_formats_at_once_do_not_mix() -> None:
    """At whichever call of the first format the second one runs, all files name one identity."""
    calls = 0

    def other(number: int, _operation: str, _path: str, is_done: bool) -> None:
        nonlocal calls
        calls = number
        if number == cut and is_done:
            files.on_call = None
            with contextlib.suppress(AlreadyRunning, NotEmpty):
                format_node(files, "/a", dataclasses.replace(IDENTITY, cluster_id="cluster-b"))
            files.on_call = other

    cut = 0
    while cut <= calls:
        cut += 1
        files = SimFiles()
        files.on_call = other
        with contextlib.suppress(AlreadyRunning, NotEmpty):
            format_node(files, "/a", IDENTITY)
        files.on_call = None
        assert ShardReader("/a", 0, files).verify() == []
        assert ShardReader("/a", -1, files).verify() == []
    assert calls > 20


# Members of a cluster


def test_members_are_kept_and_an_old_directory_is_alone() -> None:
    disk = SimFiles()
    member = dataclasses.replace(IDENTITY, node_id=2, voters=(1, 2, 3), starting_level=6)
    format_node(disk, PATH, member)
    assert read_identity(disk, PATH) == member
    assert not member.is_alone
    fields = (IDENTITY.cluster_id, IDENTITY.node_id, IDENTITY.incarnation, IDENTITY.num_shards)
    write_meta(disk, f"{PATH}/node", "node", *fields)
    old = read_identity(disk, PATH)
    assert (old, old.is_alone) == (IDENTITY, True)
    write_meta(disk, f"{PATH}/node", "node", *fields, [1], False)
    assert read_identity(disk, PATH) == dataclasses.replace(IDENTITY, voters=(1,))
    assert dataclasses.replace(IDENTITY, voters=(1,)).is_alone


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"voters": (2, 3)}, "node 1 is not one of the cluster's nodes"),
        ({"voters": (2, 1)}, "in ascending order"),
        ({"voters": (1, 1, 2)}, "in ascending order"),
        ({"is_replacement": True}, "a cluster of one node has no other node"),
        ({"voters": (1,), "is_replacement": True}, "a cluster of one node has no other node"),
    ],
)
def test_a_membership_that_cannot_be_is_refused(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        dataclasses.replace(IDENTITY, **changes)
