"""`SyncConsumer`: the flavour for threads, with confluent-kafka's method names and callback order.

Callbacks run in the thread that calls poll(), consume(), unsubscribe() or close(), within that call.
Heartbeats, fetches and commits run in a background thread, however long the caller is busy.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from threading import RLock
from time import monotonic
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar
from weakref import ref

from client.background_thread import BackgroundThread
from client.confluent import (
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    ConfluentCluster,
    ConfluentMessage,
    KafkaException,
    TopicPartition,
    chosen_offsets,
    listed,
    listed_one,
    plain,
    to_cluster,
    to_error,
)
from client.core import types
from client.core.effects import Steps
from client.core.errors import ConsumerError, DeserializationError, IllegalState, TimedOut
from client.core.member.member import MemberExplanation
from client.core.offset_commits import Offsets
from client.core.rebalance import IN_CALLBACK, RebalanceCallback, bound_callbacks
from client.core.settings import read_settings
from client.tracing import Tracing

FOREVER_S: Final = 366 * 24 * 3_600.0
"""The wait of a call without a time limit."""

CONSUME_MAX: Final = 1_000_000
"""Limit on the messages of one consume(), as in confluent-kafka."""

_RAISED: Final = (IllegalState, DeserializationError, KafkaException)
"""Exceptions of poll() and consume(); KafkaException is what the user's callback got from another call."""

_T = TypeVar("_T")


