"""`replay`: the state of a shard at any index or moment, rebuilt by the coordinator's own `apply`.

There is one way to build a state, live and here: records, in order, through
`coordinator.state.projection.Projection.apply` (`CatalogShard.apply` for the metadata shard). A replay starts
at the newest usable snapshot, otherwise at the first entry, and skips records that are overwritten later. All
ways must produce the same state, which ``verify`` checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from coordinator.catalog.shard import CatalogShard
from coordinator.state.model import Group, Member
from coordinator.state.projection import Projection
from coordinator.state.reconcile import AWAY_EPOCH
from coordinator.state.statehash import STALE_IN_REPLAY_MAX
from coordinator.transactions import TransactionsView
from history.protocols import CLASSIC, CONSUMER, OLD, epoch_noun
from history.reading.catalog import CatalogHistory
from history.reading.groups import GROUPS_NAMED_MAX, groups_of
from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.reading.source import Basis, LogGap, NothingToRead, SnapshotLike, Walk
from history.render import LOCAL, TimeStyle, ranges, sentence_list
from history.state.embedded import assigned, subscribed
from history.state.old_groups import OLD_KEYS, protocol_of, told_alone
from history.words import shard_name, state_name
from raftlog.storage.frames import Frame
from records import ClassicMember, RawRecord, TransactionState, iter_records
from records.ids import METADATA_SHARD, topic_id_text
from wire.embedded import CONSUMER as CONSUMERS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedMember:
    """A member at one index, with partitions by topic name.

    For a member of a classic group, the epoch is the generation, and the state is empty: only the group has
    one.
    """

    member_id: str
    name: str
    """``m2``; the member id if the log, of an older release, gives it no number."""
    client_id: str
    client_host: str
    instance_id: str | None
    rack_id: str | None
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    epoch: int
    previous_epoch: int
    state: str
    assigned: dict[str, tuple[int, ...]]
    pending_revocation: dict[str, tuple[int, ...]]
    target: dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetState:
    """A committed offset."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingOffsetState:
    """An offset that counts once its transaction commits, unless it is superseded."""

    topic: str
    partition: int
    offset: int
    producer_id: int
    producer_epoch: int
    transaction: int
    """The index of the metadata shard's entry that began the transaction."""
    is_superseded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedTransaction:
    """A transactional id, its producer and its newest transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    transaction: int
    partitions: dict[str, tuple[int, ...]]
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedGroup:
    """A group at one index; ``kind`` is consumer, classic, push, rewrite, or simple (offsets only).

    The epochs of a classic group, or of one of the rewrite design, are its generation; those of a push group
    its round."""

    group_id: str
    kind: str
    state: str
    epoch: int
    assignment_epoch: int
    topics: dict[str, int]
    """Subscribed topic -> number of partitions, as last seen by the group."""
    members: tuple[ReplayedMember, ...]
    offsets: tuple[OffsetState, ...]
    pending_offsets: tuple[PendingOffsetState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic of the catalog."""

    name: str
    topic_id: str
    num_partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedShard:
    """A shard after entry ``index``."""

    shard: int
    index: int
    timestamp_ms: int
    term: int
    state_hash: int
    groups: tuple[ReplayedGroup, ...]
    topics: tuple[TopicState, ...]
    basis: Basis
    transactions: tuple[ReplayedTransaction, ...] = ()


ONE_RECORD = {CLASSIC: "generation", **{protocol: epoch_noun(protocol) for protocol in OLD}}
"""The kinds of groups that are one record, and what each calls its epoch."""


