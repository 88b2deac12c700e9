"""Programs in the shape of confluent-kafka's documented examples, run with its module and with ours.

Each program is given a module, `confluent_kafka` or `quorate.confluent`, and returns what it saw. Both must
see the same, on the same node, over the same messages. docs/client.md has what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import confluent_kafka
import pytest

import quorate.confluent
from quorate.testing import QuorateCluster

LIBRARIES: Final = {"confluent-kafka": confluent_kafka, "quorate": quorate.confluent}
TOPIC: Final = "orders"
NUM_PARTITIONS: Final = 2
MESSAGES: Final = 5
"""Messages of each partition."""

START_MS: Final = 1_700_000_000_000
PATIENCE: Final = 150
"""Polls without a message before a program gives up."""


@dataclass
class Stage:
    """The module that a program runs with, and settings for it."""

    kafka: ModuleType
    settings: dict[str, Any]

    def consumer(self, **settings: Any) -> Any:
        given = {CALLBACKS.get(name) or name.replace("_", "."): one for name, one in settings.items()}
        return self.kafka.Consumer(self.settings | given)

    def at(self, partition: int, *offset: int) -> Any:
        return self.kafka.TopicPartition(TOPIC, partition, *offset)


CALLBACKS: Final = {"on_commit": "on_commit"}
"""Settings whose names have no dots."""

Program = Callable[[Stage], Any]
PROGRAMS: Final[dict[str, Program]] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def messages(consumer: Any, most: int = NUM_PARTITIONS * MESSAGES) -> Iterator[Any]:
    """Poll until that many messages have come."""
    idle = found = 0
    while found < most and idle < PATIENCE:
        message = consumer.poll(0.1)
        if message is None:
            idle += 1
            continue
        found += 1
        yield message


def places(partitions: list[Any]) -> list[tuple[str, int, int]]:
    return sorted((each.topic, each.partition, each.offset) for each in partitions)


def raised(call: Callable[[], Any]) -> tuple[str, ...]:
    """Return the kind of error that a call raises, with its code if it carries an error as a value."""
    try:
        call()
    except Exception as error:
        value = error.args[0] if error.args else None
        kind = next(one.__name__ for one in type(error).__mro__ if one.__name__ in KINDS)
        return (kind, value.name()) if hasattr(value, "name") else (kind,)
    return ("nothing",)


KINDS: Final = ("KafkaException", "RuntimeError", "ValueError", "TypeError", "Exception")


@program
def basic_loop(stage: Stage) -> Any:
    """Subscribe, poll, look at errors, print everything of each message, close."""
    consumer = stage.consumer()
    seen = []
    consumer.subscribe([TOPIC])
    try:
        for message in messages(consumer):
            if message.error():
                raise stage.kafka.KafkaException(message.error())
            seen.append(
                (
                    message.topic(),
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    message.headers(),
                    message.timestamp(),
                    message.leader_epoch(),
                    message.latency(),
                    len(message),
                )
            )
    finally:
        consumer.close()
    return sorted(seen)


@program
def asynchronous_commits(stage: Stage) -> Any:
    """Commit every few messages without waiting; on_commit is told from poll()."""
    told: list[Any] = []

    def on_commit(error: Any, partitions: list[Any]) -> None:
        told.append((error, places(partitions)))

    consumer = stage.consumer(enable_auto_commit=False, on_commit=on_commit)
    consumer.assign([stage.at(0, stage.kafka.OFFSET_BEGINNING)])
    returned = []
    for number, message in enumerate(messages(consumer, MESSAGES), 1):
        if number % MESSAGES == 0:
            returned.append(consumer.commit(message, asynchronous=True))
    for _ in range(PATIENCE):
        if told:
            break
        consumer.poll(0.1)
    committed = places(consumer.committed([stage.at(0), stage.at(1)]))
    consumer.close()
    return returned, told, committed


@program
def synchronous_commits(stage: Stage) -> Any:
    """At least once: commit after the work, and look at what was committed."""
    consumer = stage.consumer(enable_auto_commit=False)
    consumer.subscribe([TOPIC])
    seen = [(message.partition(), message.offset()) for message in messages(consumer)]
    returned = consumer.commit(asynchronous=False)
    committed = consumer.committed([stage.at(0), stage.at(1)], timeout=10)
    errors = [each.error for each in returned]
    consumer.close()
    return sorted(seen), places(returned), errors, places(committed)


@program
def at_most_once(stage: Stage) -> Any:
    """Commit each message before its work; the next consumer goes on after it."""
    first = stage.consumer(enable_auto_commit=False)
    first.assign([stage.at(0)])
    seen = []
    for message in messages(first, 2):
        seen.append((message.offset(), places(first.commit(message=message, asynchronous=False))))
    first.close()
    second = stage.consumer(enable_auto_commit=False)
    second.assign([stage.at(0)])
    seen += [message.offset() for message in messages(second, MESSAGES - 2)]
    second.close()
    return seen


@program
def explicit_offsets(stage: Stage) -> Any:
    """Commit offsets of one's own with metadata, also without having read."""
    consumer = stage.consumer(enable_auto_commit=False)
    mine = [stage.kafka.TopicPartition(TOPIC, 1, 3, metadata="by hand")]
    returned = consumer.commit(offsets=mine, asynchronous=False)
    (found,) = consumer.committed([stage.at(1)], 10)
    consumer.close()
    return places(returned), found.offset, found.metadata, found.error


