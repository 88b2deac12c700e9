"""Users' strategies of seed 000: asked as jobs, and what may happen while one is asked."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.oldgroups import HeldId
from lineage.rewrite.bounds import RewriteSettings
from lineage.rewrite.coordinator import RewriteCoordinator
from lineage.rewrite.errors import RewriteError
from lineage.rewrite.groups import Now, RewriteOrigin, RewriteResult
from lineage.rewrite.machines import RewriteEvent, RewriteState
from lineage.rewrite.messages import (
    CommitPartition,
    CommitTopic,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    TopicNumbers,
)
from lineage.rewrite.strategies import Assignment, StrategyConsumer, StrategyJob
from records import GroupMetadataKey, RawRecord, ReasonKind, Record, encode_record
from tests.support.rewrite_playing import VARIANTS, PlayTopics
from wire.protocol import RequestHeader

from .rewrite_play import RewriteLog

both = pytest.mark.parametrize("variant", VARIANTS)
E, R = RewriteError, ReasonKind
SESSION_MS = 1_000


class Hall:
    """A coordinator whose group `g` has a user's strategy; requests and their answers have names."""

    def __init__(self, variant: str, others: Any = None, **settings: Any) -> None:
        self.log, self.at_ms, self.ids = RewriteLog(), 0.0, 0
        self.counts = {"t": 4, "u": 1}
        self.jobs: list[StrategyJob] = []
        self.answers: dict[str, Any] = {}
        self.failures: list[str] = []
        given = {"strategies": frozenset({"range", "mine"})} | settings
        self.coordinator: RewriteCoordinator = VARIANTS[variant][0](
            self.log.groups,
            PlayTopics(self.counts),
            self.fresh_id,
            lambda _: None,
            RewriteSettings(**given),
            others,
        )
        self.elect()

    @property
    def now(self) -> Now:
        return Now(self.at_ms, 1_000_000 + int(self.at_ms))

    @property
    def state(self) -> RewriteState:
        return self.coordinator.group_state("g")

    @property
    def asking(self) -> RewriteState:
        """The state in which the variant asks a strategy."""
        return self.coordinator.TABLE[RewriteState.PREPARING, RewriteEvent.ASKED]

    @property
    def reasons(self) -> list[ReasonKind]:
        return [ReasonKind(one.kind) for one in self.log.generations[-1].reasons]

    def fresh_id(self) -> str:
        self.ids += 1
        return str(self.ids)

    def elect(self) -> None:
        self.coordinator.elected()
        self.coordinator.loaded(self.now)

    def take(self, results: list[RewriteResult]) -> None:
        for result in results:
            if result.cause is not None:
                self.log.append(result.cause, result.records)
            for origin, answer in result.answers:
                assert origin.connection not in self.answers, "it is answered once"
                self.answers[str(origin.connection)] = answer
            self.jobs += [result.job] if result.job is not None else []
            self.failures += [result.failure] if result.failure else []

    def ask(self, name: str, request: Any) -> Any:
        """The answer to a request; None if it waits, and then `answers` has it when it comes."""
        header = RequestHeader(11, 0, 7, "c", 0)
        self.take(self.coordinator.handle(request, RewriteOrigin(name, header), self.now))
        return self.answers.get(name)

    def join(self, name: str, consumer_id: str = "", *topics: str, **fields: Any) -> Any:
        given = {"session_timeout": SESSION_MS, "partition_assignment_strategy": "mine"} | fields
        request = JoinGroupRequest(
            group_id="g", consumer_id=consumer_id, topics=list(topics or ("t",)), **given
        )
        return self.ask(name, request)

    def beat(self, consumer_id: str, generation: int = 1) -> int:
        request = HeartbeatRequest(group_id="g", group_generation_id=generation, consumer_id=consumer_id)
        self.answers.pop("beat", None)
        code: int = self.ask("beat", request).error_code
        return code

    def tick(self, at_ms: float) -> None:
        self.at_ms = at_ms
        self.take(self.coordinator.tick(self.now))

    def end(self, answer: Assignment | None = None, error: str | None = None, number: int = 0) -> None:
        """End the last job, or that with the number."""
        ended = self.coordinator.strategy_ended("g", number or self.jobs[-1].number, answer, error, self.now)
        self.take(ended)

    def first(self) -> None:
        """End the last job: the first subscriber gets all of a topic."""
        job = self.jobs[-1]
        answer: Assignment = {}
        for topic, count in job.counts.items():
            owner = next(one for one, consumer in job.consumers.items() if topic in consumer.topics)
            answer.setdefault(owner, []).extend((topic, number) for number in range(count))
        self.end(answer)

    def owned(self, name: str) -> dict[str, list[int]]:
        answer = self.answers[name]
        assert answer.error_code == E.NONE
        return {one.topic: one.partitions for one in answer.partitions_to_own}

    def generation(self, name: str) -> int:
        assert self.answers[name].error_code == E.NONE
        number: int = self.answers[name].group_generation_id
        return number


