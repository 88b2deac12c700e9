"""The push protocol (seed 004), served by `cluster.lineage.push`: the coordinator calls its consumers.

A consumer's network thread answers Pings, with the positions of the program's work. Stop and Start wait until
the program polls, and so does what comes after them on the connection: a program that is slow is late with
its answer. Commits are the coordinator's records, and Start names the offsets in them.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from cluster.lineage.push_client import PushClient
from history.render import plural
from lineage.push.decisions import Failover
from lineage.push.messages import RegisterRequest, partition_number
from quorate.generations.contest import COMMIT_MS, GROUP, HEARTBEAT_MS, POLL_MS, SESSION_MS
from quorate.generations.ledger import Part, RunFigures
from quorate.generations.players.older import OlderPlayer
from quorate.generations.players.on_cluster import PlayedMember

RESUME_MS: Final = 1_000.0
"""Time until an operator starts a consumer again that found no broker."""
RETRIES: Final = SESSION_MS // HEARTBEAT_MS - 1
"""Failed Pings are repeated so often, which makes up about a session timeout."""


class Commits(Enum):
    """The way in which a consumer's offsets are committed."""

    PING = "by the replies to Ping"
    OFFSET_COMMIT = "by OffsetCommit in an interval"
    NONE = "not at all"


class PushPlayer(OlderPlayer):
    """Seed 004. As in the seed, a new coordinator waits for all to register again, and Ping commits.

    A variant has another failover, or other commits."""

    port = 9492

    def __init__(self, failover: Failover = Failover.WAIT, commits: Commits = Commits.PING) -> None:
        self.failover = failover
        self.commits = commits
        self.name, self.idea = VARIANTS[failover, commits], ""
        self.is_variant = (failover, commits) != (Failover.WAIT, Commits.PING)
        if not self.is_variant:
            self.idea = (
                "The coordinator calls the consumers: it pings them, which commits their offsets, and for "
                "each change sends Stop to all, waits for the last answer, and sends Start to all; a new one "
                "waits until they have registered again."
            )

    @property
    def settings(self) -> dict[str, Any]:
        return {"lineage_push_port": self.port}

    @property
    def group_configs(self) -> dict[str, str]:
        return {"push.topics": ",".join(self.topics), "push.failover": self.failover.value}

    def new_member(self, name: str) -> PlayedMember:
        return _PushConsumer(self, name)

    def sentence(self, figures: RunFigures, base: RunFigures) -> str:
        if self.failover is Failover.LOG:
            return (
                "A new coordinator reads the log, and stops nobody who registers again: "
                f"{figures.unowned_s:,.0f} partition-seconds without work instead of {base.unowned_s:,.0f}, "
                f"{figures.needless_stops:,} needless stops instead of {base.needless_stops:,}."
            )
        if self.commits is Commits.OFFSET_COMMIT:
            more = figures.messages.total() - base.messages.total()
            return (
                f"Without auto_commit, consumers send OffsetCommit every {COMMIT_MS // 1000} s: "
                f"{figures.repeated_items:,} items repeated instead of {base.repeated_items:,}, for "
                f"{plural(more, 'message')} more."
            )
        if self.commits is Commits.NONE:
            return (
                "Without auto_commit or OffsetCommit, each Start begins at the first item: "
                f"{figures.repeated_items:,} items repeated instead of {base.repeated_items:,}."
            )
        return (
            "Every change, and every new coordinator, stopped all members until the last one had answered: "
            f"{plural(figures.needless_stops, 'needless stop')}, {figures.unowned_s:,.0f} partition-seconds "
            f"without work, and {figures.repeated_items:,} items repeated, done since the last Ping."
        )


VARIANTS: Final = {
    (Failover.WAIT, Commits.PING): "Push",
    (Failover.LOG, Commits.PING): "Push, from the log",
    (Failover.WAIT, Commits.OFFSET_COMMIT): "Push, OffsetCommit",
    (Failover.WAIT, Commits.NONE): "Push, no commits",
}
"""Names of the player and its variants."""


class _PushConsumer(PlayedMember):
    """A consumer and its program."""

    def __init__(self, stage: PushPlayer, name: str) -> None:
        super().__init__(stage, name)
        register = RegisterRequest(
            group_id=GROUP,
            consumer_id=name,
            auto_commit=stage.commits is Commits.PING,
            ping_interval_ms=HEARTBEAT_MS,
            max_ping_retries=RETRIES,
        )
        self._sends_commits = stage.commits is Commits.OFFSET_COMMIT
        self._client = PushClient(
            self.host,
            register,
            stage.addresses,
            changed=self._changed,
            gave_up=lambda _why: self._resume_later(),
            moves_on=self._move_on,
            waits_for_polls=True,
            tap=stage.tapped,
        )
        self._commit_ms = self.host.monotonic_ms() + COMMIT_MS

    def start(self) -> None:
        self._client.start()
        self._poll()

    def _poll(self) -> None:
        """Poll: let Stop and Start through, and commit. A program that is slow comes back later."""
        if self.slow_ms:
            self.host.call_later(self.slow_ms, self._poll)
        elif self.is_leaving:
            self._client.quit()
        else:
            self._client.poll()
            if self._sends_commits and self.host.monotonic_ms() >= self._commit_ms:
                self._commit()
            self.host.call_later(POLL_MS * self.host.rng.uniform(0.8, 1.2), self._poll)

    def _resume_later(self) -> None:
        self.host.call_later(RESUME_MS, lambda: None if self.is_leaving else self._client.start())

    def _commit(self) -> None:
        """Send OffsetCommit. One that is refused or lost is not repeated."""
        self._commit_ms = self.host.monotonic_ms() + COMMIT_MS
        self._move_on()
        self._client.commit(self._client.positions, lambda _error: None)

    def _move_on(self) -> None:
        """Do what a fetcher does: move the positions on to what the program has done."""
        parts = {name: (name[0], partition_number(name[1])) for name in self._client.positions}
        items = self.positions(parts.values())
        self._client.positions.update({name: items[part] for name, part in parts.items()})

    def _changed(self) -> None:
        """Tell the ledger; auto_offset_reset is smallest."""
        first_items: dict[Part, int] = {
            (topic, partition_number(name)): max(offset, 0)
            for (topic, name), offset in self._client.positions.items()
        }
        self.works_on(first_items)
