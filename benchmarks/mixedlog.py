"""A long log that looks like life, written to a real directory: many groups, commits, churn, failovers.

Four records in five are offset commits. The others are what groups write while members come, go and are
fenced: epochs, targets, and each member on its way to its target, giving up before others take. New members
are new ids, as with real clients, so the ids in a log grow with its length; groups, members at a time and
offsets do not. Segments are sealed and indexed as a node does it, and a snapshot is kept every so often.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from raftlog.archive import ARCHIVE
from raftlog.chain import GENESIS
from raftlog.directory import TERM_FILE, TERM_KIND, NodeIdentity, format_node, shard_name
from raftlog.files import OsFiles, join
from raftlog.frames import encode_frame
from raftlog.indexing import build_index
from raftlog.kept import kept_path
from raftlog.machine import SnapshotHeader
from raftlog.metafile import write_meta
from raftlog.segments import LogIdentity, encode_header, index_name, log_name
from raftlog.settings import CHAIN_STRIDE
from raftlog.snapshots import write_snapshot
from records import (
    Cause,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    Expiry,
    MemberState,
    RawRecord,
    Reason,
    ReasonKind,
    Record,
    RecordType,
    Ref,
    Stamped,
    TermStartKey,
    TermStartValue,
    TermWhy,
    TopicKey,
    TopicMetadata,
    TopicPartitions,
    TopicValue,
    Trigger,
    encode_entry,
    encode_offset_commit,
    encode_record,
    offset_commit_key,
)
from records.ids import METADATA_SHARD

GROUPS = 2000
MEMBERS = 4
PARTITIONS = 12
COMMITTED_AT_ONCE = (1, 3, 3, 10)
COMMITS_SHARE = 0.8
ENTRIES_PER_TERM = 100_000
ENTRY_MS = 3
START_MS = 1_772_366_400_000
TOPIC_ID = bytes(range(16))
SEGMENT_BYTES = 64 << 20
"""As a node's default."""
SNAPSHOT_RECORDS = 500_000

Step = tuple[Cause, list[Record]]


Share = frozenset[int]
NOTHING: Share = frozenset()


@dataclass(slots=True)
class _Member:
    epoch: int = 0
    assigned: Share = NOTHING
    pending: Share = NOTHING


