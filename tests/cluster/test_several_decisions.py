"""A request too large for one decision takes several entries, has one answer, and lets others in between."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.node_info import ClientInfo
from cluster.runtime.pending_replies import PendingReply
from coordinator.limits import Limits
from coordinator.shard import GroupShard
from records import METADATA_SHARD, Trigger
from records.entry import decode_entry
from tests.cluster.fakes import Bench
from tests.support.requests import commit_request
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.list_groups import ListGroupsRequest

DELETE = DeleteGroupsRequest(groups_names=["billing", "nowhere"])
TIMEOUT_MS = 5_000


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A leader of a shard that removes 3 offsets in one decision; group `billing` has 7."""
    bench = Bench(monkeypatch, is_alone=True)
    bench.log(bench.metadata).lead()
    topic = CreatableTopic(name="orders", num_partitions=7, replication_factor=1)
    bench.ask(CreateTopicsRequest(topics=[topic]), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    bench.log(bench.metadata).commit()
    bench.groups.machine = GroupShard(0, Limits(removal_bytes_max=1_000))
    bench.log(bench.groups).lead()
    bench.ask(commit_request("billing", dict.fromkeys(range(7), 1)), ApiKey.OFFSET_COMMIT, 9)
    bench.log(bench.groups).commit()
    return bench


def delete(bench: Bench) -> list[Any]:
    return bench.ask(DELETE, ApiKey.DELETE_GROUPS, 2)


def begin(bench: Bench) -> list[Any]:
    """Make the first decision while the log has no room for another."""
    answers: list[Any] = []
    runtime, replica = bench.groups, bench.log(bench.groups)
    pending = PendingReply(ApiKey.DELETE_GROUPS, 2, DELETE, answers.append)
    bench.host.call_soon(runtime.requests.submit, pending, ClientInfo())
    bench.host.call_soon(setattr, replica, "can_append", False)
    bench.later(1)
    assert (deletions(bench), answers) == ([3], [])
    return answers


def deletions(bench: Bench) -> list[int]:
    """Return the number of records in each entry of the deletion."""
    entries = [decode_entry(body) for body in bench.log(bench.groups).bodies]
    return [len(list(e.records)) for e in entries if e.cause.trigger == Trigger.GROUP_DELETED]


def test_one_answer_when_all_of_it_is_committed(bench: Bench) -> None:
    answers = delete(bench)
    bench.later(100)
    assert deletions(bench) == [3, 3, 1]
    replica = bench.log(bench.groups)
    replica.commit(replica.last_index - 1)
    assert answers == []
    replica.commit()
    (answer,) = answers
    assert [(r.group_id, r.error_code) for r in answer.results] == [
        ("billing", 0), ("nowhere", ErrorCode.GROUP_ID_NOT_FOUND),
    ]  # fmt: skip


def test_it_waits_while_the_log_has_no_room(bench: Bench) -> None:
    answers = begin(bench)
    replica = bench.log(bench.groups)
    bench.later(TIMEOUT_MS / 2)
    assert deletions(bench) == [3]
    replica.can_append = True
    bench.later(200)
    assert deletions(bench) == [3, 3, 1]
    replica.commit()
    assert [r.error_code for r in answers[0].results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]


def test_it_does_not_wait_for_ever(bench: Bench) -> None:
    answers = begin(bench)
    replica = bench.log(bench.groups)
    bench.later(TIMEOUT_MS + 100)
    assert [r.error_code for r in answers[0].results] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    replica.can_append = True
    bench.later(TIMEOUT_MS)
    assert len(answers) == 1
    assert deletions(bench) == [3], "nobody waits for the rest"


def test_a_leader_that_loses_the_lead_in_between_answers_once_and_stops(bench: Bench) -> None:
    answers = begin(bench)
    replica = bench.log(bench.groups)
    written = len(replica.bodies)
    replica.lose(leader_id=None)
    assert [r.error_code for r in answers[0].results] == [ErrorCode.NOT_COORDINATOR] * 2
    replica.can_append = True
    bench.later(TIMEOUT_MS)
    assert (len(answers), len(replica.bodies)) == (1, written)


def test_others_have_their_turn_in_between(bench: Bench) -> None:
    """A request that arrives during a deletion is decided before its end, from the state at that moment."""
    seen: list[int] = []
    host, runtime = bench.host, bench.groups

    def listed(answer: Any) -> None:
        seen.append(len(deletions(bench)))

    pending = PendingReply(ApiKey.DELETE_GROUPS, 2, DELETE, lambda answer: None)
    host.call_soon(runtime.requests.submit, pending, ClientInfo())
    for _ in range(2):
        host.call_soon(_ask_list, bench, listed)
    bench.later(100)
    bench.log(runtime).commit()
    assert len(seen) == 2
    assert deletions(bench) == [3, 3, 1]


def _ask_list(bench: Bench, reply: Any) -> None:
    assert len(deletions(bench)) < 3, "it is not over yet"
    bench.groups.requests.submit(
        PendingReply(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(), reply), ClientInfo()
    )
