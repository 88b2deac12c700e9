"""Raw transactional producers that commit offsets of a group and end their transactions when told."""

from __future__ import annotations

import time
from typing import Any

from benchmarks import load
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from wire.messages.end_txn import EndTxnRequest
from wire.messages.init_producer_id import InitProducerIdRequest
from wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

TIMEOUT_MS = 15 * 60_000
RETRY_S, RETRIES = 0.02, 500


class Producer:
    """One producer; all may share a connection."""

    def __init__(self, peer: load.Peer, transactional_id: str) -> None:
        self.peer = peer
        self.transactional_id = transactional_id
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        answer = self._ask(ApiKey.INIT_PRODUCER_ID, 4, request)
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch

    def commit(self, group_id: str, topic: str, partitions: int, offset: int) -> None:
        """Begin a transaction, and commit offsets of the topic's first partitions in it."""
        self._ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, self._request(AddOffsetsToTxnRequest, group_id=group_id))
        parts = [
            TxnOffsetCommitRequestPartition(
                partition_index=number, committed_offset=offset, committed_metadata=""
            )
            for number in range(partitions)
        ]
        topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=parts)]
        request = self._request(TxnOffsetCommitRequest, group_id=group_id, topics=topics)
        self._ask(ApiKey.TXN_OFFSET_COMMIT, 3, request)

    def end(self, *, committed: bool) -> None:
        self._ask(ApiKey.END_TXN, 3, self._request(EndTxnRequest, committed=committed))

    def _request(self, cls: Any, **fields: Any) -> Any:
        return cls(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            **fields,
        )

    def _ask(self, api_key: ApiKey, version: int, request: Any) -> Any:
        """Ask until the shards know of each other's decisions."""
        for _ in range(RETRIES):
            answer = self.peer.ask(api_key, version, request)
            errors = _errors(answer)
            if not errors:
                return answer
            time.sleep(RETRY_S)
        raise RuntimeError(f"{api_key.name}: errors {sorted(errors)}")


def _errors(answer: Any) -> set[str]:
    if hasattr(answer, "error_code"):
        codes = {answer.error_code}
    else:
        codes = {part.error_code for topic in answer.topics for part in topic.partitions}
    return {ErrorCode(code).name for code in codes - {0}}
