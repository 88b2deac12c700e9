"""Links between nodes in virtual time: up, down, superseded, silent, stopped, far behind."""

from __future__ import annotations

import logging

import pytest

from raftlog.transport.link import OUTBOUND_MAX_BYTES, OUTBOUND_PAUSE_BYTES
from tests.cluster.sim_links import PORT, SHARDS, LinkedNode, Recorder, SimLinks, described
from tests.report import count_fault


def test_three_nodes_find_each_other_and_every_shard_hears_of_it() -> None:
    sim = SimLinks()
    sim.boot_until_up()
    for node_id, node in sim.nodes.items():
        assert node.errors == [None]
        others = [other for other in sim.nodes if other != node_id]
        assert node.ups == others
        for shard in SHARDS:
            assert sorted(node.users[shard].heard) == [("up", other) for other in others]
    info = sim[1].links.peers[3]
    assert (info.kafka_host, info.kafka_port, info.release) == ("n3", 9092, "1.0")
    assert info.incarnation == "n3-first"
    assert info.boot_id == sim[3].directory.boot_id


def test_messages_arrive_in_order_at_the_same_shard_only() -> None:
    sim = SimLinks()
    sim.boot_until_up()
    sent = [b"%d" % number * (1 + number % 300) for number in range(500)]
    for payload in sent:
        assert sim[1].links.send(3, 0, payload)
        assert sim[3].links.send(1, -1, payload)
    sim.settle()
    assert sim[3].users[0].messages(1) == sent
    assert sim[1].users[-1].messages(3) == sent
    assert not sim[3].users[1].messages(1)
    assert not sim[2].users[0].messages(1)


def test_all_messages_of_one_turn_are_one_packet() -> None:
    sim = SimLinks()
    sim.boot_until_up()
    link = sim[1].links._up[2]
    before = link._sealer._number
    for shard in SHARDS:
        for _ in range(10):
            sim[1].links.send(2, shard, b"x" * 200)
    sim.settle()
    assert link._sealer._number == before + 1


def test_flush_writes_within_the_turn() -> None:
    sim = SimLinks()
    sim.boot_until_up()
    link = sim[1].links._up[2]
    before = link.bytes_out
    sim[1].links.send(2, 0, b"x" * 200)
    assert link.bytes_out == before
    sim[1].links.flush()
    assert link.bytes_out > before


def test_large_payloads_keep_their_place_between_small_ones() -> None:
    sim = SimLinks()
    sim.boot_until_up()
    sent = [b"first", b"L" * 3_000_000, b"between", b"M" * 70_000, b"last"]
    for payload in sent:
        sim[2].links.send(1, 1, payload)
    assert sim.until(lambda: len(sim[1].users[1].messages(2)) == len(sent))
    assert sim[1].users[1].messages(2) == sent


def test_without_a_link_nothing_is_sent() -> None:
    sim = SimLinks()
    sim.boot(1, 2)
    assert sim.until(lambda: sim[1].ups == [2])
    assert not sim[1].links.send(3, 0, b"lost")
    assert not sim[1].links.can_send(3)
    assert not sim[1].links.send(1, 0, b"to itself")
    with pytest.raises(ValueError, match="the maximum of a packet is"):
        sim[1].links.send(2, 0, bytes((32 << 20) + 1))


@pytest.mark.parametrize("killed", [1, 3])
def test_a_killed_node_is_down_at_once_and_back_within_a_quarter_of_a_second(killed: int) -> None:
    sim = SimLinks()
    sim.boot_until_up()
    sim[killed].kill()
    count_fault("cluster", "node killed under its links")
    assert sim.until(lambda: sim[2].users[0].heard[-1] == ("down", killed), within_ms=10)
    sim.settle(5_000)
    sim[killed].boot()
    assert sim.until(lambda: killed in sim[2].ups and 2 in sim[killed].ups, within_ms=300)
    sim[killed].links.send(2, 0, b"hello again")
    sim.settle()
    assert sim[2].users[0].heard[-2:] == [("up", killed), ("message", killed, b"hello again")]


