"""Every file of a node's directory: damage that stops a start is reported; another disk's shard is too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.simulator import Network, SimCluster, World
from cluster.simulator.machine import DATA_DIR, Machine
from raftlog.env.errors import Problem, RaftlogError
from raftlog.env.files import join
from raftlog.env.simulated_files import Crash, SimFiles
from raftlog.offline.reader import shards
from raftlog.offline.verify import verify_node, verify_shard
from raftlog.storage.directory import (
    LOCK_FILE,
    TERM_FILE,
    TERM_KIND,
    NodeIdentity,
    read_identity,
    read_term,
    shard_name,
)
from raftlog.storage.metafile import read_meta, write_meta
from raftlog.transport.boots import BOOTS_FILE
from tests.report import count_fault

NODE = 3
LOADED_MS = 400
PLACES = 40
"""Bytes of each file that are flipped, spread over it."""
ADVISORY = {LOCK_FILE, "evidence.0", "synced"}
"""No start depends on these files: the lock is empty, evidence is only reported, and without the mark of what
was synced the log itself is trusted."""


def _verify(disk: SimFiles) -> list[Problem]:
    found = verify_node(disk, DATA_DIR)
    for shard in shards(DATA_DIR, disk):
        found += verify_shard(disk, DATA_DIR, shard)
    return found


def _refusal(disk: SimFiles) -> str:
    """Return why a node does not start on a copy of the disk, "" when it does."""
    world = World(1)
    machine = Machine(world, Network(world), node_id=NODE, voters=(1, 2, 3), num_shards=2)
    machine.disk = disk.crash(Crash.KEPT)
    try:
        machine.boot()
        world.run_until(lambda: machine.host.is_dead, within_ms=LOADED_MS)
    except RaftlogError as error:
        return str(error)
    return machine.host.fatal_message or ""


def _files(disk: SimFiles, folder: str = DATA_DIR) -> list[str]:
    paths = [join(folder, name) for name in disk.listdir(folder)]
    return [found for path in paths for found in (_files(disk, path) if disk.is_dir(path) else [path])]


@pytest.fixture(scope="module")
def cluster() -> SimCluster:
    world = World(5)
    cluster = SimCluster(world, Network(world), num_shards=2).boot_until_ready()
    cluster[NODE].node.evidence.refused(api=8, error=3, reason="unknown", group_id="g")
    world.run_until(lambda: False, within_ms=1500)
    return cluster


def _killed(cluster: SimCluster, node_id: int = NODE) -> SimFiles:
    return cluster[node_id].copy_disk()


def _stopped(cluster: SimCluster) -> SimFiles:
    """Return the disk of a node that was stopped without peers."""
    world = World(2)
    machine = Machine(world, Network(world), node_id=NODE, voters=(1, 2, 3), num_shards=2)
    machine.disk = _killed(cluster)
    machine.boot()
    world.run_until(lambda: False, within_ms=LOADED_MS)
    machine.stop()
    return machine.disk


def _replaced(cluster: SimCluster) -> SimFiles:
    """Return a replaced disk whose node has heard from no peer."""
    world = World(3)
    machine = Machine(world, Network(world), node_id=NODE, voters=(1, 2, 3), num_shards=2)
    machine.replace_disk()
    return machine.disk


@pytest.mark.parametrize("made", [_killed, _stopped, _replaced])
def test_verify_reports_all_that_a_start_refuses(
    cluster: SimCluster, made: Callable[[SimCluster], SimFiles]
) -> None:
    disk = made(cluster)
    assert _verify(disk) == []
    assert not _refusal(disk)
    told: set[str] = set()
    refused = 0
    for path in _files(disk):
        name = path.rpartition("/")[2]
        for offset in range(0, disk.size(path), max(1, disk.size(path) // PLACES)):
            disk.damage(path, offset)
            problems, refusal = _verify(disk), _refusal(disk)
            count_fault("cluster", "flipped byte")
            is_told = any(one.severity == "damage" and one.file == path for one in problems)
            if refusal:
                refused += 1
                assert is_told, f"byte {offset} of {path}: {refusal}"
            if name not in ADVISORY:
                assert problems, f"byte {offset} of {path}"
            told |= {name} if problems else set()
            disk.damage(path, offset)
    assert _verify(disk) == []
    assert refused > 100
    assert told >= {"node", "boot", TERM_FILE, "manifest"}
    assert (BOOTS_FILE in told, "evidence.0" in told) == (made is not _replaced, made is not _replaced)
    assert ("joining" in told, "clean" in told) == (made is _replaced, made is _stopped)
    assert ("synced" in told) == (made is not _replaced)


@pytest.mark.parametrize("made", [_killed, _stopped, _replaced])
@pytest.mark.parametrize("left", [None, 0.0, 0.5])
def test_a_file_that_is_missing_or_cut_is_reported_when_a_start_refuses_it(
    cluster: SimCluster, made: Callable[[SimCluster], SimFiles], left: float | None
) -> None:
    """`left` is the part of the file that remains; None means that the file is missing."""
    whole = made(cluster)
    refused = 0
    for path in _files(whole):
        disk = whole.crash(Crash.KEPT)
        if left is None:
            disk.unlink(path)
        else:
            disk.open(path, "w").truncate(int(disk.size(path) * left))
        count_fault("cluster", "missing file" if left is None else "cut file")
        if refusal := _refusal(disk):
            refused += 1
            assert any(one.severity == "damage" for one in _verify(disk)), f"{path}: {refusal}"
    assert refused > 5


@pytest.mark.parametrize("made", [_killed, _stopped])
def test_a_node_with_peers_and_a_log_needs_what_it_knows_of_their_starts(
    cluster: SimCluster, made: Callable[[SimCluster], SimFiles]
) -> None:
    disk = made(cluster)
    file = join(DATA_DIR, BOOTS_FILE)
    disk.unlink(file)
    count_fault("cluster", "missing file")
    (problem,) = _verify(disk)
    assert (problem.file, problem.severity) == (file, "damage")
    assert "is missing, though" in problem.what
    assert "quorate node format --replace" in problem.hint
    refusal = _refusal(disk)
    assert file in refusal
    assert problem.what in refusal
    assert problem.hint in refusal


def test_a_node_that_never_met_a_peer_starts_again_without_the_boots_file() -> None:
    world = World(6)
    machine = Machine(world, Network(world), node_id=NODE, voters=(1, 2, 3), num_shards=2)
    machine.boot()
    world.run_until(lambda: False, within_ms=10 * LOADED_MS)
    disk = machine.copy_disk()
    assert not disk.exists(join(DATA_DIR, BOOTS_FILE))
    assert _verify(disk) == []
    assert not _refusal(disk)


def _put(source: SimFiles, target: SimFiles, folder: str) -> None:
    """Replace a folder by another disk's."""
    for path in _files(target, folder):
        target.unlink(path)
    for path in _files(source, folder):
        file = target.open(path, "w")
        file.pwrite(source.read(path), 0)
        file.fdatasync()
        target.fsync_dir(path.rpartition("/")[0])


