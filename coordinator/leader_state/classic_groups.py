"""The classic groups of a shard, as its leader knows them, and their timers.

Volatile: a new leader begins with the groups of the log (record 2), each Stable or Empty, and gives every
member a full session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import chain, count

from coordinator.api import Context
from coordinator.leader_state.classic_group import ClassicGroup, GenerationMember
from coordinator.leader_state.retries import RETRY_MS
from coordinator.leader_state.timers import Deadline, Deadlines
from coordinator.state.freeing import free_incrementally
from coordinator.state.machines import ClassicState
from records import GroupMetadataValue, Reason, ReasonKind

MEMBERS_PER_STEP = 100
"""Number of members of a large group whose sessions begin in one step when a term begins."""


class ClassicTimer(Enum):
    """The timers of a classic group, by what each of them ends."""

    SESSION = "the session of a member, or the wait for a member id that was given out"
    JOIN = "the join phase"
    SYNC = "the wait for members that have not sent SyncGroup"


DueTimer = tuple[ClassicTimer, str, str, Deadline]
"""A timer that is over, its group, for a session its member, and its times."""


class ClassicGroups:
    """The classic groups that this leader serves: every group with a record 2, and groups just created."""

    def __init__(self, *, is_served: bool) -> None:
        self.is_served = is_served
        self._groups: dict[str, ClassicGroup] = {}
        self._timers = {kind: Deadlines() for kind in ClassicTimer}
        self._due: deque[DueTimer] = deque()
        self._tokens = count(1)

    def get(self, group_id: str) -> ClassicGroup | None:
        return self._groups.get(group_id)

    def put(self, group: ClassicGroup) -> None:
        self._groups[group.group_id] = group

    def resume(self, group_id: str, value: GroupMetadataValue, now: Callable[[], Context]) -> Iterator[None]:
        """Serve a group of the log from now on: every member gets a full session, in steps.

        A group that is served already goes on where it is, with every timer in full."""
        group = self._groups.get(group_id)
        if group is not None:
            yield from self._restart(group, now)
            return
        group = self._groups[group_id] = ClassicGroup.of(group_id, value)
        for number, member in enumerate(group.members.values()):
            if number % MEMBERS_PER_STEP == MEMBERS_PER_STEP - 1:
                yield
            self.arm(
                ClassicTimer.SESSION,
                group_id,
                member.session_timeout_ms,
                now(),
                member.member_id,
                is_heard=False,
            )
        if group.members and group.leader is None:  # it was a consumer group before
            ctx = now()
            group.reasons[Reason(kind=ReasonKind.GROUP_DOWNGRADED)] = None
            group.began_ms = ctx.wall_ms
            group.move(ClassicState.PREPARING_REBALANCE)
            self.arm(ClassicTimer.JOIN, group_id, group.rebalance_timeout_ms, ctx)

    def _restart(self, group: ClassicGroup, now: Callable[[], Context]) -> Iterator[None]:
        keys = [(kind, "") for kind in (ClassicTimer.JOIN, ClassicTimer.SYNC)]
        keys += [(ClassicTimer.SESSION, member_id) for member_id in (*group.members, *group.pending)]
        for number, (kind, member_id) in enumerate(keys):
            if number % MEMBERS_PER_STEP == MEMBERS_PER_STEP - 1:
                yield
            deadline = self._timers[kind].get((group.group_id, member_id))
            if deadline is not None:
                ctx = now()
                deadline.restart(ctx.monotonic_ms, ctx.wall_ms)

    def forget(self, group_id: str) -> None:
        """Forget a group that was deleted, or that is a group of another protocol now."""
        group = self._groups.pop(group_id, None)
        if group is None:
            return
        for member_id in (*group.members, *group.pending):
            self.cancel(ClassicTimer.SESSION, group_id, member_id)
        self.cancel(ClassicTimer.JOIN, group_id)
        self.cancel(ClassicTimer.SYNC, group_id)

    def next_token(self) -> int:
        """Return a number for a request that is answered later."""
        return next(self._tokens)

    # Timers.

    def arm(
        self,
        kind: ClassicTimer,
        group_id: str,
        timeout_ms: int,
        ctx: Context,
        member_id: str = "",
        *,
        is_heard: bool = True,
    ) -> None:
        """Start or restart a timer; for a session, `is_heard` says whether the member has just been heard."""
        heard_ms = ctx.wall_ms if kind is ClassicTimer.SESSION and is_heard else -1
        self._timers[kind].arm(
            (group_id, member_id), ctx.monotonic_ms, ctx.wall_ms, timeout_ms, last_heartbeat_wall_ms=heard_ms
        )

    def fast_entry(self, group: ClassicGroup, member_id: str) -> ClassicEntry | None:
        """Permission to answer the member's heartbeats from the cache; None unless they change nothing."""
        sessions = self._timers[ClassicTimer.SESSION]
        session = sessions.get((group.group_id, member_id))
        is_member = member_id in group.members  # a member id that was given out has a session too
        if session is None or not is_member or group.state is ClassicState.PREPARING_REBALANCE:
            return None
        return ClassicEntry(group, member_id, sessions, session)

    def restart_session(self, group: ClassicGroup, member: GenerationMember, ctx: Context) -> None:
        """Give the member a full session."""
        deadline = self._timers[ClassicTimer.SESSION].get((group.group_id, member.member_id))
        if deadline is not None and deadline.timeout_ms == member.session_timeout_ms:
            deadline.restart(ctx.monotonic_ms, ctx.wall_ms)
        else:
            self.arm(ClassicTimer.SESSION, group.group_id, member.session_timeout_ms, ctx, member.member_id)

    def cancel(self, kind: ClassicTimer, group_id: str, member_id: str = "") -> None:
        self._timers[kind].cancel((group_id, member_id))

    def is_armed(self, kind: ClassicTimer, group_id: str, member_id: str = "") -> bool:
        return self._timers[kind].get((group_id, member_id)) is not None

    def next_ms(self) -> float | None:
        """Monotonic time of the next timer; None without timers."""
        if self._due:
            return 0.0
        times = (timers.next_ms() for timers in self._timers.values())
        return min((time for time in times if time is not None), default=None)

    def take_due(self, ctx: Context) -> DueTimer | None:
        """Return one timer that is over; None if there is none.

        A timer that was armed again since it was collected does not count."""
        for kind, timers in self._timers.items():
            self._due += ((kind, *key, deadline) for key, deadline in timers.take_due(ctx.monotonic_ms))
        while self._due:
            kind, group_id, member_id, deadline = self._due.popleft()
            if not self.is_armed(kind, group_id, member_id):
                return kind, group_id, member_id, deadline
        return None

    def retry(self, due: DueTimer, ctx: Context) -> None:
        """Let a timer end again, because what it led to raised."""
        kind, group_id, member_id, _ = due
        self._timers[kind].arm((group_id, member_id), ctx.monotonic_ms, ctx.wall_ms, RETRY_MS)

    def shift(self, gap_ms: float) -> None:
        """Move all deadlines, also of timers that were collected: the node did not run for that long."""
        for timers in self._timers.values():
            timers.shift(gap_ms)
        for kind, group_id, member_id, deadline in self._due:
            if not self.is_armed(kind, group_id, member_id):
                deadline.deadline_ms += gap_ms
                self._timers[kind].put_back((group_id, member_id), deadline)
        self._due.clear()

    def clear(self) -> Iterator[None]:
        """Forget everything. Iterating the result frees the memory in steps."""
        groups, self._groups = self._groups, {}
        self._due.clear()
        return chain(free_incrementally(groups), *(timers.clear() for timers in self._timers.values()))


class ClassicEntry:
    """Permission to answer a member's identical Heartbeat with the cached reply, as long as it is valid.

    It ends with the generation, and with the member's session: the member left, its group is gone, or this
    node leads no longer."""

    __slots__ = ("_generation", "_group", "_key", "_session", "_sessions", "touch")

    def __init__(self, group: ClassicGroup, member_id: str, sessions: Deadlines, session: Deadline) -> None:
        self._group = group
        self._generation = group.generation
        self._key = group.group_id, member_id
        self._sessions = sessions
        self._session = session
        self.touch: Callable[[float, int], None] = session.restart
        """`touch(monotonic_ms, wall_ms)` restarts the session after a heartbeat."""

    def is_valid(self) -> bool:
        group = self._group
        return (
            group.generation == self._generation
            and group.state is not ClassicState.PREPARING_REBALANCE
            and self._sessions.get(self._key) is self._session
        )
