"""Settings of a cluster: its nodes, its secret, its TLS, its timeouts, and contradictions."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.settings import Settings, SettingsError, load_settings
from cluster.settings.nodes import NODES_MAX, NodesError, parse_nodes
from raftlog.env.host import TlsSettings
from raftlog.env.settings import LogSettings
from raftlog.transport import PeerAddress

THREE = ("1@127.0.0.1:9192", "2@127.0.0.1:9193", "3@127.0.0.1:9194")
TLS = {"peer_tls_cert_file": "cert", "peer_tls_key_file": "key", "peer_tls_ca_file": "ca"}


def test_a_node_without_others_needs_nothing_and_has_no_peers() -> None:
    assert Settings().peer_settings() is None
    assert Settings(cluster_nodes=("1@127.0.0.1:9192",)).peer_settings() is None


def test_three_nodes_listen_at_their_own_entries_unless_told_otherwise() -> None:
    settings = Settings(node_id=2, cluster_nodes=THREE[::-1], cluster_secret_file="secret")
    peers = settings.peer_settings()
    assert peers is not None
    assert peers.nodes == tuple(
        PeerAddress(node_id=number, host="127.0.0.1", port=9191 + number) for number in (1, 2, 3)
    )
    assert (peers.bind_host, peers.bind_port, peers.secret_file, peers.tls) == (
        "127.0.0.1",
        9193,
        "secret",
        None,
    )
    bound = Settings(
        node_id=2, cluster_nodes=THREE, cluster_secret_file="s", peer_host="127.0.0.2", peer_port=7000
    ).peer_settings()
    assert bound is not None
    assert (bound.bind_host, bound.bind_port) == ("127.0.0.2", 7000)


def test_from_the_environment_and_flags() -> None:
    env = {"QUORATE_CLUSTER_NODES": ", ".join(THREE), "QUORATE_CLUSTER_SECRET_FILE": "s"}
    settings = load_settings(None, env, {"node-id": "3", "raft-heartbeat-ms": "40"})
    assert settings.cluster_nodes == THREE
    assert settings.log_settings().raft_heartbeat_ms == 40


def test_timeouts_reach_the_log_and_their_defaults_agree() -> None:
    given = Settings(
        raft_min_timeout_ms=1_000, raft_max_timeout_ms=2_000, raft_heartbeat_ms=100, leader_balance_delay_ms=5
    ).log_settings()
    assert (given.raft_min_timeout_ms, given.raft_max_timeout_ms) == (1_000, 2_000)
    assert (given.raft_heartbeat_ms, given.leader_balance_delay_ms) == (100, 5)
    assert Settings().log_settings() == LogSettings()


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (("1@host",), r"has '1@host': an entry must be ID@HOST:PORT, such as 1@127\.0\.0\.1:9192"),
        (("x@host:1",), "an entry must be ID@HOST:PORT"),
        (("1@::1:9192",), "an entry must be ID@HOST:PORT"),
        (("1@a b:9192",), "an entry must be ID@HOST:PORT"),
        (("1@a:0",), "ports are 1 to 65535"),
        (("1@a:65536",), "ports are 1 to 65535"),
        (("2147483648@a:1",), "ids are at most 2147483647"),
        (("1@a:1", "1@b:1"), "names node 1 twice"),
        (("1@a:1", "2@a:1"), "names the address a:1 twice"),
        (tuple(f"{number}@a:{number + 1}" for number in range(NODES_MAX + 1)), "at most 9 make a cluster"),
    ],
)
def test_entries_that_are_none(entries: tuple[str, ...], expected: str) -> None:
    with pytest.raises(NodesError, match=expected):
        parse_nodes(entries)
    with pytest.raises(SettingsError, match=f"^cluster.nodes .*{expected}"):
        Settings(cluster_nodes=entries, cluster_secret_file="s")


def test_an_ipv6_address_stands_in_brackets() -> None:
    (node,) = parse_nodes(("7@[::1]:9192",))
    assert (node.node_id, node.host, node.port, str(node)) == (7, "::1", 9192, "[::1]:9192")


FAR = ("1@10.0.0.1:9192", "2@10.0.0.2:9192")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"cluster_nodes": THREE}, "cluster.secret.file must be set"),
        (
            {"node_id": 4, "cluster_nodes": THREE, "cluster_secret_file": "s"},
            "cluster.nodes names nodes 1, 2, 3, but not this one: node.id = 4",
        ),
        (
            {"cluster_nodes": FAR, "cluster_secret_file": "s"},
            r"to and from 10\.0\.0\.1 unencrypted; set peer\.tls",
        ),
        (
            {"cluster_nodes": THREE, "cluster_secret_file": "s", "peer_host": "0.0.0.0"},
            r"to and from 0\.0\.0\.0 unencrypted",
        ),
        ({"peer_tls_cert_file": "cert"}, "go together: give all three"),
        (
            {"raft_heartbeat_ms": 101},
            "raft.heartbeat.ms = 101 must be at most a third of raft.min.timeout.ms = 300",
        ),
        ({"raft_max_timeout_ms": 449}, "raft.max.timeout.ms = 449 must be at least 1.5 times"),
    ],
)
def test_contradictions_name_the_setting_and_a_way_out(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        Settings(**values)


def test_other_machines_need_tls_or_insecure() -> None:
    far = {"cluster_nodes": FAR, "cluster_secret_file": "s"}
    assert Settings(insecure=True, **far).peer_settings() is not None  # type: ignore[arg-type]
    peers = Settings(**far, **TLS).peer_settings()  # type: ignore[arg-type]
    assert peers is not None
    assert peers.tls == TlsSettings(cert_file="cert", key_file="key", ca_file="ca")