class ShardReplay:
    """One shard's projection, advanced by the items of a `Walk`."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.index = 0
        self.term = 0
        self.projection = _empty(shard)

    @property
    def state_hash(self) -> int:
        return self.projection.state_hash

    def run(self, walk: Walk) -> ShardReplay:
        """Advance to the state at the end of the walk.

        A state is a function of the newest record of each key (`coordinator.state.model`), so only those are
        applied, in the order in which they were written. A log that overwrites its keys again and again thus
        costs little more than reading it. `take` applies every record; ``verify`` compares the two.
        """
        newest: dict[tuple[int, bytes], RawRecord] = {}
        forget = newest.pop
        for item in walk:
            if type(item) is Frame:
                for raw in iter_records(item.body):
                    slot = (raw[0], raw[2])
                    forget(slot, None)  # moves the record to the end of the dict
                    newest[slot] = raw
                self.index, self.term = item.index, item.term
            elif not isinstance(item, LogGap | Frame):
                newest.clear()
                self.load(item)
        self.take(self.index, self.term, newest.values())
        return self

    def take(self, index: int, term: int, raws: Iterable[RawRecord]) -> None:
        """Apply records as of one index."""
        self.projection.apply_all(raws, index)
        self.index, self.term = index, term

    def load(self, snapshot: SnapshotLike) -> None:
        """Start over from a snapshot."""
        self.projection = _empty(self.shard)
        self.index, self.term = snapshot.header.last_index, snapshot.header.last_term
        self.projection.apply_all(snapshot.records, self.index)


def _empty(shard: int) -> Projection | CatalogShard:
    return CatalogShard() if shard == METADATA_SHARD else Projection(STALE_IN_REPLAY_MAX)


def replay(
    path: str | NodeLog,
    *,
    shard: int | None = None,
    group: str | None = None,
    at_index: int | None = None,
    at_ms: int | None = None,
) -> ReplayedShard:
    """Return the state of one shard after an index or moment; by default at the end.

    With ``group``, the shard is that of the group and the state holds only this group. ``at_ms`` is epoch
    milliseconds and means the last entry at or before it. Raises `NothingToRead` if the shard, the group or
    the index does not exist.
    """
    node = open_node(path)
    if shard is None:
        if group is None:
            raise NothingToRead("give a shard or a group: an index belongs to one shard")
        shard = node.shard_of_group(group)
    return _state_of(node, shard, group, at_index, at_ms)


def replay_all(path: str | NodeLog, *, at_ms: int | None = None) -> tuple[ReplayedShard, ...]:
    """The state of every shard of a directory at one moment, or at the end."""
    node = open_node(path)
    return tuple(_state_of(node, shard, None, None, at_ms) for shard in node.shards)


def _others(node: NodeLog, group: str) -> str:
    """Hint for an unknown group: the groups that ever existed; empty if it was one of them."""
    known = groups_of(node)
    names = sentence_list(known[:GROUPS_NAMED_MAX])
    return "" if group in known or not known else f"; ever in this log: {names}"


def _state_of(
    node: NodeLog, shard: int, group: str | None, at_index: int | None, at_ms: int | None
) -> ReplayedShard:
    walk = Walk(shard, node.reader(shard), to_index=at_index, to_ms=at_ms, from_snapshot=True)
    run = ShardReplay(shard).run(walk)
    basis = walk.basis
    if at_index is not None and run.index < at_index:
        name = shard_name(shard)
        raise NothingToRead(
            f"{name} cannot be replayed to index {at_index}, only to {run.index} ({basis.words()})"
        )
    names = node.catalog()
    groups: tuple[ReplayedGroup, ...] = ()
    topics: tuple[TopicState, ...] = ()
    transactions: tuple[ReplayedTransaction, ...] = ()
    if isinstance(run.projection, Projection):
        groups = _groups(run.projection, names, group, basis.last_timestamp_ms)
        if group is not None and not groups:
            when = f"at index {run.index} of" if run.index else "before the first entry of"
            begins = "" if basis.begins_index is None else f"; {_begins(basis, LOCAL)}"
            said = f"no group {group!r} {when} {shard_name(shard)} ({basis.words()})"
            raise NothingToRead(said + begins + _others(node, group))
    else:
        topics = tuple(
            TopicState(name=t.name, topic_id=topic_id_text(t.topic_id), num_partitions=t.num_partitions)
            for t in run.projection.view.topics()
        )
        transactions = tuple(_transactions(run.projection.view.transactions))
    return ReplayedShard(
        shard=shard,
        index=run.index,
        timestamp_ms=basis.last_timestamp_ms,
        term=run.term,
        state_hash=run.state_hash,
        groups=groups,
        topics=topics,
        basis=basis,
        transactions=transactions,
    )


def _transactions(view: TransactionsView) -> Iterator[ReplayedTransaction]:
    for transactional_id in sorted(view.ids()):
        value = view.of(transactional_id)
        assert value is not None
        yield ReplayedTransaction(
            transactional_id=transactional_id,
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            state=TransactionState(value.state).name,
            transaction=value.began,
            partitions={topic.name: topic.partitions for topic in value.topics},
            groups=tuple(one.group_id for one in value.groups),
        )


def _groups(
    projection: Projection, names: CatalogHistory, only: str | None, at_ms: int
) -> tuple[ReplayedGroup, ...]:
    wanted = (
        {only}
        if only is not None
        else {
            *projection.groups,
            *projection.offsets.group_ids(),
            *projection.pending.group_ids(),
            *(key.group_id for key in projection.old_groups),
        }
    )
    found = (_group(projection, group_id, names, at_ms) for group_id in sorted(wanted))
    return tuple(group for group in found if group is not None)


def _group(projection: Projection, group_id: str, names: CatalogHistory, at_ms: int) -> ReplayedGroup | None:
    group = projection.group(group_id)
    committed = tuple(
        OffsetState(
            topic=one.topic,
            partition=one.partition,
            offset=one.value.offset,
            leader_epoch=one.value.leader_epoch,
            metadata=one.value.metadata,
            commit_timestamp_ms=one.value.commit_timestamp_ms,
        )
        for one in projection.offsets.of_group(group_id)
    )
    pending = tuple(
        PendingOffsetState(
            topic=key.topic,
            partition=key.partition,
            offset=value.offset,
            producer_id=key.producer_id,
            producer_epoch=value.producer_epoch,
            transaction=value.transaction,
            is_superseded=bool(value.superseded),
        )
        for key, value in projection.pending.of_group(group_id)
    )
    old = next((one for key in OLD_KEYS if (one := projection.old_groups.get(key(group_id=group_id)))), None)
    if group is not None:
        kind = CLASSIC if group.classic is not None else CONSUMER
    elif old is not None:
        group, kind = told_alone(group_id, old, lambda name: names.shape(name, at_ms)), protocol_of(old)
    elif committed or pending:
        group, kind = Group(group_id), "simple"
    else:
        return None
    names.learn({topic.topic_name: (topic.topic_id, topic.num_partitions) for topic in group.topics})
    return ReplayedGroup(
        group_id=group_id,
        kind=kind,
        state=group.state.value,
        epoch=group.epoch if group.classic is None else group.classic.generation,
        assignment_epoch=group.assignment_epoch if group.classic is None else group.classic.generation,
        topics={topic.topic_name: topic.num_partitions for topic in group.topics},
        members=tuple(
            sorted(
                _members(group, projection.numbers.of_group(group_id).present, names),
                key=lambda member: member.member_id,
            )
        ),
        offsets=committed,
        pending_offsets=tuple(sorted(pending, key=lambda one: (one.topic, one.partition, one.producer_id))),
    )


def _members(group: Group, numbers: Mapping[str, int], names: CatalogHistory) -> Iterator[ReplayedMember]:
    """The members of a consumer group, or of the newest generation of a classic one."""
    for member in group.joined():
        yield _member(group, member, _name(member.member_id, numbers), names)
    if group.classic is not None:
        is_consumer = group.classic.protocol_type == CONSUMERS
        for one in group.classic.members:
            yield _classic_member(
                one, _name(one.member_id, numbers), group.classic.generation, is_consumer=is_consumer
            )


def _name(member_id: str, numbers: Mapping[str, int]) -> str:
    number = numbers.get(member_id)
    return member_id if number is None else f"m{number}"


def _classic_member(
    member: ClassicMember, name: str, generation: int, *, is_consumer: bool
) -> ReplayedMember:
    """Only consumers' bytes name topics and partitions; those of other kinds of members are their own."""
    topics = subscribed(member) if is_consumer else ()
    owned = assigned(member) if is_consumer else {}
    return ReplayedMember(
        member_id=member.member_id,
        name=name,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.group_instance_id,
        rack_id=None,
        subscribed_topic_names=tuple(sorted(set(topics))),
        subscribed_topic_regex=None,
        epoch=generation,
        previous_epoch=generation,
        state="",
        assigned={topic: tuple(sorted(numbers)) for topic, numbers in owned.items()},
        pending_revocation={},
        target={},
    )


