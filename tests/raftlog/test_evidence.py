"""The evidence file: bounded, survives restarts and damage, never in the way."""

from __future__ import annotations

from raftlog.env.simulated_files import SimFiles
from raftlog.offline.reader import ShardReader
from raftlog.storage.evidence import FILES, FLUSH_MS, GAPS_PER_TURN, MINUTE_MS, REFUSALS_MAX, Evidence
from tests.support.manual_host import ManualHost
from tests.support.single_replica import PATH, formatted


def _host() -> ManualHost:
    disk = SimFiles()
    formatted(disk)
    return ManualHost(disk)


def _refuse(evidence: Evidence, number: int) -> None:
    evidence.refused(api=68, error=113, reason=f"fenced {number}", group_id="g", member_id="m", client="c")


def test_notes_are_read_back_in_order() -> None:
    host = _host()
    evidence = Evidence(host, PATH, 1 << 20)
    for number in range(3):
        _refuse(evidence, number)
    host.advance(FLUSH_MS)
    found = ShardReader(PATH, 0, host.files).evidence()
    assert [note["reason"] for note in found] == ["fenced 0", "fenced 1", "fenced 2"]
    assert found[0]["api"] == 68
    assert found[0]["error"] == 113


def test_the_longest_gap_of_each_minute_is_kept() -> None:
    host = _host()
    evidence = Evidence(host, PATH, 1 << 20)
    for minute in range(2):
        for gap_ms in (900, 4000 + minute, 1000):
            evidence.heartbeat_gap(0, "g", "m", gap_ms)
            evidence.heartbeat_gap(0, "g", "other", 1)
        host.advance(MINUTE_MS)
    evidence.close()
    gaps = [
        note["gap_ms"]
        for note in ShardReader(PATH, 0, host.files).evidence()
        if note["kind"] == "heartbeat_gap" and note["member"] == "m"
    ]
    assert gaps == [4000, 4001]


def test_it_is_a_ring_that_keeps_the_newest() -> None:
    host = _host()
    bytes_max = 200_000
    evidence = Evidence(host, PATH, bytes_max)
    for number in range(10_000):
        host.now_ms += 1
        _refuse(evidence, number)
    evidence.close()
    assert sum(host.files.size(f"{PATH}/{name}") for name in FILES) <= bytes_max
    found = ShardReader(PATH, 0, host.files).evidence()
    assert [note["reason"] for note in found] == [f"fenced {n}" for n in range(10_000 - len(found), 10_000)]
    assert len(found) > 500


def test_a_restart_goes_on_behind_the_newest_whole_note() -> None:
    host = _host()
    for run in range(5):
        host.now_ms += 10
        evidence = Evidence(host, PATH, 1 << 20)
        _refuse(evidence, run)
        evidence.close()
        file = host.files.open(f"{PATH}/{FILES[0]}", "w")
        file.pwrite(b"torn", file.size())
    found = ShardReader(PATH, 0, host.files).evidence()
    assert [note["reason"] for note in found] == [f"fenced {n}" for n in range(5)]


def test_zeros_that_a_power_failure_left_are_no_note() -> None:
    """The file's length may be on disk without its last bytes, and the CRC of zeros is valid."""
    host = _host()
    evidence = Evidence(host, PATH, 1 << 20)
    _refuse(evidence, 0)
    evidence.close()
    file = host.files.open(f"{PATH}/{FILES[0]}", "w")
    file.pwrite(bytes(100), file.size())
    file.close()
    evidence = Evidence(host, PATH, 1 << 20)
    _refuse(evidence, 1)
    evidence.close()
    found = ShardReader(PATH, 0, host.files).evidence()
    assert [note["reason"] for note in found] == ["fenced 0", "fenced 1"]


def test_a_failing_disk_stops_the_notes_and_not_the_node() -> None:
    host = _host()
    evidence = Evidence(host, PATH, 1 << 20)
    assert isinstance(host.files, SimFiles)
    host.files.fail = lambda number, operation, path: OSError(28, "full")
    _refuse(evidence, 1)
    host.advance(FLUSH_MS)
    host.files.fail = None
    _refuse(evidence, 2)
    evidence.close()
    assert host.fatal_message is None
    assert ShardReader(PATH, 0, host.files).evidence() == []


def test_long_words_of_a_client_do_not_break_the_bound() -> None:
    host = _host()
    bytes_max = 400_000
    evidence = Evidence(host, PATH, bytes_max)
    for number in range(300):
        words = f"{number:03d}" + "\U0001f600" * 30_000
        evidence.refused(api=68, error=25, reason=words, group_id=words, member_id=words, client=words)
        evidence.heartbeat_gap(0, words, words, 1)
    evidence.close()
    assert sum(host.files.size(f"{PATH}/{name}") for name in FILES) <= bytes_max
    found = ShardReader(PATH, 0, host.files).evidence()
    assert found[-1]["kind"] == "heartbeat_gap"
    assert found[-1]["group"].startswith("299")


def test_the_gaps_of_a_large_minute_are_written_over_many_turns() -> None:
    host = _host()
    evidence = Evidence(host, PATH, 1 << 22)
    num_members = 3 * GAPS_PER_TURN
    for number in range(num_members):
        evidence.heartbeat_gap(0, "g", f"m{number}", 1 + number)
    host.advance(MINUTE_MS)
    evidence.heartbeat_gap(0, "g", "next minute", 1)
    turns = 0
    while len(found := ShardReader(PATH, 0, host.files).evidence()) < num_members - GAPS_PER_TURN // 2:
        host.turn()
        turns += 1
    assert turns == 3
    host.advance(FLUSH_MS)
    found = ShardReader(PATH, 0, host.files).evidence()
    assert [note["gap_ms"] for note in found] == list(range(1, num_members + 1))
    evidence.close()
    assert len(ShardReader(PATH, 0, host.files).evidence()) == num_members + 1


def test_the_newest_refusal_of_each_member_is_in_memory() -> None:
    host = _host()
    evidence = Evidence(host, PATH, 1 << 20)
    for member, error in (("a", 113), ("b", 25), ("a", 113), ("", 25)):
        evidence.refused(api=68, error=error, reason="r" * 500, group_id="g", member_id=member, client="c")
    evidence.refused(api=68, error=25, reason="", group_id="other", member_id="a")
    evidence.refused(api=42, error=69, reason="names no group")
    found = evidence.refusals("g")
    assert [(note.member_id, note.error, note.times) for note in found] == [
        ("", 25, 1), ("a", 113, 2), ("b", 25, 1),
    ]  # fmt: skip
    assert len(found[0].reason) < 500
    evidence.refused(api=8, error=113, reason="", group_id="g", member_id="a")
    assert evidence.refusals("g")[0].times == 1
    assert evidence.refusals("nobody's") == []


def test_refusals_in_memory_are_bounded_and_the_oldest_go() -> None:
    host = _host()
    evidence = Evidence(host, PATH, 1 << 20)
    for number in range(REFUSALS_MAX + 5):
        evidence.refused(api=68, error=25, reason="", group_id="g", member_id=str(number))
    found = evidence.refusals("g")
    assert len(found) == REFUSALS_MAX
    assert (found[0].member_id, found[-1].member_id) == (str(REFUSALS_MAX + 4), "5")
