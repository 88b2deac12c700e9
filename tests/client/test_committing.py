"""Commits, committed offsets, and offsets by time, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from client.core import calls
from client.core.errors import ConsumerError, FencedError, IllegalState, KafkaError, TimedOut
from client.core.requests import RequestFailure
from client.core.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from tests.client.data_rig import COORDINATOR, DataRig, SentRequest, commit_answer
from tests.support.record_batches import NOW_MS
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from wire.messages.offset_commit import OffsetCommitResponse
from wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from wire.schema import ZERO_UUID, Message

A, B, C = (TopicPartition("orders", number) for number in range(3))


@pytest.fixture
def rig() -> DataRig:
    rig = DataRig()
    rig.metadata.lead("orders", {0: 1, 1: 1, 2: 2})
    return rig


def first_refused(code: int) -> Callable[[SentRequest], Any]:
    """Refuse the first commit, and leave the others to the coordinator."""
    answers = iter([code])
    return lambda request: None if (code := next(answers, None)) is None else commit_answer(request, code)


# Commits.


def test_a_commit_has_the_members_identity(rig: DataRig) -> None:
    rig.identity.group_instance_id = "i"
    future = rig.commit({A: 7, C: 9})
    rig.run(10)
    assert future.result(0) is None
    assert rig.committed_offsets == {A: OffsetAndMetadata(7), C: OffsetAndMetadata(9)}
    (request,) = rig.requests(ApiKey.OFFSET_COMMIT)
    body = request.body
    assert (request.to, body.group_id, body.member_id) == (COORDINATOR, "payments", "m")
    assert (body.generation_id_or_member_epoch, body.group_instance_id) == (5, "i")


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_commits_and_versions_without_names_need_ids(version: int) -> None:
    rig = DataRig(versions={ApiKey.OFFSET_COMMIT: version})
    rig.metadata.lead("orders", {0: 1})
    future = rig.commit({A: 7})
    rig.run(10)
    assert future.result(0) is None
    assert rig.requests(ApiKey.OFFSET_COMMIT)[0].version == version
    assert rig.committed_offsets[A].offset == 7


def test_topics_without_known_ids_are_committed_by_name(rig: DataRig) -> None:
    rig.metadata.lead("orders", {0: 1}, topic_id=ZERO_UUID)
    future, committed = rig.commit({A: 7}), rig.ask_committed(A)
    rig.run(10)
    assert future.result(0) is None
    assert committed.result(0)[A].offset == 7
    assert [one.version for one in rig.sent] == [9, 9]


def test_a_consumer_that_is_no_member_commits_as_none(rig: DataRig) -> None:
    rig.identity.is_subscribed, rig.identity.member_epoch = False, 0
    rig.commit({A: 7})
    rig.run(10)
    body = rig.requests(ApiKey.OFFSET_COMMIT)[0].body
    assert (body.member_id, body.generation_id_or_member_epoch, body.group_instance_id) == ("", -1, None)


def test_a_commit_without_a_group_is_refused() -> None:
    rig = DataRig(group_id=None)
    for future in (rig.commit({A: 7}), rig.ask_committed(A)):
        with pytest.raises(IllegalState, match=r"group\.id"):
            future.result(0)


def test_commits_are_made_one_after_the_other_even_if_the_first_is_tried_again(rig: DataRig) -> None:
    rig.scripts[ApiKey.OFFSET_COMMIT] = first_refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    futures = [rig.commit({A: offset}) for offset in (1, 2, 3)]
    rig.run(1_000)
    sent = [one.body.topics[0].partitions[0].committed_offset for one in rig.requests(ApiKey.OFFSET_COMMIT)]
    assert sent == [1, 1, 2, 3]
    assert all(future.result(0) is None for future in futures)
    assert rig.committed_offsets[A].offset == 3


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_commit_of_partitions_that_are_given_up_is_not_made_for_a_later_topic(
    rig: DataRig, code: ErrorCode
) -> None:
    """The topic is deleted; another of its name, made a moment later, would begin at the old offsets."""
    rig.scripts[ApiKey.OFFSET_COMMIT] = lambda request: commit_answer(request, code)
    future = rig.commit({A: 50}, releases=True)
    rig.run(100)
    with pytest.raises(KafkaError, match="the topic is deleted, or not known"):
        future.result(0)
    del rig.scripts[ApiKey.OFFSET_COMMIT]
    rig.run(5_000)
    assert rig.committed_offsets == {}


def test_equal_commits_in_a_row_are_one(rig: DataRig) -> None:
    futures = [rig.commit({A: 1}), rig.commit({A: 1}), rig.commit({A: 2}), rig.commit({A: 1})]
    rig.run(100)
    assert len(rig.requests(ApiKey.OFFSET_COMMIT)) == 3
    assert all(future.result(0) is None for future in futures)
    assert rig.committed_offsets[A].offset == 1, "the last commit stands"


def test_a_commit_with_an_old_epoch_is_made_again_with_the_new_one(rig: DataRig) -> None:
    def stale(request: SentRequest) -> Any:
        if request.body.generation_id_or_member_epoch == 6:
            return None
        rig.identity.member_epoch = 6  # a heartbeat's answer overtakes
        return commit_answer(request, ErrorCode.STALE_MEMBER_EPOCH)

    rig.scripts[ApiKey.OFFSET_COMMIT] = stale
    future = rig.commit({A: 1}, retries=False)
    rig.run(5)
    assert future.result(0) is None


def test_a_commit_waits_for_the_epoch_that_the_next_heartbeat_brings(rig: DataRig) -> None:
    rig.scripts[ApiKey.OFFSET_COMMIT] = lambda request: (
        None
        if request.body.generation_id_or_member_epoch == 6
        else commit_answer(request, ErrorCode.STALE_MEMBER_EPOCH)
    )
    future = rig.commit({A: 1})
    rig.run(500)
    assert not future.done()
    rig.identity.member_epoch = 6
    rig.run(1_500)
    assert future.result(0) is None


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID])
def test_a_member_that_was_removed_cannot_commit(rig: DataRig, code: ErrorCode) -> None:
    rig.scripts[ApiKey.OFFSET_COMMIT] = first_refused(code)
    fenced, later = rig.commit({A: 1}), rig.commit({B: 1})
    rig.run(100)
    with pytest.raises(FencedError, match=rf"orders-0 were not committed.*{code.name}.*poll\(\) joins again"):
        fenced.result(0)
    assert later.result(0) is None


def test_a_member_that_joins_again_does_not_send_its_commits(rig: DataRig) -> None:
    rig.identity.member_epoch = 0
    future = rig.commit({A: 1})
    rig.run(100)
    with pytest.raises(FencedError, match="not part of the group"):
        future.result(0)
    assert not rig.sent


def test_a_commit_is_not_made_again_after_its_partition_was_given_up(rig: DataRig) -> None:
    """Another member may have committed more of it meanwhile, also if this one has it back."""
    rig.identity.tenures = {A: 1, B: 2}
    rig.scripts[ApiKey.OFFSET_COMMIT] = first_refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    future = rig.commit({A: 7, B: 8, C: 9})
    rig.run(10)
    rig.identity.tenures = {A: 3, B: 2}
    rig.run(1_000)
    with pytest.raises(FencedError, match="orders-0 were given up meanwhile"):
        future.result(0)
    assert len(rig.sent) == 1


def test_a_commit_of_a_removed_member_does_not_wait_behind_another_until_it_is_back(rig: DataRig) -> None:
    rig.scripts[ApiKey.OFFSET_COMMIT] = first_refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    first = rig.commit({A: 1})
    rig.run(10)
    rig.identity.member_epoch = 0
    second = rig.commit({A: 2})
    rig.identity.member_epoch = 9
    rig.run(1_000)
    assert first.result(0) is None
    with pytest.raises(FencedError, match="not part of the group"):
        second.result(0)


def test_a_commit_at_another_node_looks_for_the_coordinator(rig: DataRig) -> None:
    rig.scripts[ApiKey.OFFSET_COMMIT] = first_refused(ErrorCode.NOT_COORDINATOR)
    future = rig.commit({A: 1})
    rig.run(1_000)
    assert rig.coordinator.lost_nodes == [COORDINATOR]
    assert future.result(0) is None


def test_partitions_that_were_refused_are_named(rig: DataRig) -> None:
    rig.scripts[ApiKey.OFFSET_COMMIT] = lambda request: commit_answer(
        request, ErrorCode.OFFSET_METADATA_TOO_LARGE, only=(1, 2)
    )
    future = rig.commit({A: 1, B: 1, C: 1})
    rig.run(100)
    with pytest.raises(
        KafkaError, match=r"orders-1, orders-2 were not committed \(OFFSET_METADATA_TOO_LARGE"
    ):
        future.result(0)


def test_an_answer_that_leaves_partitions_out_is_no_success(rig: DataRig) -> None:
    rig.scripts[ApiKey.OFFSET_COMMIT] = lambda request: OffsetCommitResponse(topics=[])
    future = rig.commit({A: 1})
    rig.run(6_000)
    with pytest.raises(TimedOut, match="orders-0 were not committed"):
        future.result(0)


def test_a_commit_that_may_not_be_tried_again_fails_at_once(rig: DataRig) -> None:
    rig.scripts[ApiKey.OFFSET_COMMIT] = lambda request: commit_answer(request, ErrorCode.REQUEST_TIMED_OUT)
    future = rig.commit({A: 1}, retries=False)
    rig.run(10)
    with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
        future.result(0)
    rig.scripts[ApiKey.OFFSET_COMMIT] = lambda request: RequestFailure.DISCONNECTED
    future = rig.commit({A: 1}, retries=False)
    rig.run(10)
    with pytest.raises(KafkaError, match="the connection ended before the answer arrived"):
        future.result(0)


@pytest.mark.parametrize("api", [ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.LIST_OFFSETS])
def test_an_error_that_no_table_knows_ends_a_call_with_its_number(rig: DataRig, api: ApiKey) -> None:
    def script(request: SentRequest) -> Message:
        answer = rig._serve(request)
        assert answer is not None
        set_codes(answer, 4_242)
        return answer

    rig.scripts[api] = script
    calls = {
        ApiKey.OFFSET_COMMIT: lambda: rig.commit({A: 1}),
        ApiKey.OFFSET_FETCH: lambda: rig.ask_committed(A),
        ApiKey.LIST_OFFSETS: lambda: rig.ask_offsets({A: -1}),
    }
    future = calls[api]()
    rig.run(100)
    with pytest.raises(KafkaError, match=r"\(UNKNOWN_ERROR_CODE, 4242\)"):
        future.result(0)


def set_codes(answer: Any, code: int) -> None:
    """Set every error code of an answer."""
    for name in getattr(answer, "__dataclass_fields__", ()):
        value = getattr(answer, name)
        if name == "error_code":
            answer.error_code = code
        for one in value if isinstance(value, list) else ():
            set_codes(one, code)


def test_a_commit_ends_at_its_deadline_and_says_what_it_met(rig: DataRig) -> None:
    rig.scripts[ApiKey.OFFSET_COMMIT] = lambda request: RequestFailure.TIMED_OUT
    future = rig.commit({A: 1}, timeout_ms=3_000)
    rig.run(2_990)
    assert not future.done()
    rig.run(20)
    with pytest.raises(
        TimedOut, match="the commit of 1 partitions did not end in time: the request timed out"
    ):
        future.result(0)
    assert 3 <= len(rig.sent) < 10


def test_a_call_that_its_caller_gave_up_harms_none(rig: DataRig) -> None:
    future = rig.commit({A: 1})
    assert future.cancel()
    rig.run(100)
    assert rig.committed_offsets[A].offset == 1


def test_callers_that_wait_are_bounded(rig: DataRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "CALLS_MAX", 2)
    futures = [rig.commit({A: offset}) for offset in range(3)]
    with pytest.raises(ConsumerError, match="2 such calls wait already"):
        futures[2].result(0)


# Committed offsets.


def committed_answer(request: SentRequest, code: int, *, partition_code: int = 0) -> OffsetFetchResponse:
    (group,) = request.body.groups
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=-1, metadata="", error_code=partition_code
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in group.topics
    ]
    groups = [OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=code)]
    return OffsetFetchResponse(groups=groups)


@pytest.mark.parametrize("version", [8, 9, 10])
def test_committed_offsets_are_read_in_every_version(version: int) -> None:
    rig = DataRig(versions={ApiKey.OFFSET_FETCH: version}, isolation_level="read_committed")
    rig.metadata.lead("orders", {0: 1, 1: 1})
    rig.committed_offsets[A] = OffsetAndMetadata(7, "note", 3)
    future = rig.ask_committed(A, B)
    rig.run(10)
    assert future.result(0) == {A: OffsetAndMetadata(7, "note", 3), B: None}
    body = rig.sent[0].body
    assert body.require_stable
    if version > 8:
        assert (body.groups[0].member_id, body.groups[0].member_epoch) == ("m", 5)


def test_equal_calls_share_a_request_that_was_not_sent_yet(rig: DataRig) -> None:
    futures = [rig.ask_committed(A), rig.ask_committed(A)]
    rig.run(0)
    rig.committed_offsets[A] = OffsetAndMetadata(9)
    later = rig.ask_committed(A)  # the first request may have been answered already
    rig.run(10)
    assert [future.result(0)[A] for future in futures] == [None, None]
    assert later.result(0)[A].offset == 9
    assert len(rig.sent) == 2


@pytest.mark.parametrize(
    ("code", "partition_code"),
    [
        (0, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0),
        (ErrorCode.STALE_MEMBER_EPOCH, 0),
        (ErrorCode.UNKNOWN_MEMBER_ID, 0),
        (0, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_committed_offsets_are_asked_for_again_after_what_passes(
    rig: DataRig, code: int, partition_code: int
) -> None:
    rig.scripts[ApiKey.OFFSET_FETCH] = lambda request: (
        committed_answer(request, code, partition_code=partition_code) if len(rig.sent) < 4 else None
    )
    rig.committed_offsets[A] = OffsetAndMetadata(7)
    future = rig.ask_committed(A)
    rig.run(2_000)
    assert future.result(0)[A].offset == 7
    assert len(rig.sent) == 4


def test_committed_offsets_that_are_forbidden_are_an_error(rig: DataRig) -> None:
    rig.scripts[ApiKey.OFFSET_FETCH] = lambda request: committed_answer(
        request, ErrorCode.GROUP_AUTHORIZATION_FAILED
    )
    future = rig.ask_committed(A)
    rig.run(10)
    with pytest.raises(KafkaError, match=r"group 'payments' .GROUP_AUTHORIZATION_FAILED"):
        future.result(0)


# Offsets by time.


def test_each_leader_is_asked_for_its_partitions(rig: DataRig) -> None:
    rig.logs[A].append(b"a", b"b")
    rig.logs[C].append(b"c")
    future = rig.ask_offsets({A: -1, B: -2, C: NOW_MS})
    rig.run(10)
    assert future.result(0) == {A: OffsetAndTimestamp(2, -1, 3), B: OffsetAndTimestamp(0, -1, 3), C: None}
    assert [one.to for one in rig.sent] == [1, 2]
    assert rig.metadata.wanted == {"orders"}


def test_only_what_has_no_answer_is_asked_for_again(rig: DataRig) -> None:
    def moving(request: SentRequest) -> Any:
        if request.to == 2:
            rig.metadata.lead("orders", {0: 1, 1: 1, 2: 1})
            return RequestFailure.DISCONNECTED
        return None

    rig.scripts[ApiKey.LIST_OFFSETS] = moving
    future = rig.ask_offsets({A: -1, C: -1})
    rig.run(1_000)
    assert set(future.result(0)) == {A, C}
    assert [(one.to, len(one.body.topics[0].partitions)) for one in rig.sent] == [(1, 1), (2, 1), (1, 1)]
    assert rig.metadata.refreshes


def test_offsets_without_a_leader_wait_until_the_deadline(rig: DataRig) -> None:
    rig.metadata.lead("orders", {0: -1})
    future = rig.ask_offsets({A: -1}, timeout_ms=500)
    rig.run(600)
    with pytest.raises(TimedOut, match="no leader of orders-0 is known"):
        future.result(0)
    assert not rig.sent


def test_offsets_are_asked_for_as_soon_as_the_leader_is_known(rig: DataRig) -> None:
    rig.metadata.lead("orders", {0: -1, 1: 1})
    future = rig.ask_offsets({A: -1, B: -1})
    rig.run(200)
    assert not future.done()
    rig.metadata.lead("orders", {0: 1, 1: 1})
    rig.run(5)
    assert set(future.result(0)) == {A, B}


def test_a_leader_that_leaves_partitions_out_is_asked_again(rig: DataRig) -> None:
    rig.scripts[ApiKey.LIST_OFFSETS] = lambda request: ListOffsetsResponse(topics=[])
    future = rig.ask_offsets({A: -1}, timeout_ms=2_000)
    rig.run(2_100)
    with pytest.raises(TimedOut, match="orders-0 by time"):
        future.result(0)
    assert 2 <= len(rig.sent) < 10


def test_a_version_that_no_node_serves_ends_the_call(rig: DataRig) -> None:
    rig.scripts[ApiKey.LIST_OFFSETS] = lambda request: RequestFailure.UNSUPPORTED_VERSION
    future = rig.ask_offsets({A: -1})
    rig.run(10)
    with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
        future.result(0)


def test_a_consumer_that_closes_gives_its_calls_up(rig: DataRig) -> None:
    rig.scripts[ApiKey.LIST_OFFSETS] = lambda request: RequestFailure.CANCELLED
    future = rig.ask_offsets({A: -1})
    rig.run(10)
    with pytest.raises(ConsumerError, match="given up: the consumer is closing"):
        future.result(0)


def test_committed_offsets_that_an_answer_leaves_out_are_asked_for_again(rig: DataRig) -> None:
    rig.committed_offsets[A] = OffsetAndMetadata(7)
    empty = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="payments")])
    other = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="another")])
    answers: list[Any] = [OffsetFetchResponse(), empty, other]
    rig.scripts[ApiKey.OFFSET_FETCH] = lambda _: answers.pop() if answers else None
    future = rig.ask_committed(A)
    rig.run(2_000)
    assert future.result(0)[A].offset == 7
    assert len(rig.requests(ApiKey.OFFSET_FETCH)) == 4


@pytest.mark.parametrize("timestamp", [-1, -2])
def test_a_first_or_last_offset_that_is_missing_is_asked_for_again(rig: DataRig, timestamp: int) -> None:
    rig.logs[A].append(b"one")
    rig.scripts[ApiKey.LIST_OFFSETS] = lambda request: (
        offsets_answer(request, -1) if rig.now_ms < 1_500 else None
    )
    future = rig.ask_offsets({A: timestamp})
    rig.run(3_000)
    assert future.result(0)[A].offset == {-1: 1, -2: 0}[timestamp]
    assert len(rig.requests(ApiKey.LIST_OFFSETS)) < 10


def test_a_call_never_gets_offsets_that_were_read_before_it(rig: DataRig) -> None:
    rig.metadata.lead("orders", {0: 1, 1: -1})
    both = {A: -1, B: -1}
    rig.ask_offsets(both, timeout_ms=10_000)
    rig.run(100)
    rig.logs[A].append(b"one")
    second = rig.ask_offsets(both, timeout_ms=10_000)
    rig.metadata.lead("orders", {0: 1, 1: 1})
    rig.run(2_000)
    assert second.result(0)[A].offset == 1


def test_a_call_that_follows_its_equal_at_once_is_answered(rig: DataRig) -> None:
    first = rig.ask_offsets({A: -1})
    seconds: list[Any] = []
    first.add_done_callback(lambda _: seconds.append(rig.ask_offsets({A: -1})))
    rig.run(100)
    assert seconds[0].result(0)[A].offset == 0


def offsets_answer(request: SentRequest, offset: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=one.partition_index, offset=offset)
                    for one in topic.partitions
                ],
            )
            for topic in request.body.topics
        ]
    )