def steady(variant: str, **settings: Any) -> Hall:
    """The consumers g-1 and g-2 are in generation 2, and g-1 owns everything."""
    hall = Hall(variant, **settings)
    hall.join("a")
    hall.first()
    hall.join("b")
    hall.join("a2", "g-1")
    hall.first()
    assert hall.generation("a2") == hall.generation("b") == 2
    return hall


@both
def test_the_job_says_what_a_strategy_may_know(variant: str) -> None:
    """Topics without partitions are left out: an assignor is promised one or more."""
    hall = Hall(variant)
    assert hall.join("a", "", "t", "later") is None
    assert hall.state is hall.asking
    assert hall.jobs == [
        StrategyJob("g", 1, "mine", {"t": 4}, {"g-1": StrategyConsumer(("t",), {})}, SESSION_MS)
    ]
    hall.first()
    hall.join("b", "", "u", session_timeout=700)
    assert len(hall.jobs) == 1
    hall.join("a2", "g-1", "later")
    assert hall.jobs[1:] == [
        StrategyJob(
            "g",
            2,
            "mine",
            {"u": 1},
            {
                "g-1": StrategyConsumer((), {"t": (0, 1, 2, 3)}),
                "g-2": StrategyConsumer(("u",), {}),
            },
            700,
        )
    ]
    hall.first()
    assert (hall.owned("a2"), hall.owned("b")) == ({}, {"u": [0]})
    assert [(one.name, one.num_partitions) for one in hall.log.value.topics] == [("later", 0), ("u", 1)]


@both
def test_consumers_are_answered_when_the_strategy_has_ended(variant: str) -> None:
    hall = steady(variant)
    entries = len(hall.log.entries)
    hall.join("c")
    hall.join("a3", "g-1")
    hall.join("b3", "g-2")
    assert len(hall.log.entries) == entries
    assert not {"a3", "b3", "c"} & hall.answers.keys()
    hall.end({"g-3": [("t", 3), ("t", 0)], "g-2": [("t", 1), ("t", 2)]})
    assert (hall.owned("a3"), hall.owned("b3"), hall.owned("c")) == ({}, {"t": [1, 2]}, {"t": [0, 3]})
    assert {hall.generation(name) for name in ("a3", "b3", "c")} == {3}
    assert hall.state in (RewriteState.STEADY, RewriteState.READY)
    assert len(hall.log.entries) == entries + 1


@both
def test_a_newcomer_meanwhile_starts_another_round_at_once(variant: str) -> None:
    hall = Hall(variant)
    hall.join("a")
    assert hall.join("b") is None
    assert len(hall.jobs) == 1  # a group has one at most
    hall.first()
    assert (hall.generation("a"), hall.owned("a")) == (1, {"t": [0, 1, 2, 3]})
    assert hall.state is RewriteState.PREPARING
    assert "b" not in hall.answers
    assert hall.beat("g-1") in (E.ILLEGAL_GENERATION, E.NEED_REBALANCE)
    hall.join("a2", "g-1")
    assert hall.jobs[-1].number == 2
    hall.first()
    assert hall.generation("a2") == hall.generation("b") == 2
    assert R.MEMBER_JOINED in hall.reasons


