"""A cluster's directory and its launch: what is made, what is refused, and that nothing is left running.

The nodes are stand-ins; that real ones find each other is tested with clients (tests/clients).
"""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import cluster.launching.cluster_directory
from cluster.host.host_asyncio import FATAL_EXIT_CODE
from cluster.launching.launcher import (
    ClusterProcess,
    LaunchError,
    cluster_size,
    launch_cluster,
    launch_node,
    prepare_cluster,
)
from cluster.launching.node_process import ports_before
from cluster.main import EXIT_USAGE
from cluster.settings import load_settings
from raftlog.env.files import Files, OsFiles
from raftlog.storage.directory import NodeIdentity, format_node, read_identity
from tests.report import count_fault

STAND_IN = str(Path(__file__).with_name("stand_in.py"))


def stand_in(made: ClusterProcess, **wishes: str) -> ClusterProcess:
    """Return the same cluster with stand-ins for nodes, `node_2="dies"` and so on; `well` by default."""
    for node in made.nodes:
        wish = wishes.get(f"node_{node.node_id}", "well")
        node.command = [sys.executable, STAND_IN, str(node.node_id), wish]
    return made


@pytest.fixture
def made(tmp_path: Path) -> Iterator[ClusterProcess]:
    prepared = prepare_cluster(tmp_path / "cluster", 3)
    yield prepared
    prepared.kill()


def identities(made: ClusterProcess) -> list[NodeIdentity]:
    return [read_identity(OsFiles(), str(node.data)) for node in made.nodes]


def test_three_directories_are_formatted_as_members_of_one_cluster(made: ClusterProcess) -> None:
    found = identities(made)
    assert [one.node_id for one in found] == [1, 2, 3]
    assert {one.cluster_id for one in found} == {
        json.loads((made.data / "cluster.json").read_text())["cluster_id"]
    }
    assert {one.voters for one in found} == {(1, 2, 3)}
    assert len({one.incarnation for one in found}) == 3
    assert not any(one.is_replacement for one in found)
    assert cluster_size(made.data) == 3


def test_the_secret_is_for_its_owner_alone(made: ClusterProcess) -> None:
    secret = made.data / "secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert len(bytes.fromhex(secret.read_text())) == 32


def test_every_node_gets_ports_of_its_own_and_the_addresses_of_all(made: ClusterProcess) -> None:
    settings = [load_settings(node.data / "node.toml", {}) for node in made.nodes]
    ports = [port for one in settings for port in (one.kafka_port, one.http_port, one.peer_port)]
    assert len(set(ports)) == 9
    assert 0 not in ports
    assert len({one.cluster_nodes for one in settings}) == 1
    assert [one.peer_port for one in settings] == [
        int(text.rpartition(":")[2]) for text in settings[0].cluster_nodes
    ]
    assert made.bootstrap == ",".join(f"127.0.0.1:{one.kafka_port}" for one in settings)


def test_given_ports_are_counted_up(tmp_path: Path) -> None:
    made = prepare_cluster(tmp_path, 3, kafka_port=19092, http_port=18092)
    assert [node.port for node in made.nodes] == [19092, 19093, 19094]
    assert [node.http_port for node in made.nodes] == [18092, 18093, 18094]
    made.kill()


def test_a_second_launch_starts_the_same_cluster(made: ClusterProcess) -> None:
    before = identities(made), [(node.port, node.http_port) for node in made.nodes]
    secret = (made.data / "secret").read_text()
    made.kill()
    again = prepare_cluster(made.data, 3)
    assert (identities(again), [(node.port, node.http_port) for node in again.nodes]) == before
    assert (made.data / "secret").read_text() == secret
    again.kill()