def _member(group: Group, member: Member, name: str, names: CatalogHistory) -> ReplayedMember:
    said, target = member.metadata, group.target.get(member.member_id)
    assert said is not None  # members returned by `joined` have metadata
    current = member.current
    return ReplayedMember(
        member_id=member.member_id,
        name=name,
        client_id=said.client_id,
        client_host=said.client_host,
        instance_id=said.instance_id,
        rack_id=said.rack_id,
        subscribed_topic_names=said.subscribed_topic_names,
        subscribed_topic_regex=said.subscribed_topic_regex,
        epoch=current.epoch,
        previous_epoch=current.previous_epoch,
        state=state_name(current.state),
        assigned={names.name(topic): tuple(sorted(parts)) for topic, parts in current.assigned.items()},
        pending_revocation={
            names.name(topic): tuple(sorted(parts)) for topic, parts in current.pending.items()
        },
        target={names.name(part.topic_id): part.partitions for part in target.topic_partitions}
        if target
        else {},
    )


def state_text(state: ReplayedShard, style: TimeStyle = LOCAL) -> Iterator[str]:
    """The state as lines of text."""
    if state.basis.begins_index is not None:
        yield f"{shard_name(state.shard)} has no entries as old as that: {_begins(state.basis, style)}"
        return
    when = style.full(state.timestamp_ms)
    yield f"{shard_name(state.shard)} after index {state.index}, term {state.term}, {when}"
    yield f"state hash {state.state_hash:016x}"
    yield f"from {state.basis.words()}"
    for topic in state.topics:
        yield f"topic {topic.name}: {topic.num_partitions} partitions, id {topic.topic_id}"
    for one in state.transactions:
        who = f"producer {one.producer_id} at epoch {one.producer_epoch}"
        what = "; ".join(filter(None, (_partitions_text(one.partitions), ", ".join(one.groups))))
        yield f"transactional id {one.transactional_id}: {one.state}, {who}{': ' if what else ''}{what}"
    for group in state.groups:
        yield ""
        yield from _group_text(group)


