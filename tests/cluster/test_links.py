"""Links between nodes on virtual time: up, down, superseded, silent, stopped, far behind."""

from __future__ import annotations

import logging

import pytest

from raftlog.transport.link import OUTBOUND_MAX_BYTES, OUTBOUND_PAUSE_BYTES
from tests.cluster.links_lab import PORT, SHARDS, LinkedNode, LinksLab, described
from tests.report import count_fault


def test_three_nodes_find_each_other_and_every_shard_hears_of_it() -> None:
    lab = LinksLab()
    lab.boot_until_up()
    for node_id, node in lab.nodes.items():
        assert node.errors == [None]
        others = [other for other in lab.nodes if other != node_id]
        assert node.ups == others
        for shard in SHARDS:
            assert sorted(node.users[shard].heard) == [("up", other) for other in others]
    info = lab[1].links.peers[3]
    assert (info.kafka_host, info.kafka_port, info.release) == ("n3", 9092, "1.0")
    assert info.incarnation == "n3-first"
    assert info.boot_id == lab[3].directory.boot_id


def test_messages_arrive_in_order_at_the_same_shard_only() -> None:
    lab = LinksLab()
    lab.boot_until_up()
    sent = [b"%d" % number * (1 + number % 300) for number in range(500)]
    for payload in sent:
        assert lab[1].links.send(3, 0, payload)
        assert lab[3].links.send(1, -1, payload)
    lab.settle()
    assert lab[3].users[0].messages(1) == sent
    assert lab[1].users[-1].messages(3) == sent
    assert not lab[3].users[1].messages(1)
    assert not lab[2].users[0].messages(1)


def test_all_messages_of_one_turn_are_one_packet() -> None:
    lab = LinksLab()
    lab.boot_until_up()
    link = lab[1].links._up[2]
    before = link._sealer._number
    for shard in SHARDS:
        for _ in range(10):
            lab[1].links.send(2, shard, b"x" * 200)
    lab.settle()
    assert link._sealer._number == before + 1


def test_flush_writes_within_the_turn() -> None:
    lab = LinksLab()
    lab.boot_until_up()
    link = lab[1].links._up[2]
    before = link.bytes_out
    lab[1].links.send(2, 0, b"x" * 200)
    assert link.bytes_out == before
    lab[1].links.flush()
    assert link.bytes_out > before


def test_large_payloads_keep_their_place_between_small_ones() -> None:
    lab = LinksLab()
    lab.boot_until_up()
    sent = [b"first", b"L" * 3_000_000, b"between", b"M" * 70_000, b"last"]
    for payload in sent:
        lab[2].links.send(1, 1, payload)
    assert lab.until(lambda: len(lab[1].users[1].messages(2)) == len(sent))
    assert lab[1].users[1].messages(2) == sent


def test_without_a_link_nothing_is_sent() -> None:
    lab = LinksLab()
    lab.boot(1, 2)
    assert lab.until(lambda: lab[1].ups == [2])
    assert not lab[1].links.send(3, 0, b"lost")
    assert not lab[1].links.can_send(3)
    assert not lab[1].links.send(1, 0, b"to itself")
    with pytest.raises(ValueError, match="the maximum of a packet is"):
        lab[1].links.send(2, 0, bytes((32 << 20) + 1))


@pytest.mark.parametrize("killed", [1, 3])
def test_a_killed_node_is_down_at_once_and_back_within_a_quarter_of_a_second(killed: int) -> None:
    lab = LinksLab()
    lab.boot_until_up()
    lab[killed].kill()
    count_fault("cluster", "node killed under its links")
    assert lab.until(lambda: lab[2].users[0].heard[-1] == ("down", killed), within_ms=10)
    lab.settle(5_000)
    lab[killed].boot()
    assert lab.until(lambda: killed in lab[2].ups and 2 in lab[killed].ups, within_ms=300)
    lab[killed].links.send(2, 0, b"hello again")
    lab.settle()
    assert lab[2].users[0].heard[-2:] == [("up", killed), ("message", killed, b"hello again")]