@program
def batches(stage: Stage) -> Any:
    """consume() returns what is there, up to a number."""
    consumer = stage.consumer()
    consumer.subscribe([TOPIC])
    found: list[Any] = []
    sizes: list[bool] = []
    for _ in range(PATIENCE):
        batch = consumer.consume(num_messages=3, timeout=0.2)
        sizes.append(len(batch) <= 3)
        found += [(one.partition(), one.offset(), one.error()) for one in batch]
        if len(found) == NUM_PARTITIONS * MESSAGES:
            break
    nothing = consumer.consume(5, 0.05), consumer.consume(0)
    consumer.close()
    return sorted(found), all(sizes), nothing


@program
def rebalance_callbacks(stage: Stage) -> Any:
    """on_assign before the first message, on_revoke within close(), with committed positions in it."""
    told: list[Any] = []

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        told.append(("assign", sorted(each.partition for each in partitions)))

    def on_revoke(consumer: Any, partitions: list[Any]) -> None:
        told.append(("revoke", sorted(each.partition for each in partitions)))
        consumer.commit(asynchronous=False)

    consumer = stage.consumer(enable_auto_commit=False)
    consumer.subscribe([TOPIC], on_assign=on_assign, on_revoke=on_revoke)
    for message in messages(consumer, NUM_PARTITIONS * MESSAGES):
        told.append(("message", message.error()))
    owned = sorted((each.topic, each.partition) for each in consumer.assignment())
    consumer.close()
    after = stage.consumer()
    committed = places(after.committed([stage.at(0), stage.at(1)], 10))
    after.close()
    return told, owned, committed


@program
def assign_in_callback(stage: Stage) -> Any:
    """on_assign chooses where to begin."""

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        for each in partitions:
            each.offset = 2 + each.partition
        consumer.assign(partitions)

    consumer = stage.consumer(enable_auto_commit=False)
    consumer.subscribe([TOPIC], on_assign=on_assign)
    found = [(one.partition(), one.offset()) for one in messages(consumer, 2 * MESSAGES - 5)]
    consumer.close()
    return sorted(found)


@program
def incremental_assign_in_callback(stage: Stage) -> Any:
    """The same as programs for cooperative assignors do."""
    told: list[Any] = []

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        for each in partitions:
            each.offset = stage.kafka.OFFSET_BEGINNING
        consumer.incremental_assign(partitions)

    def on_revoke(consumer: Any, partitions: list[Any]) -> None:
        told.append(len(partitions))
        consumer.incremental_unassign(partitions)

    consumer = stage.consumer(auto_offset_reset="latest", group_protocol="consumer")
    consumer.subscribe([TOPIC], on_assign=on_assign, on_revoke=on_revoke)
    found = [(one.partition(), one.offset()) for one in messages(consumer)]
    consumer.unsubscribe()
    consumer.poll(0.1)
    left = consumer.assignment()
    consumer.close()
    return sorted(found), told, left


@program
def by_hand(stage: Stage) -> Any:
    """assign(), position(), seek(), pause() and resume(), unassign()."""
    kafka = stage.kafka
    consumer = stage.consumer(enable_auto_commit=False)
    before = places(consumer.position([stage.at(0)]))
    consumer.assign([stage.at(0, 3)])
    first = [one.offset() for one in messages(consumer, 2)]
    position = places(consumer.position([stage.at(0)]))
    consumer.seek(stage.at(0, 1))
    again = [one.offset() for one in messages(consumer, 1)]
    consumer.pause([stage.at(0)])
    paused = consumer.poll(0.3)
    consumer.resume([stage.at(0)])
    resumed = [one.offset() for one in messages(consumer, 2)]
    consumer.seek(stage.at(0, kafka.OFFSET_BEGINNING))
    beginning = [one.offset() for one in messages(consumer, 1)]
    consumer.incremental_assign([stage.at(1, kafka.OFFSET_BEGINNING)])
    both = sorted((one.partition(), one.offset()) for one in messages(consumer, 2 * MESSAGES - 1))
    consumer.incremental_unassign([stage.at(0)])
    owned = sorted(each.partition for each in consumer.assignment())
    consumer.unassign()
    none = consumer.assignment()
    consumer.close()
    return before, first, position, again, paused, resumed, beginning, both, owned, none


