"""The classic protocol, spoken by `client.classic_member` in the way of Kafka's consumer.

The program's thread polls, and only a poll joins; a second thread sends heartbeats, and leaves the group when
the program has not polled for `max.poll.interval.ms`. The group's leader asks for the topics' metadata and
joins again when a topic has grown.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from client.classic_member import COOPERATIVE, EAGER, ClassicMachine, Outgoing, Part, Phase, Then
from cluster.simulator.talking import RETRY_MS, CallbackConnection
from coordinator.assignors import (
    AssignmentMemberSpec,
    AssignmentSpec,
    AssignmentTopicMetadata,
    PartitionAssignor,
    RangeAssignor,
    UniformAssignor,
)
from history.render import plural
from quorate.generations.contest import (
    GROUP,
    HEARTBEAT_MS,
    METADATA_MS,
    POLL_INTERVAL_MS,
    POLL_MS,
    SESSION_MS,
)
from quorate.generations.ledger import RunFigures
from quorate.generations.players.classic_offsets import ClassicOffsets
from quorate.generations.players.on_cluster import ClusterPlayer, PlayedMember
from wire.apis import ApiKey
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic

JOIN_PATIENCE_MS: Final = POLL_INTERVAL_MS + 5_000.0
"""The time that Kafka's clients wait for the answer to JoinGroup."""


class ClassicPlayer(ClusterPlayer):
    """The classic protocol: eager with the range assignor, or cooperative with a sticky one."""

    def __init__(self, *, is_cooperative: bool = False) -> None:
        self.is_cooperative = self.is_variant = is_cooperative
        if is_cooperative:
            self.name, self.idea = "Classic, cooperative", ""
        else:
            self.name = "Classic"
            self.idea = (
                "All members give up everything and join again for every change; one of them, the leader, "
                "assigns all partitions anew."
            )
            self.why = (
                "It replaced assignment by the coordinator so that users' assignors run in their own "
                "programs; heartbeats from another thread keep a slow member in the group."
            )

    def new_member(self, name: str) -> PlayedMember:
        return _ClassicConsumer(self, name, is_cooperative=self.is_cooperative)

    def sentence(self, figures: RunFigures, base: RunFigures) -> str:
        if self.is_cooperative:
            return (
                "Members keep what they have while all join again, and what moves takes a second round: "
                f"{figures.unowned_s:,.0f} partition-seconds without work instead of {base.unowned_s:,.0f}, "
                f"{plural(figures.needless_stops, 'needless stop')} instead of {base.needless_stops:,}."
            )
        return (
            "Every change stopped all members: a partition was taken from a member only to be given back "
            f"{figures.needless_stops:,} times, {figures.unowned_s:,.0f} partition-seconds went without "
            f"work, and {figures.repeated_items:,} items were repeated."
        )