@dataclass(slots=True)
class _Group:
    """A group as the generator knows it."""

    group_id: str
    epoch: int = 0
    joined: int = 0
    members: dict[str, _Member] = field(default_factory=dict)
    target: dict[str, Share] = field(default_factory=dict)
    offsets: list[bytes] = field(default_factory=list)

    def join(self, rng: random.Random) -> Step:
        """A member comes, under a new id."""
        member_id = f"{rng.getrandbits(128):032x}"
        self.joined += 1
        self.members[member_id] = _Member()
        value = ConsumerGroupMemberMetadataValue(
            client_id=f"app-{self.joined % 7}",
            client_host="/10.0.0.7",
            subscribed_topic_names=("orders",),
            rebalance_timeout_ms=300_000,
        )
        records = [Record(ConsumerGroupMemberMetadataKey(**self._key(member_id)), value)]
        cause = Cause(
            trigger=Trigger.MEMBER_JOINED,
            member_id=member_id,
            reasons=(Reason(ReasonKind.MEMBER_JOINED, member_id),),
            refs=(Ref(METADATA_SHARD, 1),),
        )
        return cause, [*records, *self._retarget(first=self.epoch == 0)]

    def lose(self, rng: random.Random, now_ms: int) -> Step:
        """A member leaves, or is not heard any more."""
        member_id = rng.choice(list(self.members))
        del self.members[member_id]
        records = [
            Record(kind(**self._key(member_id)), None)
            for kind in (
                ConsumerGroupCurrentMemberAssignmentKey,
                ConsumerGroupTargetAssignmentMemberKey,
                ConsumerGroupMemberMetadataKey,
            )
        ]
        self.target.pop(member_id, None)
        kind, trigger, expiries = ReasonKind.MEMBER_LEFT, Trigger.MEMBER_LEFT, ()
        if rng.random() < 0.5:
            kind, trigger = ReasonKind.SESSION_EXPIRED, Trigger.SESSION_EXPIRED
            expiries = (Expiry(member_id, 45_000, now_ms - 45_000, now_ms - 45_000, now_ms),)
        cause = Cause(
            trigger=trigger, member_id=member_id, reasons=(Reason(kind, member_id),), expiries=expiries
        )
        return cause, [*records, *self._retarget()]

    def _key(self, member_id: str) -> dict[str, str]:
        return {"group_id": self.group_id, "member_id": member_id}

    def settle(self) -> Step | None:
        """The next step of a member on its way to its target: all are told, then give up, then take."""
        for member_id, member in self.members.items():
            surplus = member.assigned - self.target[member_id]
            if surplus:
                member.assigned, member.pending = member.assigned - surplus, member.pending | surplus
                return self._current(member_id, Trigger.HEARTBEAT, MemberState.UNREVOKED_PARTITIONS)
        for member_id, member in self.members.items():
            if member.pending:
                member.pending, member.epoch = NOTHING, self.epoch
                is_done = member.assigned == self.target[member_id]
                state = MemberState.STABLE if is_done else MemberState.UNRELEASED_PARTITIONS
                return self._current(member_id, Trigger.MEMBER_ACKED, state)
        for member_id, member in self.members.items():
            if (member.epoch, member.assigned) != (self.epoch, self.target[member_id]):
                member.epoch, member.assigned = self.epoch, self.target[member_id]
                return self._current(member_id, Trigger.HEARTBEAT, MemberState.STABLE)
        return None

    def _retarget(self, *, first: bool = False) -> list[Record]:
        """The records of a new epoch, which has a target at once."""
        self.epoch += 1
        shares = {
            member_id: frozenset(range(place, PARTITIONS, len(self.members)))
            for place, member_id in enumerate(self.members)
        }
        changed = {one: share for one, share in shares.items() if self.target.get(one) != share}
        self.target = shares
        group = {"group_id": self.group_id}
        topic = TopicMetadata(topic_id=TOPIC_ID, topic_name="orders", num_partitions=PARTITIONS)
        value = ConsumerGroupPartitionMetadataValue(topics=(topic,), catalog_version=1)
        return [
            *([Record(ConsumerGroupPartitionMetadataKey(**group), value)] if first else ()),
            Record(ConsumerGroupMetadataKey(**group), ConsumerGroupMetadataValue(epoch=self.epoch)),
            *(
                Record(
                    ConsumerGroupTargetAssignmentMemberKey(**self._key(one)),
                    ConsumerGroupTargetAssignmentMemberValue(
                        topic_partitions=_parts(share), assignment_epoch=self.epoch
                    ),
                )
                for one, share in changed.items()
            ),
            Record(
                ConsumerGroupTargetAssignmentMetadataKey(**group),
                ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=self.epoch),
            ),
        ]

    def _current(self, member_id: str, trigger: Trigger, state: MemberState) -> Step:
        member = self.members[member_id]
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=max(member.epoch - 1, 0),
            state=state,
            assigned_partitions=_parts(member.assigned),
            partitions_pending_revocation=_parts(member.pending),
        )
        record = Record(ConsumerGroupCurrentMemberAssignmentKey(**self._key(member_id)), value)
        return Cause(trigger=trigger, member_id=member_id, member_epoch=member.epoch), [record]


def _parts(partitions: Share) -> tuple[TopicPartitions, ...]:
    return (TopicPartitions(topic_id=TOPIC_ID, partitions=tuple(sorted(partitions))),) if partitions else ()


def group_name(number: int) -> str:
    """The id of a group of the log; that of 0 is in every log, and as busy as any other."""
    return f"orders-service-{number:05d}"


def entries(groups: int, rng: random.Random) -> Iterator[tuple[Cause, list[RawRecord]]]:
    """The decisions of a shard, for ever."""
    all_groups = [_Group(group_name(number)) for number in range(groups)]
    for group in all_groups:
        group.offsets = [offset_commit_key(group.group_id, "orders", number) for number in range(PARTITIONS)]
    written = of_groups = count = term = 0
    while True:
        if count % ENTRIES_PER_TERM == 0:
            term += 1
            step: tuple[Cause, list[RawRecord]] = _term_start(term)
        elif of_groups < written * (1 - COMMITS_SHARE):
            cause, records = _next_of(rng.choice(all_groups), rng, START_MS + count * ENTRY_MS)
            step = cause, [encode_record(record) for record in records]
            of_groups += len(records)
        else:
            step = _commit(rng.choice(all_groups), rng, count)
        count += 1
        written += len(step[1])
        yield step


def _next_of(group: _Group, rng: random.Random, now_ms: int) -> Step:
    step = group.settle()
    if step is not None:
        return step
    if len(group.members) < MEMBERS:
        return group.join(rng)
    return group.lose(rng, now_ms)


def _commit(group: _Group, rng: random.Random, count: int) -> tuple[Cause, list[RawRecord]]:
    size = rng.choice(COMMITTED_AT_ONCE)
    first = rng.randrange(PARTITIONS - size + 1)
    cause = Cause(trigger=Trigger.OFFSETS_COMMITTED, member_id=next(iter(group.members), ""))
    return cause, [
        encode_offset_commit(key, count, 0, "", START_MS + count * ENTRY_MS, -1, TOPIC_ID)
        for key in group.offsets[first : first + size]
    ]