def _begins(basis: Basis, style: TimeStyle) -> str:
    when = style.full(basis.begins_ms)
    return f"the log, as far as it is kept, begins with entry {basis.begins_index} at {when}"


def _group_text(group: ReplayedGroup) -> Iterator[str]:
    head = f"group {group.group_id} ({group.kind}): {group.state}"
    if group.kind == CONSUMER:
        head += f", epoch {group.epoch}, assignment epoch {group.assignment_epoch}"
    elif group.kind in ONE_RECORD:
        head += f", {ONE_RECORD[group.kind]} {group.epoch}"
    yield head
    for name, count in group.topics.items():
        yield f"  topic {name}: {count} partitions"
    for member in group.members:
        is_away = member.epoch == AWAY_EPOCH
        state = f"away, was {member.state}" if is_away else f"{member.state}, epoch {member.epoch}"
        if group.kind in ONE_RECORD:
            state = f"{ONE_RECORD[group.kind]} {member.epoch}"
        yield f"  member {member_words(member)}: {state}"
        for label, parts in (
            ("owns", member.assigned),
            ("gives up", member.pending_revocation),
            ("target", member.target),
        ):
            if parts and (label != "target" or group.kind == CONSUMER):
                yield f"    {label} {_partitions_text(parts)}"
    for topic in sorted({one.topic for one in group.offsets}):
        shown = ", ".join(f"{one.partition}: {one.offset}" for one in group.offsets if one.topic == topic)
        yield f"  committed {topic} {shown}"
    for pending in group.pending_offsets:
        fate = ", superseded by a later commit" if pending.is_superseded else ""
        yield (
            f"  pending {pending.topic} {pending.partition}: {pending.offset}, in transaction "
            f"{pending.transaction} of producer {pending.producer_id}{fate}"
        )


def member_words(member: ReplayedMember) -> str:
    """``m2 (client app-1, 127.0.0.1, instance i-1, id JTw04yxA)``, as far as it is known."""
    said = [
        f"client {member.client_id}" if member.client_id else "",
        member.client_host.removeprefix("/"),
        f"instance {member.instance_id}" if member.instance_id is not None else "",
        f"id {member.member_id}" if member.name != member.member_id else "",
    ]
    words = ", ".join(filter(None, said))
    return f"{member.name} ({words})" if words else member.name


def _partitions_text(parts: Mapping[str, tuple[int, ...]]) -> str:
    return "; ".join(f"{topic} {ranges(numbers)}" for topic, numbers in sorted(parts.items()))
