"""The demo's claims must be able to fail: each is shown a contradiction here, and must name it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from history.commits import Commit
from quorate.demo.claims import acknowledged_commits, all_in_the_log, final_offsets_match, no_partition_moved
from quorate.demo.evidence import Change, Evidence, EvidenceFile

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
    assert evidence.unanswered == {0: 5, 1: 6}

    write(path, {"at_ms": 3, "event": "acknowledged", "offsets": {"0": 5, "1": 6}}, tail='{"at_ms": 4, "ev')
    evidence = file.read()
    assert evidence.num_acknowledged == 2
    assert evidence.unanswered == {}
    assert evidence.last_acknowledged_ms() == 3

    write(path, tail='ent": "lost", "partitions": [1]}\n')
    assert file.read().owned == {0}
    assert acknowledged_commits("billing", "orders", [evidence]) == [(KEY, 5), (("billing", "orders", 1), 6)]


def test_a_broken_line_that_is_not_the_last_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "consumer.jsonl"
    write(path, tail='{"at_ms": 4, "ev\n')
    with pytest.raises(ValueError, match="Unterminated"):
        EvidenceFile("consumer", path).read()


def test_an_acknowledged_commit_that_is_missing_is_named() -> None:
    log = {KEY: [Commit(5, 10, 1), Commit(6, 11, 2)]}
    assert all_in_the_log([(KEY, 5), (KEY, 6)], log).held
    claim = all_in_the_log([(KEY, 5), (KEY, 7)], log)
    assert not claim.held
    assert "orders-0 offset 7" in claim.contradiction
    assert not all_in_the_log([], log).held


def test_a_replayed_offset_that_is_not_the_last_acknowledged_is_named() -> None:
    assert final_offsets_match([(KEY, 5), (KEY, 6)], {KEY: 6}, num_partitions=1).held
    for replayed in ({KEY: 5}, {KEY: 7}, {}):
        claim = final_offsets_match([(KEY, 6), (KEY, 5)], replayed, num_partitions=1)
        assert "orders-0 acknowledged 6" in claim.contradiction
    assert not final_offsets_match([(KEY, 6)], {KEY: 6}, num_partitions=2).held


def test_a_partition_that_moved_or_a_callback_is_named() -> None:
    before = {"a": frozenset({0}), "b": frozenset({1})}

    def seen(*changes_of_b: Change) -> dict[str, Evidence]:
        a = Evidence("a", changes=[Change(1, "assigned", frozenset({0}))])
        b = Evidence("b", changes=[Change(1, "assigned", frozenset({1})), *changes_of_b])
        return {"a": a, "b": b}

    assert no_partition_moved(before, seen(), since_ms=10).held
    lost_and_back = (Change(11, "lost", frozenset({1})), Change(12, "assigned", frozenset({1})))
    assert "b saw [1] lost" in no_partition_moved(before, seen(*lost_and_back), since_ms=10).contradiction
    gone = no_partition_moved(before, seen(Change(11, "revoked", frozenset({1}))), since_ms=10)
    assert "b owned [1], now []" in gone.contradiction
