"""A group of seed 000 among others in its shard: topics that were created again, shared ids, bounds."""

from __future__ import annotations

import pytest

from coordinator.limits import DECISION_BYTES_MAX
from coordinator.oldgroups import HeldId
from lineage.rewrite.bounds import RewriteSettings
from lineage.rewrite.errors import RewriteError
from lineage.rewrite.machines import RewriteState
from lineage.rewrite.messages import JoinGroupRequest, TopicNumbers
from records import GroupMetadataKey, RawRecord, ReasonKind, Record, decode_record, encode_record
from tests.support.rewrite_playing import VARIANTS

from .rewrite_desk import Desk
from .rewrite_play import SESSION_MS, RewriteStory

both = pytest.mark.parametrize("variant", VARIANTS)
E = RewriteError
AGAIN = bytes(15) + b"T"


class Neighbours:
    """The ids that groups of other kinds have."""

    def __init__(self, refusal: HeldId | None = None, way: tuple[RawRecord, ...] = ()) -> None:
        self.refused, self.way = refusal, way

    def refusal(self, group_id: str) -> HeldId | None:
        return self.refused

    def records_that_make_way(self, group_id: str) -> tuple[RawRecord, ...]:
        return self.way


@both
def test_a_topic_that_was_created_again_begins_a_rebalance(variant: str) -> None:
    story = RewriteStory(variant)
    story.join("a")
    story.settle()
    old_id = story.log.value.topics[0].topic_id
    story.play.recreate("t", 6)
    story.settle()
    assert [one.kind for one in story.log.generations[-1].reasons] == [ReasonKind.TOPIC_RECREATED]
    assert story.log.value.topics[0].topic_id == story.play.topics["t"][0] != old_id


@both
def test_a_topic_that_was_created_again_during_a_failover_is_noticed(variant: str) -> None:
    story = RewriteStory(variant)
    story.join("a")
    story.settle()
    story.kill()
    story.play.recreate("t", 6)
    story.play.run(4 * SESSION_MS)
    assert ReasonKind.TOPIC_RECREATED in [one.kind for one in story.log.generations[-1].reasons]


@both
def test_offsets_are_of_the_topic_that_the_generation_shared_out(variant: str) -> None:
    desk = Desk(variant)
    desk.join()
    old_id, _ = desk.topics["t"]
    desk.topics["t"] = AGAIN, 4
    assert desk.coordinator.topics_changed(desk.now) == []
    assert desk.commit("g-1") == E.NONE
    assert decode_record(desk.log.entries[-1][1][0]).value.topic_id == old_id
    assert desk.join("g-1").group_generation_id == 2
    assert desk.commit("g-1", generation=2) == E.NONE
    assert decode_record(desk.log.entries[-1][1][0]).value.topic_id == AGAIN


@both
def test_fixed_partitions_of_a_topic_that_was_created_again_begin_a_rebalance(variant: str) -> None:
    desk = Desk(variant)
    desk.join(topics=[], partitions=[TopicNumbers(topic="t", partitions=[1])])
    desk.topics["t"] = AGAIN, 4
    desk.coordinator.topics_changed(desk.now)
    assert desk.beat("g-1") != E.NONE


@both
def test_an_id_that_another_kind_of_group_has_is_refused(variant: str) -> None:
    others = Neighbours(HeldId(True, "a classic group has it"))
    desk = Desk(variant, others=others)
    assert desk.join().error_code == E.INCONSISTENT_PARTITIONING_STRATEGY
    others.refused = HeldId(False, "the shard is full")
    assert desk.join().error_code == E.GROUP_TOO_LARGE
    assert desk.log.entries == []
    others.refused = None
    assert desk.join().error_code == E.NONE
    others.refused = HeldId(False, "the shard is full")
    assert desk.join() is None, "a group that exists goes on, and waits for its consumer"


@both
def test_what_makes_way_comes_first_in_the_entry_of_the_first_generation(variant: str) -> None:
    way = encode_record(Record(GroupMetadataKey(group_id="g"), None))
    desk = Desk(variant, others=Neighbours(way=(way,)))
    desk.join()
    assert [raw.type for raw in desk.log.entries[-1][1]] == [2, 1010]
    assert desk.join() is None
    desk.join("g-1")
    assert [raw.type for raw in desk.log.entries[-1][1]] == [1010]


