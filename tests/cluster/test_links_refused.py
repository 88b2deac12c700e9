"""Who is kept out, and what strangers can cost: wrong disks, wrong clusters, wrong secrets, any bytes."""

from __future__ import annotations

import dataclasses
import logging
import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raftlog.env.errors import Corrupt
from raftlog.env.host import TlsSettings
from raftlog.env.simulated_files import Crash
from raftlog.transport import PeersError
from raftlog.transport.hello import HELLO_BYTES_MAX, HelloFrame, frame
from raftlog.transport.link import LinkState
from raftlog.transport.links import STRANGERS_MAX
from raftlog.transport.packets import Sealer
from tests.cluster.links_lab import SHARDS, LinkedNode, LinksLab, RawPeer, described
from tests.report import count_fault


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


# Disks


def test_an_old_disk_that_is_put_back_is_refused_and_says_replace(caplog: pytest.LogCaptureFixture) -> None:
    lab = LinksLab()
    lab.boot_until_up()
    lab[3].kill()
    image = lab[3].disk.crash(Crash.KEPT)
    lab[3].boot()
    lab.settle(500)
    assert lab[3].ups == [1, 2]
    lab[3].kill()
    lab[3].disk = image
    count_fault("cluster", "old disk put back")
    lab[3].boot()
    lab.settle(3_000)
    assert lab[3].ups == []
    assert lab[1].ups == [2]
    assert "an old copy was restored here; format an empty directory with --replace" in lab[3].trouble(1)
    assert "started from an old copy of its disk" in lab[1].trouble(3)
    assert any("link to node 3" in line and "--replace" in line for line in lines(caplog))


def test_an_image_of_before_the_first_start_is_an_old_disk_too() -> None:
    lab = LinksLab()
    image = lab[3].disk.crash(Crash.KEPT)
    lab.boot_until_up()
    lab[3].kill()
    lab[3].disk = image
    lab[3].boot()
    lab.settle(1_000)
    assert lab[3].ups == []


def test_starts_that_nobody_heard_of_are_no_old_disk() -> None:
    lab = LinksLab()
    lab.boot_until_up()
    for node_id in (1, 2):
        lab[node_id].kill()
    for _ in range(3):
        lab[3].reboot()
        lab.settle(500)
    lab.boot(1, 2)
    assert lab.until(lambda: lab[3].ups == [1, 2])


def test_a_disk_formatted_anew_needs_replace_and_the_old_one_never_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = LinksLab()
    lab.boot_until_up()
    lab[3].kill()
    old = lab[3].disk
    fresh = LinkedNode(lab, 3, incarnation="second")
    fresh.boot()
    lab.settle(1_000)
    assert fresh.ups == []
    assert "format an empty directory here with --replace" in fresh.trouble(1)
    assert any("was formatted again" in line for line in lines(caplog))
    fresh.kill()
    replacement = LinkedNode(lab, 3, incarnation="third", is_replacement=True)
    count_fault("cluster", "disk replaced")
    replacement.boot()
    assert lab.until(lambda: replacement.ups == [1, 2] and 3 in lab[1].ups)
    assert lab[1].links.peers[3].is_replacement
    replacement.reboot()
    assert lab.until(lambda: replacement.ups == [1, 2])
    replacement.kill()
    lab[3].disk = old
    lab[3].boot()
    lab.settle(1_000)
    assert lab[3].ups == []
    assert "runs on a disk that has been replaced" in lab[1].trouble(3)


def test_accepted_boots_outlive_a_restart_and_are_synced_before_the_peer_hears() -> None:
    lab = LinksLab()
    lab.boot_until_up()
    lab[3].kill()
    image = lab[3].disk.crash(Crash.KEPT)
    lab[3].boot()
    assert lab.until(lambda: lab[3].ups == [1, 2])
    for node_id in (1, 2):
        lab[node_id].kill()
        lab[node_id].disk = lab[node_id].disk.crash(Crash.LOST)
    lab[3].kill()
    lab[3].disk = image
    lab.boot()
    lab.settle(1_000)
    assert lab[3].ups == []
    assert lab[1].ups == [2]