def test_all_nodes_start_at_once(
    made: ClusterProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node waits for the others; started one after the other, they would wait for ever."""
    monkeypatch.chdir(tmp_path)
    stand_in(made, node_1="late", node_2="late", node_3="late")
    starting = threading.Thread(target=made.start)
    starting.start()
    while starting.is_alive() and not all(node.is_running for node in made.nodes):
        pass
    assert starting.is_alive()
    (tmp_path / "go").touch()
    starting.join(10)
    assert not starting.is_alive()
    written = json.loads((made.data / "cluster.json").read_text())["nodes"]
    assert [row["pid"] for row in written] == [node.pid for node in made.nodes]


def test_a_node_that_does_not_come_up_fails_the_launch_and_no_node_is_left(
    made: ClusterProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(made, node_2="dies")
    monkeypatch.setattr("cluster.launching.launcher.prepare_cluster", lambda *_, **__: made)
    with pytest.raises(LaunchError, match=r"node-2 ended with exit code 5: .*cannot go on") as refused:
        launch_cluster(made.data, 3)
    assert refused.value.exit_code == 5
    assert not any(node.is_running for node in made.nodes)
    count_fault("cluster", "a node that ends while the cluster starts")


def test_one_that_is_never_ready_is_given_up(made: ClusterProcess) -> None:
    stand_in(made, node_3="late")
    with pytest.raises(LaunchError, match=r"node-3 is not ready after 0\.5 s: "):
        made.start(wait_ready_s=0.5)
    assert [node.is_running for node in made.nodes] == [True, True, False]


def test_a_start_may_take_as_long_as_its_elections(tmp_path: Path) -> None:
    longest = {"raft.min.timeout.ms": "60000", "raft.max.timeout.ms": "120000"}
    assert prepare_cluster(tmp_path / "slow", 3, settings=longest).start_timeout_s == 390
    assert prepare_cluster(tmp_path / "usual", 3).start_timeout_s < 35


def test_a_taken_port_is_a_failure_of_the_launch(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = f"kafka.port {port}: address already in use; choose another port"
        with pytest.raises(LaunchError, match=said) as refused:
            prepare_cluster(tmp_path / "cluster", 3, kafka_port=port)  # the ports beside it may be in use
        assert refused.value.exit_code == FATAL_EXIT_CODE
        with pytest.raises(LaunchError, match=f"http.port {port}: address already in use"):
            prepare_cluster(tmp_path / "alone", 1, http_port=port)
    prepare_cluster(tmp_path / "cluster", 3).kill()
    count_fault("cluster", "a port taken by somebody else", 2)


def test_ports_that_are_counted_up_do_not_meet(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"http.port 19093: is used twice|kafka.port 19093: is used"):
        prepare_cluster(tmp_path, 3, kafka_port=19092, http_port=19093)


def test_no_two_get_the_same_port_by_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes that only bind, without listening, could share one port."""
    monkeypatch.setattr("random.sample", lambda ports, tries: list(ports)[-tries:])
    cluster = prepare_cluster(tmp_path / "cluster")
    ports = [port for node in cluster.nodes for port in (node.port, node.http_port)]
    assert len(set(ports)) == len(ports)


def test_a_port_of_before_gives_way_to_one_that_is_asked_for(tmp_path: Path) -> None:
    launch_cluster(tmp_path, 1).kill()
    before = ports_before(tmp_path)["http.port"]
    again = prepare_cluster(tmp_path, 1, kafka_port=before).node(1)
    assert (again.port, again.http_port == before) == (before, False)


def test_all_stop_together_also_one_that_stands_still_or_heeds_no_signal(made: ClusterProcess) -> None:
    stand_in(made, node_3="deaf").start()
    made.node(2).pause()
    assert made.stop() == {1: 0, 2: 0, 3: 0}
    assert not any(node.is_running for node in made.nodes)
    made.start()  # and the lock is free again
    assert all(node.is_running for node in made.nodes)
    made.kill()


def test_a_paused_node_is_one_that_runs_and_goes_on_when_told(made: ClusterProcess) -> None:
    stand_in(made).start()
    node = made.node(1)
    node.pause()
    os.waitid(os.P_PID, node.pid, os.WSTOPPED)
    assert (node.is_paused, node.is_running) == (True, True)
    node.resume()
    os.waitid(os.P_PID, node.pid, os.WCONTINUED)
    node.pause()
    node.kill()
    assert (node.is_paused, node.is_running) == (False, False)
    count_fault("cluster", "SIGSTOP", 2)


def test_two_launchers_on_one_directory_are_refused(made: ClusterProcess) -> None:
    config = (made.node(1).data / "node.toml").read_bytes()
    with pytest.raises(LaunchError, match="another process uses it"):
        prepare_cluster(made.data, 3)
    assert (made.node(1).data / "node.toml").read_bytes() == config


def test_an_interrupted_format_is_finished_as_the_same_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_at_node_3(files: Files, path: str, identity: NodeIdentity) -> None:
        if identity.node_id == 3:
            raise OSError(28, "No space left on device")
        format_node(files, path, identity)

    with monkeypatch.context() as patched:
        patched.setattr(cluster.launching.cluster_directory, "format_node", fails_at_node_3)
        with pytest.raises(LaunchError, match="No space left"):
            prepare_cluster(tmp_path, 3)
    before = read_identity(OsFiles(), str(tmp_path / "node-1"))
    made = prepare_cluster(tmp_path, 3)
    assert identities(made)[0] == before
    assert {one.cluster_id for one in identities(made)} == {before.cluster_id}
    made.kill()
    count_fault("cluster", "a disk that is full during format")


def test_an_empty_disk_is_never_formatted_anew(made: ClusterProcess) -> None:
    made.kill()
    made.node(2).data.rename(made.data / "gone")
    cluster_id = identities_of(made.data / "node-1").cluster_id
    with pytest.raises(LaunchError) as refused:
        prepare_cluster(made.data, 3)
    assert (
        f"quorate node format --replace --data {made.data}/node-2 --node-id 2 --cluster-id {cluster_id} "
        "--nodes 1,2,3 --shards 4" in str(refused.value)
    )
    count_fault("cluster", "a disk that is gone")


def identities_of(data: Path) -> NodeIdentity:
    return read_identity(OsFiles(), str(data))


@pytest.mark.parametrize("number", [0, 2, 4, 6, 7])
def test_a_number_of_nodes_that_is_no_good_is_refused_before_anything_is_made(
    tmp_path: Path, number: int
) -> None:
    with pytest.raises(LaunchError) as refused:
        launch_cluster(tmp_path / "cluster", number)
    assert refused.value.exit_code == EXIT_USAGE
    assert not (tmp_path / "cluster").exists()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"kafka.prot": "1"}, r"did you mean kafka\.port"),
        ({"kafka.port": "9092"}, r"kafka\.port differs between nodes"),
        ({"cluster.shards": "many"}, r"cluster\.shards"),
    ],
)
def test_settings_are_checked_before_anything_is_made(
    tmp_path: Path, settings: dict[str, str], says: str
) -> None:
    with pytest.raises(LaunchError, match=says) as refused:
        launch_cluster(tmp_path / "cluster", 3, settings=settings)
    assert refused.value.exit_code == EXIT_USAGE
    assert not (tmp_path / "cluster").exists()


