"""A consumer of the push protocol with connections and time from a Host, around `lineage.push.consumer`.

The program may make commands wait until it polls: then Pings are answered meanwhile, unless a command that
waits came before them, as in a consumer with a thread for its connection.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from cluster.lineage.client_line import Address, ClientLine
from lineage.push.consumer import (
    Action,
    AskBroker,
    CloseConnection,
    GiveUp,
    PartitionId,
    PushConsumerCore,
    RegisterAt,
    SendAnswer,
)
from lineage.push.messages import (
    CommandType,
    RegisterRequest,
    decode_command,
    decode_lookup_response,
    frame,
    partition_number,
)
from lineage.rewrite.messages import (
    CommitPartition,
    CommitTopic,
    OffsetCommitRequest,
    OffsetCommitResponse,
    decode_response,
    encode_request,
)
from raftlog.env.host import Host, Timer
from wire.errors import MalformedFrame
from wire.schema import Message

ANSWER_MS: Final = 2_000.0
"""The time that a lookup or a commit waits for its answer."""

_PING: Final = CommandType.PING.to_bytes(2, "big")

Tap = Callable[[Message], None]


class PushClient:
    """One consumer. `changed` is called after each change of what it consumes, and `gave_up` with a sentence.

    `moves_on` is called before each command: it moves `positions` on, of which the answer to Ping tells.
    `tap` is told of each message that is sent, and of each that comes."""

    def __init__(
        self,
        host: Host,
        register: RegisterRequest,
        brokers: tuple[Address, ...],
        *,
        changed: Callable[[], None] = lambda: None,
        gave_up: Callable[[str], None] = lambda why: None,
        moves_on: Callable[[], None] = lambda: None,
        waits_for_polls: bool = False,
        tap: Tap = lambda message: None,
    ) -> None:
        self.core = PushConsumerCore(register, brokers)
        self._host = host
        self._register = register
        self._changed = changed
        self._gave_up = gave_up
        self._moves_on = moves_on
        self._waits_for_polls = waits_for_polls
        self._tap = tap
        self._coordinator: Address | None = None
        self._asked: ClientLine | None = None
        self._line: ClientLine | None = None
        self._commits: ClientLine | None = None
        self._commit_done: Callable[[int | None], None] | None = None
        self._held: deque[bytes] = deque()
        self._timer: Timer | None = None
        self._answer_timer: Timer | None = None
        self._is_over = False

    @property
    def positions(self) -> dict[PartitionId, int]:
        """The partitions that it consumes, with the next offset of each; the program moves them on."""
        return self.core.positions

    def start(self) -> None:
        """Look for the coordinator, at first or after giving up."""
        self._act(self.core.begin())

    def quit(self) -> None:
        """Leave the group: the closed connection says so."""
        self._act(self.core.quit())
        self._is_over = True
        for line in (self._asked, self._line, self._commits):
            if line is not None:
                line.end()

    def poll(self) -> None:
        """Let commands through that wait for the program."""
        while self._held and not self._is_over:
            self._take(self._held.popleft())

    @property
    def has_held(self) -> bool:
        """Whether a command waits for the program."""
        return bool(self._held)

    # Commits of a consumer without auto_commit.

    def commit(self, offsets: Mapping[PartitionId, int], done: Callable[[int | None], None]) -> bool:
        """Commit offsets with OffsetCommit on a connection of its own; return whether it was sent.

        `done` gets the first error code, 0 for none, or None if the outcome is unknown. One commit at a time.
        """
        if self._commit_done is not None or self._coordinator is None or not offsets:
            return False
        self._commit_done = done
        if self._commits is None or self._commits.is_over:
            self._commits = ClientLine(self._host, self._coordinator, self._committed, self._commit_lost)
        topics: dict[str, CommitTopic] = {}
        for (topic, name), offset in sorted(offsets.items()):
            one = topics.setdefault(topic, CommitTopic(topic=topic))
            one.partitions.append(CommitPartition(partition=partition_number(name), offset=offset))
        self._sent = OffsetCommitRequest(
            group_id=self._register.group_id,
            group_generation_id=-1,
            consumer_id=self._register.consumer_id,
            topics=[*topics.values()],
        )
        self._tap(self._sent)
        self._commits.send(encode_request(1, self._register.consumer_id, self._sent))
        self._answer_timer = self._host.call_later(ANSWER_MS, self._commit_lost)
        return True

    def _committed(self, payload: bytes) -> None:
        try:
            _, answer = decode_response(self._sent, payload)
        except MalformedFrame:
            self._commit_lost()
            return
        assert isinstance(answer, OffsetCommitResponse)
        self._tap(answer)
        codes = [one.error_code for topic in answer.topics for one in topic.partitions]
        self._end_commit(next((code for code in codes if code), 0))

    def _commit_lost(self) -> None:
        if self._commits is not None:
            self._commits.end()
        self._end_commit(None)

    def _end_commit(self, code: int | None) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
        done, self._commit_done = self._commit_done, None
        if done is not None:
            done(code)

    # The protocol.

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case AskBroker():
                    self._ask(action)
                case RegisterAt():
                    if action.address != self._coordinator:  # commits go with the consumer
                        self._commit_lost()
                    self._coordinator = action.address
                    self._held.clear()
                    self._line = ClientLine(self._host, action.address, self._received, self._closed)
                    self._tap(action.request)
                    self._line.send(frame(action.request))
                case SendAnswer():
                    assert self._line is not None
                    self._tap(action.answer)
                    self._line.send(frame(action.answer, action.version))
                case CloseConnection():
                    assert self._line is not None
                    self._line.end()
                    self._held.clear()
                case GiveUp():
                    self._gave_up(action.why)
        self._changed()
        self._arm()

    def _ask(self, action: AskBroker) -> None:
        """Ask one broker for the coordinator."""
        timer: Timer

        def end(payload: bytes | None) -> None:
            timer.cancel()
            line.end()
            if self._asked is not line:
                return
            self._asked = None
            response = None
            if payload is not None:
                try:
                    response = decode_lookup_response(payload)
                except MalformedFrame:
                    response = None
                else:
                    self._tap(response)
            self._act(self.core.looked_up(response, self._now_ms))

        line = self._asked = ClientLine(self._host, action.address, end, lambda: end(None))
        timer = self._host.call_later(ANSWER_MS, lambda: end(None))
        self._tap(action.request)
        line.send(frame(action.request))

    def _received(self, payload: bytes) -> None:
        with contextlib.suppress(MalformedFrame):  # the core ends such a connection
            self._tap(decode_command(payload))
        if self._held or (self._waits_for_polls and not payload.startswith(_PING)):
            self._held.append(payload)
        else:
            self._take(payload)

    def _take(self, payload: bytes) -> None:
        self._moves_on()
        self._act(self.core.received(payload, self._now_ms))

    def _closed(self) -> None:
        self._held.clear()
        self._act(self.core.closed(self._now_ms))

    @property
    def _now_ms(self) -> int:
        return int(self._host.monotonic_ms())

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.core.next_ms is not None and not self._is_over:
            delay_ms = max(self.core.next_ms - self._host.monotonic_ms(), 1.0)
            self._timer = self._host.call_later(delay_ms, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._held:  # else the coordinator was heard: poll() arms it again
            self._act(self.core.time_passed(self._now_ms))
