"""The demo's claims can fail: each is given contradicting evidence here, and must report it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from history.checking.commits import Commit
from history.reading.source import Basis
from history.telling.explain import Explanation
from history.telling.story import TermStep
from quorate.demo.claims import (
    acknowledged_commits,
    all_in_the_logs,
    final_offsets_match,
    no_partition_moved,
    nothing_noticed,
)
from quorate.demo.evidence import Acknowledgement, AssignmentCallback, ConsumerEvidence, EvidenceFile
from quorate.demo.proof import Takeover, says_who_led

KEY = ("billing", "orders", 0)


def write(path: Path, *entries: dict[str, object], tail: str = "") -> None:
    with path.open("a", encoding="utf-8") as file:
        for entry in entries:
            file.write(json.dumps(entry) + "\n")
        file.write(tail)


def test_evidence_is_read_as_it_grows_and_half_a_line_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "consumer.jsonl"
    file = EvidenceFile("consumer", path)
    assert file.read().num_acknowledged == 0

    write(path, {"at_ms": 1, "event": "assigned", "partitions": [0, 1]})
    write(path, {"at_ms": 2, "event": "sent", "offsets": {"0": 5, "1": 6}})
    evidence = file.read()
    assert evidence.owned == {0, 1}

    write(path, {"at_ms": 3, "event": "acknowledged", "offsets": {"0": 5, "1": 6}}, tail='{"at_ms": 4, "ev')
    evidence = file.read()
    assert evidence.num_acknowledged == 2
    assert [(one.sent_ms, one.at_ms) for one in evidence.acknowledged] == [(2, 3)]
    assert evidence.commits_since(1)
    assert not evidence.commits_since(2)  # sent at 2, not after

    write(path, tail='ent": "lost", "partitions": [1]}\n')
    assert file.read().owned == {0}
    assert acknowledged_commits("billing", "orders", [evidence]) == [(KEY, 5), (("billing", "orders", 1), 6)]


def test_a_broken_line_that_is_not_the_last_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "consumer.jsonl"
    write(path, tail='{"at_ms": 4, "ev\n')
    with pytest.raises(ValueError, match="Unterminated"):
        EvidenceFile("consumer", path).read()


def test_an_acknowledged_commit_that_is_missing_from_one_log_is_named() -> None:
    whole = {KEY: [Commit(5, 10, 1), Commit(6, 11, 2)]}
    assert all_in_the_logs([(KEY, 5), (KEY, 6)], {"node 1": whole, "node 2": whole}).held
    claim = all_in_the_logs([(KEY, 5), (KEY, 6)], {"node 1": whole, "node 2": {KEY: whole[KEY][:1]}})
    assert not claim.held
    assert "orders-0 offset 6 in node 2" in claim.contradiction
    assert not all_in_the_logs([(KEY, 5)], {"node 1": {}}).held
    assert not all_in_the_logs([], {"node 1": whole}).held


def test_a_replayed_offset_that_is_not_the_last_acknowledged_is_named() -> None:
    assert final_offsets_match([(KEY, 5), (KEY, 6)], {KEY: 6}, num_partitions=1).held
    for replayed in ({KEY: 5}, {KEY: 7}, {}):
        claim = final_offsets_match([(KEY, 6), (KEY, 5)], replayed, num_partitions=1)
        assert "orders-0 acknowledged 6" in claim.contradiction
    assert not final_offsets_match([(KEY, 6)], {KEY: 6}, num_partitions=2).held


def test_a_partition_that_moved_or_a_callback_is_named() -> None:
    before = {"a": frozenset({0}), "b": frozenset({1})}

    def seen(*changes_of_b: AssignmentCallback) -> dict[str, ConsumerEvidence]:
        a = ConsumerEvidence("a", changes=[AssignmentCallback(1, "assigned", frozenset({0}))])
        b = ConsumerEvidence("b", changes=[AssignmentCallback(1, "assigned", frozenset({1})), *changes_of_b])
        return {"a": a, "b": b}

    assert no_partition_moved(before, seen(), since_ms=10).held
    lost_and_back = (
        AssignmentCallback(11, "lost", frozenset({1})),
        AssignmentCallback(12, "assigned", frozenset({1})),
    )
    assert "b saw [1] lost" in no_partition_moved(before, seen(*lost_and_back), since_ms=10).contradiction
    gone = no_partition_moved(before, seen(AssignmentCallback(11, "revoked", frozenset({1}))), since_ms=10)
    assert "b owned [1], now []" in gone.contradiction


def test_what_a_client_noticed_of_a_hand_over_is_named() -> None:
    def seen(
        *, failures: tuple[str, ...] = (), changes: tuple[AssignmentCallback, ...] = ()
    ) -> dict[str, ConsumerEvidence]:
        acknowledged = [Acknowledgement(at_ms - 1, at_ms, {0: at_ms}) for at_ms in (5, 8, 20, 29)]
        return {
            "a": ConsumerEvidence(
                "a", acknowledged=acknowledged, failures=list(failures), changes=list(changes)
            )
        }

    claim = nothing_noticed({"a": 1}, seen(failures=("long ago",)), since_ms=10)
    assert claim.held
    assert "later than 12 ms" in claim.text
    failed = nothing_noticed({"a": 1}, seen(failures=("long ago", "timed out")), since_ms=10)
    assert failed.contradiction == "a commit of a failed: timed out"
    lost = nothing_noticed(
        {"a": 0}, seen(changes=(AssignmentCallback(11, "lost", frozenset({1})),)), since_ms=10
    )
    assert lost.contradiction == "a saw [1] lost"


def test_a_takeover_that_the_log_does_not_tell_is_named() -> None:
    def led(previous: int, node_id: int, *, is_takeover: bool = True) -> TermStep:
        return TermStep(
            index=1,
            timestamp_ms=1,
            term=1,
            node_id=node_id,
            previous_leader=previous,
            is_takeover=is_takeover,
            why="",
            silent_ms=None,
        )

    def told(*steps: TermStep) -> Explanation:
        basis = Basis(
            shard=0,
            snapshot_index=None,
            first_index=1,
            last_index=9,
            last_timestamp_ms=9,
            gaps=(),
            undecided=0,
        )
        return Explanation(group_id="g", shard=0, steps=steps, members={}, basis=basis)

    wanted = [Takeover(1, 2), Takeover(2, 1)]
    assert says_who_led(told(led(-1, 1, is_takeover=False), led(1, 2), led(2, 1)), wanted).held
    claim = says_who_led(told(led(2, 1), led(1, 2)), wanted)
    assert claim.contradiction == "it says: from node 2 to node 1; from node 1 to node 2"
    assert not says_who_led(told(), wanted).held
