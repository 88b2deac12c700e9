"""The handshake and the packets without a socket: every refusal, replays, reflections, arbitrary bytes."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.transport.contract import SelfDescription
from raftlog.transport.handshake import Handshake, Stage
from raftlog.transport.hello import (
    HELLO_BYTES_MAX,
    Hello,
    HelloFrame,
    decode_hello,
    encode_hello,
    pack_description,
    take_frame,
    unpack_description,
)
from raftlog.transport.packets import MESSAGE_HEAD, PACKET_BYTES_MAX, BadPacket, Opener, Sealer
from raftlog.transport.refusals import TOLD, HelloRefusal, HelloRefused, RefusedByPeer, told

SECRET = b"sixteen bytes or more"
HELLO_LIST_AT = len(b"QUORATE-PEER") + 2
DESCRIPTION = SelfDescription(
    release="1.0",
    kafka_host="k",
    kafka_port=9092,
    http_host="h",
    http_port=8092,
    format_level_max=2,
    format_level=1,
)


def hello(node_id: int, to_node_id: int, **changes: Any) -> Hello:
    given: dict[str, Any] = {
        "cluster_id": "cluster",
        "node_id": node_id,
        "to_node_id": to_node_id,
        "num_shards": 4,
        "voters": (1, 2, 3),
        "incarnation": f"disk of {node_id}",
        "is_replacement": False,
        "boot_id": f"boot of {node_id}",
        "previous_boot_id": "",
        "attempt": 1,
        "description": DESCRIPTION,
        "nonce": bytes([node_id]) * 32,
    }
    return Hello(**(given | changes))


def pair(
    dialer: dict[str, Any] | None = None,
    acceptor: dict[str, Any] | None = None,
    secrets: tuple[bytes, bytes] = (SECRET, SECRET),
) -> tuple[Handshake, Handshake]:
    return (
        Handshake(secrets[0], hello(**({"node_id": 3, "to_node_id": 1} | (dialer or {}))), is_dialer=True),
        Handshake(secrets[1], hello(1, -1, **(acceptor or {})), is_dialer=False),
    )


def frames(data: bytes) -> list[tuple[int, bytes]]:
    buffer = bytearray(data)
    found = []
    while (taken := take_frame(buffer)) is not None:
        found.append(taken)
    assert not buffer
    return found


def give(to: Handshake, data: bytes) -> bytes:
    return b"".join(to.take(*taken) for taken in frames(data))


def shake(dialer: Handshake, acceptor: Handshake) -> list[bytes]:
    """Run the handshake; return everything sent, in order, or raise what either side raises."""
    sent = [dialer.begin()]
    sent.append(give(acceptor, sent[-1]))
    sent.append(give(dialer, sent[-1]))
    give(acceptor, sent[-1])
    sent.append(acceptor.accept())
    give(dialer, sent[-1])
    sent.append(dialer.accept())
    return sent


def test_both_know_each_other_and_share_a_key_for_each_direction() -> None:
    dialer, acceptor = pair()
    shake(dialer, acceptor)
    assert dialer.peer is not None
    assert acceptor.peer is not None
    assert (dialer.peer.node_id, acceptor.peer.node_id) == (1, 3)
    sending, receiving = dialer.keys()
    assert acceptor.keys() == (receiving, sending)
    assert sending != receiving


def test_a_hello_of_nine_nodes_with_long_names_fits() -> None:
    long = dataclasses.replace(DESCRIPTION, kafka_host="k" * 255, http_host="h" * 255)
    given = hello(3, 1, description=long, voters=tuple(range(2**31 - 9, 2**31)), boot_id="b" * 22)
    data = encode_hello(given)
    assert len(data) < HELLO_BYTES_MAX / 2
    assert decode_hello(data) == given


def test_what_was_appended_to_the_hello_travels_and_an_older_release_has_none() -> None:
    """An older release sends a shorter hello, and a newer one may append to ours."""
    described = dataclasses.replace(DESCRIPTION, lineage_ports=(9492, 0))
    given = hello(3, 1, description=described, starting_level=6)
    data = encode_hello(given)
    assert decode_hello(data) == given
    assert unpack_description(pack_description(described)) == described
    fields = msgpack.unpackb(data[HELLO_LIST_AT:])
    oldest, older, newer = (
        decode_hello(data[:HELLO_LIST_AT] + msgpack.packb(sent))
        for sent in (fields[:-2], fields[:-1], [*fields, "appended later"])
    )
    assert (oldest.description, oldest.starting_level) == (DESCRIPTION, 1)
    assert (older.description, older.starting_level) == (described, 1)
    assert newer == given


@pytest.mark.parametrize(
    "appended",
    [
        *([ports, 1] for ports in ("9492", [9492.5], [True], [70_000], [-1], [0] * 9, {})),
        *([[], level] for level in ("6", True, 6.0, None, [])),
    ],
)
def test_appended_fields_that_make_no_sense_are_refused(appended: list[object]) -> None:
    data = encode_hello(hello(3, 1))
    fields = msgpack.unpackb(data[HELLO_LIST_AT:])
    with pytest.raises(HelloRefused) as refused:
        decode_hello(data[:HELLO_LIST_AT] + msgpack.packb([*fields[:-2], *appended]))
    assert refused.value.code is HelloRefusal.MALFORMED


REFUSALS: list[tuple[dict[str, Any], dict[str, Any], HelloRefusal, str]] = [
    (
        {"cluster_id": "other\n"},
        {},
        HelloRefusal.CLUSTER,
        r"belongs to cluster 'other\\n', but this node belongs to 'cluster'",
    ),
    ({"node_id": 1, "boot_id": "x"}, {}, HelloRefusal.SAME_NODE, "has node id 1, as this node has"),
    (
        {"node_id": 1, "boot_id": "boot of 1"},
        {},
        HelloRefusal.SAME_NODE,
        "is this node itself; correct cluster.nodes",
    ),
    ({"node_id": 4}, {}, HelloRefusal.UNKNOWN_NODE, "has node id 4, but this cluster was formatted for"),
    ({"to_node_id": 2}, {}, HelloRefusal.WRONG_ADDRESS, "expects node 2, but this is node 1"),
    ({"num_shards": 5}, {}, HelloRefusal.SHARDS, "formatted with 5 shards, this node with 4"),
    ({"voters": (1, 3)}, {}, HelloRefusal.VOTERS, "formatted for nodes 1, 3, this node for 1, 2, 3"),
    (
        {"description": dataclasses.replace(DESCRIPTION, format_level_max=1)},
        {"description": dataclasses.replace(DESCRIPTION, format_level=2)},
        HelloRefusal.FORMAT_LEVEL,
        "reads format levels up to 1, but the cluster uses 2; start a newer release on it",
    ),
    (
        {"description": dataclasses.replace(DESCRIPTION, format_level_max=3, format_level=3)},
        {},
        HelloRefusal.FORMAT_LEVEL,
        "uses format level 3, this release reads up to 2; start a newer release on this node",
    ),
]


@pytest.mark.parametrize(("of_dialer", "of_acceptor", "code", "text"), REFUSALS)
def test_each_refusal_says_why_and_what_to_do(
    of_dialer: dict[str, Any], of_acceptor: dict[str, Any], code: HelloRefusal, text: str
) -> None:
    dialer, acceptor = pair(of_dialer, of_acceptor)
    with pytest.raises(HelloRefused, match=text) as caught:
        shake(dialer, acceptor)
    assert caught.value.code is code
    assert acceptor.stage is not Stage.DECIDING
    assert code in TOLD


def test_a_wrong_secret_is_refused_at_the_first_proof() -> None:
    dialer, acceptor = pair(secrets=(SECRET, b"another secret altogether"))
    with pytest.raises(HelloRefused, match="does not know this cluster's secret") as caught:
        shake(dialer, acceptor)
    assert caught.value.code is HelloRefusal.SECRET
    assert acceptor.stage is Stage.PROOF


def test_a_dialer_refuses_who_answers_in_place_of_its_peer() -> None:
    dialer = Handshake(SECRET, hello(3, 1), is_dialer=True)
    acceptor = Handshake(SECRET, hello(2, -1), is_dialer=False)
    with pytest.raises(HelloRefused, match="expects node 1, but this is node 2"):
        give(acceptor, dialer.begin())
    answer = Handshake(SECRET, hello(2, 3), is_dialer=True).begin()
    with pytest.raises(HelloRefused, match="is node 2, not node 1; correct its address"):
        give(dialer, answer)


def test_the_smaller_id_does_not_dial() -> None:
    dialer = Handshake(SECRET, hello(1, 3), is_dialer=True)
    acceptor = Handshake(SECRET, hello(3, -1), is_dialer=False)
    with pytest.raises(HelloRefused, match="the greater id connects"):
        give(acceptor, dialer.begin())


def test_a_recorded_handshake_proves_nothing_to_the_next_connection() -> None:
    dialer, acceptor = pair()
    sent = shake(dialer, acceptor)
    again = Handshake(SECRET, hello(1, -1, nonce=b"n" * 32), is_dialer=False)
    give(again, sent[0])
    with pytest.raises(HelloRefused, match="secret"):
        give(again, sent[2])
    redial = Handshake(SECRET, hello(3, 1, nonce=b"m" * 32), is_dialer=True)
    give(redial, sent[1])
    with pytest.raises(HelloRefused, match="secret"):
        give(redial, sent[3])


def test_a_nodes_own_proof_sent_back_is_refused() -> None:
    dialer, acceptor = pair()
    proof = give(dialer, give(acceptor, dialer.begin()))
    with pytest.raises(HelloRefused, match="secret"):
        give(dialer, proof)


def test_its_own_hello_sent_back_is_refused() -> None:
    dialer, _ = pair()
    with pytest.raises(HelloRefused, match="is this node itself"):
        give(dialer, dialer.begin())


@pytest.mark.parametrize("kind", [HelloFrame.PROOF, 0, 4, 255])
def test_frames_out_of_turn_are_refused(kind: int) -> None:
    dialer, acceptor = pair()
    with pytest.raises(HelloRefused, match=f"frame {int(kind)} out of order"):
        acceptor.take(kind, bytes(32))
    give(acceptor, dialer.begin())
    with pytest.raises(HelloRefused, match="out of order"):
        acceptor.take(HelloFrame.HELLO, encode_hello(hello(3, 1)))


def test_what_the_peer_refuses_is_told_in_words() -> None:
    dialer, _ = pair()
    with pytest.raises(RefusedByPeer, match="--replace") as caught:
        dialer.take(HelloFrame.REFUSED, bytes([HelloRefusal.OLD_DISK]))
    assert not caught.value.is_outdated  # the refusal is unauthenticated
    assert told(b"") == told(b"\0") == "it gave reason 0, which is unknown to this release"
    assert set(TOLD) == set(HelloRefusal)


@pytest.mark.parametrize("secret", [SECRET, b"of somebody else"])
def test_only_a_peer_that_knows_the_secret_can_make_a_node_withdraw(secret: bytes) -> None:
    dialer, acceptor = pair(secrets=(SECRET, secret))
    give(dialer, give(acceptor, dialer.begin()))
    with pytest.raises(RefusedByPeer) as caught:
        give(dialer, acceptor.refuse(HelloRefusal.OLD_DISK))
    assert caught.value.is_outdated is (secret == SECRET)


def test_another_protocol_version_is_named() -> None:
    data = bytearray(encode_hello(hello(3, 1)))
    data[12] = 7
    with pytest.raises(
        HelloRefused, match="speaks version 7 of the peer protocol, but this release speaks version 1"
    ):
        decode_hello(bytes(data))


def test_fields_of_a_newer_release_are_passed_over() -> None:
    import msgpack

    data = encode_hello(hello(3, 1))
    fields = msgpack.unpackb(data[14:])
    assert decode_hello(data[:14] + msgpack.packb([*fields, "new", 1])) == hello(3, 1)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_no_bytes_make_a_hello_raise_anything_but_refused(data: st.DataObject) -> None:
    good = bytearray(encode_hello(hello(3, 1)))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(good) - 1))
        if data.draw(st.booleans()):
            good[at] = data.draw(st.integers(0, 255))
        else:
            good[at:] = data.draw(st.binary(max_size=64)) or b"\0"
    with contextlib.suppress(HelloRefused):
        decode_hello(bytes(good))


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_arbitrary_bytes_are_never_accepted_in_any_stage(noise: bytes) -> None:
    for num_frames in range(3):
        dialer, acceptor = pair()
        at = [acceptor, dialer, acceptor][num_frames]
        sent = dialer.begin()
        for number in range(num_frames):
            sent = give([acceptor, dialer][number], sent)
        buffer = bytearray(noise)
        try:
            while (taken := take_frame(buffer)) is not None:
                at.take(*taken)
        except (HelloRefused, RefusedByPeer):
            pass
        assert at.stage is not Stage.DECIDING


# Packets


def sealed(sealer: Sealer, *messages: tuple[int, bytes]) -> bytes:
    body = b"".join(MESSAGE_HEAD.pack(kind, len(payload)) + payload for kind, payload in messages)
    return sealer.head(body) + body


KEY = b"k" * 32
MESSAGES = [(0, b"one"), (-1, b""), (3, b"x" * 70_000), (-2, b"")]


@given(st.lists(st.integers(1, 90_000), max_size=30), st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_packets_survive_any_cut_of_the_stream(cuts: list[int], num_messages: int) -> None:
    sealer, opener = Sealer(KEY), Opener(KEY)
    stream = sealed(sealer, *MESSAGES[: num_messages + 1]) + sealed(sealer) + sealed(sealer, *MESSAGES)
    found: list[tuple[int, bytes]] = []
    position = 0
    for cut in [*cuts, len(stream)]:
        found += opener.feed(stream[position : position + cut])
        position += cut
    assert found == [*MESSAGES[: num_messages + 1], *MESSAGES]


def test_the_parts_of_a_large_packet_are_sealed_as_one() -> None:
    sealer, opener = Sealer(KEY), Opener(KEY)
    head = MESSAGE_HEAD.pack(1, 5)
    assert list(opener.feed(sealer.head(head, b"large") + head + b"large")) == [(1, b"large")]


@pytest.mark.parametrize("what", ["repeated", "reordered", "dropped", "reflected", "other key"])
def test_whole_packets_in_the_wrong_place_deliver_nothing(what: str) -> None:
    sealer, opener = Sealer(KEY), Opener(KEY)
    first, second, third = (sealed(sealer, (0, text)) for text in (b"a", b"b", b"c"))
    assert list(opener.feed(first)) == [(0, b"a")]
    wrong = {
        "repeated": first,
        "reordered": third + second,
        "dropped": third,
        "reflected": sealed(Sealer(b"r" * 32), (0, b"a")),
        "other key": sealed(Sealer(b"o" * 32), (0, b"a")),
    }[what]
    with pytest.raises(BadPacket, match="the MAC of packet 1 does not match"):
        list(opener.feed(wrong))


def test_every_flipped_byte_is_found_before_anything_is_delivered() -> None:
    packet = sealed(Sealer(KEY), (0, b"payload"), (1, b"another"))
    for at in range(len(packet)):
        opener = Opener(KEY)
        broken = bytearray(packet)
        broken[at] ^= 1 + at % 255
        try:
            assert list(opener.feed(bytes(broken))) == []  # a longer packet is waited for
            assert list(opener.feed(bytes(1 << 20))) == []
        except BadPacket:
            continue
        assert at < 4, at


def test_a_packet_beyond_the_bound_is_not_waited_for() -> None:
    with pytest.raises(BadPacket, match="the maximum is"):
        list(Opener(KEY).feed((PACKET_BYTES_MAX + 1).to_bytes(4, "little") + bytes(16)))


@pytest.mark.parametrize("body", [b"\0", bytes(7), MESSAGE_HEAD.pack(0, 1), MESSAGE_HEAD.pack(0, 2**32 - 1)])
def test_a_sealed_body_that_is_none_ends_the_connection(body: bytes) -> None:
    with pytest.raises(BadPacket, match="a message is"):
        list(Opener(KEY).feed(Sealer(KEY).head(body) + body))


def test_a_packet_that_never_ends_is_not_kept_beyond_its_length() -> None:
    opener = Opener(KEY)
    chunk = bytes(1 << 16)
    list(opener.feed((1 << 20).to_bytes(4, "little")))
    for _ in range(1 << 4):
        assert list(opener.feed(chunk)) == []
    with pytest.raises(BadPacket):
        list(opener.feed(chunk))
    assert len(opener._rest) <= (1 << 20) + len(chunk) + 4
