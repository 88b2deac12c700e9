"""The application side: the calls of a consumer, in steps that a flavour drives.

User code runs here and only here: rebalance callbacks, deserialisers, commit callbacks, client-side
assignors. `poll` does automatic commits, raises what the background side met, runs callbacks and hands out
records; it asks for no metadata. Calls that wait have a future, and the background side keeps their limits.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final

from client.core.consumed import ConsumedRecords
from client.core.effects import CallAnswer, NewsWait, Steps, UserCall
from client.core.env import Environment
from client.core.errors import BackgroundFailed, IllegalState, TimedOut
from client.core.events import (
    ApplicationEvent,
    AssignEvent,
    BackgroundEvent,
    CloseEvent,
    CommitEndedEvent,
    ErrorEvent,
    FetchResponseEvent,
    LeaveGroupEvent,
    PauseEvent,
    PollEvent,
    PositionsEvent,
    SeekEvent,
    UpdateMetadataEvent,
)
from client.core.fetch.handler import FetchHandler
from client.core.inquiries import Inquiries
from client.core.offset_commits import CommitCallback, OffsetCommits, Offsets, log_failure
from client.core.rebalance import IN_CALLBACK, ApplicationRounds, RebalanceCallbacks, RoundEvent
from client.core.settings import ConsumerSettings
from client.core.subscription import Subscription, check_topics
from client.core.types import ConsumerRecord, OffsetAndMetadata, TopicPartition, partition_names
from client.core.unraised import UnraisedErrors

CHORES_MS: Final = 100.0
"""While records are handed out one by one, what poll() does beside is done this often."""

CLOSE_TIMEOUT_MS: Final = 30_000.0
"""The time limit of close() that is given none, as in Java's client."""

CALLBACKS_MAX: Final = 10_000
"""Most callbacks of asynchronous commits that wait for a poll(); further commits are refused."""

LEAVE_SHARE: Final = 0.5
"""Leaving the group may take this part of close()'s time; the rest is for what is left to be sent."""

_log = logging.getLogger("quorate.consumer")