def test_a_clean_stop_delivers_what_was_sent_and_closes() -> None:
    lab = LinksLab()
    lab.boot_until_up()
    lab[3].links.send(1, 0, b"the last word")
    lab[3].links.stop()
    lab.settle()
    assert lab[1].users[0].heard[-2:] == [("message", 3, b"the last word"), ("down", 3)]
    assert lab[3].users[0].heard[-2:] == [("down", 1), ("down", 2)]
    assert lab[3].ups == []
    lab.settle(2_000)
    assert lab[1].ups == [2]


@pytest.mark.parametrize(("source", "target"), [("n1", "n3"), ("n3", "n1")])
def test_one_way_silence_ends_the_link_on_both_sides(source: str, target: str) -> None:
    """The deaf side hears nothing for two seconds; the other hears the reset, or silence of its own."""
    lab = LinksLab()
    lab.boot_until_up()
    lab.network.cut_one_way(source, target)
    count_fault("cluster", "one-way cut between nodes")
    assert lab.until(lambda: lab[1].ups == [2] and lab[3].ups == [2], within_ms=5_000)
    lab.settle(3_000)
    assert lab[1].ups == [2]
    lab.network.heal_all()
    assert lab.until(lambda: lab[1].ups == [2, 3] and lab[3].ups == [1, 2], within_ms=5_000)


def test_an_idle_link_stays_up() -> None:
    lab = LinksLab()
    lab.boot_until_up()
    lab.settle(60_000)
    assert all(user.heard == [("up", 1), ("up", 3)] for user in _sorted_users(lab[2]))


def _sorted_users(node: LinkedNode) -> list[object]:
    for user in node.users.values():
        user.heard.sort()
    return list(node.users.values())


def test_a_node_that_was_stopped_reads_first_and_does_not_blame_its_peers() -> None:
    """Peers cut a node off that is silent for 2 s; a shorter stop costs nothing, however late its timers."""
    lab = LinksLab()
    lab.boot_until_up()
    for _ in range(5):
        lab[1].host.pause(1_700)
        count_fault("cluster", "node stopped and continued")
        lab.settle(1_900)
    assert lab[1].ups == [2, 3]
    assert ("down", 1) not in lab[2].users[0].heard


def test_all_nodes_stopped_for_a_minute_keep_their_links() -> None:
    lab = LinksLab()
    lab.boot_until_up()
    for node in lab.nodes.values():
        node.host.pause(60_000)
    count_fault("cluster", "node stopped and continued", 3)
    lab.settle(65_000)
    assert all(heard[0] == "up" for node in lab.nodes.values() for heard in node.users[0].heard)


def test_a_link_that_comes_up_again_supersedes_the_old_one_which_delivers_nothing_more() -> None:
    """The dialer lost its half of the connection; the other half is still open and has unread packets."""
    lab = LinksLab()
    lab.boot_until_up()
    old = lab[1].links._up[3]
    lab.network.slow_down("n3", "n1", 400)
    lab[3].links.send(1, 0, b"on the old connection")
    lab[3].links.flush()
    lab.settle(1)
    theirs = lab[3].links._up[1]
    theirs.close(OSError("the dialer gives up"))
    assert lab.until(lambda: lab[1].links._up.get(3) not in (old, None), within_ms=5_000)
    heard = lab[1].users[0].heard
    assert heard[-2:] == [("down", 3), ("up", 3)] or heard[-1] == ("up", 3)
    before = list(heard)
    old.data_received(b"anything")
    lab.settle()
    assert lab[1].users[0].heard == before


def test_a_slow_reader_stops_its_sender_and_starts_it_again() -> None:
    lab = LinksLab()
    lab.boot_until_up()
    links = lab[1].links
    lab[2].host.pause(1_000)
    sent = 0
    while links.can_send(2):
        assert links.send(2, 0, bytes(1 << 20))
        sent += 1
    assert OUTBOUND_PAUSE_BYTES >> 20 <= sent <= (OUTBOUND_PAUSE_BYTES >> 20) + 2
    assert ("writable", 2) not in lab[1].users[0].heard
    assert lab.until(lambda: links.can_send(2))
    assert lab.until(lambda: all(("writable", 2) in user.heard for user in lab[1].users.values()))
    assert lab.until(lambda: len(lab[2].users[0].messages(1)) == sent)


