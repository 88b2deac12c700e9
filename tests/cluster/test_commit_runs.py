"""Commits decided in one call: each has its own decision, entry and response, as if it had come alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.node_info import ClientInfo
from cluster.runtime.pending_replies import PendingReply, PendingRun
from raftlog.env.simulated_files import Crash
from raftlog.storage.frames import frames_in
from records import METADATA_SHARD, Entry, Trigger, decode_entry, decode_record
from tests.cluster.fakes import Bench
from tests.support.requests import commit_request
from tests.support.sim_node import SimNode, replayed
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.offset_commit import OffsetCommitRequest
from wire.protocol import encode_response

GROUP = "billing"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A node alone, with a topic of 7 partitions, that leads its group shard."""
    bench = Bench(monkeypatch, is_alone=True)
    bench.log(bench.metadata).lead()
    topic = CreatableTopic(name="orders", num_partitions=7, replication_factor=1)
    bench.ask(CreateTopicsRequest(topics=[topic]), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    bench.log(bench.metadata).commit()
    bench.log(bench.groups).lead()
    bench.log(bench.groups).commit()
    return bench


def submit(bench: Bench, *requests: OffsetCommitRequest) -> list[Any]:
    """Submit these commits in one call; the returned list receives the list of their responses."""
    answers: list[Any] = []
    run = PendingRun(ApiKey.OFFSET_COMMIT, 9, list(requests), answers.append)
    bench.host.call_soon(bench.groups.requests.submit_run, run, ClientInfo())
    bench.later(0.001)
    return answers


def codes(responses: list[Any]) -> list[int]:
    return [response.topics[0].partitions[0].error_code for response in responses]


def entries(bench: Bench) -> list[Entry]:
    """The entries of commits."""
    found = [decode_entry(body) for body in bench.log(bench.groups).bodies]
    return [entry for entry in found if entry.cause.trigger == Trigger.OFFSETS_COMMITTED]


def offsets(bench: Bench) -> list[int]:
    return [decode_record(raw).value.committed_offset for entry in entries(bench) for raw in entry.records]  # type: ignore[union-attr]


def test_each_has_an_entry_and_the_last_of_duplicates_counts(bench: Bench) -> None:
    answers = submit(bench, *(commit_request(GROUP, {0: offset}) for offset in (5, 7, 6)))
    assert answers == []
    assert [len(entry.records) for entry in entries(bench)] == [1, 1, 1]
    assert len(bench.groups.pending_replies) == bench.groups.counters.replies_held == 3
    bench.log(bench.groups).commit()
    (responses,) = answers
    assert codes(responses) == [0, 0, 0]
    assert len(bench.groups.pending_replies) == 0
    (stored,) = bench.groups.machine.projection.offsets.of_group(GROUP)
    assert stored.value.offset == 6


def test_no_reply_of_a_run_precedes_the_commit_of_its_last_entry(bench: Bench) -> None:
    replica = bench.log(bench.groups)
    before = replica.last_index
    answers = submit(bench, *(commit_request(GROUP, {0: offset}) for offset in (1, 2)))
    replica.commit(before + 1)
    assert answers == []
    replica.commit(before + 2)
    assert codes(answers[0]) == [0, 0]


def test_an_error_in_the_middle_concerns_one_alone(bench: Bench) -> None:
    answers = submit(
        bench,
        commit_request(GROUP, {0: 1}),
        commit_request(GROUP, {99: 2}),
        commit_request(GROUP, {1: 3}, member_id="stranger", epoch=4),
        commit_request(GROUP, {1: 4}),
    )
    bench.log(bench.groups).commit()
    assert codes(answers[0]) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert len(entries(bench)) == 2


def test_a_handler_that_raises_in_the_middle_fails_one_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handle = bench.groups.machine.handle

    def failing(api_key: int, version: int, request: Any, ctx: Any) -> Any:
        if request.topics[0].partitions[0].committed_offset == 2:
            raise RuntimeError("on purpose")
        return handle(api_key, version, request, ctx)

    monkeypatch.setattr(bench.groups.machine, "handle", failing)
    answers = submit(bench, *(commit_request(GROUP, {0: offset}) for offset in (1, 2, 3)))
    bench.log(bench.groups).commit()
    assert codes(answers[0]) == [0, ErrorCode.UNKNOWN_SERVER_ERROR, 0]
    assert "on purpose" in caplog.text
    assert not bench.host.is_dead


def test_those_for_which_there_is_no_room_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = bench.log(bench.groups)
    propose = replica.propose

    def last(*entry: Any) -> int:
        replica.has_room = False
        return propose(*entry)

    monkeypatch.setattr(replica, "propose", last)
    answers = submit(bench, *(commit_request(GROUP, {0: offset}) for offset in (1, 2, 3)))
    replica.commit()
    assert codes(answers[0]) == [0, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2]
    assert len(entries(bench)) == 1
    assert bench.groups.counters.refused == 2


def test_without_room_all_are_refused_at_once(bench: Bench) -> None:
    bench.log(bench.groups).can_append = False
    answers = submit(bench, commit_request(GROUP, {0: 1}), commit_request(GROUP, {0: 2}))
    assert codes(answers[0]) == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert entries(bench) == []
    assert bench.groups.counters.requests >= 2


def test_a_deposed_leader_answers_each_once(bench: Bench) -> None:
    answers = submit(bench, commit_request(GROUP, {0: 1}), commit_request(GROUP, {0: 2}))
    bench.groups.deposed("another leader")
    assert codes(answers[0]) == [ErrorCode.NOT_COORDINATOR] * 2
    assert len(answers) == 1
    assert len(bench.groups.pending_replies) == 0


def test_a_run_that_waits_too_long_is_refused_and_counted(bench: Bench) -> None:
    answers = submit(bench, commit_request(GROUP, {0: 1}), commit_request(GROUP, {0: 2}))
    bench.later(6_000)
    assert codes(answers[0]) == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert bench.groups.counters.replies_expired == 2


def test_a_power_failure_takes_back_nothing_that_was_answered() -> None:
    sim = SimNode(host_options={"sync_ms": 30.0}, num_shards=1)
    answered: list[Any] = []

    def answer(responses: Any) -> None:
        answered.append((codes(responses), sim.machine.disk.crash(Crash.LOST)))

    run = [commit_request(GROUP, {partition: 100 + partition}) for partition in range(12)]
    sim.machine.host.call_soon(sim.node.submit_run, ApiKey.OFFSET_COMMIT, 9, run, ClientInfo(), answer)
    sim.world.run_for(500)
    ((found, disk),) = answered
    assert found == [0] * 12
    sim.machine.kill()
    sim.machine.disk = disk
    sim.reboot()
    assert sim.fetch(sim.client("tool"), GROUP) == {partition: 100 + partition for partition in range(12)}


COMMITTERS = [("", -1), ("m1", 1), ("m1", 0), ("m1", 9), ("stranger", 3)]
"""Member ids and epochs: nobody, a member, two that it does not have, somebody else."""

COMMITS = st.lists(
    st.tuples(
        st.sampled_from(COMMITTERS),
        st.integers(-1, 13),
        st.integers(0, 5),
        st.sampled_from(["", "x" * 5_000]),
    ),
    min_size=2,
    max_size=8,
)


@settings(max_examples=40, deadline=None)
@given(COMMITS, st.booleans())
def test_a_run_is_decided_like_the_same_commits_one_by_one(
    asked: list[tuple[tuple[str, int], int, int, str]], has_member: bool
) -> None:
    """The same responses, records and causes, and the log leads to the same state."""
    outcomes = []
    for is_run in (True, False):
        sim = SimNode(num_shards=1)
        if has_member:
            sim.consumer("m1", GROUP).heartbeat()
        runtime, responses = sim.node.shards[0], []
        before = runtime.replica.last_index
        run = []
        for (member_id, epoch), partition, offset, metadata in asked:
            request = commit_request(GROUP, {partition: offset}, member_id=member_id, epoch=epoch)
            request.topics[0].partitions[0].committed_metadata = metadata
            run.append(request)
        if is_run:
            sim.machine.host.call_soon(
                sim.node.submit_run, ApiKey.OFFSET_COMMIT, 9, run, ClientInfo(), responses.extend
            )
        else:
            for request in run:
                pending = PendingReply(ApiKey.OFFSET_COMMIT, 9, request, responses.append)
                sim.machine.host.call_soon(runtime.requests.submit, pending, ClientInfo())
        sim.world.run_for(100)
        log = [frame.body for frame in frames_in(runtime.replica.log.read(before + 1, 1 << 20))]
        assert replayed(runtime, runtime.replica.last_index).state_hash == runtime.machine.state_hash
        outcomes.append(([encode_response(ApiKey.OFFSET_COMMIT, 9, 0, one) for one in responses], log))
    assert outcomes[0] == outcomes[1]