def test_a_clean_stop_delivers_what_was_sent_and_closes() -> None:
    sim = SimLinks()
    sim.boot_until_up()
    sim[3].links.send(1, 0, b"the last word")
    sim[3].links.stop()
    sim.settle()
    assert sim[1].users[0].heard[-2:] == [("message", 3, b"the last word"), ("down", 3)]
    assert sim[3].users[0].heard[-2:] == [("down", 1), ("down", 2)]
    assert sim[3].ups == []
    sim.settle(2_000)
    assert sim[1].ups == [2]


@pytest.mark.parametrize(("source", "target"), [("n1", "n3"), ("n3", "n1")])
def test_one_way_silence_ends_the_link_on_both_sides(source: str, target: str) -> None:
    """The deaf side receives nothing for two seconds; the other one sees the reset, or silence as well."""
    sim = SimLinks()
    sim.boot_until_up()
    sim.network.cut_one_way(source, target)
    count_fault("cluster", "one-way cut between nodes")
    assert sim.until(lambda: sim[1].ups == [2] and sim[3].ups == [2], within_ms=5_000)
    sim.settle(3_000)
    assert sim[1].ups == [2]
    sim.network.heal_all()
    assert sim.until(lambda: sim[1].ups == [2, 3] and sim[3].ups == [1, 2], within_ms=5_000)


def test_an_idle_link_stays_up() -> None:
    sim = SimLinks()
    sim.boot_until_up()
    sim.settle(60_000)
    assert all(user.heard == [("up", 1), ("up", 3)] for user in _sorted_users(sim[2]))


def _sorted_users(node: LinkedNode) -> list[Recorder]:
    for user in node.users.values():
        user.heard.sort()
    return list(node.users.values())


def test_a_node_that_was_stopped_reads_first_and_does_not_blame_its_peers() -> None:
    """Peers drop a node that is silent for 2 s; a shorter stop costs nothing, however late its timers."""
    sim = SimLinks()
    sim.boot_until_up()
    for _ in range(5):
        sim[1].host.pause(1_700)
        count_fault("cluster", "node stopped and continued")
        sim.settle(1_900)
    assert sim[1].ups == [2, 3]
    assert ("down", 1) not in sim[2].users[0].heard


def test_all_nodes_stopped_for_a_minute_keep_their_links() -> None:
    sim = SimLinks()
    sim.boot_until_up()
    for node in sim.nodes.values():
        node.host.pause(60_000)
    count_fault("cluster", "node stopped and continued", 3)
    sim.settle(65_000)
    assert all(heard[0] == "up" for node in sim.nodes.values() for heard in node.users[0].heard)


def test_a_link_that_comes_up_again_supersedes_the_old_one_which_delivers_nothing_more() -> None:
    """The dialer lost its half of the connection; the other half is still open and has unread packets."""
    sim = SimLinks()
    sim.boot_until_up()
    old = sim[1].links._up[3]
    sim.network.slow_down("n3", "n1", 400)
    sim[3].links.send(1, 0, b"on the old connection")
    sim[3].links.flush()
    sim.settle(1)
    theirs = sim[3].links._up[1]
    theirs.close(OSError("the dialer gives up"))
    assert sim.until(lambda: sim[1].links._up.get(3) not in (old, None), within_ms=5_000)
    heard = sim[1].users[0].heard
    assert heard[-2:] == [("down", 3), ("up", 3)] or heard[-1] == ("up", 3)
    before = list(heard)
    old.data_received(b"anything")
    sim.settle()
    assert sim[1].users[0].heard == before


def test_a_slow_reader_stops_its_sender_and_starts_it_again() -> None:
    sim = SimLinks()
    sim.boot_until_up()
    links = sim[1].links
    sim[2].host.pause(1_000)
    sent = 0
    while links.can_send(2):
        assert links.send(2, 0, bytes(1 << 20))
        sent += 1
    assert OUTBOUND_PAUSE_BYTES >> 20 <= sent <= (OUTBOUND_PAUSE_BYTES >> 20) + 2
    assert ("writable", 2) not in sim[1].users[0].heard
    assert sim.until(lambda: links.can_send(2))
    assert sim.until(lambda: all(("writable", 2) in user.heard for user in sim[1].users.values()))
    assert sim.until(lambda: len(sim[2].users[0].messages(1)) == sent)