def test_a_reader_that_takes_nothing_is_cut_off_before_memory_fills() -> None:
    lab = LinksLab()
    lab.boot_until_up()
    links = lab[1].links
    lab[2].host.pause(60_000)
    payload = bytes(1 << 20)
    sent = 0
    while links.send(2, 0, payload):
        sent += 1
        lab.settle(0.01)
        assert sent < 100
    assert OUTBOUND_MAX_BYTES >> 20 <= sent <= (OUTBOUND_MAX_BYTES >> 20) + 2
    assert "does not read" in lab[1].trouble(2)


def test_what_a_node_says_of_itself_is_told_again_when_it_changes() -> None:
    lab = LinksLab()
    described(lab[2], http_port=0)
    lab.boot_until_up()
    assert lab[3].links.peers[2].http_port == 0
    changes: list[int] = []
    lab[3].links.on_change = lambda: changes.append(lab[3].links.peers[2].http_port)
    described(lab[2], http_port=8181, format_level=1)
    assert lab.until(lambda: lab[3].links.peers[2].http_port == 8181, within_ms=400)
    assert lab[1].links.peers[2].http_port == 8181
    assert changes == [8181]


def test_a_skewed_clock_is_measured_shown_and_logged_once_per_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "quorate.peers")
    lab = LinksLab()
    lab[3].wall_skew_ms = 2_500
    lab.boot_until_up()
    lab.settle(60_000)
    skew_ms = lab[1].links.peers[3].clock_skew_ms
    assert 2_490 < skew_ms < 2_510
    assert lab[3].links.peers[1].clock_skew_ms == pytest.approx(-skew_ms, abs=5)
    assert next(row for row in lab[1].links.status() if row["node_id"] == 3)["clock_skew_ms"] > 2_490
    lines = [record.message for record in caplog.records if "wall clock" in record.message]
    assert sorted(lines) == [
        *["the wall clock of node 1 is 2.5 s behind this node's: synchronise both by NTP"],
        *["the wall clock of node 2 is 2.5 s behind this node's: synchronise both by NTP"],
        *["the wall clock of node 3 is 2.5 s ahead of this node's: synchronise both by NTP"] * 2,
    ]
    lab[3].host.wall_skew_ms = 0
    caplog.clear()
    lab.settle(25_000)
    lines = [record.message for record in caplog.records if "wall clock" in record.message]
    assert len(lines) == 4
    assert all("agrees with this node's again" in line for line in lines)


def test_a_peer_that_is_away_is_dialled_often_and_logged_seldom(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "quorate.peers")
    lab = LinksLab()
    lab.boot(3)
    lab.settle(20_000)
    status = {row["node_id"]: row for row in lab[3].links.status()}
    assert status[1]["state"] == "down"
    assert "nobody listens" in status[1]["trouble"]
    assert 80 <= status[1]["dials"] <= 200
    assert len(caplog.records) <= 10


def test_an_address_that_is_taken_is_an_error_of_start() -> None:
    lab = LinksLab()
    lab.network.listen("other", "n2", PORT, lambda: None)
    lab.boot(2)
    lab.settle()
    assert isinstance(lab[2].errors[0], OSError)


def test_connections_that_come_about_late_are_not_taken_for_new_ones() -> None:
    """A cut holds up the dials of seconds; when it heals they all open at once, and one link comes of it."""
    lab = LinksLab()
    lab.network.cut("n1", "n3")
    lab.boot()
    count_fault("cluster", "two-way cut between nodes")
    lab.settle(15_000)
    assert lab[1].ups == [2]
    lab.network.heal_all()
    assert lab.until(lambda: lab[1].ups == [2, 3] and lab[3].ups == [1, 2], within_ms=5_000)
    lab.settle(5_000)
    assert lab[1].users[0].heard.count(("up", 3)) == 1
    assert len(lab[1].links._open) == len(lab[3].links._open) == 2