@both
def test_a_join_group_that_is_repeated_meanwhile_gets_the_rounds_answer(variant: str) -> None:
    """Its connection was lost, or it gave the first one up."""
    hall = steady(variant)
    hall.join("c")
    hall.join("a3", "g-1")
    hall.join("b3", "g-2")
    assert hall.join("a4", "g-1", session_timeout=900) is None
    hall.first()
    assert "a3" not in hall.answers
    assert hall.generation("a4") == 3
    assert len(hall.jobs) == 3
    assert hall.log.value.consumers[0].session_timeout_ms == 900
    assert hall.state is not RewriteState.PREPARING


@both
def test_a_newcomer_in_the_round_that_joins_again_is_another_consumer(variant: str) -> None:
    """It gave its JoinGroup up and has no id by which it could be recognised."""
    hall = Hall(variant)
    hall.join("a")
    assert hall.join("a again") is None
    hall.first()
    assert [one.consumer_id for one in hall.log.value.consumers] == ["g-1"]
    hall.tick(SESSION_MS)
    hall.first()
    assert (hall.generation("a again"), hall.owned("a again")) == (2, {"t": [0, 1, 2, 3]})
    assert [one.consumer_id for one in hall.log.value.consumers] == ["g-2"]


@both
def test_a_changed_list_meanwhile_waits_for_the_next_round(variant: str) -> None:
    hall = steady(variant)
    hall.join("a3", "g-1", "t", "u")
    hall.join("b3", "g-2")
    assert hall.join("a4", "g-1", "u") is None
    hall.first()
    assert hall.generation("b3") == 3
    assert not {"a3", "a4"} & hall.answers.keys()
    assert hall.log.value.consumers[0].topics == ("t", "u")
    assert hall.state is RewriteState.PREPARING
    hall.join("b4", "g-2")
    assert hall.jobs[-1].consumers["g-1"] == StrategyConsumer(("u",), {"t": (0, 1, 2, 3), "u": (0,)})
    hall.first()
    assert (hall.generation("a4"), hall.owned("a4")) == (4, {"u": [0]})
    assert R.SUBSCRIPTION_CHANGED in hall.reasons


@both
def test_a_list_that_is_changed_back_meanwhile_belongs_to_the_round(variant: str) -> None:
    hall = Hall(variant)
    hall.join("a")
    hall.first()
    hall.join("a2", "g-1", "u")
    hall.join("a3", "g-1", "t", "u")
    hall.join("a4", "g-1", "u")
    hall.first()
    assert hall.answers.keys() == {"a", "a4"}
    assert (hall.generation("a4"), len(hall.jobs)) == (2, 2)


@both
def test_the_only_consumer_that_changes_its_list_meanwhile_is_asked_about_again_at_once(variant: str) -> None:
    """Generation 2 of the round is written and answers nobody; the next job has what it gave."""
    hall = Hall(variant)
    hall.join("a")
    hall.first()
    hall.join("a2", "g-1", "u")
    hall.join("a3", "g-1", "t", "u")
    hall.first()
    assert hall.jobs[-1].consumers == {"g-1": StrategyConsumer(("t", "u"), {"u": (0,)})}
    hall.first()
    assert (hall.generation("a3"), "a2" in hall.answers) == (3, False)


@both
def test_the_only_consumer_may_change_to_a_built_in_strategy_meanwhile(variant: str) -> None:
    """Both generations are written by one decision."""
    hall = Hall(variant)
    hall.join("a")
    hall.first()
    hall.join("a2", "g-1", "u")
    assert hall.join("a3", "g-1", partition_assignment_strategy="range") is None
    hall.first()
    assert (hall.generation("a3"), hall.log.value.strategy) == (3, "range")
    assert len(hall.log.generations) == 3


@both
def test_topics_that_change_meanwhile_cost_another_round_after_it(variant: str) -> None:
    hall = steady(variant)
    hall.join("a3", "g-1", "t", "u")
    hall.join("b3", "g-2")
    hall.counts["t"] = 6
    hall.take(hall.coordinator.topics_changed(hall.now))
    assert hall.coordinator.taken[hall.asking, RewriteEvent.GROWN] == 1
    hall.first()
    assert (hall.generation("a3"), hall.owned("a3")) == (3, {"t": [0, 1, 2, 3], "u": [0]})
    assert hall.state is RewriteState.PREPARING
    hall.join("a4", "g-1", "t", "u")
    hall.join("b4", "g-2")
    assert hall.jobs[-1].counts == {"t": 6, "u": 1}
    hall.first()
    assert R.TOPIC_GROWN in hall.reasons


