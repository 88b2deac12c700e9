"""Bit rot: one flipped byte anywhere in a log is found by verify, and never served by a node."""

from __future__ import annotations

import dataclasses

from raftlog.env.errors import Problem, RaftlogError
from raftlog.env.simulated_files import Crash, SimFiles
from raftlog.offline.verify import verify_node, verify_shard
from raftlog.storage.directory import LOCK_FILE
from tests.report import count_fault
from tests.support.manual_host import Stopped
from tests.support.single_replica import PATH, SETTINGS, KeyValues, SingleReplica, formatted

SMALL = dataclasses.replace(SETTINGS, snapshot_tail_records=60)
HOME = f"{PATH}/shard-0"
BYTES_MIN = 8_000


def _small_log() -> tuple[SimFiles, KeyValues]:
    """Return a log after a clean stop: an archived segment, index, manifest, snapshot, active segment."""
    disk = SimFiles()
    formatted(disk)
    node = SingleReplica(disk, SMALL).start()
    for number in range(70):
        node.put_synced((f"k{number % 5}", "v"))
    assert node.replica.status()["snapshots_made"] == 1
    node.stop()
    return disk, node.machine


def _files(disk: SimFiles) -> list[str]:
    """Return every file of the shard, and the node's own small ones."""
    found = [f"{PATH}/{name}" for name in disk.listdir(PATH) if name != LOCK_FILE]
    found += [f"{HOME}/{name}" for name in disk.listdir(HOME)]
    found += [f"{HOME}/archive/{name}" for name in disk.listdir(f"{HOME}/archive")]
    return [path for path in found if not disk.is_dir(path)]


def _verify(disk: SimFiles) -> list[Problem]:
    return verify_node(disk, PATH) + verify_shard(disk, PATH, 0)


def test_verify_finds_every_flipped_byte() -> None:
    disk, _ = _small_log()
    assert _verify(disk) == []
    paths = _files(disk)
    names = {path.removeprefix(PATH + "/") for path in paths}
    first = "00000000000000000001"
    assert names == {
        "node",
        "boot",
        "shard-0/00000000000000000065.log",
        "shard-0/snapshot",
        "shard-0/term",
        "shard-0/clean",
        "shard-0/synced",
        "shard-0/archive/manifest",
        f"shard-0/archive/{first}.log",
        f"shard-0/archive/{first}.index",
    }
    flipped = 0
    for path in paths:
        step = 16 if path.endswith("/synced") else 1  # zeros; each of its bytes is tried in test_synced
        for offset in range(0, disk.size(path), step):
            mask = 1 << (offset % 8)
            disk.damage(path, offset, mask)
            found = _verify(disk)
            assert found, f"bit {offset % 8} of byte {offset} of {path} was flipped unnoticed"
            disk.damage(path, offset, mask)
            flipped += 1
    print(f"{flipped} bytes flipped, each found")
    count_fault("raftlog", "flipped byte", flipped)
    assert flipped >= BYTES_MIN
    assert _verify(disk) == []


def test_verify_finds_every_cut() -> None:
    """The file is missing, or shorter by one byte or a half."""
    disk, _ = _small_log()
    for path in _files(disk):
        if path.endswith(("/node", "/boot")):
            continue  # a copy of shards alone has neither
        gone = disk.crash(Crash.KEPT)
        gone.unlink(path)
        if not path.endswith(("/clean", "/synced")):
            assert _verify(gone), f"{path} is missing unnoticed"
        for size in (disk.size(path) - 1, disk.size(path) // 2, 0):
            shorter = disk.crash(Crash.KEPT)
            shorter.open(path, "w").truncate(size)
            assert _verify(shorter), f"{path} cut to {size} unnoticed"


def test_a_node_never_serves_what_a_flipped_byte_made() -> None:
    """With a flipped byte a start fails with a message that names the file, or serves the same state."""
    disk, machine = _small_log()
    refused = served = tried = 0
    for path in _files(disk):
        if "/archive/0" in path:
            continue  # history: the node itself does not read it
        for offset in range(0, disk.size(path), 5):
            tried += 1
            damaged = disk.crash(Crash.KEPT)
            damaged.damage(path, offset)
            try:
                node = SingleReplica(damaged, SMALL, boot=2).start()
            except (RaftlogError, Stopped) as error:
                refused += path in str(error)
                continue
            served += 1
            kept = {key: value for key, value in node.machine.values.items() if key[0] == 1002}
            assert kept == {key: value for key, value in machine.values.items() if key[0] == 1002}
    assert refused + served == tried > 200
    assert refused > 200
