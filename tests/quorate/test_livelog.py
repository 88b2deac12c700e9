"""The log of a running cluster read over HTTP: continuing at another node, gaps, and error messages."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgpack
import pytest

from history.reading.source import LogGap, Walk
from quorate.errors import CommandError, ExitCode
from quorate.livelog import LiveShard, open_live
from raftlog.env.errors import Damaged
from raftlog.env.files import OsFiles
from raftlog.env.state_machine import SnapshotHeader
from raftlog.storage.frames import Frame
from raftlog.storage.snapshots import write_snapshot
from records import RawRecord, Stamped
from tests.report import count_fault

from .lognode import LogNode, frame

TIMEOUT_S = 0.5


@pytest.fixture(autouse=True)
def _short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.livelog.FOLLOW_WAIT_MS", 100)


@pytest.fixture
def three() -> Iterator[list[LogNode]]:
    nodes = [LogNode(number) for number in (1, 2, 3)]
    for node in nodes:
        node.others = [one for one in nodes if one is not node]
    yield nodes
    for node in nodes:
        node.close()


def opened(*nodes: LogNode, timeout_s: float = TIMEOUT_S) -> LiveShard:
    reader = open_live(",".join(node.url for node in nodes), timeout_s).reader(0)
    assert isinstance(reader, LiveShard)
    return reader


def indexes(items: Iterator[object]) -> list[int]:
    return [item.index for item in items if isinstance(item, Frame)]


def walked(reader: LiveShard, *, stateless: bool = False) -> tuple[list[int], Walk]:
    walk = Walk(0, reader, stateless=stateless)
    return indexes(iter(walk)), walk


def test_a_log_is_read_page_by_page_up_to_what_is_committed(three: list[LogNode]) -> None:
    three[0].append(2)
    three[0].commit_index = 40
    reader = opened(three[0])
    assert indexes(reader.frames()) == list(range(1, 41))
    assert indexes(reader.frames(5, 9)) == [5, 6, 7, 8, 9]
    assert indexes(reader.frames(39, 1_000)) == [39, 40]
    assert indexes(reader.frames(41)) == []
    assert reader.last_ms() == 1_040
    assert reader.node == "node 1"
    assert reader.remarks == ()
    found, walk = walked(reader)
    assert (len(found), walk.basis.words()) == (40, "shard-0 of node 1: entries 1 to 40, nothing missing")


def test_what_is_written_meanwhile_does_not_keep_a_reader_for_ever(three: list[LogNode]) -> None:
    def grows(path: str, query: dict[str, str]) -> None:
        three[0].append(50)

    three[0].fault = grows
    assert len(indexes(opened(three[0]).frames())) == 90  # what there was after the first question


def test_a_read_goes_on_at_another_node_when_one_dies(three: list[LogNode]) -> None:
    reader = opened(three[0])
    found: list[int] = []
    for entry in reader.frames():
        found.append(entry.index)
        if entry.index == 10:
            three[0].close()
            count_fault("quorate", "node gone under a reader")
    assert found == list(range(1, 41))
    assert reader.node == "node 1 and node 2"


def test_what_no_node_can_give_any_more_is_a_gap(three: list[LogNode]) -> None:
    reader = opened(three[0])
    walk = Walk(0, reader)
    found = []
    for item in walk:
        if isinstance(item, Frame) and item.index == 10:
            for node in three:
                node.close()
        found.append(item)
    assert isinstance(found[-1], LogGap)
    assert "entries after index 14 cannot be read: none of http://" in walk.basis.words()
    assert "nothing after them is used" in walk.basis.words()


@pytest.mark.parametrize("is_cut", [True, False])
def test_an_answer_that_is_harmed_on_its_way_is_asked_of_another_node(
    three: list[LogNode], is_cut: bool
) -> None:
    def harmed(path: str, query: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        status, headers, body = three[0].page(int(query["from"]), 100, 0)
        count_fault("quorate", "answer harmed")
        return status, headers, body[:-3] if is_cut else body[:60] + b"\xff" + body[61:]

    three[0].fault = harmed
    assert indexes(opened(*three).frames()) == list(range(1, 41))
    for node in three:
        node.fault = harmed
    found, walk = walked(opened(*three))
    assert found == []
    assert "sent no complete frame" in walk.basis.words()


def test_a_node_that_has_another_history_is_not_gone_on_with(three: list[LogNode]) -> None:
    three[1].frames[6] = three[2].frames[6] = frame(7, offset=99)
    reader = opened(three[0])
    walk = Walk(0, reader)
    found = []
    for item in walk:
        found.append(item)
        if isinstance(item, Frame) and item.index == 3:
            three[0].close()
    assert [item.index for item in found if isinstance(item, Frame)] == [1, 2, 3, 4, 5, 6, 7]
    assert "sent entry 7 differently than node 1" in walk.basis.words()


@pytest.mark.parametrize("wrong", [frame(8), frame(3), frame(9, term=0)], ids=["gap", "back", "term"])
def test_entries_out_of_order_are_not_taken(three: list[LogNode], wrong: bytes) -> None:
    for node in three:
        node.frames[8] = wrong
    found, walk = walked(opened(*three))
    assert found == list(range(1, 8))
    assert "where 9 should be" in walk.basis.words()


def snapshot_file(path: Path, last_index: int) -> bytes:
    header = SnapshotHeader(
        cluster_id="test", shard=0, num_shards=1, last_index=last_index, last_term=1,
        last_timestamp_ms=1_000 + last_index, chain_hash=bytes(16), state_hash=0, catalog_version=0,
        record_count=2,
    )  # fmt: skip
    records = [Stamped(number, 1_000, RawRecord(1, 0, bytes([number]), b"v")) for number in (1, 2)]
    write_snapshot(OsFiles(), str(path / "snapshot"), header, records)
    return (path / "snapshot").read_bytes()


def test_what_retention_removed_is_bridged_by_the_snapshot(three: list[LogNode], tmp_path: Path) -> None:
    for node, first_kept in zip(three, (21, 11, 31), strict=True):
        node.first_kept, node.snapshot = first_kept, snapshot_file(tmp_path, 30)
    reader = opened(*three)
    found, walk = walked(reader)
    assert found == list(range(31, 41))
    assert "entries 1 to 10 are not kept here; the snapshot of index 30 replaces them" in walk.basis.words()
    found, walk = walked(reader, stateless=True)
    assert found == list(range(11, 41))
    snapshot = reader.snapshot()
    assert snapshot is not None
    assert len(snapshot.records) == 2
    assert reader.snapshot(29) is None


def test_a_snapshot_that_is_replaced_under_the_reader_is_looked_for_again(
    three: list[LogNode], tmp_path: Path
) -> None:
    asked: list[str] = []

    def replaces(path: str, query: dict[str, str]) -> tuple[int, dict[str, str], bytes] | None:
        if not path.endswith("snapshot"):
            return None
        asked.append(path)  # seen as 30, gone when it is read, seen as 31, gone again, 32 stays
        return 200, {}, snapshot_file(tmp_path, min(30 + len(asked) // 2, 32))

    for node in three:
        node.first_kept, node.fault = 25, replaces
        node.others = []
    found, walk = walked(opened(three[0]))
    assert found == list(range(33, 41))
    assert "the snapshot of index 32 replaces them" in walk.basis.words()


@pytest.mark.parametrize("where", [100, 200])
def test_a_damaged_snapshot_bridges_nothing(three: list[LogNode], tmp_path: Path, where: int) -> None:
    for node in three:
        data = bytearray(snapshot_file(tmp_path, 30))
        data[where if where < len(data) else -1] ^= 1
        node.first_kept, node.snapshot = 11, bytes(data)
    found, walk = walked(opened(*three))
    assert found == []
    assert "nothing after them is used" in walk.basis.words()


def test_a_node_that_is_behind_is_waited_for_and_then_left(three: list[LogNode]) -> None:
    three[0].commit_index = 20
    assert indexes(opened(*three).frames()) == list(range(1, 41))
    reader = opened(*three)
    for node in three:
        node.commit_index = 20
    found, walk = walked(reader)
    assert found == list(range(1, 21))
    assert "entry 21 is committed, but no node that responds has it" in walk.basis.words()


def test_a_busy_node_is_asked_again_when_it_said(three: list[LogNode]) -> None:
    refused: list[float] = []

    def busy(path: str, query: dict[str, str]) -> tuple[int, dict[str, str], bytes] | None:
        if len(refused) == 2:
            return None
        refused.append(time.monotonic())
        return 429, {"Retry-After": "1"}, b"{}"

    three[0].others = []
    three[0].fault = busy
    reader = opened(three[0], timeout_s=10)
    assert len(indexes(reader.frames())) == 40
    assert refused[1] - refused[0] >= 0.99
    asked = len(three[0].asked)
    three[0].fault = lambda path, query: (429, {"Retry-After": "1"}, b"{}")
    with pytest.raises(Damaged, match=r"cannot answer \(HTTP 429\)"):
        next(opened(three[0]).frames())
    assert len(three[0].asked) <= asked + 3


def test_a_busy_node_is_left_for_another(three: list[LogNode]) -> None:
    three[0].fault = lambda path, query: (429, {"Retry-After": "5"}, b"{}")
    began_s = time.monotonic()
    reader = opened(*three, timeout_s=10)
    assert len(indexes(reader.frames())) == 40
    assert reader.node == "node 2"
    assert time.monotonic() - began_s < 4
    assert len([path for path in three[0].asked if "log" in path]) == 1


def test_evidence_is_of_all_nodes_and_who_is_silent_is_said(three: list[LogNode]) -> None:
    three[0].notes = [
        {"kind": "later", "at_ms": 5, "group": "a"},
        {"kind": "later", "at_ms": 7, "group": "b"},
    ]
    three[1].notes = [{"kind": "later", "at_ms": 6, "group": "a"}]
    three[2].close()
    reader = opened(three[0])
    assert reader.evidence("a") == [
        {"kind": "later", "at_ms": 5, "group": "a"},
        {"kind": "later", "at_ms": 6, "group": "a"},
    ]
    assert [note["at_ms"] for note in reader.evidence()] == [5, 6, 7]
    (said,) = reader.remarks
    assert said == "node 3 does not respond (Connection refused): its evidence is missing"
    three[1].fault = lambda path, query: (500, {}, b'{"message": "its disk is broken"}')
    reader.evidence("a")
    assert "node 2 does not return its evidence (its disk is broken)" in reader.remarks


def test_following_goes_on_at_another_node_at_the_same_index(three: list[LogNode]) -> None:
    reader = opened(*three)
    following = reader.follow(39)
    assert indexes(islice(following, 2)) == [39, 40]
    three[0].close()
    for node in three[1:]:
        node.append(3)
    assert indexes(islice(following, 3)) == [41, 42, 43]
    three[2].commit_index = 43  # cut off: it learns of nothing new
    three[1].append()
    found = [entry for entry in islice(following, 2) if entry is not None]
    assert indexes(iter(found))[:1] in ([44], [])


def test_following_ends_when_no_node_answers_any_more(
    three: list[LogNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorate.livelog.FOLLOW_TIMEOUT_S", 0.2)
    following = opened(*three).follow(40)
    assert next(following) is not None
    for node in three:
        node.close()
    with pytest.raises(Damaged, match="none of http://"):
        list(following)


@pytest.mark.parametrize(
    ("urls", "says", "code"),
    [
        (
            lambda nodes: f"{nodes[0].url},{nodes[3].url}",
            "belongs to cluster other, not to test",
            ExitCode.USAGE,
        ),
        (lambda nodes: "ftp://x", "is not an HTTP address", ExitCode.USAGE),
        (lambda nodes: "http://", "is not an HTTP address", ExitCode.USAGE),
        *(
            (lambda nodes, url=url: url, "is not an HTTP address", ExitCode.USAGE)
            for url in ("http://a..b/", "http://[::1", "http://x\udcff/", f"http://{'x' * 70}:80")
        ),
        (lambda nodes: "http://127.0.0.1:1", "does not respond (Connection refused)", ExitCode.UNREACHABLE),
        (lambda nodes: nodes[0].url + "/v2", "does not respond like a Quorate node", ExitCode.REFUSED),
    ],
)
def test_what_is_no_running_cluster_is_one_clear_line(
    three: list[LogNode], urls: Callable[[list[LogNode]], str], says: str, code: ExitCode
) -> None:
    stranger = LogNode(4, cluster_id="other")
    three[0].fault = lambda path, query: (404, {}, b"[]")
    try:
        with pytest.raises(CommandError) as caught:
            open_live(urls([*three, stranger]), TIMEOUT_S)
    finally:
        stranger.close()
    assert says in caught.value.message
    assert caught.value.code == code


# Answers that no node gives


def told(node: LogNode, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the node's description of its cluster."""
    document = node.document()
    change(document)
    node.document = lambda: document  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said.pop("shards"),
        lambda said: said.update(shards=[]),
        lambda said: said.update(shards=[{"shard": "x", "log": {"commit_index": 1}}]),
        lambda said: said.update(shards=[{"shard": 0, "log": None}]),
        lambda said: said.update(nodes=None),
        lambda said: said.update(nodes=[1]),
        lambda said: said.update(nodes=[{"node_id": 7, "http": {"host": None, "port": 5}}]),
        lambda said: said.update(nodes=[{"node_id": 7, "http": {"host": "h", "port": "x"}}]),
        lambda said: said.update(cluster_id=None),
    ],
)
def test_an_answer_that_is_no_nodes_is_one_clear_line(
    three: list[LogNode], change: Callable[[dict[str, Any]], object]
) -> None:
    told(three[0], change)
    count_fault("quorate", "strange answer")
    with pytest.raises(CommandError, match="does not respond like a Quorate node"):
        open_live(three[0].url, TIMEOUT_S)