@pytest.mark.parametrize("shard", [-1, 1])
def test_the_shard_of_another_node_is_refused_and_reported(cluster: SimCluster, shard: int) -> None:
    ours, theirs = _killed(cluster), _killed(cluster, 1)
    _put(theirs, ours, join(DATA_DIR, shard_name(shard)))
    (problem,) = _verify(ours)
    assert problem.file == join(DATA_DIR, shard_name(shard), TERM_FILE)
    assert "belongs to node 1, disk node-1-incarnation" in problem.what
    assert "restore the shard's directory" in problem.hint
    before = {path: ours.read(path) for path in _files(ours, join(DATA_DIR, shard_name(shard)))}
    refusal = _refusal(ours)
    assert problem.file in refusal
    assert "this directory belongs to node 3" in refusal
    assert before == {path: ours.read(path) for path in _files(ours, join(DATA_DIR, shard_name(shard)))}


def test_the_shard_of_the_same_nodes_replaced_disk_is_refused(cluster: SimCluster) -> None:
    replaced, old = _replaced(cluster), _killed(cluster)
    _put(old, replaced, join(DATA_DIR, shard_name(0)))
    assert (
        "belongs to node 3, disk node-3-incarnation; this directory belongs to node 3, disk node-"
    ) in _refusal(replaced)
    assert any(one.file.endswith("shard-0/term") for one in _verify(replaced))


def test_a_term_file_of_an_older_release_gets_its_owner_at_the_next_start(cluster: SimCluster) -> None:
    disk = _killed(cluster)
    identity: NodeIdentity = read_identity(disk, DATA_DIR)
    home = join(DATA_DIR, shard_name(0))
    term, vote = read_meta(disk, join(home, TERM_FILE), TERM_KIND)[:2]
    write_meta(disk, join(home, TERM_FILE), TERM_KIND, term, vote)
    assert _verify(disk) == []
    assert read_term(disk, home, identity) == (term, vote, False)
    world = World(4)
    machine = Machine(world, Network(world), node_id=NODE, voters=(1, 2, 3), num_shards=2)
    machine.disk = disk
    machine.boot()
    world.run_until(lambda: False, within_ms=LOADED_MS)
    assert read_term(machine.disk, home, identity) == (term, vote, True)