@both
def test_a_failover_makes_the_answer_needless_and_its_number_is_not_used_again(variant: str) -> None:
    hall = Hall(variant)
    hall.join("a")
    hall.first()
    hall.join("a2", "g-1", "u")
    old = hall.jobs[-1].number
    hall.coordinator.demoted()
    hall.end({"g-1": [("u", 0)]}, number=old)
    hall.elect()
    hall.join("a3", "g-1", "u")
    assert hall.jobs[-1].number > old
    hall.end({"g-1": [("u", 0)]}, number=old)
    assert "a3" not in hall.answers
    assert len(hall.log.generations) == 1
    hall.first()
    assert hall.generation("a3") == 2
    hall.first()  # an answer that comes twice
    hall.coordinator.strategy_ended("h", 1, {}, None, hall.now)
    assert len(hall.log.generations) == 2


@pytest.mark.parametrize(
    ("variant", "code"), [("design", E.ILLEGAL_GENERATION), ("thread", E.NEED_REBALANCE)]
)
def test_heartbeats_meanwhile_are_told_of_the_rebalance_and_commits_go_on(variant: str, code: int) -> None:
    hall = steady(variant)
    hall.join("c")
    hall.join("a3", "g-1")
    hall.join("b3", "g-2")
    assert (hall.beat("g-1", 2), hall.beat("g-1", 2)) == (code, code)
    assert hall.beat("g-3") == E.UNKNOWN_CONSUMER  # ids are given when the round ends
    assert hall.coordinator.taken[hall.asking, RewriteEvent.TOLD] == 1
    one = CommitTopic(topic="t", partitions=[CommitPartition(partition=0, offset=5)])
    commit = OffsetCommitRequest(group_id="g", group_generation_id=2, consumer_id="g-1", topics=[one])
    assert hall.ask("commit", commit).topics[0].partitions[0].error_code == E.NONE


@both
def test_failure_detection_is_paused_until_the_strategy_ends(variant: str) -> None:
    hall = steady(variant)
    hall.join("a3", "g-1", "u")
    hall.join("b3", "g-2")
    hall.tick(20 * SESSION_MS)
    assert hall.state is hall.asking
    assert hall.coordinator.next_deadline_ms is None
    hall.end({"g-1": [("u", 0)], "g-2": [("t", number) for number in range(4)]})
    assert hall.coordinator.next_deadline_ms == 21 * SESSION_MS
    hall.tick(21 * SESSION_MS)  # both were silent for a session since their answer
    hall.tick(22 * SESSION_MS)  # the thread gives who is not found dead first another one to join
    assert hall.log.value.consumers == ()


@both
def test_after_a_failure_the_consumers_have_a_session_to_join_again(variant: str) -> None:
    hall = steady(variant)
    hall.join("a3", "g-1", "u")
    hall.join("b3", "g-2")
    hall.tick(20 * SESSION_MS)
    hall.end(error="it hangs")
    assert hall.answers["a3"].error_code == hall.answers["b3"].error_code == E.UNKNOWN
    assert hall.failures == ["Strategy mine failed for group g: it hangs"]
    hall.tick(21 * SESSION_MS - 1)
    hall.join("a4", "g-1", "u")
    hall.tick(21 * SESSION_MS)
    assert hall.jobs[-1].consumers.keys() == {"g-1"}
    hall.first()
    assert hall.generation("a4") == 3
    assert R.JOIN_TIMED_OUT in hall.reasons