@pytest.mark.parametrize("says", [None, "x", "-5", "9" * 30])
def test_a_page_that_does_not_say_how_far_the_log_is_is_not_taken(
    three: list[LogNode], says: str | None
) -> None:
    headers = {} if says is None else {"Quorate-Commit-Index": says}
    reader = opened(three[0])
    for node in three:
        node.fault = lambda path, query: (200, headers, frame(1))
    with pytest.raises(Damaged, match="does not report its commit index"):
        list(reader.frames())


@pytest.mark.parametrize("first_index", ['"x"', "[1]", "null"])
def test_a_refusal_that_names_no_index_is_a_refusal(three: list[LogNode], first_index: str) -> None:
    reader = opened(three[0])
    for node in three:
        node.fault = lambda path, query: (410, {}, b'{"first_index": %s}' % first_index.encode())
    with pytest.raises(Damaged):
        list(reader.frames())


def test_headers_are_known_however_they_are_written(three: list[LogNode]) -> None:
    reader = opened(three[0])
    for node in three:
        node.fault = lambda path, query, node=node: lowered(node.page(int(query["from"]), 100, 0))
    assert len(list(reader.frames())) == 40


def lowered(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, dict[str, str], bytes]:
    status, headers, body = answer
    return status, {name.lower(): value for name, value in headers.items()}, body