def test_two_nodes_with_one_id_are_not_both_let_in(caplog: pytest.LogCaptureFixture) -> None:
    """A copied directory: the same identity twice; and a second directory formatted with the same id."""
    lab = LinksLab()
    copy = LinkedNode(lab, 3, name="copy")
    copy.disk = lab[3].disk.crash(Crash.KEPT)
    other = LinkedNode(lab, 3, name="other")
    lab.boot_until_up()
    count_fault("cluster", "two nodes with one id", 2)
    for intruder in (copy, other):
        intruder.boot()
    lab.settle(2_000)
    assert copy.ups == other.ups == []
    assert lab[1].ups == [2, 3]
    assert lab[3].ups == [1, 2]
    assert all(("down", 3) not in user.heard for user in lab[1].users.values())
    assert any("stop the second node with this id" in line for line in lines(caplog))


def test_an_acceptor_with_the_dialers_own_id_and_a_node_that_dials_itself() -> None:
    lab = LinksLab(count=2)
    lab[1].kill = lambda: None  # type: ignore[method-assign]
    impostor = LinkedNode(lab, 2, name="n1", incarnation="impostor")
    lab[2].boot()
    impostor.boot()
    lab.settle(300)
    assert "same node id" in lab[2].trouble(1) or "its own node.id" in lab[2].trouble(1)
    mixed = LinksLab(count=2)
    mixed[2].name = "n1"
    mixed[2].settings = impostor.settings
    mixed[2].boot()
    mixed.settle(300)
    assert "is this node itself" in mixed[2].trouble(1) or "same node id" in mixed[2].trouble(1)


# Clusters, secrets, releases


@pytest.mark.parametrize(
    ("identity", "acceptor_says", "dialer_says"),
    [
        ({"cluster_id": "BBBB"}, "belongs to cluster 'BBBB'", "it belongs to another cluster"),
        ({"num_shards": 3}, "formatted with 3 shards", "different numbers of shards"),
        ({"voters": (2, 3)}, "", ""),
    ],
)
def test_a_node_of_another_cluster_is_kept_out(
    identity: dict[str, Any], acceptor_says: str, dialer_says: str
) -> None:
    lab = LinksLab()
    lab.nodes[3] = LinkedNode(lab, 3, **identity)
    count_fault("cluster", "node of another cluster")
    lab.boot()
    lab.settle(1_000)
    assert lab[1].ups == [2]
    if "voters" in identity:
        assert isinstance(lab[3].errors[0], PeersError)
        assert "was formatted for 2, 3" in str(lab[3].errors[0])
        return
    assert acceptor_says in lab[1].trouble(3)
    assert dialer_says in lab[3].trouble(1)