class Application:
    """The application side of one consumer. Calls that return `Steps` may wait, the others never do."""

    def __init__(
        self,
        settings: ConsumerSettings,
        env: Environment,
        fetched: FetchHandler,
        events: deque[BackgroundEvent],
        send: Callable[[ApplicationEvent], None],
    ) -> None:
        self.is_closed = False
        self._settings = settings
        self._now_ms = env.now_ms
        self._events = events
        self._send = send
        self._records = ConsumedRecords(settings, fetched)
        self.inquiries = Inquiries(settings, env, send)
        self.commits = OffsetCommits(settings, env, self._records, send, events.append)
        self.subscription = Subscription(settings, send)
        self.rounds = ApplicationRounds(
            settings, self._records, self.commits, self.subscription.offer_assignors, send
        )
        self._ended_commits: deque[CommitEndedEvent] = deque()
        self._errors = UnraisedErrors()
        self._is_polling = False
        self._next_chores_ms = 0.0
        self._poll_again_ms = settings.max_poll_interval_ms / 3

    # Consuming.

    @property
    def paused(self) -> set[TopicPartition]:
        """The partitions that pause() holds back."""
        return self._records.paused

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions whose records are handed out."""
        return self.rounds.assignment

    def poll(self, most: int, timeout_ms: float) -> Steps[list[ConsumerRecord]]:
        """Return up to `most` records, none if there are none in time."""
        deadline_ms = self._now_ms() + timeout_ms
        with self._alone():
            while True:
                self._do_chores()
                yield from self._take_news()
                records = self._records.take(most)
                if records:
                    return records
                if self._now_ms() >= deadline_ms:
                    return []
                chores_ms = max(self.commits.next_ms(), self._next_chores_ms)
                yield NewsWait(min(deadline_ms, chores_ms, self._now_ms() + self._poll_again_ms))
                self.check_open()

    def take_one(self) -> ConsumerRecord | None:
        """Return a record if one is ready and nothing else is to be done; otherwise poll() is due."""
        if self._events or self._now_ms() >= self._next_chores_ms or self.is_closed:
            return None
        return self._records.take_one()

    def _do_chores(self) -> None:
        self._next_chores_ms = self._now_ms() + min(CHORES_MS, self._settings.max_poll_interval_ms / 10)
        self._send(PollEvent())
        self.commits.commit_periodically(self.assignment)

    def _take_news(self) -> Steps[None]:
        """Take what the background side has sent, run callbacks, and raise errors, one with each call."""
        self._receive()
        yield from self._run_callbacks()
        self._errors.raise_next()

    def _run_callbacks(self) -> Steps[None]:
        yield from self.rounds.run()
        while self._ended_commits:
            event = self._ended_commits.popleft()
            assert event.callback is not None
            yield UserCall(event.callback, (event.error, event.offsets), self.rounds.deadline_ms)

    def _receive(self) -> None:
        """Take events. What calls the user's code waits for `_run_callbacks`."""
        while self._events:
            event = self._events.popleft()
            match event:
                case FetchResponseEvent():
                    self._records.add(event)
                case PositionsEvent():
                    self._records.begin(event.positions)
                case CommitEndedEvent(callback=None):
                    log_failure(event)
                case CommitEndedEvent():
                    self._ended_commits.append(event)
                case ErrorEvent():
                    self._errors.add(event)
                case _:
                    assert isinstance(event, RoundEvent)
                    self.rounds.add(event)

    # Subscription and assignment.

    def subscribe(
        self, topics: Collection[str], regex: str | None, callbacks: RebalanceCallbacks
    ) -> Steps[None]:
        """Join the group with these topics. Nothing at all is `unsubscribe`."""
        self.check_open()
        check_topics(topics)
        if not topics and not regex:
            yield from self.unsubscribe(None)
            return
        if self._settings.group_id is None:
            raise IllegalState("subscribe() needs group.id; assign() does without")
        if not self.subscription.is_on and self.assignment:
            raise IllegalState("partitions are assigned by hand: unsubscribe() first")
        self.rounds.callbacks = callbacks
        self._clear_buffer()
        self._send(UpdateMetadataEvent(topics=frozenset(topics)))
        self.subscription.begin(topics, regex)

    def assign(self, partitions: Mapping[TopicPartition, int | None]) -> Steps[None]:
        """Fetch these partitions without the group. Nothing at all is `unsubscribe`.

        Each begins at its offset, which may be FIRST_OFFSET or LAST_OFFSET; None stands for the committed
        one, or else auto.offset.reset."""
        self.check_open()
        if not partitions:
            yield from self.unsubscribe(None)
            return
        if self.subscription.is_on:
            raise IllegalState("topics are subscribed to: unsubscribe() first")
        self._commit_automatically()
        self._end(self.assignment - partitions.keys())
        self.assignment.update(partitions)
        self._send(UpdateMetadataEvent(topics=frozenset(at.topic for at in partitions)))
        version = self._records.new_version(partitions)
        self._send(AssignEvent(partitions=dict(partitions), version=version))

    def unsubscribe(self, timeout_ms: float | None) -> Steps[None]:
        """Give up all partitions: by leaving the group after subscribe(), at once after assign()."""
        self.check_open()
        self.check_not_in_callback("unsubscribe()")
        if self.subscription.is_on:
            yield from self._leave(self.inquiries.deadline_ms(timeout_ms), closes=False)
        elif self.assignment:
            self._commit_automatically()
            self._send(AssignEvent(partitions={}, version=self._records.new_version(())))
        self._end(set(self.assignment))

    def _leave(self, deadline_ms: float, *, closes: bool) -> Steps[None]:
        """Leave the group, running the callbacks that this needs. Raises what they raise, and `TimedOut`."""
        future: Future[None] = Future()
        self._send(LeaveGroupEvent(closes=closes, future=future, deadline_ms=deadline_ms))
        self.rounds.deadline_ms = deadline_ms
        raised: Exception | None = None
        try:
            while not future.done() and self._now_ms() < deadline_ms:
                try:
                    self._receive()
                    yield from self._run_callbacks()
                except Exception as error:
                    raised = raised or error
                yield NewsWait(deadline_ms, future)
        finally:
            self.rounds.deadline_ms = None
            self.subscription.end()
            self._end(set(self.assignment))
        if raised is not None:
            raise raised
        yield CallAnswer(future, deadline_ms)

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Go on from other offsets; −2 is the first one of the partition, −1 the end."""
        self.check_open()
        self._check_assigned(positions)
        version = self._records.new_version(positions)
        self.rounds.send(SeekEvent(positions=dict(positions), version=version), positions)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Hand out nothing of these partitions until resume(), or until they are given up."""
        self.check_open()
        self._check_assigned(partitions)
        self._records.pause(partitions)
        self.rounds.send(PauseEvent(partitions=frozenset(partitions), resumes=False), partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self.check_open()
        self._check_assigned(partitions)
        self._records.resume(partitions)
        self.rounds.send(PauseEvent(partitions=frozenset(partitions), resumes=True), partitions)

    # Offsets.

    def position(self, partition: TopicPartition, timeout_ms: float | None) -> Steps[int]:
        """Return the offset of the next record that is handed out."""
        deadline_ms = self.inquiries.deadline_ms(timeout_ms)
        while True:
            self.check_open()
            self._receive()
            position = self.commits.releasing.get(partition) or self._records.position(partition)
            if position is not None:
                return position.offset
            self._check_assigned((partition,))
            if self.rounds.begins(partition):
                raise IllegalState(
                    f"{partition_names(partition)} has a position when on_assign has ended;"
                    " committed() and seek() can be used before"
                )
            self._errors.raise_next()
            if self._now_ms() >= deadline_ms:
                raise TimedOut(f"the position of {partition_names(partition)} was not known in time")
            yield NewsWait(deadline_ms)

    def lag(self, partition: TopicPartition) -> int | None:
        """Records behind the position, None before the first answer of the partition's leader."""
        self.check_open()
        self._receive()
        self._check_assigned((partition,))
        return self._records.lag(partition)

    def commit(
        self, offsets: Offsets | None, timeout_ms: float | None
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata]]:
        """Commit offsets, or the positions of all partitions. Returns what was committed."""
        chosen = self._to_commit(offsets)
        self.rounds.check_not_lost()
        yield from self.commits.commit(chosen, self.inquiries.deadline_ms(timeout_ms))
        return chosen

    def commit_async(self, offsets: Offsets | None, callback: CommitCallback | None) -> None:
        """Commit without waiting; a later poll() or close() calls the callback."""
        self._receive()
        if len(self._ended_commits) >= CALLBACKS_MAX:
            raise IllegalState(f"{CALLBACKS_MAX:,} callbacks of commits wait for poll(), which runs them")
        self.commits.commit_async(self._to_commit(offsets), callback)

    def store_offsets(self, offsets: Offsets) -> None:
        """Store offsets for automatic commits, and for commits without offsets."""
        self.check_open()
        if self._settings.enable_auto_offset_store:
            raise IllegalState("store_offsets() needs enable.auto.offset.store=false")
        self._check_assigned(offsets)
        self.commits.store(offsets)

    # The end.

    def close(self, timeout_ms: float | None) -> Steps[None]:
        """Commit under enable.auto.commit, leave the group, and send what is left.

        Raises what a callback raised. What did not end in time is logged; the consumer is closed anyway."""
        if self.is_closed:
            return
        self.check_not_in_callback("close()")
        self.is_closed = True
        timeout_ms = CLOSE_TIMEOUT_MS if timeout_ms is None else timeout_ms
        begun_ms = self._now_ms()
        raised: list[Exception] = []
        if self.subscription.is_on:
            leaving = self._leave(begun_ms + timeout_ms * LEAVE_SHARE, closes=True)
        else:
            leaving = self.commits.commit_before_release(self.assignment, begun_ms + timeout_ms * LEAVE_SHARE)
        yield from self._end_part(leaving, raised)
        yield from self._end_part(self._send_rest(begun_ms + timeout_ms), raised)
        self._end(set(self.assignment))
        if raised:
            raise raised[0]

    def _send_rest(self, deadline_ms: float) -> Steps[None]:
        yield from self.commits.wait_for_pending(deadline_ms)
        future: Future[None] = Future()
        self._send(CloseEvent(future=future, deadline_ms=deadline_ms))
        yield CallAnswer(future, deadline_ms)
        self._receive()
        self.rounds.deadline_ms = deadline_ms
        yield from self._run_callbacks()

    def _end_part(self, part: Steps[None], raised: list[Exception]) -> Steps[None]:
        try:
            yield from part
        except (TimedOut, BackgroundFailed) as error:
            _log.warning("close() did not wait any longer: %s", error)
        except Exception as error:
            raised.append(error)

    # Helpers.

    def _to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        self.check_group("commit()")
        if offsets is not None:
            return dict(offsets)
        self._receive()
        return self.commits.offsets(self.assignment | self.commits.releasing.keys())

    def _commit_automatically(self) -> None:
        if self._settings.commits_automatically:
            self.commits.commit_async(self.commits.offsets(self.assignment), None)

    def _clear_buffer(self) -> None:
        """Fetch again what was fetched and not handed out, by seeking to the positions."""
        positions = self._records.positions(self.assignment)
        if positions:
            offsets = {at: position.offset for at, position in positions.items()}
            self._send(SeekEvent(positions=offsets, version=self._records.new_version(offsets)))

    def _end(self, partitions: Collection[TopicPartition]) -> None:
        self.assignment.difference_update(partitions)
        self._records.end(partitions)
        self.commits.forget(partitions)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self.check_open()
        self.check_not_in_callback("poll()")
        if self._is_polling:
            raise IllegalState("poll() runs already, in another task or thread")
        self._is_polling = True
        try:
            yield
        finally:
            self._is_polling = False

    def check_open(self) -> None:
        """Raise IllegalState when closed; callbacks of close() may still call the consumer."""
        if self.is_closed and not IN_CALLBACK.get():
            raise IllegalState("the consumer is closed")

    def check_not_in_callback(self, call: str) -> None:
        """Raise IllegalState in a rebalance callback, which these calls would wait for."""
        if IN_CALLBACK.get():
            raise IllegalState(f"{call} cannot be called by a rebalance callback")

    def check_group(self, call: str) -> None:
        """Raise IllegalState without a group, or when closed."""
        self.check_open()
        if self._settings.group_id is None:
            raise IllegalState(f"{call} needs group.id: offsets are committed in a group")

    def _check_assigned(self, partitions: Collection[TopicPartition]) -> None:
        missing = sorted(set(partitions) - self.assignment)
        if missing:
            raise IllegalState(f"{partition_names(missing[0])} is not assigned to this consumer")