@both
def test_partitions_beyond_the_bound_have_no_owner_and_begin_no_rebalance(variant: str) -> None:
    story = RewriteStory(variant, counts={"t": 4, "u": 4}, settings=RewriteSettings(partitions_max=5))
    story.join("a", ("t", "u"))
    story.settle()
    story.join("b", ("t", "u"))
    story.settle()
    assert sorted(story.play.owners()) == [("t", 0), ("t", 1), ("t", 2), ("t", 3), ("u", 0)]
    assert [(one.name, one.num_partitions) for one in story.log.value.topics] == [("t", 4), ("u", 4)]
    generation = story.log.value.generation
    story.kill()
    story.settle()
    assert story.log.value.generation == generation


@both
def test_the_subscriptions_of_all_consumers_are_bounded(variant: str) -> None:
    desk = Desk(variant, subscriptions_bytes_max=100)
    assert desk.join(topics=["x" * 60]).error_code == E.NONE
    assert desk.join(topics=["x" * 60]).error_code == E.GROUP_TOO_LARGE
    assert desk.join("g-1", topics=["x" * 92]).error_code == E.NONE, "its own former list does not count"
    assert desk.join("g-1", topics=["x" * 93]).error_code == E.GROUP_TOO_LARGE


@both
def test_the_largest_record_fits_into_one_entry(variant: str) -> None:
    """A tenth of the most consumers, with a tenth of the most bytes and partitions: a tenth of the record."""
    settings, scale = RewriteSettings(), 10
    num_consumers = settings.consumers_max // scale
    bytes_max, partitions_max = settings.subscriptions_bytes_max // scale, settings.partitions_max // scale
    names = [f"{one:0249}" for one in range(bytes_max // num_consumers // 257)]
    topics = dict.fromkeys(names, (AGAIN, partitions_max))
    desk = Desk(variant, topics=topics, subscriptions_bytes_max=bytes_max, partitions_max=partitions_max)
    assert desk.join(topics=names).error_code == E.NONE
    for _ in range(num_consumers - 1):
        assert desk.join(topics=names) is None
    assert desk.join("g-1", topics=names).group_generation_id == 2
    value = desk.log.value
    assert len(value.consumers) == num_consumers
    owned = [len(part.partitions) for one in value.consumers for part in one.owned]
    assert sum(owned) == partitions_max
    (raw,) = desk.log.entries[-1][1]
    ids = settings.consumers_max * (settings.group_id_bytes_max + settings.client_id_bytes_max)
    different_topics = settings.subscriptions_bytes_max  # here, all consumers name the same ones
    assert len(raw.value) * scale + ids + different_topics < DECISION_BYTES_MAX


@both
def test_a_long_client_id_is_cut(variant: str) -> None:
    desk = Desk(variant, client_id_bytes_max=0)
    desk.join()
    assert desk.log.value.consumers[0].client_id == ""


@both
def test_groups_are_loaded_one_with_each_step_and_served_after_the_last(variant: str) -> None:
    """A topic that changes between two steps is found by the group loaded before, at the end."""
    desk = Desk(variant)
    for group_id in ("g", "h", "i"):
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout=1_000,
            topics=["t"],
            partition_assignment_strategy="range",
        )
        assert desk.ask(request).error_code == E.NONE
    desk.coordinator.demoted()
    desk.coordinator.elected()
    steps = desk.coordinator.loading(lambda: desk.now)
    refused = desk.beat("g-1")
    next(steps)
    assert desk.beat("g-1") == refused != E.NONE
    desk.topics["t"] = desk.topics["t"][0], 9
    assert len(list(steps)) == 2
    assert desk.coordinator.group_state("g") is RewriteState.READY
    assert {desk.coordinator.group_state(other) for other in ("h", "i")} == {RewriteState.PREPARING}
    desk.coordinator.topics_changed(desk.now)
    assert desk.coordinator.group_state("g") is RewriteState.PREPARING
