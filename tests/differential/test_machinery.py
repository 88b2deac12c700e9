"""The comparison itself detects differences. Two of our own nodes stand for the two sides here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from coordinator.state.reconcile import NOT_REPORTED
from records import ConsumerGroupCurrentMemberAssignmentValue as Assignment
from records import MemberState, Trigger
from tests.differential import classic_steps
from tests.differential.accepted import ACCEPTED
from tests.differential.asked import Asked
from tests.differential.classic_steps import NOTHING_EXPIRED
from tests.differential.compare import Epoch, EpochMap, differences
from tests.differential.generating import generate
from tests.differential.kept import regressions, scenarios
from tests.differential.record_logs import (
    BATCH_HEADER,
    Decision,
    WrittenLog,
    decisions_of_ours,
    is_first_report,
    records_in,
)
from tests.differential.run import RunResult, explain, make_arena, play_all, start_ours
from tests.differential.script import Script, parse
from tests.differential.settled import Placed, complaints
from tests.differential.side import OURS
from tests.differential.write_order import beside, out_of_order
from wire.apis import ApiKey
from wire.messages.list_groups import ListGroupsRequest

CONFORMANCE = Path(__file__).parents[2] / "docs" / "proofs" / "conformance.md"
ASKED = Asked(ApiKey.LIST_GROUPS, 5, ListGroupsRequest())


def test_epochs_map_in_order_and_never_twice() -> None:
    epochs = EpochMap()
    for kafka, ours in ((2, 1), (5, 3)):
        assert epochs.agrees(Epoch(kafka), Epoch(ours))
        epochs.meet(Epoch(kafka), Epoch(ours))
    assert epochs.agrees(Epoch(2), Epoch(1))
    assert epochs.agrees(Epoch(3), Epoch(2))
    assert not epochs.agrees(Epoch(2), Epoch(2)), "met another one before"
    assert not epochs.agrees(Epoch(3), Epoch(1)), "ours has met another one before"
    assert not epochs.agrees(Epoch(4), Epoch(4)), "out of order"
    assert not epochs.agrees(Epoch(6), Epoch(2)), "out of order"
    assert epochs.agrees(Epoch(-1), Epoch(-1))
    assert not epochs.agrees(Epoch(-1), Epoch(-2)), "codes are codes on both sides"


def test_every_field_is_looked_at() -> None:
    kafka = {"a": 1, "rows": [{"b": 2}, {"b": 3}], "gone": None}
    for ours, path in (
        ({"a": 2, "rows": [{"b": 2}, {"b": 3}], "gone": None}, "a"),
        ({"a": 1, "rows": [{"b": 2}, {"b": 4}], "gone": None}, "rows[1].b"),
        ({"a": 1, "rows": [{"b": 2}], "gone": None}, "rows"),
        ({"a": 1, "rows": [{"b": 2}, {"b": 3}], "gone": 0}, "gone"),
        ({"a": 1, "rows": [{"b": 2}, {"b": 3}], "gone": None, "more": 1}, "more"),
    ):
        assert [found.path for found in differences(ASKED, (kafka, ours), EpochMap())] == [path]
    assert differences(ASKED, (kafka, dict(kafka)), EpochMap()) == []


def judged(before: Placed, after: Placed, **topics: str) -> list[str]:
    """Return the complaints about topics of four partitions; a keyword is a member with its topics."""
    may = {
        who: frozenset((name, number) for name in names for number in range(4))
        for who, names in topics.items()
    }
    return list(complaints(before, after, may, is_ours=True))


def test_settled_groups_are_judged() -> None:
    even = {("t", number): "ab"[number % 2] for number in range(4)}
    uneven = {("t", number): "a" if number else "b" for number in range(4)}
    assert judged({}, even, a="t", b="t") == []
    assert "uneven" in judged({}, uneven, a="t", b="t")[0]
    assert "3 of 4" in judged({}, dict(list(even.items())[1:]), a="t", b="t")[0]
    swapped = {place: "ba"["ab".index(member)] for place, member in even.items()}
    assert "moved 4 partitions, 0" in judged(even, swapped, a="t", b="t")[0]
    assert judged(uneven, swapped, a="t", b="t") == []
    assert judged(uneven, even, a="t", b="t") == ["moved 3 partitions, 1 had to move"]
    orphaned = {**even, ("t", 0): "gone", ("t", 2): "gone"}
    assert judged(orphaned, even, a="t", b="t") == []


def test_settled_groups_of_different_subscriptions_are_judged() -> None:
    both = {(name, number): who for name, who in (("t", "a"), ("u", "b")) for number in range(4)}
    assert judged({}, both, a="t", b="tu") == []
    assert "belongs to a" in judged({}, {**both, ("u", 0): "a"}, a="t", b="tu")[0]
    assert "could go to b" in judged({}, both, a="tu", b="u", c="t")[0].replace("to c", "to b")
    greedy = dict.fromkeys(both, "b")
    assert "could go to a (0)" in judged({}, greedy, a="t", b="tu")[0]


def test_a_script_is_its_text_and_its_seed() -> None:
    for seed in range(50):
        script = generate(seed)
        assert parse(str(script), script.name) == script
        assert generate(seed) == script
    assert len({str(generate(seed)) for seed in range(50)}) == 50


def test_regressions_say_what_they_found() -> None:
    for script in [*regressions(), *scenarios()]:
        assert script.steps, script.name


def test_too_many_accepted_differences_fail_the_run() -> None:
    verdict = RunResult(scripts=1, replies=10_000)
    verdict.masked["something"] = 200
    assert not verdict.complaints()
    verdict.masked["something"] = 300
    assert "mask 3.0%" in verdict.complaints()[0]


def test_every_accepted_difference_is_documented() -> None:
    text = CONFORMANCE.read_text("utf-8")
    section = text[text.index("## Accepted differences") :]
    for one in ACCEPTED:
        assert section.count(f"| `{one.name}` |") == 1, one.name
    assert section.count("\n| `") == len({one.name for one in ACCEPTED}), (
        "a row that no predicate stands behind"
    )


def decision(trigger: Trigger, words: str) -> Decision:
    records = [WrittenLog(int(word.strip("~")), word.startswith("~"), "a", 0) for word in words.split()]
    return Decision(trigger, tuple(records))


def test_the_order_within_a_decision_is_judged() -> None:
    left, joined, replaced = Trigger.MEMBER_LEFT, Trigger.MEMBER_JOINED, Trigger.MEMBER_REPLACED
    for trigger, words in (
        (left, "~8 ~7 ~5 3 7 7 6"),
        (joined, "5 3 7 6 8"),
        (replaced, "~8 ~7 ~5 5 7 8 8"),
        (replaced, "~8 ~5 5 8 8"),
    ):
        assert list(out_of_order([decision(trigger, words)])) == []
    for trigger, words in (
        (left, "~5 ~7 ~8 3"),
        (left, "~8 ~7 ~5"),
        (left, "3 ~8 ~7 ~5"),
        (joined, "5 3 6 7 8"),
        (joined, "5 3 7 8"),
        (joined, "8 5 3"),
        (Trigger.OFFSETS_COMMITTED, "1 3"),
        (Trigger.IMPORTED, "1"),
    ):
        assert list(out_of_order([decision(trigger, words)])) == [f"{trigger.name} wrote {words}"]


def test_logs_beside_each_other() -> None:
    def log(words: str) -> list[WrittenLog]:
        found = []
        for word in words.split():
            kind, _, whose = word.partition(":")
            found.append(WrittenLog(int(kind.strip("~")), kind.startswith("~"), whose, 0))
        return found

    kafka = log("5:k 3 7:k 6 8:k 5:l 3 7:k 7:l 6 8:l")
    assert beside(kafka, log("5:a 4 3 7:a 6 8:a 5:b 3 7:b 7:a 6 8:b"), frozenset({4})) is None
    assert beside(kafka, log("5:a 3 8:a 5:b 3 8:b"), frozenset({6, 7})) is None
    complaint = beside(kafka, log("5:a 3 7:a 6 8:a 5:b 3 7:b 7:a 8:b 6"), frozenset())
    assert complaint == "after 9 records alike Kafka wrote 6 8(2), Quorate 8(2) 6"
    assert beside(kafka, log("5:a 3 7:a 6 8:a 5:b 3 7:b 7:a 6 8:a"), frozenset()) is not None, "another one's"
    assert beside(kafka, kafka[:-1], frozenset()) is not None


def test_only_the_note_of_a_first_report_is_left_out() -> None:
    def revoking(epoch: int, previous_epoch: int) -> Assignment:
        return Assignment(
            member_epoch=epoch,
            previous_member_epoch=previous_epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned_partitions=(),
            partitions_pending_revocation=(),
        )

    assert is_first_report(revoking(1, NOT_REPORTED), revoking(1, 1))
    assert not is_first_report(revoking(1, NOT_REPORTED), revoking(1, NOT_REPORTED)), "redundant"
    assert not is_first_report(revoking(2, 1), revoking(2, 2)), "redundant"
    assert not is_first_report(revoking(1, NOT_REPORTED), revoking(2, 1)), "another epoch"


def test_record_batches_are_read_as_kafka_writes_them() -> None:
    """Two batches, the second one a transaction marker, followed by preallocated space."""

    def batch(attributes: int, *records: tuple[bytes, bytes | None]) -> bytes:
        body = b""
        for key, value in records:
            length = b"\x01" if value is None else bytes([2 * len(value)]) + value
            record = b"\0\0\0" + bytes([2 * len(key)]) + key + length + b"\0"
            body += bytes([2 * len(record)]) + record
        head = BATCH_HEADER.pack(0, 49 + len(body), 0, 2, 0, attributes, 0, 77, 77, -1, -1, -1, len(records))
        return head + body

    data = batch(0, (b"k1", b"v"), (b"k2", None)) + batch(0x20, (b"end", b"")) + bytes(100)
    assert list(records_in(data)) == [(77, b"k1", b"v"), (77, b"k2", None)]


@contextmanager
def two_nodes(tmp_path: Path, **other: str) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """Run two nodes; everything they write must be in the order of B.2."""
    with ExitStack() as stack:
        nodes = []
        for name, settings in (("one", {}), ("other", other)):
            nodes.append(start_ours(tmp_path / name, **settings))
            stack.callback(nodes[-1].stop)
        yield (nodes[0].host, nodes[0].port), (nodes[1].host, nodes[1].port)
        for node in nodes:
            decisions = [one for group in decisions_of_ours(node.data).values() for one in group]
            assert decisions
            assert list(out_of_order(decisions)) == []


@pytest.mark.thorough
async def test_a_node_that_differs_in_one_thing_is_found_and_the_script_shortened(tmp_path: Path) -> None:
    """One node allows fewer members per group; only the refused join shows it."""
    joins = [f"join {who} topics=t3 assignor=range" for who in "abcde"]
    text = "\n".join(["describe -", *joins, "beat a owned=told", "leave a epoch=-1"])
    with two_nodes(tmp_path, **{"group.consumer.max.size": "3"}) as addresses:
        arena = await make_arena(addresses, "m", (OURS, OURS))
        same = parse("\n".join(joins[:3]), "three members")
        verdict = await play_all(arena, [same, parse(text, "five members")])
        (failure,) = verdict.failures
        assert failure.script.name == "five members"
        assert "error_code: Kafka 0, Quorate 81" in str(failure.complaint)
        shortest = (await explain(arena, failure)).split("\n\n")[0]
    lines = shortest.splitlines()[1:]
    assert len(lines) == 4
    assert all(line.startswith("join ") for line in lines)


async def test_an_expiry_that_never_comes_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classic_steps, "EXPIRED_S_MAX", 0.2)
    with two_nodes(tmp_path) as addresses:
        arena = await make_arena(addresses, "x", (OURS, OURS))
        verdict = await play_all(arena, [parse("cjoin a\ncsync a\nexpire -", "nobody is silent")])
    (failure,) = verdict.failures
    assert str(failure.complaint).endswith(NOTHING_EXPIRED)


@pytest.mark.thorough
async def test_two_equal_nodes_do_not_differ(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as addresses:
        arena = await make_arena(addresses, "e", (OURS, OURS))
        scripts: list[Script] = [*scenarios(), *map(generate, range(20))]
        verdict = await play_all(arena, scripts)
    assert verdict.replies > 300
    assert verdict.masked.total() == 0
    assert [one.complaint for one in verdict.failures] == []