def test_what_the_cluster_was_made_with_stays(made: ClusterProcess) -> None:
    made.kill()
    with pytest.raises(LaunchError, match=r"--nodes = 5, but the cluster .* was made with 3"):
        prepare_cluster(made.data, 5)
    with pytest.raises(LaunchError, match=r"cluster\.shards = 2, but the cluster .* was made with 4"):
        prepare_cluster(made.data, 3, settings={"cluster.shards": "2"})
    with pytest.raises(LaunchError, match="directory of a cluster of several"):
        launch_node(made.data)


def test_a_directory_with_foreign_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(LaunchError, match="not empty"):
        prepare_cluster(tmp_path, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]
    launch_node(tmp_path / "one", settings={"cluster.shards": "1"}).kill()
    with pytest.raises(LaunchError, match="one node, which cannot grow"):
        prepare_cluster(tmp_path / "one", 3)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nodes": 3}', "\x00"])
def test_a_document_that_is_none_is_named(made: ClusterProcess, text: str) -> None:
    made.kill()
    (made.data / "cluster.json").write_text(text)
    with pytest.raises(LaunchError, match=r"cluster\.json is not what the launcher wrote"):
        prepare_cluster(made.data, 3)


def test_one_node_is_a_cluster_too(tmp_path: Path) -> None:
    made = stand_in(prepare_cluster(tmp_path / "node", 1))
    made.start()
    assert [node.data for node in made.nodes] == [tmp_path / "node"]
    assert not (tmp_path / "node" / "cluster.json").exists()
    assert made.stop() == {1: 0}
    assert cluster_size(tmp_path / "node") == 1
    assert cluster_size(tmp_path / "nothing") is None