class GroupMetadata(NamedTuple):
    """The identity of this member, for a transactional producer of another library."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class SyncConsumer:
    """A consumer of Kafka's consumer group protocol with confluent_kafka.Consumer's methods.

        consumer = SyncConsumer({"bootstrap.servers": "localhost:9092", "group.id": "billing"})
        consumer.subscribe(["orders"])
        while True:
            message = consumer.poll(1.0)
            ...

    Times are in seconds; −1 is no limit. poll() and consume() return what a broker reports as messages with
    an error(); other calls raise `KafkaException`. A closed consumer raises RuntimeError.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        self._settings = read_settings(config or {}, settings)
        self._tracing = Tracing(self._settings)
        self._thread = BackgroundThread(self._settings)
        self._application = self._thread.assembly.application
        self._closing = RLock()
        self._raised: Exception | None = None
        """Raised in a consume() that had messages to return; the next call raises it."""
        if self._settings.on_commit is not None:
            self._application.commits.on_commit = self._commit_callback(self._settings.on_commit)

    # Consuming.

    def poll(self, timeout: float | None = None) -> ConfluentMessage | None:
        """Return the next message, None if none came in time. Runs callbacks.

        Raises what a callback raises, and DeserializationError."""
        self._raise_kept()
        began_ns = self._tracing.began_ns()
        try:
            record = self._thread.call(self._application.take_one)
            if record is None:
                records = self._thread.drive(self._application.poll(1, _poll_ms(timeout)))
                record = records[0] if records else None
        except _RAISED:
            raise
        except ConsumerError as error:
            return ConfluentMessage(None, to_error(error))
        if record is None:
            return None
        self._tracing.polled(began_ns, (record,))
        return ConfluentMessage(record)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ConfluentMessage]:
        """Return messages: as many as are asked for, fewer when the time is over. Runs callbacks."""
        if not 0 <= num_messages <= CONSUME_MAX:
            raise ValueError(f"num_messages={num_messages} is not between 0 and {CONSUME_MAX:,}")
        self._raise_kept()
        began_ns = self._tracing.began_ns()
        until_s = monotonic() + _poll_ms(timeout) / 1000
        messages: list[ConfluentMessage] = []
        while len(messages) < num_messages:
            left_ms = max(until_s - monotonic(), 0.0) * 1000
            try:
                steps = self._application.poll(num_messages - len(messages), left_ms)
                records = self._thread.drive(steps)
            except Exception as error:
                if isinstance(error, ConsumerError) and not isinstance(error, _RAISED):
                    messages.append(ConfluentMessage(None, to_error(error)))
                elif messages:
                    self._raised = error
                else:
                    raise
                break
            messages += map(ConfluentMessage, records)
            if not records and monotonic() >= until_s:
                break
        self._tracing.polled(began_ns, [each.record() for each in messages if each.error() is None])
        return messages

    def _raise_kept(self) -> None:
        error, self._raised = self._raised, None
        if error is not None:
            raise error

    def processing(self, *messages: ConfluentMessage) -> AbstractContextManager[Any]:
        """Work on messages in a span of OpenTelemetry, as `quorate.Consumer.processing` does."""
        return self._tracing.processing([message.record() for message in messages])

    def subscribe(
        self,
        topics: Collection[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Join the group with these topics, in place of earlier ones. A text that begins with ^ is a regular
        expression (RE2) for whole names. Callbacks are given the consumer and a list of partitions."""
        if isinstance(topics, str) or not all(isinstance(topic, str) for topic in topics):
            raise TypeError("topics are a list of texts")
        for callback in (on_assign, on_revoke, on_lost):
            if callback is not None and not callable(callback):
                raise TypeError(f"{callback!r} cannot be called")
        names = [topic for topic in topics if not topic.startswith("^")]
        expressions = [topic for topic in topics if topic.startswith("^")]
        regex = "|".join(f"(?:{each})" for each in expressions if expressions[1:]) or "".join(expressions)
        own = self._settings
        given = (on_assign or own.on_assign, on_revoke or own.on_revoke, on_lost or own.on_lost)
        itself = ref(self)  # the thread must not keep a consumer that nobody has any more
        callbacks = bound_callbacks(itself, own, *map(_given, given))
        self._drive(self._application.subscribe(names, regex or None, callbacks))

    def unsubscribe(self) -> None:
        """Leave the group, or end assign()."""
        self._drive(self._application.unsubscribe(None))

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions without the group's coordinator, from their offsets if they have any.

        In on_assign: begin at these offsets; the partitions are assigned in any case."""
        if IN_CALLBACK.get():
            self._seek(partitions)
            return
        self._drive(self._application.assign({plain(each): _offset(each) for each in partitions}))

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """In on_assign: begin at these offsets. Otherwise: assign these partitions too."""
        if IN_CALLBACK.get():
            self._seek(partitions)
            return
        self._reassign({plain(each): _offset(each) for each in partitions}, ())

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """In callbacks: nothing, as the partitions are given up in any case. Otherwise: give these up."""
        if not IN_CALLBACK.get():
            self._reassign({}, [plain(each) for each in partitions])

    def unassign(self) -> None:
        """In callbacks: nothing. Otherwise: give all partitions up."""
        if not IN_CALLBACK.get():
            self._drive(self._application.unsubscribe(None))

    def assignment(self) -> list[TopicPartition]:
        """The partitions whose messages are returned."""
        return [TopicPartition(*each) for each in sorted(self._call(self._assigned))]

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Return no messages of these partitions until resume()."""
        self._call(self._application.pause, [plain(each) for each in partitions])

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Return messages of these partitions again."""
        self._call(self._application.resume, [plain(each) for each in partitions])

    def seek(self, partition: TopicPartition) -> None:
        """Go on from the partition's offset, which may be OFFSET_BEGINNING or OFFSET_END."""
        self._seek([partition])

    # Offsets.

    def commit(
        self,
        message: ConfluentMessage | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit the offset after a message, offsets, or the positions of all partitions.

        An asynchronous commit tells on_commit, in a later poll(). A synchronous one returns the offsets."""
        chosen = chosen_offsets(message, offsets)
        if asynchronous:
            self._call(self._application.commit_async, chosen, None)
            return None
        with self._tracing.committing():
            return listed(self._drive(self._application.commit(chosen, None)))

    def store_offsets(
        self, message: ConfluentMessage | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Store offsets for the next commits; needs enable.auto.offset.store=false."""
        self._call(self._application.store_offsets, chosen_offsets(message, offsets) or {})

    def committed(
        self, partitions: list[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """Return the partitions with the group's committed offsets, OFFSET_INVALID without."""
        self._call(self._application.check_group, "committed()")
        wanted = [plain(each) for each in partitions]
        found = self._drive(self._application.inquiries.committed(wanted, _call_ms(timeout)))
        return [listed_one(each, found.get(each)) for each in wanted]

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets of the partitions' next messages, OFFSET_INVALID where it is not known."""
        return [
            TopicPartition(each.topic, each.partition, self._position(plain(each))) for each in partitions
        ]

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """Return the first offsets at or after the Unix times in ms that stand in the partitions' offsets;
        OFFSET_END where there is none."""
        times = {plain(each): each.offset for each in partitions}
        found = self._drive(self._application.inquiries.list_offsets(times, _call_ms(timeout)))
        return [
            TopicPartition(*each, at.offset if (at := found.get(each)) is not None else OFFSET_END)
            for each in times
        ]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int]:
        """Return a partition's first offset and the one after its last message. They are always asked for."""
        at = plain(partition)
        list_offsets = self._application.inquiries.list_offsets
        low = self._drive(list_offsets({at: types.FIRST_OFFSET}, _call_ms(timeout)))[at]
        high = self._drive(list_offsets({at: types.LAST_OFFSET}, _call_ms(timeout)))[at]
        return (low.offset if low else OFFSET_INVALID), (high.offset if high else OFFSET_INVALID)

    # The cluster and the consumer.

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ConfluentCluster:
        """Return brokers, topics and partitions, of one topic if it is named."""
        topics = None if topic is None else [topic]
        return to_cluster(self._drive(self._application.inquiries.cluster(topics, _call_ms(timeout))))

    def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the cluster's id."""
        return to_cluster(self._drive(self._application.inquiries.cluster([], _call_ms(timeout)))).cluster_id

    def memberid(self) -> str:
        """This member's id, which the client itself chooses."""
        self._call(self._application.check_open)
        return self.explain().member_id

    def consumer_group_metadata(self) -> GroupMetadata:
        """Return the identity of this member as it is at the moment."""
        member = self.explain()
        return GroupMetadata(
            self._settings.group_id or "",
            member.member_epoch,
            member.member_id,
            self._settings.group_instance_id,
        )

    def explain(self) -> MemberExplanation:
        """Say which state the member is in, why, what it waits for, and since when."""
        return self._thread.assembly.explain()

    def close(self, timeout: float | None = None) -> None:
        """Commit under enable.auto.commit, call on_revoke, leave the group, and end the thread.

        Ends within the time limit, of 30 s by default, unless a callback does not return: nothing can end a
        thread's function. Raises what a callback raised; the consumer is closed in any case."""
        self._call(self._application.check_not_in_callback, "close()")
        with self._closing:  # a second call waits for the first
            try:
                self._drive(self._application.close(None if timeout is None else timeout * 1000))
            finally:
                self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        """End the thread of a consumer that was not closed, with a warning. Its member does not leave."""
        thread: BackgroundThread | None = getattr(self, "_thread", None)
        if thread is not None and not self._application.is_closed:
            thread.abandon()  # first: the warning may be an error
            warnings.warn(f"unclosed consumer {self!r}", ResourceWarning, source=self, stacklevel=2)

    # How calls run.

    def _call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        try:
            return self._thread.call(function, *arguments)
        except ConsumerError as error:
            raise self._translated(error) from error

    def _drive(self, steps: Steps[_T]) -> _T:
        try:
            return self._thread.drive(steps)
        except ConsumerError as error:
            raise self._translated(error) from error

    def _translated(self, error: ConsumerError) -> ConsumerError:
        """Return what a call raises: of a closed consumer RuntimeError, and otherwise `KafkaException`."""
        if isinstance(error, IllegalState) and self._application.is_closed:
            return error
        return KafkaException(to_error(error))

    def _position(self, partition: types.TopicPartition) -> int:
        if partition not in self._call(self._assigned):
            return OFFSET_INVALID
        try:
            return self._thread.drive(self._application.position(partition, 0.0))
        except TimedOut:
            return OFFSET_INVALID

    def _assigned(self) -> set[types.TopicPartition]:
        self._application.check_open()
        return set(self._application.assignment)

    def _seek(self, partitions: list[TopicPartition]) -> None:
        offsets = {plain(each): offset for each in partitions if (offset := _offset(each)) is not None}
        self._call(self._application.seek, offsets)

    def _reassign(
        self, more: Mapping[types.TopicPartition, int | None], fewer: Collection[types.TopicPartition]
    ) -> None:
        positions: dict[types.TopicPartition, int | None] = {}
        for each in self._call(self._assigned).difference(fewer):
            offset = self._position(each)
            positions[each] = None if offset == OFFSET_INVALID else offset
        self._drive(self._application.assign({**positions, **more}))

    def _commit_callback(self, callback: Callable[..., Any]) -> Callable[[Exception | None, Offsets], Any]:
        return lambda error, offsets: callback(error and to_error(error), listed(offsets))


def _given(callback: Callable[..., Any] | None) -> RebalanceCallback | None:
    """Return a callback that is given the consumer of a reference, and confluent-kafka's partitions."""
    if callback is None:
        return None
    return lambda itself, partitions: callback(itself(), [TopicPartition(*each) for each in partitions])


def _offset(partition: TopicPartition) -> int | None:
    return None if partition.offset in (OFFSET_INVALID, OFFSET_STORED) else partition.offset


def _call_ms(timeout: float | None) -> float | None:
    """The time limit of a call in ms; without one, default.api.timeout.ms."""
    return None if timeout is None or timeout < 0 else timeout * 1000


def _poll_ms(timeout: float | None) -> float:
    """The time limit of poll() and consume() in ms; without one, forever."""
    return 1000 * (FOREVER_S if timeout is None or timeout < 0 else timeout)
