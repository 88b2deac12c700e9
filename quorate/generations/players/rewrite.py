"""The rewrite's protocol (seed 000), served by `cluster.lineage.rewrite`: the coordinator assigns.

A consumer of this protocol sends heartbeats from the thread that polls, so a program that is slow is silent,
too. It commits in an interval, and before it joins again. The text has no request that reads offsets, so the
program asks the same node with OffsetFetch of the Kafka port.
"""

from __future__ import annotations

from typing import Any, Final

from cluster.lineage.rewrite_client import RewriteClient
from history.render import plural
from lineage.rewrite.consumer import RewriteConsumerSettings
from quorate.generations.contest import COMMIT_MS, GROUP, HEARTBEAT_MS, SESSION_MS
from quorate.generations.ledger import Part, RunFigures
from quorate.generations.players.beginnings import Beginnings
from quorate.generations.players.older import OlderPlayer
from quorate.generations.players.on_cluster import PlayedMember

SETTINGS: Final = RewriteConsumerSettings(
    group_id=GROUP,
    session_timeout_ms=SESSION_MS,
    heartbeat_frequency=SESSION_MS // HEARTBEAT_MS,
    commit_interval_ms=COMMIT_MS,
)


class RewritePlayer(OlderPlayer):
    """Seed 000, in the design's variant or in the thread's."""

    port = 9592

    def __init__(self, variant: str = "design") -> None:
        self.variant = variant
        self.is_variant = variant == "thread"
        if self.is_variant:
            self.name = "Assigned JoinGroup, thread"
            self.idea = ""
        else:
            self.name = "Assigned JoinGroup"
            self.idea = (
                "The coordinator tells all members at their next heartbeat to join again, waits for the "
                "slowest, and answers each JoinGroup with what it gets."
            )
            self.why = (
                "It replaced push so that members call the coordinator, which need not call each of them, "
                "and so that a new coordinator goes on with what the log says."
            )

    @property
    def settings(self) -> dict[str, Any]:
        return {"lineage_rewrite_port": self.port, "lineage_rewrite_variant": self.variant}

    def new_member(self, name: str) -> PlayedMember:
        return _RewriteConsumer(self, name)

    def sentence(self, figures: RunFigures, base: RunFigures) -> str:
        if self.is_variant:
            return (
                "With fewer states: members stop and join again after a failover, and who was found dead "
                f"is forgotten at once: {figures.unowned_s:,.0f} partition-seconds without work instead of "
                f"{base.unowned_s:,.0f}."
            )
        return (
            "Every change had all members join again, and who was slow was silent: "
            f"{plural(figures.needless_stops, 'needless stop')}, {figures.unowned_s:,.0f} "
            f"partition-seconds without work, {figures.doubled_items:,} items done twice and "
            f"{figures.repeated_items:,} repeated."
        )


class _RewriteConsumer(PlayedMember):
    """A consumer and its program."""

    def __init__(self, stage: RewritePlayer, name: str) -> None:
        super().__init__(stage, name)
        self._client = RewriteClient(
            self.host,
            name,
            SETTINGS,
            sorted(stage.topics),
            stage.addresses,
            variant=stage.variant,
            changed=self._changed,
            tap=stage.tapped,
            positions=self._positions,
        )
        self._work = Beginnings(self, stage.caller(self), lambda: self._client.core.consuming)
        self._has_begun: frozenset[Part] = frozenset()
        """The partitions that it works on, or worked on until it stopped for the next generation."""

    def start(self) -> None:
        self._client.start()

    def slow(self, for_ms: float) -> None:
        super().slow(for_ms)
        self._client.pause(for_ms)

    def leave(self) -> None:
        """End the process as soon as the program polls; the protocol has no request for it."""
        super().leave()
        self.host.call_later(self.slow_ms, self._end)

    def _end(self) -> None:
        self.works_on({})
        self.host.kill()

    def _changed(self) -> None:
        self._work.own()
        if self._client.core.is_consuming:
            self._has_begun = self._work.parts

    def _positions(self) -> dict[Part, int]:
        """Return what there is to commit: nothing of a partition on which the work has not begun."""
        return self.positions(self._has_begun & self._client.core.owned)
