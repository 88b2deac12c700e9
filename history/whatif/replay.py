"""Replays what members did with the real coordinator, on virtual time.

The shard is the one used in production; only its surroundings are simulated. Time follows the script. Targets
take no time, and wait only where they waited in the record, which the shard is given as an assignment
interval. No timer fires by itself: a steady heartbeat leaves no trace in the log, so `MemberModel` determines
which members expire and when, and the shard is given a session that began accordingly long ago.

Invariant: the same script gives the same entries, and under the recorded settings the recorded entries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Final

from coordinator.api import Context, Decision
from coordinator.assignors import BUILT_IN, PartitionAssignor
from coordinator.shard import GroupShard
from coordinator.state.model import Group, Member
from coordinator.topics import CatalogTopic, CatalogView
from records import ConsumerGroupMemberMetadataValue, Entry, TopicMetadata, Trigger
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse, TopicPartitions
from wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

from .due import DueAction, DueKind, Watch
from .member_model import LAST, MemberModel
from .recorded import Act, ActKind, Holding, Recorded
from .replay_harness import LIMITS, NEVER_MS, ReplayHarness, had_by, heartbeat_request, owned_by
from .settings import BUILT_IN_NAMES, WhatIf, WhatIfError

RESOLVED_SOON_MS: Final = 10_000
"""A due round of regular expressions waits this long (ms) for a recorded one: the longest pause between
two."""

WORK_MAX: Final = 10_000
"""Maximum number of successive decisions of due work. One group has a handful, so more means an endless
loop."""

HEARTBEAT_VERSION: Final = 1
LEAVE_GROUP_VERSION: Final = 5
DELETE_GROUPS_VERSION: Final = 2

Sink = Callable[[int, int, Entry], None]
"""Receives the entries of a replay: (index, ms, entry)."""


@dataclass(frozen=True, slots=True)
class _Does:
    """A member does what it has due, if it is still due."""

    member_id: str
    due: DueAction
    holding: Holding


@dataclass(frozen=True, slots=True)
class _Out:
    """A member's timeout ends; with ``due``, only if that is still due."""

    member_id: str
    trigger: Trigger
    heard_ms: int
    timeout_ms: int
    due: DueAction | None = None
    returns_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Back:
    """A member that was removed while alive learns of it and joins again."""

    member_id: str
    metadata: ConsumerGroupMemberMetadataValue


_Event = Act | _Does | _Out | _Back