@pytest.mark.parametrize(
    ("variant", "code"), [("design", E.ILLEGAL_GENERATION), ("thread", E.UNKNOWN_CONSUMER)]
)
def test_who_was_found_dead_is_unknown_while_the_strategy_is_asked(variant: str, code: int) -> None:
    """The generation will not have it, so its JoinGroup is too late; it joins without an id."""
    hall = steady(variant)
    hall.tick(500)
    hall.beat("g-1", 2)
    hall.tick(SESSION_MS)
    hall.join("a3", "g-1")
    assert hall.jobs[-1].consumers.keys() == {"g-1"}
    assert hall.beat("g-2", 2) == code
    assert hall.join("b3", "g-2").error_code == E.UNKNOWN_CONSUMER
    hall.join("b4")
    hall.first()
    assert (hall.generation("a3"), [one.member_id for one in hall.log.generations[-1].expiries]) == (
        3,
        ["g-2"],
    )
    hall.join("a4", "g-1")
    hall.first()
    assert hall.generation("b4") == 4


ANSWERS: dict[str, tuple[Assignment, str]] = {
    "twice": (
        {"g-1": [("t", 0), ("t", 1), ("u", 0)], "g-2": [("t", n) for n in range(4)]},
        "0 of t has 2 owners",
    ),
    "twice for one": ({"g-2": [("t", n) for n in (0, 1, 2, 3, 3)], "g-1": [("u", 0)]}, "3 of t has 2 owners"),
    "left out": ({"g-2": [("t", n) for n in range(4)]}, "0 of u has 0 owners"),
    "no such consumer": ({"x": [("u", 0)], "g-2": [("t", n) for n in range(4)]}, "x, which did not ask"),
    "no such partition": (
        {"g-1": [("u", 0), ("u", 1)], "g-2": [("t", n) for n in range(4)]},
        "no partition 1 of u",
    ),
    "not asked for": ({"g-2": [*(("t", n) for n in range(4)), ("u", 0)]}, "g-2, which did not ask"),
    "no such topic": ({"g-1": [("v", 0)]}, "g-1, which did not ask"),
    "nothing": ({}, "has 0 owners"),
}


@both
@pytest.mark.parametrize("answer", ANSWERS)
def test_an_invalid_answer_is_an_error(variant: str, answer: str) -> None:
    hall = steady(variant)
    hall.join("a3", "g-1", "t", "u")
    hall.join("b3", "g-2")
    entries = len(hall.log.entries)
    hall.end(ANSWERS[answer][0])
    assert hall.answers["a3"].error_code == hall.answers["b3"].error_code == E.UNKNOWN
    assert ANSWERS[answer][1] in hall.failures[-1]
    assert (len(hall.log.entries), hall.state) == (entries, RewriteState.PREPARING)
    assert hall.beat("g-1", 2) in (E.ILLEGAL_GENERATION, E.NEED_REBALANCE)
    hall.join("a4", "g-1", "t", "u")
    hall.join("b4", "g-2")
    hall.first()
    assert hall.generation("a4") == hall.generation("b4") == 3


@both
def test_what_came_meanwhile_waits_on_after_a_failure(variant: str) -> None:
    hall = steady(variant)
    hall.join("a3", "g-1", "u")
    hall.join("b3", "g-2")
    hall.join("c")
    hall.join("a4", "g-1", "t", "u")
    hall.counts["t"] = 5
    hall.take(hall.coordinator.topics_changed(hall.now))
    hall.end(error="no")
    assert hall.answers["b3"].error_code == E.UNKNOWN
    assert not {"a3", "a4", "c"} & hall.answers.keys()
    hall.join("b4", "g-2")
    hall.first()
    assert {hall.generation(name) for name in ("a4", "b4", "c")} == {3}
    assert hall.owned("a4") == {"t": [0, 1, 2, 3, 4], "u": [0]}
    assert {R.SUBSCRIPTION_CHANGED, R.MEMBER_JOINED, R.TOPIC_GROWN} <= {*hall.reasons}


@both
def test_a_new_group_whose_first_round_fails_leaves_nothing(variant: str) -> None:
    hall = Hall(variant)
    hall.join("a")
    hall.end(error="no")
    assert hall.answers["a"].error_code == E.UNKNOWN
    assert (hall.log.entries, hall.coordinator._groups) == ([], {})
    hall.join("a2")
    hall.join("b")
    hall.end(error="no")  # b came meanwhile: it is asked about at once
    assert (hall.jobs[-1].number, [*hall.jobs[-1].consumers]) == (3, ["g-3"])
    hall.first()
    assert hall.generation("b") == 1