def test_a_wrong_secret_is_named_on_both_sides_and_logged_a_few_times(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = LinksLab()
    lab[2].secret = b"not the secret of this cluster"
    count_fault("cluster", "wrong secret")
    lab.boot()
    lab.settle(20_000)
    assert lab[2].ups == []
    assert lab[1].ups == [3]
    assert "secret" in lab[2].trouble(1)
    assert "does not know this cluster's secret" in lab[1].trouble(2)
    assert len(lines(caplog)) < 25


@pytest.mark.parametrize("newer", [1, 3])
def test_a_release_that_cannot_read_the_format_is_kept_out_on_whichever_side(newer: int) -> None:
    lab = LinksLab()
    described(lab[newer], format_level=2, format_level_max=2, release="2.0")
    lab.boot()
    lab.settle(1_000)
    assert lab[newer].ups == []
    older = 1 if newer == 3 else 3
    assert any(
        "start a newer release" in lab[id_].trouble(other) for id_, other in [(older, newer), (newer, older)]
    )


@pytest.mark.parametrize("secret", [b"", b"  short\n", bytes(5000)])
def test_a_secret_that_is_none_does_not_start(secret: bytes) -> None:
    lab = LinksLab()
    lab[1].secret = secret
    lab.boot(1)
    lab.settle()
    assert isinstance(lab[1].errors[0], PeersError)
    assert "a secret has 16 to 4096" in str(lab[1].errors[0])


def test_damage_in_accepted_boots_does_not_start() -> None:
    lab = LinksLab()
    lab.boot_until_up()
    lab[1].kill()
    file = lab[1].disk.open("/data/boots", "w")
    file.pwrite(b"\xff", file.size() - 1)
    lab[1].boot()
    lab.settle()
    assert isinstance(lab[1].errors[-1], Corrupt)


def test_a_disk_that_cannot_note_a_boot_stops_the_node() -> None:
    lab = LinksLab()
    lab.boot(1, 3)
    lab[1].disk.fail = lambda operation, path: OSError(5, "I/O error") if "boots" in path else None
    lab.settle(500)
    assert "cannot record the boot of node 3" in (lab[1].host.fatal_message or "")


# Strangers


def test_a_stranger_that_says_nothing_or_half_a_hello_is_cut_off_after_two_seconds() -> None:
    lab = LinksLab()
    lab.boot_until_up()
    silent, half = RawPeer(lab, "a").connect(lab[1]), RawPeer(lab, "b").connect(lab[1])
    half.send(frame(HelloFrame.HELLO, bytes(2000))[:1500])
    lab.settle(1_900)
    assert not silent.is_lost
    lab.settle(300)
    assert silent.is_lost
    assert half.is_lost
    assert lab[1].ups == [2, 3]


def test_strangers_fill_no_more_than_their_places_and_keep_no_peer_out() -> None:
    lab = LinksLab()
    lab.boot(1)
    lab.settle()
    strangers = [RawPeer(lab, f"s{number}").connect(lab[1]) for number in range(3 * STRANGERS_MAX)]
    lab.settle(5)
    assert sum(not stranger.is_lost for stranger in strangers) == STRANGERS_MAX
    assert len(lab[1].links._open) == STRANGERS_MAX
    lab.boot(2, 3)
    assert lab.until(lambda: lab[1].ups == [2, 3], within_ms=500)


def test_strangers_in_their_tls_handshake_fill_no_more_than_these_places_either() -> None:
    lab = LinksLab()
    for node in lab.nodes.values():
        node.settings = dataclasses.replace(
            node.settings, tls=TlsSettings(cert_file="c", key_file="k", ca_file="a")
        )
    lab.boot(1)
    lab.settle()
    strangers = [RawPeer(lab, f"s{number}").connect(lab[1]) for number in range(3 * STRANGERS_MAX)]
    lab.settle(5)
    assert [stranger.is_lost for stranger in strangers] == [True] * 2 * STRANGERS_MAX + [
        False
    ] * STRANGERS_MAX
    assert len(lab[1].links._open) == STRANGERS_MAX
    lab.boot(2, 3)
    assert lab.until(lambda: lab[1].ups == [2, 3], within_ms=500)
    lab.settle(2_200)
    assert all(stranger.is_lost for stranger in strangers)
    assert len(lab[1].links._open) == 2


def test_a_peer_whose_boot_is_being_noted_is_no_stranger_any_more() -> None:
    """However slow the disk is, and whoever knocks meanwhile."""
    lab = LinksLab(count=2)
    lab.boot(1)
    lab.settle()
    lab[1].host.stall_disk(500)
    lab.boot(2)
    assert lab.until(lambda: any(link.state is LinkState.DECIDING for link in lab[1].links._open))
    for number in range(2 * STRANGERS_MAX):
        RawPeer(lab, f"s{number}").connect(lab[1])
    lab.settle(5)
    assert any(link.state is LinkState.DECIDING for link in lab[1].links._open)
    assert lab.until(lambda: lab[1].ups == [2], within_ms=1_000)
    assert lab[2].links._configured[1].dials == 1


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        (HELLO_BYTES_MAX + 1).to_bytes(4, "little") + b"\1",
        bytes(5),
        frame(HelloFrame.HELLO, b"\0" * 100),
        frame(HelloFrame.PROOF, b"\0" * 32),
        b"\x05\x00\x00\x00\x01\xc1\xc1\xc1\xc1",
    ],
)
def test_bytes_of_other_protocols_end_the_connection_with_one_line(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    lab = LinksLab()
    lab.boot_until_up()
    caplog.clear()
    stranger = RawPeer(lab).connect(lab[1])
    stranger.send(data)
    lab.settle()
    assert stranger.is_lost
    assert len(lines(caplog)) == 1
    assert "\n" not in lines(caplog)[0]
    assert lab[1].ups == [2, 3]


def test_a_thousand_strangers_are_a_few_lines_of_log(caplog: pytest.LogCaptureFixture) -> None:
    lab = LinksLab()
    lab.boot_until_up()
    caplog.clear()
    for number in range(1_000):
        RawPeer(lab, f"s{number}").connect(lab[1]).send(b"GET / HTTP/1.1\r\n\r\n")
    lab.settle(2_000)
    assert len(caplog.records) <= 12


@given(seed=st.integers(0, 10_000), noise=st.binary(max_size=300), when=st.integers(0, 5))
@example(seed=1003, noise=b"\0", when=3)
@settings(max_examples=100, deadline=None)
def test_any_bytes_in_any_state_neither_raise_nor_deliver(seed: int, noise: bytes, when: int) -> None:
    """The bytes come in between the genuine ones of a peer, at every stage of a connection's life."""
    lab = LinksLab(seed, count=2)
    rng = random.Random(seed)
    lab.boot(1, 2)
    for _ in range(when):
        lab.world.run_until(lambda: bool(lab[1].links._open or lab[2].links._open), within_ms=300)
        for _ in range(rng.randrange(8)):
            lab.world.step()
        if links := [*lab[1].links._open, *lab[2].links._open]:
            rng.choice(links).data_received(noise)
    lab.settle(300)
    assert lab.until(lambda: lab[1].ups == [2] and lab[2].ups == [1], within_ms=5_000)
    heard = [heard for node in lab.nodes.values() for user in node.users.values() for heard in user.heard]
    assert not [what for what in heard if what[0] == "message"]
    for _ in range(30):  # what looks like the head of a long packet is found out by the silence behind it
        lab[1].links.send(2, 0, b"genuine")
        lab.settle(100)
        if arrived := lab[2].users[0].messages(1):
            break
    assert set(arrived) == {b"genuine"}
    for node in lab.nodes.values():
        for shard in SHARDS:
            ups = [what[0] for what in node.users[shard].heard if what[0] != "message"]
            assert ups == ["up", "down"] * (len(ups) // 2) + ["up"]


def test_a_peer_with_the_secret_that_sends_nonsense_costs_its_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = LinksLab()
    lab.boot_until_up()
    for kind, payload in [(17, b"no such shard"), (-3, b"short"), (-4, b""), (-5, b"\xc1"), (-6, b"")]:
        lab[3].links._up[1].queue(kind, payload)
        lab[3].links.flush()
        lab.settle(10)
        assert 3 not in lab[1].ups, kind
        assert lab.until(lambda: 3 in lab[1].ups, within_ms=500)
    lab[3].links._up[1].queue(-99, b"a kind of a newer release")
    lab.settle(1_000)
    assert 3 in lab[1].ups
    assert not lab[1].users[0].messages(3)


def test_a_packet_recorded_from_a_link_is_worth_nothing_later() -> None:
    lab = LinksLab()
    lab.boot_until_up()
    link = lab[1].links._up[3]
    written: list[bytes] = []
    theirs = lab[3].links._up[1]
    assert theirs._transport is not None
    real_write = theirs._transport.write
    theirs._transport.write = lambda data: (written.append(bytes(data)), real_write(data))[1]  # type: ignore[func-returns-value, method-assign]
    lab[3].links.send(1, 0, b"once")
    lab.settle(5)
    assert lab[1].users[0].messages(3) == [b"once"]
    link.data_received(written[0])
    lab.settle(1)
    assert lab[1].users[0].messages(3) == [b"once"]
    assert 3 not in lab[1].ups


def test_the_sealers_number_is_part_of_what_is_sealed() -> None:
    assert Sealer(b"k").head(b"same") == Sealer(b"k").head(b"same")
    sealer = Sealer(b"k")
    assert sealer.head(b"same") != sealer.head(b"same")


@pytest.mark.parametrize("seed", range(4))
def test_two_copies_of_one_disk_that_reach_different_peers_do_not_both_go_on(seed: int) -> None:
    """Each is accepted by the peer that it reaches first; two majorities would elect two leaders."""
    lab = LinksLab(seed)
    lab.boot_until_up()
    lab[3].kill()
    lab.settle(500)
    copy = LinkedNode(lab, 3, name="copy")
    copy.disk = lab[3].disk.crash(Crash.KEPT)
    lab.network.cut("n3", "n2")
    lab.network.cut("copy", "n1")
    count_fault("cluster", "two nodes with one id", 1)
    lab[3].boot()
    copy.boot()
    lab.settle(1_000)
    assert (lab[3].ups, copy.ups) == ([1], [2])
    lab.network.heal_all()
    lab.settle(6_000)
    assert (lab[3].ups, copy.ups) in [([], []), ([1, 2], []), ([], [1, 2])]


def test_a_stranger_on_a_peers_address_cannot_make_a_node_withdraw() -> None:
    lab = LinksLab(count=2)

    class Liar(RawPeer):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.send(frame(HelloFrame.REFUSED, b"\x0b" + bytes(32)))

    lab.network.listen("liar", "n1", 9192, lambda: Liar(lab))
    lab[2].boot()
    lab.settle(500)
    assert "old copy" in lab[2].trouble(1)
    lab.network.drop_host("liar")
    lab[1].boot()
    assert lab.until(lambda: lab[2].ups == [1])
