"""Links refuse wrong disks, clusters and secrets, and strangers with arbitrary bytes cost little."""

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
from tests.cluster.sim_links import SHARDS, LinkedNode, RawPeer, SimLinks, described
from tests.report import count_fault


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


# Disks


def test_an_old_disk_that_is_put_back_is_refused_and_says_replace(caplog: pytest.LogCaptureFixture) -> None:
    sim = SimLinks()
    sim.boot_until_up()
    sim[3].kill()
    image = sim[3].disk.crash(Crash.KEPT)
    sim[3].boot()
    sim.settle(500)
    assert sim[3].ups == [1, 2]
    sim[3].kill()
    sim[3].disk = image
    count_fault("cluster", "old disk put back")
    sim[3].boot()
    sim.settle(3_000)
    assert sim[3].ups == []
    assert sim[1].ups == [2]
    assert "an old copy was restored here; format an empty directory with --replace" in sim[3].trouble(1)
    assert "started from an old copy of its disk" in sim[1].trouble(3)
    assert any("link to node 3" in line and "--replace" in line for line in lines(caplog))


def test_an_image_of_before_the_first_start_is_an_old_disk_too() -> None:
    sim = SimLinks()
    image = sim[3].disk.crash(Crash.KEPT)
    sim.boot_until_up()
    sim[3].kill()
    sim[3].disk = image
    sim[3].boot()
    sim.settle(1_000)
    assert sim[3].ups == []


def test_starts_that_no_peer_saw_are_no_old_disk() -> None:
    sim = SimLinks()
    sim.boot_until_up()
    for node_id in (1, 2):
        sim[node_id].kill()
    for _ in range(3):
        sim[3].reboot()
        sim.settle(500)
    sim.boot(1, 2)
    assert sim.until(lambda: sim[3].ups == [1, 2])


def test_a_disk_formatted_anew_needs_replace_and_the_old_one_never_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sim = SimLinks()
    sim.boot_until_up()
    sim[3].kill()
    old = sim[3].disk
    fresh = LinkedNode(sim, 3, incarnation="second")
    fresh.boot()
    sim.settle(1_000)
    assert fresh.ups == []
    assert "format an empty directory here with --replace" in fresh.trouble(1)
    assert any("was formatted again" in line for line in lines(caplog))
    fresh.kill()
    replacement = LinkedNode(sim, 3, incarnation="third", is_replacement=True)
    count_fault("cluster", "disk replaced")
    replacement.boot()
    assert sim.until(lambda: replacement.ups == [1, 2] and 3 in sim[1].ups)
    assert sim[1].links.peers[3].is_replacement
    replacement.reboot()
    assert sim.until(lambda: replacement.ups == [1, 2])
    replacement.kill()
    sim[3].disk = old
    sim[3].boot()
    sim.settle(1_000)
    assert sim[3].ups == []
    assert "runs on a disk that has been replaced" in sim[1].trouble(3)


def test_accepted_boots_outlive_a_restart_and_are_synced_before_the_peer_hears() -> None:
    sim = SimLinks()
    sim.boot_until_up()
    sim[3].kill()
    image = sim[3].disk.crash(Crash.KEPT)
    sim[3].boot()
    assert sim.until(lambda: sim[3].ups == [1, 2])
    for node_id in (1, 2):
        sim[node_id].kill()
        sim[node_id].disk = sim[node_id].disk.crash(Crash.LOST)
    sim[3].kill()
    sim[3].disk = image
    sim.boot()
    sim.settle(1_000)
    assert sim[3].ups == []
    assert sim[1].ups == [2]


def test_two_nodes_with_one_id_are_not_both_let_in(caplog: pytest.LogCaptureFixture) -> None:
    """First a copied directory with the same identity, then a second directory formatted with the same id."""
    sim = SimLinks()
    copy = LinkedNode(sim, 3, name="copy")
    copy.disk = sim[3].disk.crash(Crash.KEPT)
    other = LinkedNode(sim, 3, name="other")
    sim.boot_until_up()
    count_fault("cluster", "two nodes with one id", 2)
    for intruder in (copy, other):
        intruder.boot()
    sim.settle(2_000)
    assert copy.ups == other.ups == []
    assert sim[1].ups == [2, 3]
    assert sim[3].ups == [1, 2]
    assert all(("down", 3) not in user.heard for user in sim[1].users.values())
    assert any("stop the second node with this id" in line for line in lines(caplog))


