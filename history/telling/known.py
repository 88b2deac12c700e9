"""The inputs of counterfactuals: the facts, the evidence by member, and the names for both."""

from __future__ import annotations

from dataclasses import dataclass, field

from history.facts.rows import GroupRows, MemberSession, OwnershipSpan, SpanKind

from .evidence import GroupNotes
from .member_labels import MemberLabels


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """A statement about what would have happened otherwise, for one epoch."""

    kind: str
    """``heartbeat``, ``return``, ``acknowledgement`` or ``wait``."""
    index: int
    """The entry that opened the epoch."""
    epoch: int
    member_id: str
    deadline_ms: int | None = None
    """Epoch ms by which the member could have prevented its removal."""
    late_ms: int | None = None
    """Milliseconds by which it came too late; ``None``: unknown."""
    sooner_ms: int | None = None
    """Milliseconds by which the epoch could have been stable sooner, at most; ``None``: unknown."""
    sooner_ms_min: int | None = None
    """The same at least; ``None``: unknown."""
    at_ms: int | None = None
    """Epoch ms at which it came, or at which everything else was done."""
    is_certain: bool
    """The records prove all of it; otherwise ``words`` say what is unknown."""
    words: str


@dataclass(slots=True)
class Known:
    """Facts and evidence indexed by member, since a log may have thousands of removals."""

    facts: GroupRows
    noted: GroupNotes
    labels: MemberLabels
    _stays: dict[str, list[MemberSession]] = field(default_factory=dict)
    _instances: dict[str, list[MemberSession]] = field(default_factory=dict)
    _owed: dict[tuple[str, int | None], list[OwnershipSpan]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for session in self.facts.sessions:
            self._stays.setdefault(session.member_id, []).append(session)
            self._instances.setdefault(session.instance_id or "", []).append(session)
        for span in self.facts.spans:
            if span.kind is SpanKind.REVOKING and span.member_id is not None:
                self._owed.setdefault((span.member_id, span.to_index), []).append(span)

    def back_again(self, session: MemberSession) -> MemberSession | None:
        """The member's next session: ids are chosen at the start of a process, so it is the same process."""
        later = (one for one in self._stays[session.member_id] if one.from_index > (session.to_index or 0))
        return next(later, None)

    def instance_again(self, session: MemberSession) -> MemberSession | None:
        """The next session under the same instance id."""
        same = self._instances[session.instance_id] if session.instance_id else ()
        return next((one for one in same if one.from_index >= (session.to_index or 0)), None)

    def owed(self, session: MemberSession) -> list[OwnershipSpan]:
        """Partitions that the member still had to revoke when its session ended."""
        return self._owed.get((session.member_id, session.to_index), [])
