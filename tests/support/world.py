"""A coordinator without a cluster: one group shard, the catalog, time that moves when told to, and a log.

`World` is what the runtime is to the shards, with every append checked at once: the log decodes to what was
applied, in Kafka's write order, no partition has two owners, no epoch goes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgpack

from coordinator.api import Context, Decision, Failure, Job, JobKind
from coordinator.assignors import BUILT_IN, PartitionAssignor
from coordinator.assignors.assigning import answer
from coordinator.catalog.shard import CatalogShard
from coordinator.groupconfigs import ConfigsOfGroups, effective
from coordinator.leader_state.classic_groups import ClassicEntry
from coordinator.limits import GroupSettings, Limits
from coordinator.regex.regexrounds import answer_round
from coordinator.shard import FastEntry, GroupShard
from coordinator.state.model import Group, Member
from coordinator.targets.target import subscribed_ids, topic_ids_by_name
from coordinator.topics import new_topic_id
from records import Cause, MemberState, RawRecord, ReasonKind, Stamped, decode_record
from records.entry import decode_entry, encode_entry
from tests.support.write_order import check_write_order
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages import offset_commit, offset_fetch
from wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_topics import DeleteTopicsRequest

WALL_START_MS = 1_700_000_000_000
FIRST_TOPIC = new_topic_id((1).to_bytes(16, "big"), 1)
"""The id of the topic that a world creates first."""

INSTALLED: dict[str, PartitionAssignor] = {assignor.name: assignor for assignor in BUILT_IN}
"""The assignors that a child process finds; user-defined ones are only here."""

CHILDREN: dict[JobKind, Callable[[Any], object]] = {
    JobKind.ASSIGN: lambda asked: unpacked(answer(unpacked(asked), INSTALLED.__getitem__)),
    JobKind.RESOLVE: lambda request: answer_round(request, lambda: 0.0),
}
"""The work of the child process of each kind of job, called in place."""


def unpacked(value: object) -> Any:
    """Return a value as it comes out of a pipe."""
    return msgpack.unpackb(msgpack.packb(value), strict_map_key=False)


TALLY: Counter[tuple[str, str]] = Counter()
"""Occurrences of each (kind, name). The kip848 suite prints it and fails on any that never occurred."""


@dataclass
class Entry:
    index: int
    timestamp_ms: int
    cause: Cause
    records: tuple[RawRecord, ...]

    def typed(self) -> list[Any]:
        return [decode_record(raw) for raw in self.records]

    @property
    def types(self) -> list[int]:
        """Record types in order; a tombstone of type t is −t."""
        return [-raw.type if raw.value is None else raw.type for raw in self.records]


@dataclass
class Settings:
    """A settings view whose values can change."""

    settings: GroupSettings
    configs: ConfigsOfGroups = field(default_factory=ConfigsOfGroups)
    version: int = 1

    @property
    def defaults(self) -> GroupSettings:
        return self.settings

    def for_group(self, group_id: str) -> GroupSettings:
        return effective(self.settings, self.configs.of(group_id))


class LeadLost(Exception):
    """The lead was lost between the decisions of a request; its client does not learn the outcome."""


class World:
    """One shard and the catalog, driven by hand."""

    def __init__(
        self,
        settings: GroupSettings | None = None,
        limits: Limits | None = None,
        assignors: Iterable[PartitionAssignor] = BUILT_IN,
    ) -> None:
        limits = limits or Limits()
        if limits.classic_initial_delay_ms == Limits().classic_initial_delay_ms:
            limits = replace(limits, classic_initial_delay_ms=0)  # groups begin at once unless a test waits
        self.limits = limits
        self.assignors = tuple(assignors)
        self.settings = Settings(settings or GroupSettings())
        self.catalog = CatalogShard(self.limits)
        self.catalog_index = 0
        self.settings.configs = self.catalog.view.configs
        self.shard = GroupShard(0, self.limits, self.assignors)
        self.log: list[Entry] = []
        self.now_ms = 1_000.0
        self.turn = 0
        self.stopwatch: Callable[[], float] = lambda: 0.0
        self._ids = 0
        self._epochs: dict[str, int] = {}
        self._fast: dict[tuple[str, str], tuple[Any, FastEntry | ClassicEntry, Any]] = {}
        """A listener's cache: the request, the permission taken before it, and the reply."""
        self.late_answers: dict[int, Any] = {}
        """Replies to requests that were answered `Later`, by number."""
        self.jobs: list[Job] = []
        """Jobs that have not ended; they end at once unless `holds_jobs`."""
        self.holds_jobs = False
        self.failures: list[Failure] = []
        """Failed work for groups, as reported to the node."""
        self.notices: list[str] = []
        """Lines for the node's log."""
        self.after_entry: list[Callable[[World, Entry], None]] = []
        self.between_decisions: Callable[[], None] = lambda: None
        """Called between the decisions of one request; the lead may be lost there."""
        self.shard.on_ready(self.ctx())

    # Surroundings.

    def ctx(self, **changes: Any) -> Context:
        fields: dict[str, Any] = {
            "monotonic_ms": self.now_ms,
            "wall_ms": WALL_START_MS + int(self.now_ms),
            "next_index": self.next_index,
            "catalog": self.catalog.view,
            "settings": self.settings,
            "fresh_id": self._fresh_id,
            "fresh_uuid": self._fresh_uuid,
            "stopwatch_ms": lambda: self.stopwatch(),
            "turn": self.turn,
            "client_id": "client",
            "client_host": "/127.0.0.1",
        }
        return Context(**(fields | changes))

    @property
    def next_index(self) -> int:
        return self.log[-1].index + 1 if self.log else 1

    def _fresh_id(self) -> str:
        self._ids += 1
        return f"fresh-{self._ids}"

    def _fresh_uuid(self) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(16, "big")

    def configure(self, **changes: Any) -> None:
        """Change settings without notifying the shard."""
        self.settings.settings = replace(self.settings.settings, **changes)
        self.settings.version += 1

    # Requests.

    def handle(self, api_key: ApiKey, version: int, request: object, **changes: Any) -> Any:
        decision = self.shard.handle(api_key, version, request, self.ctx(**changes))
        self._append(decision)
        while decision.continuation is not None:
            shard = self.shard
            self.between_decisions()
            if self.shard is not shard:
                raise LeadLost
            decision = decision.continuation(self.ctx(**changes))
            self._append(decision)
        if decision.error is not None:
            raise decision.error
        return decision.reply

    def _append(self, decision: Decision) -> None:
        self._write(decision)
        self.late_answers.update(decision.answers)
        if decision.failure is not None:
            self.failures.append(decision.failure)
        if decision.notice:
            self.notices.append(decision.notice)
        self.jobs += decision.jobs
        if not self.holds_jobs:
            self.end_jobs()

    def end_jobs(self) -> None:
        """Let the child processes answer, one after another, until none is left."""
        for _ in range(1_000):
            if not self.jobs:
                return
            job = self.jobs[0]
            try:
                result, error = CHILDREN[job.kind](job.request), None
            except Exception as failure:
                result, error = None, repr(failure)
            self.end_job(job, result, error)
        raise AssertionError("jobs do not end")

    def end_job(self, job: Job, result: object = None, error: str | None = None) -> None:
        """End one child process with the result that the test gives."""
        self.jobs.remove(job)
        decision = self.shard.job_ended(job, result, error, self.ctx())
        if decision is not None:
            if decision.error is not None:
                raise decision.error
            self._append(decision)

    def _write(self, decision: Decision) -> None:
        if not decision.records:
            assert decision.cause is None
            return
        assert decision.cause is not None
        body = encode_entry(decision.cause, decision.records)
        decoded = decode_entry(body)
        assert decoded.cause == decision.cause
        entry = Entry(
            self.next_index, WALL_START_MS + int(self.now_ms), decoded.cause, tuple(decoded.records)
        )
        assert entry.records == tuple(decision.records)
        self.log.append(entry)
        assert self.shard.applied_index == entry.index
        for reason in entry.cause.reasons:
            TALLY["reason", ReasonKind(reason.kind).name] += 1
        self._check(entry)

    def work_once(self) -> bool:
        """Take one decision of due work, if any is due."""
        deadline = self.shard.next_deadline_ms()
        decision = None
        if deadline is not None and deadline <= self.now_ms:
            decision = self.shard.next_work(self.ctx())
        if decision is None:
            return False
        if decision.error is not None:
            raise decision.error
        self._append(decision)
        return True

    def work(self, limit: int = 1_000) -> list[Entry]:
        """Run all due work; return the entries that it wrote."""
        before = len(self.log)
        for _ in range(limit):
            if not self.work_once():
                return self.log[before:]
        raise AssertionError("timers do not come to an end")

    def sleep(self, ms: float) -> list[Entry]:
        """Let time pass and run work when it is due; return the entries that it wrote."""
        end_ms = self.now_ms + ms
        before = len(self.log)
        while (deadline := self.shard.next_deadline_ms()) is not None and deadline <= end_ms:
            self.now_ms = max(self.now_ms, deadline)
            if not self.work() and self.shard.next_deadline_ms() == deadline:
                break
        self.now_ms = end_ms
        self.work()
        return self.log[before:]

    def failover(self) -> None:
        """Let another node take over: it has the log and nothing else."""
        self.shard.on_deposed()
        self.shard = self.replayed(len(self.log))
        self.jobs = []
        self.late_answers = {}
        self.shard.on_ready(self.ctx())

    def lead_again(self) -> None:
        """Lead again after another node that wrote nothing; this one has kept its memory."""
        for _ in self.shard.on_deposed():
            pass
        self.jobs = []
        self.shard.on_ready(self.ctx())

    def renew(self) -> None:
        """Start leader state anew, as after a time without any heartbeat; child processes go on."""
        self.shard.on_ready(self.ctx())

    # Topics.

    def admin(self, api_key: ApiKey, version: int, request: object) -> Any:
        self.catalog_index += 1
        decision = self.catalog.handle(api_key, version, request, self.ctx(next_index=self.catalog_index))
        return decision.reply

    def learn(self, *names: str) -> None:
        """Notify the shard of changed topics and schedule the groups that they affect."""
        self.shard.on_catalog_changed(self.ctx(), names)
        while self.shard.groups.catalog_changes:
            self.shard.groups.schedule_affected(self.ctx())

    def create_topic(self, name: str, partitions: int) -> bytes:
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)]
        )
        assert self.admin(ApiKey.CREATE_TOPICS, 7, request).topics[0].error_code == 0
        self.learn(name)
        topic = self.catalog.view.topic(name)
        assert topic is not None
        return topic.topic_id

    def grow_topic(self, name: str, partitions: int) -> None:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=partitions, assignments=None)]
        )
        assert self.admin(ApiKey.CREATE_PARTITIONS, 3, request).results[0].error_code == 0
        self.learn(name)

    def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topic_names=[name])
        assert self.admin(ApiKey.DELETE_TOPICS, 5, request).responses[0].error_code == 0
        self.learn(name)

    # Groups.

    def group(self, group_id: str = "g") -> Group:
        return self.shard.projection.groups[group_id]

    def heartbeat(
        self, member_id: str, epoch: int, *, group_id: str = "g", version: int = 1, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        owned = fields.pop("owned", None)
        if owned is not None:
            fields["topic_partitions"] = [
                TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, **fields
        )
        answer = self.beat(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, request)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    def beat(self, api_key: ApiKey, version: int, request: Any) -> Any:
        """Handle a heartbeat of either kind and compare the answer with the fast path's."""
        group_id, member_id = request.group_id, request.member_id
        cached = self._fast.get((group_id, member_id))
        is_fast = cached is not None and cached[0] == request and cached[1].is_valid()
        entry = self.shard.fast_entry(group_id, member_id)
        entries = len(self.log)
        answer = self.handle(api_key, version, request)
        if cached is not None and is_fast:
            TALLY["fast path", "compared"] += 1
            assert answer == cached[2], "the fast path would have answered otherwise"
            assert len(self.log) == entries
        if entry is not None and entry.is_valid() and not answer.error_code:
            self._fast[group_id, member_id] = (request, entry, answer)
        TALLY["heartbeat error", ErrorCode(answer.error_code).name] += 1
        return answer

    def join(
        self, member_id: str, topics: Sequence[str] = ("orders",), **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        fields.setdefault("rebalance_timeout_ms", 60_000)
        return self.heartbeat(member_id, 0, subscribed_topic_names=list(topics), owned={}, **fields)

    def take_up(self, member_id: str, group_id: str = "g") -> ConsumerGroupHeartbeatResponse:
        """The member reports that it has taken up all that it was assigned."""
        current = self.group(group_id).members[member_id].current
        return self.heartbeat(member_id, current.epoch, group_id=group_id, owned=current.assigned)

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        group_id: str = "g",
        member_id: str = "",
        epoch: int = -1,
        version: int = 9,
        metadata: str | None = "",
        instance_id: str | None = None,
    ) -> dict[tuple[str, int], int]:
        """Commit offsets; return the error codes by partition."""
        topics: dict[str, offset_commit.OffsetCommitRequestTopic] = {}
        for (name, partition), offset in offsets.items():
            topic = self.catalog.view.topic(name)
            asked = topics.setdefault(
                name,
                offset_commit.OffsetCommitRequestTopic(
                    name=name, topic_id=topic.topic_id if topic is not None else b"?" * 16
                ),
            )
            asked.partitions.append(
                offset_commit.OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = offset_commit.OffsetCommitRequest(
            group_id=group_id,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            group_instance_id=instance_id,
            topics=list(topics.values()),
        )
        answer = self.handle(ApiKey.OFFSET_COMMIT, version, request)
        return {
            (name, part.partition_index): part.error_code
            for name, topic in zip(topics, answer.topics, strict=True)
            for part in topic.partitions
        }

    def fetch(
        self, group_id: str = "g", topics: dict[str, list[int]] | None = None, **fields: Any
    ) -> dict[tuple[str, int], int]:
        """Return offsets by partition, in the newest version that names topics."""
        asked = None
        if topics is not None:
            asked = [
                offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
                for name, numbers in topics.items()
            ]
        request = offset_fetch.OffsetFetchRequest(
            groups=[offset_fetch.OffsetFetchRequestGroup(group_id=group_id, topics=asked, **fields)]
        )
        answer = self.handle(ApiKey.OFFSET_FETCH, 9, request)
        assert answer.groups[0].error_code == 0, answer.groups[0].error_code
        return {
            (topic.name, part.partition_index): part.committed_offset
            for topic in answer.groups[0].topics
            for part in topic.partitions
        }

    # What must always be true.

    def _check(self, entry: Entry) -> None:
        check_write_order(entry.cause.trigger, entry.records)
        for group_id, group in self.shard.projection.groups.items():
            epoch = group.epoch
            if group.is_consumer:
                check_group(group)
            elif group.classic is not None:
                epoch = group.classic.generation  # it goes on when the group changes its protocol
            if group.is_empty and not group.is_consumer:  # and begins again in a group without members
                self._epochs.pop(group_id, None)
                continue
            assert epoch >= self._epochs.get(group_id, 0), "a group epoch went back"
            self._epochs[group_id] = epoch
        for group_id in list(self._epochs):
            if group_id not in self.shard.projection.groups:
                del self._epochs[group_id]
        for check in self.after_entry:
            check(self, entry)

    def replayed(self, entries: int) -> GroupShard:
        """Return a shard that has applied the first entries of the log and nothing else."""
        shard = GroupShard(0, self.limits, self.assignors)
        for entry in self.log[:entries]:
            for raw in entry.records:
                shard.apply(raw, entry.index)
        return shard

    def stamped(self) -> list[Stamped]:
        return [Stamped(entry.index, entry.timestamp_ms, raw) for entry in self.log for raw in entry.records]


def check_group(group: Group) -> None:
    """Check the invariants I1 to I6 of the protocol, recomputed from the members."""
    owners: dict[tuple[bytes, int], str] = {}
    for member in group.members.values():
        current = member.current
        assert current.epoch <= group.epoch
        if member.is_away:
            assert member.metadata is None or member.metadata.instance_id is not None
            assert not current.pending
        else:
            assert current.previous_epoch <= current.epoch
            assert (current.state.name == "UNREVOKED_PARTITIONS") == bool(current.pending)
        for part in (current.assigned, current.pending):
            for topic_id, epochs in part.items():
                for partition, assigned_at in epochs.items():
                    assert (topic_id, partition) not in owners, "a partition has two owners"
                    owners[topic_id, partition] = member.member_id
                    assert assigned_at <= group.epoch
        check_stable_member(group, member)
    assert group.assignment_epoch <= group.epoch
    indexed = {
        (topic_id, partition): owner
        for topic_id, owner_of in group.owners.items()
        for partition, owner in owner_of.items()
    }
    assert indexed == owners
    assert group.num_members == len(list(group.joined()))
    votes = Counter(m.metadata.server_assignor for m in group.joined() if m.metadata is not None)
    del votes[None]
    assert group.server_assignors == votes
    subscriptions, regexes = subscriptions_of(group)
    assert group.subscriptions == subscriptions
    assert group.regex_subscribers == regexes
    assert group.static_members == {
        member.metadata.instance_id: member.member_id
        for member in group.joined()
        if member.metadata is not None and member.metadata.instance_id is not None
    }, "the index of instance ids is not what the members say, or one has two members"


def check_stable_member(group: Group, member: Member) -> None:
    """I4: a member that is STABLE at the target's epoch has the part of its target that it subscribes to.

    Until the next heartbeat it may have more than its expression matches now. It may have less while the next
    target is due: topics that it subscribes to again come with that. Half-written targets are exempt."""
    current, written = member.current, group.target.get(member.member_id)
    is_half_written = written is not None and written.assignment_epoch > group.assignment_epoch
    if (
        member.metadata is None
        or current.state is not MemberState.STABLE
        or current.epoch != group.assignment_epoch
        or is_half_written
    ):
        return
    subscribed = subscribed_ids(group, member.metadata, topic_ids_by_name(group))
    has = {(topic_id, number) for topic_id, epochs in current.assigned.items() for number in epochs}
    target = {(t, number) for t, numbers in group.target_of(member.member_id).items() for number in numbers}
    assert has <= target
    assert group.assignment_epoch < group.epoch or {part for part in target if part[0] in subscribed} <= has


def subscriptions_of(group: Group) -> tuple[Counter[str], Counter[str]]:
    """Recount the group's subscriptions and the subscribers of its expressions."""
    names: Counter[str] = Counter()
    regexes: Counter[str] = Counter()
    for member in group.joined():
        assert member.metadata is not None
        names.update(member.metadata.subscribed_topic_names)
        if member.metadata.subscribed_topic_regex:
            regexes[member.metadata.subscribed_topic_regex] += 1
    for regex in regexes:
        names.update(group.resolved(regex))
    return names, regexes
