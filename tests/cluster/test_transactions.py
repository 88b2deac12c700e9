"""Transactions of whole nodes in virtual time: who coordinates them, and what a change of leaders costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from records import LATEST_FORMAT_LEVEL, METADATA_SHARD, TransactionState, shard_of
from tests.report import count_fault
from tests.support.three_nodes import GROUP, ThreeNodes
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from wire.messages.end_txn import EndTxnRequest
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.messages.init_producer_id import InitProducerIdRequest
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

RETRIABLE = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
TRANSACTION = 1


class Nodes(ThreeNodes):
    """Three nodes with a scratch log, and a transactional producer that repeats what was not answered."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        super().__init__(seed, settings={"scratch_log_enable": True} | settings)
        self.producer_id = self.epoch = -1

    @property
    def controller(self) -> int:
        return self.cluster.wait_for_leader(METADATA_SHARD)

    def until_done(self, ask: Callable[[], Any]) -> Any:
        for _ in range(200):
            answer = ask()
            code = getattr(answer, "error_code", None)
            if code is None:
                code = answer.topics[0].partitions[0].error_code
            if code not in RETRIABLE:
                return code, answer
            self.world.run_for(20)
        raise AssertionError("the request never succeeds")

    def init(self, transactional_id: str = "t", timeout_ms: int = 60_000) -> int:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        code, answer = self.until_done(lambda: self.ask(self.controller, ApiKey.INIT_PRODUCER_ID, 4, request))
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(code)

    def add_group(self, group_id: str = GROUP) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id="t", producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group_id
        )
        return int(
            self.until_done(lambda: self.ask(self.controller, ApiKey.ADD_OFFSETS_TO_TXN, 3, request))[0]
        )

    def pending_request(self, offset: int, group_id: str = GROUP, **fields: Any) -> TxnOffsetCommitRequest:
        part = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        return TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="orders", partitions=[part])],
            **fields,
        )

    def pend(self, offset: int, group_id: str = GROUP, **fields: Any) -> int:
        request = self.pending_request(offset, group_id, **fields)
        shard = shard_of(group_id, self.cluster[1].identity.num_shards)
        return int(
            self.until_done(
                lambda: self.ask(self.cluster.wait_for_leader(shard), ApiKey.TXN_OFFSET_COMMIT, 3, request)
            )[0]
        )

    def end(self, *, commits: bool = True) -> int:
        request = EndTxnRequest(
            transactional_id="t",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )
        return int(self.until_done(lambda: self.ask(self.controller, ApiKey.END_TXN, 3, request))[0])

    def fetch(self, group_id: str = GROUP, *, is_stable: bool = True) -> dict[int, int]:
        """Offsets by partition, or errors as negative numbers."""
        asked = OffsetFetchRequestGroup(group_id=group_id, topics=None)
        request = OffsetFetchRequest(groups=[asked], require_stable=is_stable)
        shard = shard_of(group_id, self.cluster[1].identity.num_shards)
        answer = self.ask(self.cluster.wait_for_leader(shard), ApiKey.OFFSET_FETCH, 8, request)
        return {
            part.partition_index: -part.error_code or part.committed_offset
            for topic in answer.groups[0].topics
            for part in topic.partitions
        }

    def state(self) -> TransactionState:
        value = self.cluster[self.controller].node.catalog.transactions.of("t")
        assert value is not None
        return TransactionState(value.state)

    def is_complete(self) -> bool:
        return self.state() in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


def other_group(nodes: Nodes) -> str:
    """A group whose shard another node leads than that of `GROUP`."""
    num_shards = nodes.cluster[1].identity.num_shards
    groups = (f"group-{number}" for number in range(100))
    return next(one for one in groups if nodes.cluster.leader_of(shard_of(one, num_shards)) != nodes.leader)


def test_every_node_names_the_controller_as_coordinator_of_transactions(nodes: Nodes) -> None:
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["t", "u"])
    for node_id in nodes.cluster.machines:
        found = nodes.ask(node_id, ApiKey.FIND_COORDINATOR, 4, request).coordinators
        assert [(one.key, one.node_id) for one in found] == [("t", nodes.controller), ("u", nodes.controller)]


def test_without_a_scratch_log_there_are_no_transactions() -> None:
    nodes = ThreeNodes()
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["t"])
    (found,) = nodes.ask(1, ApiKey.FIND_COORDINATOR, 4, request).coordinators
    assert found.error_code == ErrorCode.INVALID_REQUEST


def test_the_first_transactional_producer_raises_the_format_level(nodes: Nodes) -> None:
    assert nodes.cluster[1].node.format_level == 1
    assert nodes.init() == ErrorCode.NONE
    nodes.cluster.wait_for(
        lambda: all(
            machine.node.format_level == LATEST_FORMAT_LEVEL for machine in nodes.cluster.machines.values()
        )
    )