@both
def test_a_failure_without_a_consumer_alive_ends_the_generation(variant: str) -> None:
    hall = Hall(variant)
    hall.join("a")
    hall.first()
    hall.join("b")
    hall.tick(SESSION_MS)
    assert [*hall.jobs[-1].consumers] == ["g-2"]
    hall.end(error="no")
    assert hall.answers["b"].error_code == E.UNKNOWN
    assert (hall.log.value.generation, hall.log.value.consumers, hall.coordinator._groups) == (2, (), {})


@both
def test_a_strategy_is_not_asked_when_there_is_nothing_to_share_out(variant: str) -> None:
    hall = Hall(variant)
    assert hall.join("a", "", "later").error_code == E.NONE
    fixed = [TopicNumbers(topic="t", partitions=[1])]
    request = JoinGroupRequest(
        group_id="h", session_timeout=SESSION_MS, partition_assignment_strategy="mine", partitions=fixed
    )
    assert [one.partitions for one in hall.ask("b", request).partitions_to_own] == [[1]]
    assert hall.join("c", "", partition_assignment_strategy="yours").error_code == (
        E.UNKNOWN_PARTITIONING_STRATEGY
    )
    assert hall.jobs == []


@both
def test_what_a_join_may_not_ask_for_meanwhile(variant: str) -> None:
    hall = Hall(variant, consumers_max=2)
    hall.join("a")
    hall.first()
    hall.join("a2", "g-1", "u")
    assert hall.join("b", partition_assignment_strategy="range").error_code == (
        E.INCONSISTENT_PARTITIONING_STRATEGY
    )
    hall.join("a3", "g-1", partition_assignment_strategy="range")
    assert hall.join("c").error_code == E.INCONSISTENT_PARTITIONING_STRATEGY
    assert hall.join("d", partition_assignment_strategy="range") is None
    assert hall.join("e", partition_assignment_strategy="range").error_code == E.GROUP_TOO_LARGE


@both
def test_groups_are_asked_about_side_by_side(variant: str) -> None:
    hall = Hall(variant)
    hall.join("a")
    request = JoinGroupRequest(
        group_id="h", session_timeout=SESSION_MS, partition_assignment_strategy="mine", topics=["u"]
    )
    assert hall.ask("h", request) is None
    first, second = hall.jobs
    assert (first.group_id, second.group_id) == ("g", "h")
    assert first.number != second.number
    ended = hall.coordinator.strategy_ended("h", second.number, {"h-2": [("u", 0)]}, None, hall.now)
    hall.take(ended)
    assert (hall.owned("h"), "a" in hall.answers) == ({"u": [0]}, False)


class Neighbour:
    """Another kind of group, which may take the id."""

    def __init__(self) -> None:
        self.taken: HeldId | None = None

    def refusal(self, _group_id: str) -> HeldId | None:
        return self.taken

    def records_that_make_way(self, group_id: str) -> tuple[RawRecord, ...]:
        return (encode_record(Record(GroupMetadataKey(group_id=group_id), None)),)


@both
def test_an_id_that_is_taken_while_the_first_strategy_is_asked_is_given_up(variant: str) -> None:
    others = Neighbour()
    hall = Hall(variant, others)
    hall.join("a")
    hall.join("b")
    others.taken = HeldId(True, "a consumer group has it")
    hall.first()
    assert {hall.answers[one].error_code for one in "ab"} == {E.INCONSISTENT_PARTITIONING_STRATEGY}
    assert hall.log.entries == []
    others.taken = None
    hall.join("c")
    hall.first()
    assert hall.generation("c") == 1


@both
def test_what_gives_way_is_written_once_though_two_rounds_end_at_once(variant: str) -> None:
    hall = Hall(variant, Neighbour())
    hall.join("a")
    hall.join("b", "", "later")  # for the next round, which has a strategy to ask again
    hall.first()
    hall.join("a2", "g-1", "later")  # nothing to share out: the round ends at once
    types = [[raw.type for raw in records] for _, records in hall.log.entries]
    assert types[0] == [2, 1010]
    assert {len(one) for one in types[1:]} == {1}
