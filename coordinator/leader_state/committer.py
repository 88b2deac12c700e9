"""The client whose commits were decided last: what is found out once for all that arrived together."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.api import Context
from coordinator.limits import GroupSettings
from records import Cause
from wire.messages.offset_commit import OffsetCommitRequest


@dataclass(slots=True)
class Committer:
    """A client that may commit to a group: what its commits in one context have in common.

    A context serves requests that arrived together. Nothing else is decided in between, and a commit changes
    neither members nor settings, so this is found out once for all of them."""

    ctx: Context
    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None
    version: int
    settings: GroupSettings
    fitting: int
    """Number of partitions whose records certainly fit into one decision."""
    cause: Cause

    def sends(self, request: OffsetCommitRequest, version: int, ctx: Context) -> bool:
        """Whether the request is another commit of this client in this context."""
        return (
            self.ctx is ctx
            and self.group_id == request.group_id
            and self.member_id == request.member_id
            and self.epoch == request.generation_id_or_member_epoch
            and self.instance_id == request.group_instance_id
            and self.version == version
        )
