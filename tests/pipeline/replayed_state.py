"""The state of groups as plain history replays it, in the columns of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from coordinator.state.model import Group
from coordinator.state.projection import Projection
from history.reading.node import NodeLog
from history.reading.source import Walk
from history.state.replay import ShardReplay
from history.words import state_name
from records.ids import topic_id_text
from tests.pipeline.rows import Row

if TYPE_CHECKING:
    pass


def in_order(row: Row) -> Row:
    for name in ("assigned", "pending", "target"):
        if row[name] is not None:
            pairs = [(one["topic_id"], tuple(sorted(one["partitions"]))) for one in row[name]]
            row[name] = sorted(pair for pair in pairs if pair[1])
    return row


def replayed(log: NodeLog, shard: int, index: int) -> Iterator[Row]:
    """Yield the state as rows, replayed by the coordinator's own code."""
    projection = ShardReplay(shard).run(Walk(shard, log.reader(shard), to_index=index)).projection
    assert isinstance(projection, Projection)
    for group_id in {*projection.groups, *projection.offsets.group_ids()}:
        group, offsets = projection.group(group_id), projection.offsets.of_group(group_id)
        if group is not None or offsets:
            yield _of_group(group_id, group)
        for member in [] if group is None else group.joined():
            current, said = member.current, member.metadata
            target = group.target.get(member.member_id)
            yield _row(
                group_id,
                "member",
                member_id=member.member_id,
                client_id=said.client_id,
                client_host=said.client_host,
                instance_id=said.instance_id,
                epoch=current.epoch,
                previous_epoch=current.previous_epoch,
                member_state=state_name(current.state),
                assigned=_parts(current.assigned),
                pending=_parts(current.pending),
                target=[]
                if target is None
                else _parts({p.topic_id: p.partitions for p in target.topic_partitions}),
            )
        for one in offsets:
            yield _row(
                group_id,
                "offset",
                topic=one.topic,
                partition=one.partition,
                offset=one.value.offset,
                leader_epoch=None if one.value.leader_epoch == -1 else one.value.leader_epoch,
                metadata=one.value.metadata or None,
            )


def _of_group(group_id: str, group: Group | None) -> Row:
    protocol = "simple" if group is None else "consumer" if group.classic is None else "classic"
    group = group or Group(group_id)
    return _row(
        group_id,
        "group",
        protocol=protocol,
        state=group.state.value,
        epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        num_members=len(group.joined()),
    )


def _row(group_id: str, kind: str, **said: Any) -> Row:
    columns = "protocol state epoch assignment_epoch num_members member_id client_id client_host instance_id"
    columns += (
        " previous_epoch member_state assigned pending target topic partition offset leader_epoch metadata"
    )
    return {"group_id": group_id, "kind": kind, **dict.fromkeys(columns.split()), **said}


def _parts(parts: Any) -> list[tuple[str, tuple[int, ...]]]:
    pairs = [(topic_id_text(topic_id), tuple(sorted(partitions))) for topic_id, partitions in parts.items()]
    return sorted(pair for pair in pairs if pair[1])