def test_an_acceptor_with_the_dialers_own_id_and_a_node_that_dials_itself() -> None:
    sim = SimLinks(count=2)
    sim[1].kill = lambda: None  # type: ignore[method-assign]
    impostor = LinkedNode(sim, 2, name="n1", incarnation="impostor")
    sim[2].boot()
    impostor.boot()
    sim.settle(300)
    assert "same node id" in sim[2].trouble(1) or "its own node.id" in sim[2].trouble(1)
    mixed = SimLinks(count=2)
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
    sim = SimLinks()
    sim.nodes[3] = LinkedNode(sim, 3, **identity)
    count_fault("cluster", "node of another cluster")
    sim.boot()
    sim.settle(1_000)
    assert sim[1].ups == [2]
    if "voters" in identity:
        assert isinstance(sim[3].errors[0], PeersError)
        assert "was formatted for 2, 3" in str(sim[3].errors[0])
        return
    assert acceptor_says in sim[1].trouble(3)
    assert dialer_says in sim[3].trouble(1)


def test_a_wrong_secret_is_named_on_both_sides_and_logged_a_few_times(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sim = SimLinks()
    sim[2].secret = b"not the secret of this cluster"
    count_fault("cluster", "wrong secret")
    sim.boot()
    sim.settle(20_000)
    assert sim[2].ups == []
    assert sim[1].ups == [3]
    assert "secret" in sim[2].trouble(1)
    assert "does not know this cluster's secret" in sim[1].trouble(2)
    assert len(lines(caplog)) < 25


@pytest.mark.parametrize("newer", [1, 3])
def test_a_release_that_cannot_read_the_format_is_kept_out_on_whichever_side(newer: int) -> None:
    sim = SimLinks()
    described(sim[newer], format_level=2, format_level_max=2, release="2.0")
    sim.boot()
    sim.settle(1_000)
    assert sim[newer].ups == []
    older = 1 if newer == 3 else 3
    assert any(
        "start a newer release" in sim[id_].trouble(other) for id_, other in [(older, newer), (newer, older)]
    )


@pytest.mark.parametrize("secret", [b"", b"  short\n", bytes(5000)])
def test_a_secret_that_is_none_does_not_start(secret: bytes) -> None:
    sim = SimLinks()
    sim[1].secret = secret
    sim.boot(1)
    sim.settle()
    assert isinstance(sim[1].errors[0], PeersError)
    assert "a secret has 16 to 4096" in str(sim[1].errors[0])


def test_damage_in_accepted_boots_does_not_start() -> None:
    sim = SimLinks()
    sim.boot_until_up()
    sim[1].kill()
    file = sim[1].disk.open("/data/boots", "w")
    file.pwrite(b"\xff", file.size() - 1)
    sim[1].boot()
    sim.settle()
    assert isinstance(sim[1].errors[-1], Corrupt)


def test_a_disk_that_cannot_note_a_boot_stops_the_node() -> None:
    sim = SimLinks()
    sim.boot(1, 3)
    sim[1].disk.fail = lambda operation, path: OSError(5, "I/O error") if "boots" in path else None
    sim.settle(500)
    assert "cannot record the boot of node 3" in (sim[1].host.fatal_message or "")


# Strangers


def test_a_stranger_that_says_nothing_or_half_a_hello_is_cut_off_after_two_seconds() -> None:
    sim = SimLinks()
    sim.boot_until_up()
    silent, half = RawPeer(sim, "a").connect(sim[1]), RawPeer(sim, "b").connect(sim[1])
    half.send(frame(HelloFrame.HELLO, bytes(2000))[:1500])
    sim.settle(1_900)
    assert not silent.is_lost
    sim.settle(300)
    assert silent.is_lost
    assert half.is_lost
    assert sim[1].ups == [2, 3]


def test_strangers_fill_no_more_than_their_places_and_keep_no_peer_out() -> None:
    sim = SimLinks()
    sim.boot(1)
    sim.settle()
    strangers = [RawPeer(sim, f"s{number}").connect(sim[1]) for number in range(3 * STRANGERS_MAX)]
    sim.settle(5)
    assert sum(not stranger.is_lost for stranger in strangers) == STRANGERS_MAX
    assert len(sim[1].links._open) == STRANGERS_MAX
    sim.boot(2, 3)
    assert sim.until(lambda: sim[1].ups == [2, 3], within_ms=500)


def test_strangers_in_their_tls_handshake_fill_no_more_than_these_places_either() -> None:
    sim = SimLinks()
    for node in sim.nodes.values():
        node.settings = dataclasses.replace(
            node.settings, tls=TlsSettings(cert_file="c", key_file="k", ca_file="a")
        )
    sim.boot(1)
    sim.settle()
    strangers = [RawPeer(sim, f"s{number}").connect(sim[1]) for number in range(3 * STRANGERS_MAX)]
    sim.settle(5)
    assert [stranger.is_lost for stranger in strangers] == [True] * 2 * STRANGERS_MAX + [
        False
    ] * STRANGERS_MAX
    assert len(sim[1].links._open) == STRANGERS_MAX
    sim.boot(2, 3)
    assert sim.until(lambda: sim[1].ups == [2, 3], within_ms=500)
    sim.settle(2_200)
    assert all(stranger.is_lost for stranger in strangers)
    assert len(sim[1].links._open) == 2


def test_a_peer_whose_boot_is_being_noted_is_no_stranger_any_more() -> None:
    """This holds however slow the disk is, and whoever else connects meanwhile."""
    sim = SimLinks(count=2)
    sim.boot(1)
    sim.settle()
    sim[1].host.stall_disk(500)
    sim.boot(2)
    assert sim.until(lambda: any(link.state is LinkState.DECIDING for link in sim[1].links._open))
    for number in range(2 * STRANGERS_MAX):
        RawPeer(sim, f"s{number}").connect(sim[1])
    sim.settle(5)
    assert any(link.state is LinkState.DECIDING for link in sim[1].links._open)
    assert sim.until(lambda: sim[1].ups == [2], within_ms=1_000)
    assert sim[2].links._configured[1].dials == 1


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
    sim = SimLinks()
    sim.boot_until_up()
    caplog.clear()
    stranger = RawPeer(sim).connect(sim[1])
    stranger.send(data)
    sim.settle()
    assert stranger.is_lost
    assert len(lines(caplog)) == 1
    assert "\n" not in lines(caplog)[0]
    assert sim[1].ups == [2, 3]


def test_a_thousand_strangers_are_a_few_lines_of_log(caplog: pytest.LogCaptureFixture) -> None:
    sim = SimLinks()
    sim.boot_until_up()
    caplog.clear()
    for number in range(1_000):
        RawPeer(sim, f"s{number}").connect(sim[1]).send(b"GET / HTTP/1.1\r\n\r\n")
    sim.settle(2_000)
    assert len(caplog.records) <= 12


@given(seed=st.integers(0, 10_000), noise=st.binary(max_size=300), when=st.integers(0, 5))
@example(seed=1003, noise=b"\0", when=3)
@settings(max_examples=100, deadline=None)
def test_any_bytes_in_any_state_neither_raise_nor_deliver(seed: int, noise: bytes, when: int) -> None:
    """The noise is inserted between a peer's genuine bytes, at every stage of a connection."""
    sim = SimLinks(seed, count=2)
    rng = random.Random(seed)
    sim.boot(1, 2)
    for _ in range(when):
        sim.world.run_until(lambda: bool(sim[1].links._open or sim[2].links._open), within_ms=300)
        for _ in range(rng.randrange(8)):
            sim.world.step()
        if links := [*sim[1].links._open, *sim[2].links._open]:
            rng.choice(links).data_received(noise)
    sim.settle(300)
    assert sim.until(lambda: sim[1].ups == [2] and sim[2].ups == [1], within_ms=5_000)
    heard = [heard for node in sim.nodes.values() for user in node.users.values() for heard in user.heard]
    assert not [what for what in heard if what[0] == "message"]
    for _ in range(30):  # what looks like the head of a long packet is given up after silence
        sim[1].links.send(2, 0, b"genuine")
        sim.settle(100)
        if arrived := sim[2].users[0].messages(1):
            break
    assert set(arrived) == {b"genuine"}
    for node in sim.nodes.values():
        for shard in SHARDS:
            ups = [what[0] for what in node.users[shard].heard if what[0] != "message"]
            assert ups == ["up", "down"] * (len(ups) // 2) + ["up"]


def test_a_peer_with_the_secret_that_sends_nonsense_costs_its_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sim = SimLinks()
    sim.boot_until_up()
    for kind, payload in [(17, b"no such shard"), (-3, b"short"), (-4, b""), (-5, b"\xc1"), (-6, b"")]:
        sim[3].links._up[1].queue(kind, payload)
        sim[3].links.flush()
        sim.settle(10)
        assert 3 not in sim[1].ups, kind
        assert sim.until(lambda: 3 in sim[1].ups, within_ms=500)
    sim[3].links._up[1].queue(-99, b"a kind of a newer release")
    sim.settle(1_000)
    assert 3 in sim[1].ups
    assert not sim[1].users[0].messages(3)


def test_a_packet_recorded_from_a_link_is_worth_nothing_later() -> None:
    sim = SimLinks()
    sim.boot_until_up()
    link = sim[1].links._up[3]
    written: list[bytes] = []
    theirs = sim[3].links._up[1]
    assert theirs._transport is not None
    real_write = theirs._transport.write
    theirs._transport.write = lambda data: (written.append(bytes(data)), real_write(data))[1]  # type: ignore[func-returns-value, method-assign]
    sim[3].links.send(1, 0, b"once")
    sim.settle(5)
    assert sim[1].users[0].messages(3) == [b"once"]
    link.data_received(written[0])
    sim.settle(1)
    assert sim[1].users[0].messages(3) == [b"once"]
    assert 3 not in sim[1].ups


def test_the_sealers_number_is_part_of_what_is_sealed() -> None:
    assert Sealer(b"k").head(b"same") == Sealer(b"k").head(b"same")
    sealer = Sealer(b"k")
    assert sealer.head(b"same") != sealer.head(b"same")


@pytest.mark.parametrize("seed", range(4))
def test_two_copies_of_one_disk_that_reach_different_peers_do_not_both_go_on(seed: int) -> None:
    """Each copy is accepted by the peer that it reaches first; two majorities would elect two leaders."""
    sim = SimLinks(seed)
    sim.boot_until_up()
    sim[3].kill()
    sim.settle(500)
    copy = LinkedNode(sim, 3, name="copy")
    copy.disk = sim[3].disk.crash(Crash.KEPT)
    sim.network.cut("n3", "n2")
    sim.network.cut("copy", "n1")
    count_fault("cluster", "two nodes with one id", 1)
    sim[3].boot()
    copy.boot()
    sim.settle(1_000)
    assert (sim[3].ups, copy.ups) == ([1], [2])
    sim.network.heal_all()
    sim.settle(6_000)
    assert (sim[3].ups, copy.ups) in [([], []), ([1, 2], []), ([], [1, 2])]


def test_a_stranger_on_a_peers_address_cannot_make_a_node_withdraw() -> None:
    sim = SimLinks(count=2)

    class Liar(RawPeer):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.send(frame(HelloFrame.REFUSED, b"\x0b" + bytes(32)))

    sim.network.listen("liar", "n1", 9192, lambda: Liar(sim))
    sim[2].boot()
    sim.settle(500)
    assert "old copy" in sim[2].trouble(1)
    sim.network.drop_host("liar")
    sim[1].boot()
    assert sim.until(lambda: sim[2].ups == [1])