def _term_start(term: int) -> tuple[Cause, list[RawRecord]]:
    value = TermStartValue(
        term=term,
        node_id=term % 3,
        why=TermWhy.START if term == 1 else TermWhy.EXPIRY,
        previous_leader=(term - 1) % 3 if term > 1 else -1,
        incarnation="bench",
        boot_id="bench",
    )
    return Cause(trigger=Trigger.TERM_OPENED), [encode_record(Record(TermStartKey(), value))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What there is of a log."""

    records: int
    entries: int
    last_ms: int
    snapshots: tuple[int, ...]
    """Their last indexes, rising."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Written:
        return cls(**{**said, "snapshots": tuple(said["snapshots"])})


class _Segments:
    """The files of one shard: frames are added, full segments sealed, snapshots of everything kept."""

    def __init__(self, home: str, identity: LogIdentity, segment_bytes: int) -> None:
        self._files = OsFiles()
        self._home = home
        self._identity = identity
        self._segment_bytes = segment_bytes
        self._chain = GENESIS
        self._first = 1
        self._data = bytearray(encode_header(identity, 1))
        self._newest: dict[tuple[int, bytes], Stamped] = {}
        self.last_index = 0
        self.last_ms = START_MS

    def add(self, term: int, cause: Cause, raws: list[RawRecord]) -> None:
        self.last_index += 1
        self.last_ms = START_MS + self.last_index * ENTRY_MS
        body = encode_entry(cause, raws)
        self._data += encode_frame(self.last_index, term, self.last_index - 1, self.last_ms, len(raws), body)
        for raw in raws:
            self._newest.pop((raw.type, raw.key), None)
            self._newest[raw.type, raw.key] = Stamped(self.last_index, self.last_ms, raw)
        if len(self._data) >= self._segment_bytes and self.last_index % CHAIN_STRIDE == 0:
            self.write(seal=True)

    def write(self, *, seal: bool = False) -> None:
        """The segment so far; a sealed one gets its index, and the next one begins."""
        path = join(self._home, log_name(self._first))
        with open(path, "wb") as file:
            file.write(self._data)
        if not seal:
            return
        sealed, index = build_index(bytes(self._data), path, self._chain)
        with open(join(self._home, index_name(self._first)), "wb") as file:
            file.write(index)
        self._chain, self._first = sealed.chain_after, self.last_index + 1
        self._data = bytearray(encode_header(self._identity, self._first))

    def snapshot(self, term: int) -> int:
        """Keeps the state as it is now; its last index."""
        for slot in [slot for slot, one in self._newest.items() if one.record.value is None]:
            del self._newest[slot]
        header = SnapshotHeader(
            cluster_id=self._identity.cluster_id,
            shard=self._identity.shard,
            num_shards=self._identity.num_shards,
            last_index=self.last_index,
            last_term=term,
            last_timestamp_ms=self.last_ms,
            chain_hash=bytes(16),
            state_hash=0,
            catalog_version=1,
            record_count=len(self._newest),
        )
        path = kept_path(self._home, self.last_index)
        write_snapshot(self._files, path, header, self._newest.values())
        return self.last_index


def write_log(
    path: str,
    records: int,
    *,
    groups: int = GROUPS,
    segment_bytes: int = SEGMENT_BYTES,
    snapshot_records: int = SNAPSHOT_RECORDS,
    seed: int = 1,
) -> Written:
    """A node's directory with one group shard of so many records; equal arguments make equal bytes."""
    files = OsFiles()
    identity = NodeIdentity(cluster_id="bench", node_id=1, incarnation="bench", num_shards=1)
    format_node(files, path, identity)
    for shard in identity.shards:
        write_meta(files, join(path, shard_name(shard), TERM_FILE), TERM_KIND, 1, None)
    catalog = _Segments(join(path, shard_name(METADATA_SHARD)), identity.log(METADATA_SHARD), segment_bytes)
    topic = Record(TopicKey(name="orders"), TopicValue(num_partitions=PARTITIONS, topic_id=TOPIC_ID))
    catalog.add(1, Cause(trigger=Trigger.TOPIC_CREATED, detail="orders"), [encode_record(topic)])
    catalog.write()
    home = join(path, shard_name(0))
    if not files.is_dir(join(home, ARCHIVE)):
        files.mkdir(join(home, ARCHIVE))
    log = _Segments(home, identity.log(0), segment_bytes)
    term = written = 0
    snapshots: list[int] = []
    for cause, raws in entries(groups, random.Random(seed)):
        term += raws[0].type == RecordType.TERM_START
        log.add(term, cause, raws)
        before, written = written, written + len(raws)
        if before // snapshot_records != written // snapshot_records:
            snapshots.append(log.snapshot(term))
        if written >= records:
            break
    log.write()
    return Written(records=written, entries=log.last_index, last_ms=log.last_ms, snapshots=tuple(snapshots))
