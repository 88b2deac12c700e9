"""A consumer of an older group protocol with a diary: `python -m tests.failover.old_consumer JSON`.

It writes one JSON line per event, flushed at once, with times in seconds of the machine's monotonic clock,
which all processes share (`benchmarks.diaries` reads them):

`assigned`, `revoked`  partitions that it begins, or no longer goes on, to consume
`started`   the offsets that Start had (push)
`acked`     the offsets of an acknowledged commit, and `wall_ms` when it was
`heard`     the coordinator accepted a request that was sent at `sent_s` (seed 000), or sent a command (push)
`cut`       it has no connection to the coordinator on which it was heard (push)
`alive`     every `ALIVE_MS`: the process runs
`halted`    it commits nothing from now on (SIGUSR1)
`resumed`   it commits again, except every third partition (SIGUSR2)

An offset is the time in ms at which the partition was worked on last, so that offsets of a partition rise
whoever consumes it. OffsetCommit's answer acknowledges a commit. A Ping's answer has no acknowledgement of
its own: the next Ping on the same connection that is no retry stands for it. That Ping was decided after the
answer, and a command leaves only after everything that was decided before it is committed.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any, Final

from cluster.host.host_asyncio import AsyncioHost
from cluster.lineage.push_client import PushClient
from cluster.lineage.rewrite_client import RewriteClient
from lineage.push.consumer import PartitionId
from lineage.push.machines import ConsumerState
from lineage.push.messages import (
    CommandResponse,
    PingRequest,
    PingResponse,
    RegisterRequest,
    StartRequest,
    StopRequest,
    partition_number,
)
from lineage.rewrite.consumer import RewriteConsumerSettings
from lineage.rewrite.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from wire.schema import Message

ALIVE_MS: Final = 50.0
COMMIT_MS: Final = 8
SPARED: Final = 3
"""Every third partition is not committed again once commits resume."""


class Diary:
    """The file, and what the consumer may commit."""

    def __init__(self, file: str) -> None:
        self._out = open(file, "a", encoding="utf-8")  # noqa: SIM115  # open for the life of the process
        self._owned: set[int] = set()
        self.is_halted = False
        self.is_sparing = False

    def note(self, event: str, **fields: Any) -> None:
        self._out.write(json.dumps({"at_s": time.monotonic(), "event": event, **fields}) + "\n")
        self._out.flush()

    def owns(self, partitions: Iterable[int]) -> None:
        """Note what has changed."""
        now = set(partitions)
        for event, changed in (("revoked", self._owned - now), ("assigned", now - self._owned)):
            if changed:
                self.note(event, partitions=sorted(changed))
        self._owned = now

    def may_commit(self, partition: int) -> bool:
        return not (self.is_halted or (self.is_sparing and partition % SPARED == 0))

    def acknowledged(self, offsets: dict[int, int]) -> None:
        self.note("acked", offsets=offsets, wall_ms=time.time_ns() // 1_000_000)

    def halt(self) -> None:
        self.is_halted = True
        self.note("halted")

    def resume(self) -> None:
        self.is_halted, self.is_sparing = False, True
        self.note("resumed")


def worked_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Pusher:
    """A consumer of the push protocol; with `auto_commit` its Pings commit, else OffsetCommit does."""

    def __init__(self, host: AsyncioHost, diary: Diary, asked: dict[str, Any]) -> None:
        self._host = host
        self._diary = diary
        self._is_automatic = bool(asked["auto_commit"])
        self._answered: dict[int, int] = {}
        self._is_heard = False
        self.client = PushClient(
            host,
            RegisterRequest(
                group_id=asked["group"],
                consumer_id=asked["name"],
                auto_commit=self._is_automatic,
                ping_interval_ms=asked["ping_interval_ms"],
                max_ping_retries=asked["max_ping_retries"],
            ),
            tuple((host, port) for host, port in asked["brokers"]),
            changed=self._changed,
            gave_up=self._gave_up,
            tap=self._tap,
        )
        self.client.start()
        if not self._is_automatic:
            self._commit()

    def _gave_up(self, why: str) -> None:
        self._diary.note("gave up", why=why)
        self._host.call_later(100.0, self.client.start)

    def _commit(self) -> None:
        """Commit what may be committed, one request after the other."""
        self._work()
        offsets = {
            part: at
            for part, at in self.client.positions.items()
            if self._diary.may_commit(partition_number(part[1]))
        }

        def done(code: int | None) -> None:
            if code == 0:
                self._diary.acknowledged({partition_number(name): at for (_, name), at in offsets.items()})
            self._host.call_later(COMMIT_MS, self._commit)

        if not self.client.commit(offsets, done):
            self._host.call_later(COMMIT_MS, self._commit)

    def _work(self) -> None:
        """Move positions on; those that may not be committed stand still, because Pings would commit them."""
        positions: dict[PartitionId, int] = self.client.positions
        for part in positions:
            if self._diary.may_commit(partition_number(part[1])):
                positions[part] = worked_ms()

    def _tap(self, message: Message) -> None:
        """Note what has come, before it is answered, and remember what a Ping was answered."""
        if isinstance(message, RegisterRequest | CommandResponse):
            self._answered = {}
        elif isinstance(message, PingResponse):
            self._answered = {
                partition_number(one.partition): one.offset for one in message.offset_info if one.offset >= 0
            }
        elif isinstance(message, PingRequest | StopRequest | StartRequest):
            self._heard(message)

    def _heard(self, command: PingRequest | StopRequest | StartRequest) -> None:
        self._diary.note("heard")
        self._is_heard = True
        if isinstance(command, PingRequest) and not command.num_retries and self._answered:
            self._diary.acknowledged(self._answered)
        if isinstance(command, StartRequest):
            offsets = {partition_number(one.partition): one.offset for one in command.assigned_parts}
            self._diary.note("started", offsets=offsets)
        if self._is_automatic:
            self._work()

    def _changed(self) -> None:
        is_on_line = self.client.core.state in (ConsumerState.WAITING, ConsumerState.CONSUMING)
        if self._is_heard and not is_on_line:
            self._is_heard = False
            self._diary.note("cut")
        self._diary.owns(partition_number(name) for _, name in self.client.positions)


class Rewriter:
    """A consumer of seed 000's protocol."""

    def __init__(self, host: AsyncioHost, diary: Diary, asked: dict[str, Any]) -> None:
        self._diary = diary
        self._topic = asked["topic"]
        self._sent_s = 0.0
        self._sent: Message | None = None
        self.client = RewriteClient(
            host,
            asked["name"],
            RewriteConsumerSettings(
                group_id=asked["group"],
                session_timeout_ms=asked["session_ms"],
                heartbeat_frequency=asked["frequency"],
                commit_interval_ms=COMMIT_MS,
            ),
            [self._topic],
            tuple((host, port) for host, port in asked["brokers"]),
            variant=asked["variant"],
            positions=self._positions,
            changed=self._changed,
            tap=self._tap,
        )
        self.client.start()

    def _positions(self) -> dict[tuple[str, int], int]:
        now_ms = worked_ms()
        return {one: now_ms for one in self.client.core.owned if self._diary.may_commit(one[1])}

    def _tap(self, message: Message) -> None:
        if isinstance(message, HeartbeatRequest | JoinGroupRequest | OffsetCommitRequest):
            self._sent, self._sent_s = message, time.monotonic()
        elif isinstance(message, HeartbeatResponse | JoinGroupResponse):
            if message.error_code == 0:
                self._diary.note("heard", sent_s=self._sent_s)
        elif isinstance(message, OffsetCommitResponse):
            assert isinstance(self._sent, OffsetCommitRequest)
            codes = [one.error_code for topic in message.topics for one in topic.partitions]
            if not any(codes):
                self._diary.acknowledged(
                    {one.partition: one.offset for topic in self._sent.topics for one in topic.partitions}
                )

    def _changed(self) -> None:
        self._diary.owns(number for _, number in self.client.core.consuming)


def main(asked: dict[str, Any]) -> None:
    """Run until killed."""
    loop = asyncio.new_event_loop()
    host = AsyncioHost(loop)
    diary = Diary(asked["file"])
    loop.add_signal_handler(signal.SIGUSR1, diary.halt)
    loop.add_signal_handler(signal.SIGUSR2, diary.resume)

    def tell_alive() -> None:
        diary.note("alive")
        host.call_later(ALIVE_MS, tell_alive)

    make = Rewriter if asked["protocol"] == "rewrite" else Pusher
    host.call_soon(make, host, diary, asked)
    host.call_soon(tell_alive)
    loop.run_forever()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
