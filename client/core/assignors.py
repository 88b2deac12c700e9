"""Client-side assignors: the application assigns its partitions itself (KIP-848, "Client-Side Assignor").

Kafka does not serve this half of the KIP; Quorate does, under private keys (docs/protocol-extensions.md). The
assignors of `group.local.assignors` are offered to a coordinator that has those keys. One member of the
group is asked to compute, with an assignor that all its members offer; the others learn the result with
their partitions. All methods run on the application side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from client.core.types import TopicPartition


class OfferedMetadata(NamedTuple):
    """The metadata that a member offers to the one that computes."""

    version: int = -1
    """The version of `data`; −1: there is none."""
    data: bytes = b""
    reason: int = 0
    """The assignor's own number for the reason of a change."""


class AssignorData(NamedTuple):
    """The data that the member that computed sends to another one."""

    error: int
    """The assignor's own number; other than 0, the member keeps what it had."""
    version: int
    data: bytes


class MemberToAssign(NamedTuple):
    """One member, as the member that computes is shown it."""

    instance_id: str | None
    rack_id: str | None
    topics: frozenset[str]
    partitions: frozenset[TopicPartition]
    """The member's present target."""
    metadata: OfferedMetadata


class GroupToAssign(NamedTuple):
    """The group at one moment."""

    version: int
    """The newest version of the metadata that all members understand."""
    members: Mapping[str, MemberToAssign]
    """The members by member id."""
    topics: Mapping[str, int]
    """The numbers of partitions by topic."""


class MemberPart(NamedTuple):
    """The part of the assignment that one member gets."""

    partitions: frozenset[TopicPartition] = frozenset()
    data: AssignorData = AssignorData(0, -1, b"")


class ConsumerPartitionAssignor(Protocol):
    """An assignor of the application; Java's name for it."""

    @property
    def name(self) -> str: ...
    @property
    def minimum_version(self) -> int:
        """The oldest version of the members' metadata that it understands."""

    @property
    def maximum_version(self) -> int: ...
    def metadata(self) -> OfferedMetadata:
        """This member's metadata; asked for at subscribe() and after each assignment."""

    def assign(self, group: GroupToAssign) -> Mapping[str, MemberPart]:
        """Compute every member's part, by member id. A member that is left out gets nothing."""

    def on_assignment(
        self, partitions: Sequence[TopicPartition], error: int, version: int, data: bytes
    ) -> None:
        """Learn what this member has now, before on_assign."""


class AssignorOffer(NamedTuple):
    """An assignor as it is offered to the coordinator."""

    name: str
    minimum_version: int
    maximum_version: int
    metadata: OfferedMetadata


def offer(assignor: ConsumerPartitionAssignor) -> AssignorOffer:
    """Ask an assignor for its metadata; runs the user's code."""
    return AssignorOffer(
        assignor.name, assignor.minimum_version, assignor.maximum_version, assignor.metadata()
    )