class _ClassicConsumer(PlayedMember):
    """A consumer and its program."""

    def __init__(self, stage: ClusterPlayer, name: str, *, is_cooperative: bool) -> None:
        super().__init__(stage, name)
        self._caller = stage.caller(self)
        self._topics = dict(stage.topics)
        self._core = ClassicMachine(
            GROUP,
            self._topics,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=POLL_INTERVAL_MS,
            protocol=COOPERATIVE if is_cooperative else EAGER,
            assign=partial(_assign, UniformAssignor() if is_cooperative else RangeAssignor()),
        )
        self._polled_ms = 0.0
        self._is_asking = self._is_out = self._has_ended = False
        self._offsets = ClassicOffsets(self, self._core, self._caller)

    def start(self) -> None:
        self._poll()
        self.host.call_later(HEARTBEAT_MS, self._beat)
        self.host.call_later(METADATA_MS * self.host.rng.uniform(0.5, 1.0), self._ask_metadata)

    # The program.

    def _poll(self) -> None:
        """Poll: join if that is due. A program that is slow comes back later."""
        if self.slow_ms:
            self.host.call_later(self.slow_ms, self._poll)
        elif self.is_leaving:
            self._close()
        else:
            self._polled_ms = self.host.monotonic_ms()
            self._is_out = False
            self._offsets.own()
            self._offsets.poll()
            if not self._core.is_stable:
                self._ask()
            self.host.call_later(POLL_MS * self.host.rng.uniform(0.8, 1.2), self._poll)

    def _close(self) -> None:
        self._has_ended = True
        self._offsets.before_leave(lambda: self._say(self._core.leave()))

    # The thread of heartbeats.

    def _beat(self) -> None:
        if self._has_ended:
            return
        if not self._is_out and self.host.monotonic_ms() - self._polled_ms > POLL_INTERVAL_MS:
            self._is_out = True
            self._say(self._core.leave())
        elif self._core.is_stable or self._beats_only:
            self._ask()
        self.host.call_later(HEARTBEAT_MS, self._beat)

    @property
    def _beats_only(self) -> bool:
        """Whether it is due to join again, but its program does not poll: heartbeats keep its session."""
        is_member = self._core.generation >= 0
        return is_member and self._core.phase is Phase.UNJOINED and self.slow_ms > 0

    # What is sent, and what is answered.

    def _ask(self) -> None:
        if not self._is_asking and not self._has_ended:
            self._is_asking = True
            self._caller.with_coordinator(self._send)

    def _send(self, connection: CallbackConnection) -> None:
        is_polling = not self.slow_ms
        may_send = is_polling or self._core.phase is not Phase.UNJOINED or self._beats_only
        if self._has_ended or self._is_out or not may_send:
            self._is_asking = False  # things changed while the coordinator was looked for
            return
        if self._core.phase is Phase.UNJOINED and is_polling and self._offsets.must_commit:
            self._offsets.before_join(self._may_join)
            return
        out = self._core.heartbeat() if self._beats_only else self._core.next_request()
        if is_polling:
            self._offsets.own()
        patience_ms = JOIN_PATIENCE_MS if out.api_key is ApiKey.JOIN_GROUP else None
        connection.ask(*out, partial(self._answered, out.api_key), patience_ms)

    def _may_join(self) -> None:
        self._is_asking = False
        self._ask()

    def _answered(self, api_key: int, answer: Any) -> None:
        self._is_asking = False
        if self._has_ended or self._is_out:
            return
        then = self._core.answered(api_key, answer)
        if api_key == ApiKey.SYNC_GROUP and answer is not None and not answer.error_code:
            self._offsets.joined()
        if then is Then.MOVED:
            self._caller.moved()
        if self.slow_ms and self._core.phase is not Phase.SYNCING:
            return  # the next poll goes on
        self._offsets.own()
        if then is Then.AT_ONCE:
            self._ask()
        elif then in (Then.SOON, Then.MOVED):
            self.host.call_later(RETRY_MS * self.host.rng.random(), self._ask)

    def _say(self, farewell: Outgoing | None) -> None:
        if farewell is not None:
            self._caller.with_coordinator(lambda connection: connection.ask(*farewell, lambda _: None))

    # Metadata.

    def _ask_metadata(self) -> None:
        if self._has_ended:
            return
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in self._topics])
        self._caller.with_coordinator(
            lambda connection: connection.ask(ApiKey.METADATA, 12, request, self._told_metadata)
        )
        self.host.call_later(METADATA_MS, self._ask_metadata)

    def _told_metadata(self, answer: Any) -> None:
        if answer is None or self._has_ended:
            return
        found = {topic.name: len(topic.partitions) for topic in answer.topics if not topic.error_code}
        has_grown = any(self._topics[name] != count for name, count in found.items())
        self._topics |= found
        if has_grown and self._core.is_leader and self._core.is_stable:
            self._core.rejoin()


def _assign(
    assignor: PartitionAssignor, owned: Mapping[str, set[Part]], topics: Mapping[str, int]
) -> Mapping[str, set[Part]]:
    """Let the product's assignors, which know topics by id, do the work of the group's leader."""
    ids = {name: name.encode() for name in topics}
    subscribed = frozenset(ids.values())
    members = {}
    for member_id, parts in owned.items():
        target: dict[bytes, tuple[int, ...]] = {}
        for topic, number in sorted(parts):
            target[ids[topic]] = (*target.get(ids[topic], ()), number)
        members[member_id] = AssignmentMemberSpec(subscribed, target)
    known = {ids[name]: AssignmentTopicMetadata(name, count) for name, count in topics.items()}
    answer = assignor.assign(AssignmentSpec(members, known)).members
    return {
        member_id: {
            (topic_id.decode(), number)
            for topic_id, numbers in answer[member_id].target_partitions.items()
            for number in numbers
        }
        for member_id in owned
    }
