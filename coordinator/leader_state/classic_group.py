"""One classic group as its coordinator knows it: members, state, protocol and generation.

Nothing here writes records or sets timers. Names and rules are those of Kafka's `ClassicGroup`.

Invariants: the supported protocols of all members always have one in common, unless there are no members; a
member waits for at most one reply of each kind; every pending member has a session timer and no protocols.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from coordinator.state.machines import CLASSIC_TRANSITIONS, ClassicState
from records import Arrival, ClassicMember, Expiry, GroupMetadataValue, Phases, Reason

Protocols = tuple[tuple[str, bytes], ...]
"""Names of a member's protocols (assignors) with its metadata for each, in its order of preference."""


WAITED_FOR_MAX = 8
"""Members that joined last, which the log names with a generation."""


def bytes_of(protocols: Protocols) -> int:
    """Size of these names and of the metadata."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


@dataclass(slots=True)
class GenerationMember:
    """A member of a classic group. Timeouts are in ms.

    `join` and `sync` number the requests that wait for the end of the phase; None if none waits. `joined_ms`
    is when the newest JoinGroup came. `is_new`
    holds from the first JoinGroup until its answer: the client does not know its member id yet."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join: int | None = None
    joined_ms: int = -1
    join_version: int = 0
    """The version of the JoinGroup that waits."""
    sync: int | None = None

    def metadata(self, protocol: str) -> bytes:
        """The member's metadata for a protocol; empty for one that it does not support."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(slots=True)
class ClassicGroup:
    """A group of the classic protocol."""

    group_id: str
    generation: int = 0
    state: ClassicState = ClassicState.EMPTY
    previous: ClassicState = ClassicState.EMPTY
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, GenerationMember] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """Instance id → member id."""
    pending: dict[str, None] = field(default_factory=dict)
    """Member ids that were given out (MEMBER_ID_REQUIRED) and have not joined yet, oldest first."""
    num_waiting: int = 0
    """Number of members that wait in the join phase."""
    protocols_bytes: int = 0
    """Size of all that the members say about their protocols."""
    support: Counter[str] = field(default_factory=Counter)
    """Number of members that support each protocol."""
    not_synced: set[str] = field(default_factory=set)
    """Members that have not sent SyncGroup for this generation."""
    has_new_member: bool = False
    """Whether a member joined during the present part of the initial delay."""
    initial_delay_ms: int = 0
    """Length of the present part of the initial delay."""
    initial_left_ms: int = 0
    """The most by which the initial delay may still be extended after the present part."""
    reasons: dict[Reason, None] = field(default_factory=dict)
    """The reasons why the next generation begins: written with its assignments."""
    expiries: list[Expiry] = field(default_factory=list)
    """The evidence for those of the reasons that are timeouts."""
    began_ms: int = -1
    """Wall-clock time at which the rebalance under way began; −1 if there is none."""
    phases: Phases | None = None
    """The phases of the rebalance under way, from the end of its join phase on."""
    prepared: dict[str, object] = field(default_factory=dict, compare=False, repr=False)
    """The members that an upgrade under way has prepared already, by id (`coordinator.migration`)."""

    @classmethod
    def of(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """The group as record 2 has it: Stable, or Empty if it has no members.

        It has members and no leader if it was a consumer group before and its members have yet to join."""
        group = cls(
            group_id,
            value.generation,
            ClassicState.STABLE if value.members else ClassicState.EMPTY,
            protocol_type=value.protocol_type,
            protocol=value.protocol,
            leader=value.leader,
        )
        for member in value.members:
            protocols = ((value.protocol or "", member.subscription),)
            group.add(
                GenerationMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms
                    if member.rebalance_timeout_ms >= 0
                    else member.session_timeout_ms,
                    member.session_timeout_ms,
                    protocols,
                    member.assignment,
                )
            )
        group.leader = value.leader
        return group

    def value(self, wall_ms: int, assignments: dict[str, bytes] | None = None) -> GroupMetadataValue:
        """Record 2: this generation, with the assignments given or else those that the members have."""
        protocol = self.protocol or ""
        return GroupMetadataValue(
            generation=self.generation,
            current_state_timestamp_ms=wall_ms,
            protocol_type=self.protocol_type or "",
            protocol=self.protocol,
            leader=self.leader,
            members=tuple(
                ClassicMember(
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscription=member.metadata(protocol),
                    assignment=member.assignment if assignments is None else assignments[member.member_id],
                )
                for member in self.members.values()
            ),
        )

    # States.

    def move(self, to: ClassicState) -> None:
        """Change the state. Raises `ValueError` for a change that is not in the table."""
        if (self.state, to) not in CLASSIC_TRANSITIONS:
            raise ValueError(f"group {self.group_id} cannot become {to.value} while it is {self.state.value}")
        self.previous, self.state = self.state, to

    @property
    def may_rebalance(self) -> bool:
        return (self.state, ClassicState.PREPARING_REBALANCE) in CLASSIC_TRANSITIONS

    @property
    def is_rebalancing(self) -> bool:
        return self.state in (ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE)

    @property
    def has_all_joined(self) -> bool:
        """Whether every member waits in the join phase, and no member id was given out in vain."""
        return not self.pending and self.num_waiting == len(self.members)

    def wait_for_join(self, member: GenerationMember, token: int) -> None:
        """Let a member without a JoinGroup that waits wait for the end of the join phase."""
        member.join = token
        self.num_waiting += 1

    def take_join(self, member: GenerationMember) -> int | None:
        """Return the number of the member's JoinGroup that waits, if any: it will be answered."""
        token, member.join = member.join, None
        self.num_waiting -= token is not None
        return token

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member may take to join again, in ms; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def begin_generation(self) -> None:
        """End the join phase: those who joined are the members of the next generation."""
        self.generation += 1
        self.protocol = self.best_protocol() if self.members else None
        self.not_synced = set(self.members)
        self.move(ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY)

    def end_join_phase(self, wall_ms: int) -> None:
        """Note how long the join phase took, and for whom the group waited."""
        waited_for: list[GenerationMember] = []
        if self.previous is not ClassicState.EMPTY:
            last_first = sorted(self.members.values(), key=lambda member: -member.joined_ms)
            waited_for = [one for one in last_first[:WAITED_FOR_MAX] if one.joined_ms > self.began_ms]
        arrivals = tuple(Arrival(one.member_id, one.joined_ms) for one in waited_for)
        self.phases = Phases(self.began_ms, wall_ms, arrivals)

    def elect_leader(self) -> bool:
        """Keep the leader if it has joined again, or else take another member that has.

        False if no member has joined."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join is None:
            joined = (member_id for member_id, member in self.members.items() if member.join is not None)
            found = next(joined, None)
            if found is None:
                return False
            self.leader = found
        return True

    # Members.

    def add(self, member: GenerationMember) -> None:
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.pending.pop(member.member_id, None)

    def update(self, member: GenerationMember, protocols: Protocols) -> None:
        """Take over the protocols that a member names now."""
        self._count(member.protocols, -1)
        self._count(protocols, 1)
        member.protocols = protocols

    def _count(self, protocols: Protocols, number: int) -> None:
        self.protocols_bytes += number * bytes_of(protocols)
        for name in dict(protocols):
            self.support[name] += number
            if not self.support[name]:
                del self.support[name]

    def remove(self, member_id: str) -> GenerationMember | None:
        """Remove a member or a pending member id; another member becomes the leader if it was the leader.

        No request of the member waits any more."""
        self.pending.pop(member_id, None)
        self.not_synced.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            if member.instance_id is not None:
                self.instances.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace(self, instance_id: str, new_id: str) -> GenerationMember:
        """Give a static member's place to a new member id; return the new member.

        The new member has the place in the order of members, the assignment and the leadership of the old."""
        old_id = self.instances[instance_id]
        old = self.members[old_id]
        new = GenerationMember(
            new_id,
            instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        self.members = {
            (new_id if key == old_id else key): (new if key == old_id else member)
            for key, member in self.members.items()
        }
        self.instances[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.not_synced:
            self.not_synced.remove(old_id)
            self.not_synced.add(new_id)
        return new

    # Protocols.

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols may join: the group has no members, or one fits them all."""
        offered = list(names)
        if not protocol_type or not offered:
            return False
        if self.state is ClassicState.EMPTY or not self.members:
            return True
        return protocol_type == self.protocol_type and any(map(self._is_common, offered))

    def best_protocol(self) -> str:
        """The protocol with most votes: each member votes for the first of its own that all members support.

        Of several with equally many, the one that the first member prefers."""
        votes = Counter(
            next(name for name, _ in member.protocols if self._is_common(name))
            for member in self.members.values()
        )
        first = next(iter(self.members.values()))
        order = [name for name, _ in first.protocols]
        return max(votes, key=lambda name: (votes[name], -order.index(name)))

    def _is_common(self, name: str) -> bool:
        return self.support[name] == len(self.members)