def test_a_reader_that_takes_nothing_is_cut_off_before_memory_fills() -> None:
    sim = SimLinks()
    sim.boot_until_up()
    links = sim[1].links
    sim[2].host.pause(60_000)
    payload = bytes(1 << 20)
    sent = 0
    while links.send(2, 0, payload):
        sent += 1
        sim.settle(0.01)
        assert sent < 100
    assert OUTBOUND_MAX_BYTES >> 20 <= sent <= (OUTBOUND_MAX_BYTES >> 20) + 2
    assert "does not read" in sim[1].trouble(2)


def test_what_a_node_says_of_itself_is_told_again_when_it_changes() -> None:
    sim = SimLinks()
    described(sim[2], http_port=0)
    sim.boot_until_up()
    assert sim[3].links.peers[2].http_port == 0
    changes: list[int] = []
    sim[3].links.on_change = lambda: changes.append(sim[3].links.peers[2].http_port)
    described(sim[2], http_port=8181, format_level=1)
    assert sim.until(lambda: sim[3].links.peers[2].http_port == 8181, within_ms=400)
    assert sim[1].links.peers[2].http_port == 8181
    assert changes == [8181]


def test_a_skewed_clock_is_measured_shown_and_logged_once_per_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "quorate.peers")
    sim = SimLinks()
    sim[3].wall_skew_ms = 2_500
    sim.boot_until_up()
    sim.settle(60_000)
    skew_ms = sim[1].links.peers[3].clock_skew_ms
    assert 2_490 < skew_ms < 2_510
    assert sim[3].links.peers[1].clock_skew_ms == pytest.approx(-skew_ms, abs=5)
    assert next(row for row in sim[1].links.status() if row["node_id"] == 3)["clock_skew_ms"] > 2_490
    lines = [record.message for record in caplog.records if "wall clock" in record.message]
    assert sorted(lines) == [
        *["the wall clock of node 1 is 2.5 s behind this node's: synchronise both by NTP"],
        *["the wall clock of node 2 is 2.5 s behind this node's: synchronise both by NTP"],
        *["the wall clock of node 3 is 2.5 s ahead of this node's: synchronise both by NTP"] * 2,
    ]
    sim[3].host.wall_skew_ms = 0
    caplog.clear()
    sim.settle(25_000)
    lines = [record.message for record in caplog.records if "wall clock" in record.message]
    assert len(lines) == 4
    assert all("agrees with this node's again" in line for line in lines)


def test_a_peer_that_is_away_is_dialled_often_and_logged_seldom(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "quorate.peers")
    sim = SimLinks()
    sim.boot(3)
    sim.settle(20_000)
    status = {row["node_id"]: row for row in sim[3].links.status()}
    assert status[1]["state"] == "down"
    assert "nobody listens" in status[1]["trouble"]
    assert 80 <= status[1]["dials"] <= 200
    assert len(caplog.records) <= 10


def test_an_address_that_is_taken_is_an_error_of_start() -> None:
    sim = SimLinks()
    sim.network.listen("other", "n2", PORT, lambda: None)
    sim.boot(2)
    sim.settle()
    assert isinstance(sim[2].errors[0], OSError)


def test_connections_that_come_about_late_are_not_taken_for_new_ones() -> None:
    """A cut delays seconds of dials; when it heals they all connect at once, and one link results."""
    sim = SimLinks()
    sim.network.cut("n1", "n3")
    sim.boot()
    count_fault("cluster", "two-way cut between nodes")
    sim.settle(15_000)
    assert sim[1].ups == [2]
    sim.network.heal_all()
    assert sim.until(lambda: sim[1].ups == [2, 3] and sim[3].ups == [1, 2], within_ms=5_000)
    sim.settle(5_000)
    assert sim[1].users[0].heard.count(("up", 3)) == 1
    assert len(sim[1].links._open) == len(sim[3].links._open) == 2
