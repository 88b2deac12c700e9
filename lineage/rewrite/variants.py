"""Where the two coordinators of seed 000 differ: the design's text, and the thread's under it."""

from __future__ import annotations

from lineage.rewrite.coordinator import RewriteCoordinator
from lineage.rewrite.errors import RewriteError
from lineage.rewrite.groups import LiveGroup, Now, RewriteSession
from lineage.rewrite.machines import DESIGN_COORDINATOR, THREAD_COORDINATOR, RewriteEvent, RewriteState
from lineage.rewrite.messages import HeartbeatRequest, JoinGroupRequest, OffsetCommitRequest
from wire.schema import Message


class DesignCoordinator(RewriteCoordinator):
    """The design: generations are checked, and a slow consumer that is back in time cancels a rebalance."""

    TABLE = DESIGN_COORDINATOR

    def _unavailable(self, request: Message, state: RewriteState) -> RewriteError:
        if state is RewriteState.DOWN:
            return RewriteError.NOT_COORDINATOR_FOR_GROUP
        is_join = isinstance(request, JoinGroupRequest)
        return (
            RewriteError.ILLEGAL_PROTOCOL_STATE if is_join else RewriteError.COORDINATOR_STARTUP_NOT_COMPLETE
        )

    def _heartbeat(self, request: HeartbeatRequest, group: LiveGroup, now: Now) -> RewriteError:
        group_id, consumer_id = request.group_id, request.consumer_id
        if request.group_generation_id != self._record(group_id).generation:
            return RewriteError.ILLEGAL_GENERATION
        group.sessions[consumer_id].heard = now
        if group.state in (RewriteState.READY, RewriteState.STEADY):
            self._arm(group_id, group, consumer_id, now)
            if group.state is RewriteState.READY:
                group.state = self._step(group.state, RewriteEvent.HEARD)
            return RewriteError.NONE
        if consumer_id in group.dead and group.can_recover:
            group.dead.remove(consumer_id)
            self._arm(group_id, group, consumer_id, now)
            if not group.dead:
                group.end_round()
                group.state = self._step(group.state, RewriteEvent.RECOVERED)
                return RewriteError.NONE
            group.reasons = {one: None for one in group.reasons if one.member_id != consumer_id}
            group.expiries = [one for one in group.expiries if one.member_id != consumer_id]
        if consumer_id not in group.told:
            group.told.add(consumer_id)
            group.state = self._step(group.state, RewriteEvent.TOLD)
            if consumer_id not in group.dead and consumer_id not in group.waiting:
                self._arm(group_id, group, consumer_id, now)  # its last session: only JoinGroup ends it
        return RewriteError.ILLEGAL_GENERATION

    def _commit_error(self, request: OffsetCommitRequest, group: LiveGroup) -> RewriteError:
        is_current = request.group_generation_id == self._record(request.group_id).generation
        return RewriteError.NONE if is_current else RewriteError.ILLEGAL_GENERATION

    def _answers_again(self, request: JoinGroupRequest, group: LiveGroup) -> bool:
        return False

    def _began(self, group_id: str, group: LiveGroup, now: Now) -> None:
        pass

    def _found_dead(
        self, group_id: str, group: LiveGroup, consumer_id: str, session: RewriteSession, now: Now
    ) -> object:
        """The consumer is no longer waited for; its connection is closed."""
        self._prepare(group_id, group, RewriteEvent.SILENT, now, self._note_dead(group, consumer_id, session))
        return session.connection


class ThreadCoordinator(RewriteCoordinator):
    """The thread: no generation is checked, and who was found dead is unknown from then on."""

    TABLE = THREAD_COORDINATOR

    def _unavailable(self, request: Message, state: RewriteState) -> RewriteError:
        return RewriteError.COORDINATOR_NOT_AVAILABLE

    def _heartbeat(self, request: HeartbeatRequest, group: LiveGroup, now: Now) -> RewriteError:
        consumer_id = request.consumer_id
        if consumer_id in group.dead:
            return RewriteError.UNKNOWN_CONSUMER
        group.sessions[consumer_id].heard = now
        if group.state is RewriteState.READY:
            self._arm(request.group_id, group, consumer_id, now)
            return RewriteError.NONE
        if consumer_id not in group.told:
            group.told.add(consumer_id)
            group.state = self._step(group.state, RewriteEvent.TOLD)
        return RewriteError.NEED_REBALANCE

    def _commit_error(self, request: OffsetCommitRequest, group: LiveGroup) -> RewriteError:
        return RewriteError.UNKNOWN_CONSUMER if request.consumer_id in group.dead else RewriteError.NONE

    def _is_removed(self, group: LiveGroup, consumer_id: str) -> bool:
        return consumer_id in group.dead

    def _answers_again(self, request: JoinGroupRequest, group: LiveGroup) -> bool:
        """A known consumer that changes nothing gets what the last rebalance gave it."""
        if group.state is not RewriteState.READY or not request.consumer_id:
            return False
        value = self._record(request.group_id)
        one = next(one for one in value.consumers if one.consumer_id == request.consumer_id)
        return self._asks_the_same(request, one)

    def _began(self, group_id: str, group: LiveGroup, now: Now) -> None:
        """Every consumer has one session, from now on, to send JoinGroup."""
        for consumer_id in group.alive:
            self._arm(group_id, group, consumer_id, now)

    def _found_dead(
        self, group_id: str, group: LiveGroup, consumer_id: str, session: RewriteSession, now: Now
    ) -> object:
        reason = self._note_dead(group, consumer_id, session)
        self._prepare(group_id, group, RewriteEvent.SILENT, now, reason)
        return None
