"""The answers of history about a classic group, on a scripted story (REWRITE_GOLDEN=1 rewrites the texts)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from history.answers.owner import owner, parse_partition
from history.answers.statediff import diff, diff_text
from history.facts.group import facts_of
from history.facts.rows import GroupRows, SessionEnd
from history.reading.node import NodeLog
from history.render import UTC_STYLE
from history.state.replay import replay, state_text
from history.telling.explain import Explanation, explain
from history.telling.prose import explanation_text
from history.telling.timeline import timeline, timeline_text
from records import Cause, ReasonKind, Record, Trigger
from records.ids import METADATA_SHARD, shard_of, topic_id_text
from tests.support.classic_log import (
    ANN,
    BOB,
    EVE,
    because,
    completed,
    generation,
    group_log,
)
from tests.support.golden_texts import golden
from tests.support.memory_log import GROUP, ORDERS, MemoryReader, Writer
from tests.support.payments_log import metadata_log

SHARDS = 4


def node(group: MemoryReader, metadata: MemoryReader | None = None) -> NodeLog:
    readers = {shard_of(GROUP, SHARDS): group}
    if metadata is not None:
        readers[METADATA_SHARD] = metadata
    return NodeLog(path="node-1", readers=readers, num_shards=SHARDS)


@pytest.fixture
def told() -> Explanation:
    return explain(node(group_log().log, metadata_log().log), GROUP, style=UTC_STYLE)


@pytest.fixture
def facts() -> GroupRows:
    return facts_of(node(group_log().log, metadata_log().log), GROUP)


def test_a_classic_group_is_explained(told: Explanation) -> None:
    golden("history/golden/classic_explain.txt", explanation_text(told, UTC_STYLE))


def test_a_classic_group_as_a_timeline(told: Explanation) -> None:
    golden("history/golden/classic_timeline.txt", timeline_text(timeline(told), width=110, style=UTC_STYLE))


def test_generations_are_epochs(facts: GroupRows) -> None:
    assert [(row.epoch, row.state) for row in facts.epochs] == [
        *((number, "Stable") for number in range(1, 6)),
        (6, "Empty"),
    ]
    assert facts.epochs[3].members == (ANN, EVE)


def test_a_session_ends_as_the_reason_says(facts: GroupRows) -> None:
    assert {one.member_id: one.end for one in facts.sessions} == {
        ANN: SessionEnd.SESSION_EXPIRED,
        BOB: SessionEnd.JOIN_EXPIRED,
        EVE: SessionEnd.LEFT,
    }


def test_topics_have_the_ids_of_the_catalog(facts: GroupRows) -> None:
    assert {span.topic_id for span in facts.spans} == {topic_id_text(ORDERS)}


def test_a_topic_created_again_has_the_id_that_it_had_at_the_time() -> None:
    again = bytes(reversed(ORDERS))
    catalog, log = Writer(), Writer()
    catalog.topic("orders", ORDERS, 1, Trigger.TOPIC_CREATED)
    catalog.after(10_000).topic("orders", ORDERS, 0, Trigger.TOPIC_DELETED)
    catalog.topic("orders", again, 1, Trigger.TOPIC_CREATED)
    for number, span_ms in ((1, 5_000), (2, 10_000)):
        log.after(span_ms).append(
            completed(ANN, because(ReasonKind.LEADER_REJOINED, ANN)), generation(number, {ANN: (0,)})
        )
    spans = facts_of(node(log.log, catalog.log), GROUP).spans
    owned = [span for span in spans if span.member_id == ANN]
    assert {(span.topic_id, span.to_index) for span in owned} == {
        (topic_id_text(ORDERS), 2),
        (topic_id_text(again), None),
    }


def test_without_the_metadata_shard_topics_are_told_by_name() -> None:
    facts = facts_of(node(group_log().log), GROUP)
    assert {span.partition.topic for span in facts.spans} == {"orders"}
    assert not any(span.member_id is None for span in facts.spans)


def test_a_static_member_under_a_new_id_is_a_replacement() -> None:
    log = Writer()
    log.append(
        completed(ANN, because(ReasonKind.MEMBER_JOINED, ANN)),
        generation(1, {ANN: (0,)}, instances={ANN: "i"}),
    )
    replaced = Cause(trigger=Trigger.MEMBER_REPLACED, member_id=BOB, detail=ANN)
    log.after(1_000).append(replaced, generation(1, {BOB: (0,)}, instances={BOB: "i"}))
    log.after(1_000).append(
        completed(EVE, because(ReasonKind.MEMBER_REPLACED, EVE)),
        generation(2, {EVE: (0,)}, instances={EVE: "i"}),
    )
    facts = facts_of(node(log.log), GROUP)
    assert [(one.member_id, one.end, one.replaced) for one in facts.sessions] == [
        (ANN, SessionEnd.REPLACED, None),
        (BOB, SessionEnd.REPLACED, ANN),
        (EVE, SessionEnd.OPEN, BOB),
    ]
    assert [row.epoch for row in facts.epochs] == [1, 2]


def test_bytes_that_are_no_assignment_own_nothing() -> None:
    log = Writer()
    record = generation(1, {ANN: (0,)})
    value: Any = record.value
    member = replace(value.members[0], subscription=b"no", assignment=b"assignment")
    odd = Record(record.key, replace(value, members=(member,)))
    log.append(completed(ANN, because(ReasonKind.MEMBER_JOINED, ANN)), odd)
    facts = facts_of(node(log.log), GROUP)
    assert not facts.spans
    assert facts.epochs[0].members == (ANN,)


def test_a_classic_group_is_replayed_with_its_members() -> None:
    log = node(group_log().log)
    (group,) = replay(log, group=GROUP, at_index=4).groups
    assert {member.member_id: member.assigned for member in group.members} == {
        ANN: {"orders": (0, 1, 2)},
        BOB: {"orders": (3, 4, 5)},
    }
    text = "\n".join(state_text(replay(log, group=GROUP, at_index=4), UTC_STYLE))
    assert f"member {ANN} (client app-1, 127.0.0.1): generation 2\n    owns orders 0-2" in text
    assert "target" not in text


def test_generations_are_compared() -> None:
    text = "\n".join(diff_text(diff(node(group_log().log), (3, None), (4, None), group=GROUP), UTC_STYLE))
    assert f"orders 3-5: {ANN}" in text


def test_the_owners_of_a_partition_are_found_without_naming_a_classic_group() -> None:
    """Its records name topics by name, and not by id."""
    found = owner(node(group_log().log, metadata_log().log), parse_partition("orders-4"), at_index=4)
    assert [(one.group_id, one.at and one.at.member_id) for one in found.groups] == [(GROUP, BOB)]
