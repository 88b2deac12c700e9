"""Offsets of a group over HTTP: its lag where the messages are, and none that is invented."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordinator.offsets import lag as offsets_lag
from records import METADATA_SHARD, OffsetCommitKey, OffsetCommitValue, Record
from tests.listeners.http_rig import HttpRig, http_rig
from tests.support.listener_rig import PEER
from tests.support.record_batches import batch

PATH = "/v1/groups/billing/offsets"
FIRST = 3 << 40
"""Where the offsets of term 3 begin (`cluster.scratchlog.table`)."""


def commit(rig: HttpRig, topic: str, partition: int, offset: int, topic_id: bytes = bytes(16)) -> None:
    value = OffsetCommitValue(offset=offset, commit_timestamp_ms=1, topic_id=topic_id)
    key = OffsetCommitKey(group_id="billing", topic=topic, partition=partition)
    rig.node.shard_for("billing").append(Record(key, value))


def produce(rig: HttpRig, topic: str, partition: int, number: int) -> None:
    scratch_log, found = rig.kafka.context.scratch_log, rig.node.catalog.topic(topic)
    assert scratch_log is not None
    scratch_log.lead(3, 1, rig.node.catalog.version)
    scratch_log.append((found.topic_id, partition), batch(*[b"x"] * number), 3)


def row(partition: int, offset: int, end: int | None, lag: int | None) -> dict[str, Any]:
    return {"partition": partition, "offset": offset, "end": end, "lag": lag}


async def test_lag_is_what_comes_after_the_offset_and_was_not_lost() -> None:
    async with http_rig(scratch_log_enable=True) as rig:
        rig.node.add_topic("orders", 4)
        produce(rig, "orders", 0, 5)
        produce(rig, "orders", 1, 3)
        commit(rig, "orders", 0, FIRST + 2)
        commit(rig, "orders", 1, 77)  # of an earlier term, whose messages are lost
        commit(rig, "orders", 2, FIRST + 9)  # beyond the end
        commit(rig, "orders", 4, 1)  # no such partition
        commit(rig, "elsewhere", 0, 6)  # a topic that this cluster does not have
        status, answer = await rig.get(PATH)
        assert status == 200
        assert answer.pop("shard") == rig.node.shard_for("billing").shard
        assert answer == {
            "as_of_index": 5,
            "at_ms": 1_700_000_000_000,
            "keeps_messages": True,
            "lag": 6,
            "topics": {
                "orders": [
                    row(0, FIRST + 2, FIRST + 5, 3),
                    row(1, 77, FIRST + 3, 3),
                    row(2, FIRST + 9, FIRST, 0),
                    row(4, 1, None, None),
                ],
                "elsewhere": [row(0, 6, None, None)],
            },
        }


async def test_without_messages_there_are_offsets_and_no_lag() -> None:
    async with http_rig() as rig:
        rig.node.add_topic("orders", 4)
        commit(rig, "orders", 0, 7)
        commit(rig, "orders", 1, 8, b"another topic id")  # the topic was deleted, and is another one now
        answer = (await rig.get(PATH))[1]
        assert (answer["keeps_messages"], answer["lag"]) == (False, None)
        assert answer["topics"] == {"orders": [row(0, 7, None, None)]}
        assert (await rig.get("/v1/groups/none/offsets"))[0] == 404


async def test_the_node_that_has_the_messages_is_named_and_others_invent_nothing() -> None:
    async with http_rig(scratch_log_enable=True) as rig:
        rig.node.add_topic("orders", 4)
        commit(rig, "orders", 0, 7)
        rig.node.leaders[METADATA_SHARD] = replace(PEER, http_host="h9", http_port=8093)
        async with rig.session.get(rig.url + PATH, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (307, f"http://h9:8093{PATH}")
        rig.node.leaders[METADATA_SHARD] = None
        assert (await rig.get(PATH))[1]["topics"] == {"orders": [row(0, 7, None, None)]}
        rig.node.leaders[METADATA_SHARD], rig.node.is_catalog_current = rig.node.info, False
        assert (await rig.get(PATH))[1]["lag"] is None


async def test_many_offsets_are_read_in_steps_and_waited_for() -> None:
    async with http_rig() as rig:
        rig.node.add_topic("orders", 3 * offsets_lag.OFFSETS_AT_ONCE)
        for partition in range(3 * offsets_lag.OFFSETS_AT_ONCE):
            commit(rig, "orders", partition, partition)
        rows = (await rig.get(PATH))[1]["topics"]["orders"]
        assert [one["partition"] for one in rows] == [*range(3 * offsets_lag.OFFSETS_AT_ONCE)]
