"""A member put together: its managers, the events that they handle, and an account of what it is doing."""

from __future__ import annotations

from typing import NamedTuple

from client.core.background import EventHandler
from client.core.env import Environment
from client.core.events import ApplicationEventType
from client.core.member.assignment import AssignmentManager
from client.core.member.computing import ComputingManager
from client.core.member.drawings import GroupState, group_state
from client.core.member.heartbeat import HeartbeatManager
from client.core.member.membership import MembershipManager
from client.core.member.states import MemberState
from client.core.member.steps import plural
from client.core.member.wants import AssignedPositions, Emit, GroupCoordinator, TopicNamesById
from client.core.requests import RequestManager
from client.core.settings import ConsumerSettings
from client.core.types import TopicPartition


class MemberExplanation(NamedTuple):
    """An account of what a member is doing, for people."""

    state: MemberState
    group_state: GroupState
    why: str
    """The event that brought it into the state."""
    waits_for: str
    """The thing that it waits for; empty if there is none."""
    since_unix_ms: float
    """The time at which it entered the state."""
    for_ms: float
    """The time that has passed since."""
    member_id: str
    member_epoch: int
    owned: frozenset[TopicPartition]

    def __str__(self) -> str:
        waits = f" Waits for {self.waits_for}." if self.waits_for else ""
        return (
            f"{self.state.name} for {self.for_ms / 1_000:,.1f} s: {self.why}.{waits} "
            f"Member {self.member_id}, epoch {self.member_epoch}, {plural(len(self.owned), 'partition')}."
        )


class ConsumerMember:
    """The part of a consumer that is in a group."""

    def __init__(
        self,
        settings: ConsumerSettings,
        env: Environment,
        emit: Emit,
        names: TopicNamesById,
        coordinator: GroupCoordinator,
        positions: AssignedPositions,
    ) -> None:
        self.membership = MembershipManager(settings, env, emit, positions)
        """The identity with which the consumer commits, too."""
        self.assignment = AssignmentManager(settings, self.membership, names, positions)
        self.heartbeats = HeartbeatManager(settings, env, emit, self.membership, coordinator)
        self.computing = ComputingManager(settings, env, emit, self.membership)
        self.managers: tuple[RequestManager, ...] = (
            self.membership,
            self.assignment,
            self.heartbeats,
            self.computing,
        )
        """The order is such that an acknowledgement leaves in the pass that brought its cause."""
        self.handlers: dict[ApplicationEventType, EventHandler] = {
            ApplicationEventType.SUBSCRIBE: self.membership.subscribe,
            ApplicationEventType.LEAVE_GROUP: self.membership.leave,
            ApplicationEventType.ACK_PARTITION_REVOKED: self.membership.acknowledge,
            ApplicationEventType.ACK_PARTITION_ASSIGNED: self.membership.acknowledge,
            ApplicationEventType.POLL: self.membership.poll_called,
            ApplicationEventType.INSTALL_ASSIGNMENT: self.computing.computed,
        }
        self._env = env

    def explain(self) -> MemberExplanation:
        """Say which state the member is in, why, what it waits for, and since when. Changes nothing."""
        member, now_ms = self.membership, self._env.now_ms()
        for_ms = now_ms - member.since_ms
        return MemberExplanation(
            member.state,
            group_state(member.state),
            member.why,
            self._waits_for(now_ms),
            self._env.wall_ms() - for_ms,
            for_ms,
            member.member_id,
            member.member_epoch,
            frozenset(member.owned.values()),
        )

    def _waits_for(self, now_ms: float) -> str:
        member, heartbeats = self.membership, self.heartbeats
        step = member.steps.running
        trouble = f" after: {heartbeats.trouble}" if heartbeats.trouble else ""
        if step is not None:
            return step.waits_for + trouble
        match member.state:
            case MemberState.RECONCILING if self.assignment.unnamed:
                return f"the names of {plural(len(self.assignment.unnamed), 'topic')}" + trouble
            case MemberState.STALE:
                return "poll()"
            case MemberState.LEAVING:
                return "the coordinator's answer to the heartbeat that leaves"
            case MemberState.UNSUBSCRIBED | MemberState.FATAL:
                return ""
        if heartbeats.is_waiting:
            return "the coordinator's answer to a heartbeat" + trouble
        return f"the next heartbeat, in {max(heartbeats.due_ms(now_ms) - now_ms, 0):,.0f} ms" + trouble