@program
def looking_around(stage: Stage) -> Any:
    """Watermarks, offsets by time, the cluster's topics and brokers."""
    consumer = stage.consumer(allow_auto_create_topics=False)
    marks = consumer.get_watermark_offsets(stage.at(0), timeout=10)
    asked = [stage.at(0, START_MS + 2), stage.at(1, START_MS + 10**9)]
    times = places(consumer.offsets_for_times(asked, timeout=10))
    cluster = consumer.list_topics(TOPIC, timeout=10)
    (broker,) = cluster.brokers.values()
    topic = cluster.topics[TOPIC]
    partitions = sorted(
        (number, one.id, one.leader, list(one.replicas), list(one.isrs), one.error)
        for number, one in topic.partitions.items()
    )
    all_topics = TOPIC in consumer.list_topics(timeout=10).topics
    missing = consumer.list_topics("no-such-topic", timeout=10).topics["no-such-topic"].error
    found = (
        marks,
        times,
        (broker.id, broker.host, broker.port),
        (str(topic), topic.topic, topic.error, partitions),
        all_topics,
        (missing.code(), missing.name()),
        bool(cluster.cluster_id),
        cluster.cluster_id == consumer.cluster_id(10),
        str(broker),
    )
    consumer.close()
    return found


@program
def stored_offsets(stage: Stage) -> Any:
    """At least once without waiting: store what is done, and let the consumer commit it."""
    consumer = stage.consumer(enable_auto_offset_store=False)
    consumer.subscribe([TOPIC])
    for message in messages(consumer):
        if message.offset() < 3:
            consumer.store_offsets(message)
    consumer.store_offsets(offsets=[stage.at(1, 2)])
    consumer.close()
    after = stage.consumer()
    committed = places(after.committed([stage.at(0), stage.at(1)], 10))
    after.close()
    return committed


@program
def automatic_commits(stage: Stage) -> Any:
    """close() commits what was returned; the next consumer finds nothing more."""
    consumer = stage.consumer()
    consumer.subscribe([TOPIC])
    num_found = sum(1 for _ in messages(consumer))
    consumer.close()
    after = stage.consumer()
    committed = places(after.committed([stage.at(0), stage.at(1)], 10))
    after.close()
    return num_found, committed


@program
def context_manager(stage: Stage) -> Any:
    with stage.consumer() as consumer:
        consumer.subscribe([TOPIC])
        found = sorted((one.partition(), one.offset()) for one in messages(consumer))
    return found, raised(lambda: consumer.poll(0))


@program
def patterns(stage: Stage) -> Any:
    """A subscription that begins with ^ is a regular expression."""
    consumer = stage.consumer()
    consumer.subscribe(["^ord.*"])
    found = sorted((one.topic(), one.partition(), one.offset()) for one in messages(consumer))
    consumer.close()
    return found


@program
def callbacks_that_raise(stage: Stage) -> Any:
    """poll() raises an exception of a callback, and the consumer goes on."""

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        raise ArithmeticError("a defect of the program")

    consumer = stage.consumer()
    consumer.subscribe([TOPIC], on_assign=on_assign)
    caught = []
    for _ in range(PATIENCE):
        try:
            consumer.poll(0.1)
        except ArithmeticError as error:
            caught.append(str(error))
            break
    consumer.close()
    return caught


@program
def wrong_calls(stage: Stage) -> Any:
    """Errors of calls: their kinds and codes."""
    kafka = stage.kafka
    consumer = stage.consumer(enable_auto_commit=False)
    found = {
        "commit nothing": raised(lambda: consumer.commit(asynchronous=False)),
        "commit nothing, not waiting": raised(lambda: consumer.commit(asynchronous=True)),
        "commit both": raised(lambda: consumer.commit(message=object(), offsets=[])),
        "seek what is not assigned": raised(lambda: consumer.seek(stage.at(0, 1))),
        "pause what is not assigned": raised(lambda: consumer.pause([stage.at(0)])),
        "subscribe to a text": raised(lambda: consumer.subscribe(TOPIC)),
        "subscribe to a number": raised(lambda: consumer.subscribe([7])),
        "assign texts": raised(lambda: consumer.assign([TOPIC])),
        "consume less than nothing": raised(lambda: consumer.consume(-1)),
        "consume too much": raised(lambda: consumer.consume(1_000_001)),
        "store with automatic stores": raised(lambda: consumer.store_offsets(offsets=[stage.at(0, 1)])),
        "watermarks of nothing": raised(
            lambda: consumer.get_watermark_offsets(kafka.TopicPartition("no-such-topic", 0), timeout=0.1)
        ),
        "no callback": raised(lambda: consumer.subscribe([TOPIC], on_assign=7)),
        "poll without anything": raised(lambda: consumer.poll(0)),
    }
    consumer.close()
    for call in ("poll", "consume", "assignment", "unsubscribe", "unassign", "memberid", "commit"):
        found[f"{call} after close"] = raised(getattr(consumer, call))
    found["assign after close"] = raised(lambda: consumer.assign([stage.at(0)]))
    found["subscribe after close"] = raised(lambda: consumer.subscribe([TOPIC]))
    found["close after close"] = raised(consumer.close)
    found["no group"] = raised(lambda: kafka.Consumer({"bootstrap.servers": "127.0.0.1:1"}).close())
    found["unknown setting"] = raised(lambda: kafka.Consumer(stage.settings | {"no.such.setting": 1}))
    return found


