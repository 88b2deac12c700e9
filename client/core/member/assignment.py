"""Reconciling: from the partitions that a member owns to those that it is assigned.

One reconciliation is at most two steps on the application side. First everything that is not assigned any
more is given up: out of the set, commit, on_revoke. Only when that is acknowledged is anything
taken: into the set, the assignor's on_assignment, on_assign. The next heartbeat acknowledges it.
Each step looks at the newest assignment, so one that arrives meanwhile is never taken by way of an old one.

The coordinator names topics by id. Topics whose names are not known yet are asked for and left for a later
reconciliation; the others do not wait for them.
"""

from __future__ import annotations

from client.core.events import AckPartitionAssignedEvent, AssignPartitionsEvent
from client.core.member.membership import MembershipManager
from client.core.member.states import MemberState
from client.core.member.steps import Acknowledgement, plural
from client.core.member.wants import AssignedPositions, TopicNamesById
from client.core.requests import NOTHING, PollResult
from client.core.settings import ConsumerSettings
from client.core.types import ConsumerAssignment, TopicIdPartition, TopicPartition

Partitions = dict[TopicIdPartition, TopicPartition]


class AssignmentManager:
    """Reconciles while the member is RECONCILING; makes no requests itself."""

    def __init__(
        self,
        settings: ConsumerSettings,
        membership: MembershipManager,
        names: TopicNamesById,
        positions: AssignedPositions,
    ) -> None:
        self.unnamed: frozenset[bytes] = frozenset()
        """The topics that are assigned and whose names are not known."""
        self._settings = settings
        self._membership = membership
        self._names = names
        self._positions = positions
        self._gave_up = False
        """Whether this reconciliation has given up anything, which must be acknowledged."""

    def poll(self, now_ms: float) -> PollResult:
        """Begin the next step, if none runs."""
        if self._membership.state is MemberState.RECONCILING and self._membership.steps.running is None:
            self._begin_step(now_ms)
        return NOTHING

    def _begin_step(self, now_ms: float) -> None:
        member = self._membership
        if surplus := member.surplus:
            self._revoke(surplus, now_ms)
            return
        missing = self._resolve(member.missing)
        if missing or self._gave_up or not self.unnamed:
            self._assign(missing)

    def _resolve(self, parts: frozenset[TopicIdPartition]) -> Partitions:
        """Return those of the partitions whose topics' names are known, and ask for the others."""
        names = {topic_id: self._names.topic_name(topic_id) for topic_id in {part.topic_id for part in parts}}
        self.unnamed = frozenset(topic_id for topic_id, name in names.items() if name is None)
        if self.unnamed:
            self._names.want_ids(self.unnamed)
        return {
            part: TopicPartition(name, part.partition)
            for part in sorted(parts)
            if (name := names[part.topic_id]) is not None
        }

    def _revoke(self, surplus: Partitions, now_ms: float) -> None:
        self._gave_up = True
        deadline_ms = now_ms + self._settings.max_poll_interval_ms
        self._membership.begin_revoking(
            surplus, deadline_ms, lambda _event, _now_ms: self._membership.revoked()
        )

    def _assign(self, missing: Partitions) -> None:
        partitions = frozenset(missing.values())
        self._membership.hand_over(missing)
        tokens = {missing[part]: token for part, token in self._membership.tokens.take(missing).items()}
        told = self._from_assignor()

        def assigned(event: Acknowledgement, now_ms: float) -> None:
            assert isinstance(event, AckPartitionAssignedEvent)
            self._gave_up = False
            self._positions.begin(dict.fromkeys(sorted(partitions)), event.version)
            self._membership.reconciled(now_ms)

        self._membership.steps.begin(
            lambda number: AssignPartitionsEvent(
                partitions=partitions, round=number, tokens=tokens, assignment=told
            ),
            f"on_assign of {plural(len(partitions), 'partition')}",
            assigned,
        )

    def _from_assignor(self) -> ConsumerAssignment | None:
        """Return the assignment that on_assignment of a client-side assignor is given, None if there is none.

        Answers do not name the assignor. The first that is offered and understands the version is meant: the
        coordinator chooses by the order of the offers, too."""
        member = self._membership
        told, offers = member.assignor_data, member.subscription.assignors
        if told is None or not offers:
            return None
        fitting = [one for one in offers if one.minimum_version <= told.version <= one.maximum_version]
        name = (fitting or offers)[0].name
        return ConsumerAssignment(name, frozenset(member.owned.values()), *told)
