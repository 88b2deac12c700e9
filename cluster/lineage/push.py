"""Seed 004 on a port: registered connections, and a `lineage.push` coordinator for each group of each shard.

A connection asks where the coordinator is, registers once, or commits: OffsetCommit is seed 000's, and its
header begins with 8. From Register on the node sends and the consumer answers.

Invariants: what a decision sends leaves when its entry is committed, or, if it has none, when this node was
proven to lead. So a node that was deposed pings nobody, and its consumers look for the new coordinator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Final

from cluster.lineage.connections import FramedConnection, FramedListener
from cluster.lineage.push_shard import PushShard
from cluster.lineage.shard_door import ShardDoor
from cluster.node_info import NodeInfo
from lineage.push.decisions import (
    ConnectionClosed,
    FrameReceived,
    OfferedOffset,
    OffsetsOffered,
    PushDecision,
)
from lineage.push.messages import (
    ELEMENTS_MAX,
    FRAME_BYTES_MAX,
    Broker,
    LookupRequest,
    LookupResponse,
    decode_request,
    frame,
    lookup_response,
)
from lineage.rewrite.messages import (
    OffsetCommitRequest,
    RewriteApi,
    committed_with,
    encode_response,
)
from lineage.rewrite.messages import decode_request as decode_offset_commit
from raftlog.env.host import Host
from records import shard_of
from wire.errors import ErrorCode, MalformedFrame
from wire.protocol import RequestHeader

OFFSET_COMMIT_BYTES_MAX: Final = 1 << 20
"""Bytes of an OffsetCommit: four times those of one for as many partitions as a consumer may have."""
OFFSET_COMMIT_HEAD: Final = RewriteApi.OFFSET_COMMIT.to_bytes(2, "big")


class PushService:
    """The protocol on one node (`connections.FrameService`).

    `locate` names the node that leads a group, `nodes` lists those in contact."""

    name = "the push protocol"
    frame_bytes_max = FRAME_BYTES_MAX

    def __init__(
        self,
        host: Host,
        node_id: int,
        doors: list[ShardDoor],
        locate: Callable[[str], NodeInfo | None],
        nodes: Callable[[], Iterable[NodeInfo]],
    ) -> None:
        self._locate = locate
        self._nodes = nodes
        self._shards = [PushShard(host, node_id, door) for door in doors]
        self._registered: dict[int, tuple[PushShard, str]] = {}
        """Number of a registered connection → its shard and group."""
        self.listener: FramedListener

    # Frames.

    def serve(self, connection: FramedConnection, payload: bytes) -> None:
        if (registered := self._registered.get(connection.number)) is not None:
            shard, group_id = registered
            connection.is_busy = True
            shard.tell(group_id, FrameReceived(connection.number, payload), connection)
        elif payload.startswith(OFFSET_COMMIT_HEAD):
            self._commit(connection, payload)
        elif isinstance(request := decode_request(payload), LookupRequest):
            connection.send(frame(self._where(request.group_id)))
        else:
            shard = self._shard_of(connection, request.group_id)
            self._registered[connection.number] = shard, request.group_id
            connection.is_kept = True
            shard.register(connection, request)

    def _shard_of(self, connection: FramedConnection, group_id: str) -> PushShard:
        number = shard_of(group_id, len(self._shards))
        connection.shards_used |= 1 << number
        return self._shards[number]

    def _where(self, group_id: str) -> LookupResponse:
        brokers = [
            Broker(creator_id=str(node.node_id), id=node.node_id, host=node.kafka_host, port=node.push_port)
            for node in self._nodes()
            if node.push_port
        ]
        if not self._shards[0].settings_of(group_id).topics:
            return LookupResponse(error_code=ErrorCode.INVALID_CONFIG, brokers_info=brokers)
        node = self._locate(group_id)
        return lookup_response(node.node_id if node is not None and node.push_port else None, brokers)

    def _commit(self, connection: FramedConnection, payload: bytes) -> None:
        if len(payload) > OFFSET_COMMIT_BYTES_MAX:
            raise MalformedFrame("OffsetCommit", f"has more than {OFFSET_COMMIT_BYTES_MAX} bytes")
        header, request = decode_offset_commit(payload)
        if not isinstance(request, OffsetCommitRequest) or not request.group_id:
            raise MalformedFrame("group_id", "is empty")
        if sum(len(topic.partitions) for topic in request.topics) > ELEMENTS_MAX:
            raise MalformedFrame("partitions", f"are more than {ELEMENTS_MAX}")
        connection.is_busy = True
        offered = OffsetsOffered(
            consumer_id=request.consumer_id,
            offsets=[
                OfferedOffset(topic.topic, one.partition, one.offset, one.timestamp, one.metadata or "")
                for topic in request.topics
                for one in topic.partitions
            ],
        )
        answer = functools.partial(_answer_commit, connection, header, request)
        self._shard_of(connection, request.group_id).offer(request.group_id, offered, answer)

    def lost(self, connection: FramedConnection) -> None:
        """A consumer that closes its connection leaves its group."""
        if (registered := self._registered.pop(connection.number, None)) is not None:
            shard, group_id = registered
            shard.lost(group_id, ConnectionClosed(connection.number))

    # The node.

    def moved(self, shard: int) -> None:
        """Follow the state of a shard on this node."""
        if self._shards[shard].follow():
            self.listener.close_users_of(shard)

    def topics_changed(self) -> None:
        for shard in self._shards:
            shard.topics_changed()

    def configs_changed(self, group_ids: Iterable[str]) -> None:
        for group_id in group_ids:
            self._shards[shard_of(group_id, len(self._shards))].configs_changed(group_id)

    def resumed(self) -> None:
        """Look at the deadlines again, which have moved."""
        for shard in self._shards:
            shard.arm_all()


def _answer_commit(
    connection: FramedConnection,
    header: RequestHeader,
    request: OffsetCommitRequest,
    decision: PushDecision | ErrorCode | None,
) -> None:
    """Answer an OffsetCommit with the decision's error; None: the outcome is unknown."""
    if decision is None:
        connection.close("unknown outcome")
        return
    error = decision.error if isinstance(decision, PushDecision) else decision
    connection.send(encode_response(header, committed_with(request, error)))
    connection.go_on_serving()