@program
def values(stage: Stage) -> Any:
    """Partitions and errors as values."""
    kafka = stage.kafka
    one, same, other = stage.at(1, 5), stage.at(1, 7), stage.at(2)
    error = kafka.KafkaError(kafka.KafkaError._TIMED_OUT, "late")
    return (
        one == same,
        one < other,
        sorted([other, one]) == [one, other],
        hash(one) == hash(same),
        other.offset == kafka.OFFSET_INVALID,
        (one.metadata, one.leader_epoch, one.error),
        str(one),
        (
            error.code(),
            error.name(),
            error.str(),
            error.fatal(),
            error.retriable(),
            error.txn_requires_abort(),
        ),
        error == kafka.KafkaError._TIMED_OUT,
        str(error),
        [getattr(kafka, name) for name in CONSTANTS],
        raised(lambda: kafka.TopicPartition()),
    )


DIFFERENCES: Final = {
    "commit nothing": (("KafkaException", "_NO_OFFSET"), ("nothing",)),
    "seek what is not assigned": (("KafkaException", "_UNKNOWN_PARTITION"), ("KafkaException", "_STATE")),
    "pause what is not assigned": (("nothing",), ("KafkaException", "_STATE")),
    "subscribe to a number": (("nothing",), ("TypeError",)),
    "store with automatic stores": (("KafkaException", "_INVALID_ARG"), ("KafkaException", "_STATE")),
    "watermarks of nothing": (("KafkaException", "_UNKNOWN_PARTITION"), ("KafkaException", "_TIMED_OUT")),
    "no group": (("ValueError",), ("nothing",)),
    "unknown setting": (("KafkaException", "_INVALID_ARG"), ("Exception",)),
}
"""The answers of each module to `wrong_calls`. The table in docs/client.md has them."""

CONSTANTS: Final = tuple(name for name in dir(confluent_kafka) if name.startswith(("OFFSET_", "TIMESTAMP_")))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateCluster]:
    settings = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}
    with QuorateCluster(tmp_path_factory.mktemp("programs") / "cluster", settings=settings) as cluster:
        cluster.create_topic(TOPIC, NUM_PARTITIONS)
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(MESSAGES):
            for partition in range(NUM_PARTITIONS):
                producer.produce(
                    TOPIC,
                    value=None if number == 4 else f"order {number}",
                    key=None if number == 3 else f"key {number}",
                    headers=[("trace", b"1"), ("trace", None)] if number == 2 else None,
                    partition=partition,
                    timestamp=START_MS + number,
                )
        assert producer.flush(10) == 0
        yield cluster


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_sees_the_same_with_both_modules(cluster: QuorateCluster, name: str) -> None:
    seen = {}
    for library, kafka in LIBRARIES.items():
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"{name}-{library}",
            "auto.offset.reset": "earliest",
        }
        seen[library] = PROGRAMS[name](Stage(kafka, settings))
    if name == wrong_calls.__name__:
        for call, answers in DIFFERENCES.items():
            assert (seen["confluent-kafka"].pop(call), seen["quorate"].pop(call)) == answers
    assert seen["quorate"] == seen["confluent-kafka"]


def test_each_method_is_there_or_in_the_table_of_differences() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    ours, theirs = quorate.confluent, confluent_kafka
    assert public(theirs.Consumer) - public(ours.Consumer) == {"set_sasl_credentials"}
    assert public(theirs.TopicPartition) <= public(ours.TopicPartition)
    setters = {name for name in public(theirs.Message) if name.startswith("set_")}
    of_other_consumers = {"delivery_count", "deserialized_key", "deserialized_value"}
    assert public(theirs.Message) - public(ours.Message) == setters | of_other_consumers