def test_a_transaction_cannot_begin_while_a_node_is_unknown() -> None:
    nodes = Nodes()
    gone = nodes.cluster.others(nodes.controller)[0]
    nodes.cluster[gone].kill()
    nodes.world.run_for(100)
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
    answer = nodes.ask(nodes.controller, ApiKey.INIT_PRODUCER_ID, 4, request)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    nodes.cluster[gone].boot()
    nodes.cluster.settle()
    assert nodes.init() == ErrorCode.NONE


def test_groups_led_by_different_nodes_are_committed_together(nodes: Nodes) -> None:
    other = other_group(nodes)
    nodes.init()
    for group_id in (GROUP, other):
        assert nodes.add_group(group_id) == ErrorCode.NONE
        assert nodes.pend(7, group_id) == ErrorCode.NONE
        assert nodes.fetch(group_id, is_stable=False) == {}
    began_ms = nodes.world.now_ms
    assert nodes.end() == ErrorCode.NONE
    assert nodes.world.now_ms - began_ms < 500
    assert nodes.is_complete(), "EndTxn waits until the groups have followed"
    assert [nodes.fetch(group_id) for group_id in (GROUP, other)] == [{0: 7}, {0: 7}]
    assert nodes.add_group() == ErrorCode.NONE, "the next transaction begins at once"
    assert nodes.pend(8) == ErrorCode.NONE
    assert nodes.end(commits=False) == ErrorCode.NONE
    assert nodes.fetch() == {0: 7}


@pytest.mark.parametrize("kills", ["metadata", "group", "both"])
@pytest.mark.parametrize("moment", ["added", "pending", "ended"])
@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_survives_its_leaders(kills: str, moment: str, commits: bool) -> None:
    nodes = Nodes()
    group_id = GROUP if kills == "both" else other_group(nodes)
    shard = shard_of(group_id, nodes.cluster[1].identity.num_shards)

    def kill(now: str) -> None:
        if now != moment:
            return
        count_fault("cluster", "leader of a transaction killed")
        if kills == "group" and nodes.cluster.wait_for_leader(shard) != nodes.controller:
            victim = nodes.cluster.wait_for_leader(shard)
        else:
            victim = nodes.controller
        nodes.cluster[victim].kill()
        nodes.world.run_for(5)
        nodes.cluster.wait_for_leader(METADATA_SHARD)
        nodes.cluster.wait_for_leader(shard)

    nodes.init()
    assert nodes.add_group(group_id) == ErrorCode.NONE
    kill("added")
    assert nodes.pend(7, group_id) == ErrorCode.NONE
    kill("pending")
    assert nodes.end(commits=commits) == ErrorCode.NONE
    kill("ended")
    nodes.cluster.wait_for(nodes.is_complete)
    assert nodes.fetch(group_id) == ({0: 7} if commits else {})
    assert nodes.add_group(group_id) == ErrorCode.NONE
    assert nodes.pend(8, group_id) == ErrorCode.NONE
    assert nodes.end() == ErrorCode.NONE
    nodes.cluster.wait_for(nodes.is_complete)
    assert nodes.fetch(group_id) == {0: 8}


def test_a_transaction_times_out_and_its_producer_is_fenced(nodes: Nodes) -> None:
    nodes.init(timeout_ms=5_000)
    nodes.add_group()
    nodes.pend(7)
    assert nodes.fetch(is_stable=False) == {}
    nodes.world.run_for(5_500)
    nodes.cluster.wait_for(nodes.is_complete)
    assert nodes.end() == ErrorCode.PRODUCER_FENCED
    assert nodes.fetch() == {}


def test_a_commit_at_a_node_without_news_of_its_transaction_is_asked_again(nodes: Nodes) -> None:
    """The group's node does not hear from the leader of the metadata shard: it does not know that the group
    was added, and must not say that it was not."""
    group_id = GROUP if nodes.controller != nodes.leader else other_group(nodes)
    leader = nodes.cluster.wait_for_leader(shard_of(group_id, nodes.cluster[1].identity.num_shards))
    nodes.init()
    nodes.world.run_for(200)
    nodes.cluster.cut(nodes.controller, leader)
    assert nodes.add_group(group_id) == ErrorCode.NONE
    answer = nodes.ask(leader, ApiKey.TXN_OFFSET_COMMIT, 3, nodes.pending_request(7, group_id))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    nodes.network.heal_all()
    assert nodes.pend(7, group_id) == ErrorCode.NONE
    assert nodes.end() == ErrorCode.NONE
    nodes.cluster.wait_for(nodes.is_complete)
    assert nodes.fetch(group_id) == {0: 7}


def test_a_foreign_commit_is_refused_for_good_and_soon(nodes: Nodes) -> None:
    nodes.init()
    nodes.add_group()
    nodes.producer_id += 1
    began_ms = nodes.world.now_ms
    assert nodes.pend(7) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert nodes.world.now_ms - began_ms < 500


def test_only_batches_of_an_open_transaction_are_appended(nodes: Nodes) -> None:
    node = nodes.cluster[nodes.controller].node
    nodes.init()
    asked = "t", nodes.producer_id, nodes.epoch, ("orders", 0)
    assert node.transaction_error(*asked) == ErrorCode.INVALID_TXN_STATE
