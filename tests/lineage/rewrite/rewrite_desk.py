"""A coordinator of seed 000 that a test asks, one request after another."""

from __future__ import annotations

from typing import Any

from lineage.rewrite.bounds import RewriteSettings
from lineage.rewrite.coordinator import RewriteCoordinator
from lineage.rewrite.groups import Now, RewriteOrigin
from lineage.rewrite.messages import (
    CommitPartition,
    CommitTopic,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from tests.support.rewrite_playing import VARIANTS

from .rewrite_play import RewriteLog


class Desk:
    """A coordinator that answers requests at once, over bytes."""

    def __init__(
        self, variant: str, state: str = "Ready", others: Any = None, topics: Any = None, **settings: Any
    ) -> None:
        self.log, self.at_ms, self.ids = RewriteLog(), 0.0, 0
        self.topics = topics or {"t": (bytes(15) + b"t", 4)}
        self.coordinator: RewriteCoordinator = VARIANTS[variant][0](
            self.log.groups, self.topics, self.fresh_id, lambda _: None, RewriteSettings(**settings), others
        )
        if state != "Down":
            self.coordinator.elected()
        if state == "Ready":
            self.coordinator.loaded(self.now)

    @property
    def now(self) -> Now:
        return Now(self.at_ms, 1_000_000 + int(self.at_ms))

    def fresh_id(self) -> str:
        self.ids += 1
        return str(self.ids)

    def ask(self, request: Any) -> Any:
        """The answer to a request; None if it waits."""
        header, decoded = decode_request(encode_request(7, "c", request)[4:])
        assert decoded == request
        mine = RewriteOrigin("connection", header)
        found = None
        for result in self.coordinator.handle(decoded, mine, self.now):
            if result.cause is not None:
                self.log.append(result.cause, result.records)
            for origin, answer in result.answers:
                if origin is mine:
                    number, found = decode_response(request, encode_response(header, answer)[4:])
                    assert number == 7
        return found

    def join(self, consumer_id: str = "", **fields: Any) -> Any:
        given = {"session_timeout": 1_000, "topics": ["t"], "partition_assignment_strategy": "range"} | fields
        return self.ask(JoinGroupRequest(group_id="g", consumer_id=consumer_id, **given))

    def beat(self, consumer_id: str, generation: int = 1) -> int:
        request = HeartbeatRequest(group_id="g", group_generation_id=generation, consumer_id=consumer_id)
        return self.ask(request).error_code

    def commit(self, consumer_id: str, generation: int = 1, **fields: Any) -> int:
        one = CommitPartition(**({"partition": 0, "offset": 5} | fields))
        topics = [CommitTopic(topic="t", partitions=[one])]
        answer = self.ask(
            OffsetCommitRequest(
                group_id="g", group_generation_id=generation, consumer_id=consumer_id, topics=topics
            )
        )
        return answer.topics[0].partitions[0].error_code