@dataclass
class GroupReplay:
    """One course of one group; call `run` once."""

    script: Recorded
    asked: WhatIf
    order: tuple[str, ...] = BUILT_IN_NAMES
    """The assignors as configured on the recorded node; the first is the default."""
    sink: Sink = lambda _index, _ms, _entry: None
    member_model: MemberModel = field(init=False)

    def __post_init__(self) -> None:
        chosen = self.asked.assignor
        assignors: tuple[PartitionAssignor, ...] = BUILT_IN if chosen is None else (chosen,)
        self.order = self.order if chosen is None else (chosen.name,)
        self.member_model = MemberModel(self.script, self.asked)
        self._shard = GroupShard(self.script.shard, LIMITS, assignors)
        self._settings = ReplayHarness.of(self.order)
        self._catalog = CatalogView()
        self._watch = Watch()
        self._queue: list[tuple[int, int, int, _Event]] = []
        self._numbers = count()
        self._now_ms = self.script.first_ms
        self._index = 0
        self._spared: set[str] = set()
        """Members that expired in the record but not here, so they must not join again either."""
        self._resolves = [act.at_ms for act in self.script.acts if act.kind is ActKind.RESOLVE][::-1]

    def run(self) -> MemberModel:
        """Replay everything into `sink`; the returned model has the assumptions made.

        Raises `WhatIfError` if the assignor fails.
        """
        self._begin()
        for act in self.script.acts:
            self._put(act.at_ms, act.index, act)
        self._put_sessions()
        while self._queue:
            at_ms, index, _, event = heappop(self._queue)
            if at_ms > self.script.last_ms:
                break
            self._now_ms = max(self._now_ms, at_ms)
            if isinstance(event, _Out):
                self._end(self._together(event, at_ms, index))
            elif isinstance(event, Act):
                self._act(event)
            elif isinstance(event, _Does):
                self._get_on(event)
            elif self._member(event.member_id) is None:
                self._join(event.member_id, event.metadata)
            self._work()
        return self.member_model

    # The surroundings.

    def _put(self, at_ms: int, index: int, event: _Event) -> None:
        heappush(self._queue, (at_ms, index, next(self._numbers), event))

    def _put_sessions(self) -> None:
        member_model, timeout_ms = self.member_model, self.asked.session_timeout_ms
        for ended in self.script.sessions_ended:
            end = member_model.session_end(ended)
            if end is None:
                self._spared.add(ended.member_id)
                continue
            span_ms = timeout_ms or ended.timeout_ms
            self._put(*end, _Out(ended.member_id, Trigger.SESSION_EXPIRED, ended.heard_ms, span_ms))
        for member_id, end_ms, back_ms in member_model.silences_over():
            assert timeout_ms is not None
            heard_ms = end_ms - timeout_ms
            out = _Out(member_id, Trigger.SESSION_EXPIRED, heard_ms, timeout_ms, returns_ms=back_ms)
            self._put(end_ms, LAST, out)

    def _begin(self) -> None:
        """Set up the group as it is at the beginning of the log."""
        self._shard.apply_all(self.script.start, 0)
        group = self._group
        if group is not None:
            self._catalog.version = max(group.catalog_version, 0)
            for topic in group.topics:
                self._learn(topic)
        self._shard.on_ready(self._ctx())
        self._expect(self._watch.look(group, self.script.start, self._now_ms)[0])
        self._work()

    def _ctx(self, client_id: str = "", client_host: str = "") -> Context:
        return Context(
            monotonic_ms=float(self._now_ms),
            wall_ms=self._now_ms,
            next_index=self._index + 1,
            catalog=self._catalog,
            settings=self._settings,
            fresh_id=lambda: f"fresh-{next(self._numbers)}",
            fresh_uuid=lambda: bytes(16),
            client_id=client_id,
            client_host=client_host,
        )

    @property
    def _group(self) -> Group | None:
        return self._shard.projection.groups.get(self.script.group_id)

    def _member(self, member_id: str) -> Member | None:
        group = self._group
        return group.member(member_id) if group is not None and group.is_consumer else None

    def _learn(self, topic: TopicMetadata) -> None:
        known = CatalogTopic(topic.topic_name, topic.topic_id, topic.num_partitions)
        self._catalog.put(known, self._catalog.version + 1)
        self._catalog.put_racks(topic.topic_name, topic.partition_racks, self._catalog.version)

    # Outcomes of decisions.

    def _ask(self, api: ApiKey, version: int, request: object, client: tuple[str, str] = ("", "")) -> object:
        """Handle one request completely; return its reply."""
        decision = self._shard.handle(api, version, request, self._ctx(*client))
        self._take(decision)
        while decision.continuation is not None:
            decision = decision.continuation(self._ctx(*client))
            self._take(decision)
        return decision.reply

    def _take(self, decision: Decision) -> None:
        if decision.error is not None:
            raise decision.error
        if decision.failure is not None:
            raise WhatIfError(decision.failure.words)
        if not decision.records:
            return
        assert decision.cause is not None
        self._index += 1
        self.sink(self._index, self._now_ms, Entry(decision.cause, tuple(decision.records)))
        fresh, _ = self._watch.look(self._group, decision.records, self._now_ms, decision.cause)
        self._expect(fresh)

    def _expect(self, fresh: dict[str, DueAction]) -> None:
        """Schedule what members will do about what became due."""
        for member_id, due in fresh.items():
            key = (self.script.group_id, member_id)
            self._shard.groups.rebalances.cancel(key)  # the model decides which members time out
            member = self._member(member_id)
            assert member is not None
            assert member.metadata is not None
            own_ms = member.metadata.rebalance_timeout_ms
            plan = self.member_model.plan(member_id, due, own_ms if own_ms >= 0 else NEVER_MS)
            if plan.is_spared:
                self._spared.add(member_id)
            if plan.at_ms is not None:
                self._put(plan.at_ms, plan.index, _Does(member_id, due, plan.holding))
            if plan.fenced_ms is not None:
                span_ms = self.asked.rebalance_timeout_ms or own_ms
                out = _Out(member_id, Trigger.REBALANCE_EXPIRED, due.since_ms, span_ms, due, plan.returns_ms)
                self._put(plan.fenced_ms, plan.fenced_index, out)

    def _work(self, *, is_round: bool = False) -> None:
        """Do all work that is due in the coordinator itself.

        With ``is_round``, a recorded round of regular expressions happens now.
        """
        for _ in range(WORK_MAX):
            if not self._has_work(is_round):
                return
            decision = self._shard.next_work(self._ctx())
            if decision is None:
                return
            self._take(decision)
        raise AssertionError("timers do not come to an end")

    def _has_work(self, is_round: bool) -> bool:
        groups = self._shard.groups
        if groups.catalog_changes or groups.checks or groups.expired or groups.installs:
            return True
        deferred_ms, round_ms = groups.pacing.next_ms(), groups.resolutions.next_ms()
        if deferred_ms is not None and deferred_ms <= self._now_ms:
            return True
        return (
            round_ms is not None and round_ms <= self._now_ms and (is_round or not self._is_resolved_soon())
        )

    def _is_resolved_soon(self) -> bool:
        """Whether a round is recorded soon; the topics that it found are not known before."""
        return bool(self._resolves) and self._resolves[-1] <= self._now_ms + RESOLVED_SOON_MS

    # Events.

    def _act(self, act: Act) -> None:
        for topic in act.topics:
            self._learn(topic)
        for name in act.gone:
            self._catalog.remove(name, self._catalog.version + 1)
        if act.target_waits is not None:
            self._settings.is_held = act.target_waits
        if act.kind is ActKind.RESOLVE:
            self._resolves.pop()
            self._shard.groups.resolutions.want(self.script.group_id, self._ctx())
            self._work(is_round=True)
        elif act.kind is ActKind.CHECK:
            names = [topic.topic_name for topic in act.topics]
            self._shard.on_catalog_changed(self._ctx(), [*names, *act.gone])
            self._work()
        elif act.kind is ActKind.JOIN:
            self._join_as_recorded(act)
        elif act.kind is ActKind.REMOVE:
            self._remove(act)
        elif act.kind is ActKind.DELETE:
            self._delete()
        elif act.kind in (ActKind.UPDATE, ActKind.HEARTBEAT, ActKind.LEAVE, ActKind.AWAY):
            self._speak(act)
        if act.target_waits is False:
            self._shard.on_configs_changed(self._ctx(), [self.script.group_id])

    def _join_as_recorded(self, act: Act) -> None:
        if act.member_id in self._spared:
            self._spared.discard(act.member_id)
            if self._member(act.member_id) is not None:
                return  # it was not removed here, so it has no reason to join again
        if act.metadata is not None:
            self._join(act.member_id, act.metadata)

    def _join(self, member_id: str, metadata: ConsumerGroupMemberMetadataValue) -> None:
        self._heartbeat(member_id, 0, metadata, is_full=True, owned=[])

    def _speak(self, act: Act) -> None:
        """A member acts on its own initiative."""
        member = self._member(act.member_id)
        metadata = act.metadata if member is None or act.kind is ActKind.UPDATE else member.metadata
        if member is None:
            if act.kind is ActKind.UPDATE and metadata is not None:
                self._join(act.member_id, metadata)
            else:
                self.member_model.assumed.not_applied += 1
            return
        assert metadata is not None
        if act.kind in (ActKind.LEAVE, ActKind.AWAY):
            self._heartbeat(act.member_id, -1 if act.kind is ActKind.LEAVE else -2, metadata)
            return
        owned = [] if act.holding.owns_nothing else owned_by(member) if act.acknowledges else None
        is_update = act.kind is ActKind.UPDATE
        self._remember(member, act.holding)
        self._heartbeat(act.member_id, member.current.epoch, metadata, is_full=is_update, owned=owned)

    def _get_on(self, does: _Does) -> None:
        """A member does what it has due."""
        member = self._member(does.member_id)
        if member is None or self._watch.due.get(does.member_id) is not does.due:
            return
        assert member.metadata is not None
        owned = owned_by(member) if does.due.kind is DueKind.ACKNOWLEDGEMENT else None
        if does.holding.owns_nothing:
            owned = []
        self._remember(member, does.holding)
        self._heartbeat(does.member_id, member.current.epoch, member.metadata, owned=owned)

    def _remember(self, member: Member, holding: Holding) -> None:
        """Record that the leader has answered the member and, usually, received a report of what it owns."""
        reports, key = self._shard.groups.reports, (self.script.group_id, member.member_id)
        reports.forget(key)
        reports.answer(key, is_told=True)
        if not holding.never_reported:
            reports.hear(key, member, had_by(member), member.current.epoch, is_full=False)

    def _heartbeat(
        self,
        member_id: str,
        epoch: int,
        metadata: ConsumerGroupMemberMetadataValue,
        *,
        is_full: bool = False,
        owned: list[TopicPartitions] | None = None,
    ) -> None:
        vote = metadata.server_assignor if metadata.server_assignor in self.order else None
        request = heartbeat_request(
            self.script.group_id, member_id, epoch, metadata, vote=vote, is_full=is_full, owned=owned
        )
        client = (metadata.client_id, metadata.client_host)
        answer = self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION, request, client)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        if answer.error_code:
            self.member_model.assumed.refused += 1

    def _remove(self, act: Act) -> None:
        members = [MemberIdentity(member_id=member_id) for member_id in act.members]
        request = LeaveGroupRequest(group_id=self.script.group_id, members=members)
        self._ask(ApiKey.LEAVE_GROUP, LEAVE_GROUP_VERSION, request)

    def _delete(self) -> None:
        request = DeleteGroupsRequest(groups_names=[self.script.group_id])
        answer = self._ask(ApiKey.DELETE_GROUPS, DELETE_GROUPS_VERSION, request)
        assert isinstance(answer, DeleteGroupsResponse)
        self.member_model.assumed.not_applied += sum(result.error_code != 0 for result in answer.results)

    def _together(self, first: _Out, at_ms: int, index: int) -> list[_Out]:
        """All members whose timeout ends with the same entry."""
        outs = [first]
        while self._queue and self._queue[0][:2] == (at_ms, index) and index != LAST:
            event = self._queue[0][3]
            if not isinstance(event, _Out):
                break
            outs.append(event)
            heappop(self._queue)
        return outs

    def _end(self, outs: list[_Out]) -> None:
        groups, group_id = self._shard.groups, self.script.group_id
        is_any = False
        for out in outs:
            member = self._member(out.member_id)
            is_meant = out.due is None or self._watch.due.get(out.member_id) is out.due
            if member is None or not is_meant:
                continue
            is_any = True
            timers = groups.sessions if out.trigger is Trigger.SESSION_EXPIRED else groups.rebalances
            timers.arm(
                (group_id, out.member_id),
                self._now_ms - out.timeout_ms,
                out.heard_ms,
                out.timeout_ms,
                last_heartbeat_wall_ms=out.heard_ms,
                member_epoch=member.current.epoch,
            )
            if out.returns_ms is not None and member.metadata is not None:
                self._put(out.returns_ms, LAST, _Back(out.member_id, member.metadata))
        if is_any:
            decision = self._shard.next_work(self._ctx())
            if decision is not None:
                self._take(decision)
