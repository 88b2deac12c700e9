"""The partitions that each member last reported to own, by which its next report is judged (`Report`).

A new leader knows none of it, and is the more careful: what looks like an acknowledgement may cost one more
heartbeat then. Nothing here is in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from coordinator.state.dissolving import emptied
from coordinator.state.model import JOINING, Member
from coordinator.state.reconcile import Current, Owned, Report, same
from coordinator.volatile.timers import MemberKey
from records import MemberState

TELLINGS_MAX: Final = 3
"""How often in a row a member is told the same revocation before its unchanged report is believed: so many
replies are not lost one after the other, and a client that says everything each time must get on."""


class Reports:
    """The newest report of every member that this leader has heard one of."""

    def __init__(self) -> None:
        self.last: dict[MemberKey, Owned] = {}
        self._repeats: dict[MemberKey, int] = {}
        """How often in a row the last one came again, in full, since the revocation under way was told."""

    def hear(
        self, key: MemberKey, member: Member | None, owned: Owned | None, epoch: int, is_full: bool
    ) -> Report:
        """Takes note of a heartbeat that was let in, and puts it beside the member's report before."""
        repeats = self._repeats.pop(key, 0)
        if owned is None:
            return Report(None, epoch)
        current = member.current if member is not None else JOINING
        owned, last = _its_own(owned, current), self.last.get(key)
        if last is None or not same(owned, last):
            self.last[key] = owned
            return Report(owned, epoch, last, is_full)
        if is_full and current.state is MemberState.UNREVOKED_PARTITIONS:
            repeats = self._repeats[key] = repeats + 1
        return Report(owned, epoch, last, is_full, repeats >= TELLINGS_MAX)

    def forget(self, key: MemberKey) -> None:
        """The member is gone."""
        self.last.pop(key, None)
        self._repeats.pop(key, None)

    def clear(self) -> Iterator[None]:
        """Nothing was heard; the steps let go of what was."""
        last, self.last = self.last, {}
        self._repeats = {}
        return emptied(last)


def _its_own(owned: Owned, current: Current) -> Owned:
    """The report without what the member was never given, so that no more is kept than the log has anyway."""
    if same(owned, current.assigned):
        return current.assigned
    found: dict[bytes, set[int]] = {}
    for topic_id, partitions in owned.items():
        has = [epochs_of.get(topic_id, {}) for epochs_of in (current.assigned, current.pending)]
        if its_own := {number for number in partitions if any(number in epochs for epochs in has)}:
            found[topic_id] = its_own
    return found