@pytest.mark.parametrize(
    "body",
    [
        b"\xc1",
        b"\x05\x05",
        b"\x91" * 2_000,
        msgpack.packb({1: 2}),
        msgpack.packb({"kind": "refused", "group": "g", "at_ms": 1}),
        msgpack.packb({"kind": "heartbeat_gap", "group": "g", "member": "m", "at_ms": 1, "minute_ms": "x"}),
        msgpack.packb({"kind": [], "at_ms": 1}),
    ],
)
def test_notes_that_are_none_are_left_out_and_it_is_said(three: list[LogNode], body: bytes) -> None:
    reader = opened(three[0])
    three[0].fault = lambda path, query: (200, {"Quorate-Left-Out": "x"}, body) if "ev" in path else None
    assert reader.evidence("g") == []
    assert "the evidence of node 1 cannot be read" in reader.remarks


def test_an_answer_that_drips_is_given_up() -> None:
    """Each byte comes in time, but the answer never ends."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_drip, args=(server,), daemon=True).start()
        with pytest.raises(CommandError, match="no response in time"):
            open_live(f"http://127.0.0.1:{server.getsockname()[1]}", 0.3)


def _drip(server: socket.socket) -> None:
    connection, _ = server.accept()
    with contextlib.suppress(OSError), connection:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        while True:
            connection.sendall(b"x")
            time.sleep(0.02)
