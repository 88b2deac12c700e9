"""CreateTopics, CreatePartitions and DeleteTopics, with the rules of Kafka's controller for names and counts.

Errors are per topic. The accepted changes of one request form one entry, or several if it names very many
topics, since each takes time on every node. A topic named twice in a request is refused both times, because
the intended entry cannot be determined.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from coordinator.api import Context, DecisionBuilder, RequestRefused, Steps
from coordinator.limits import Limits
from coordinator.topics import CatalogTopic, CatalogView, new_topic_id
from records import ZERO_UUID, RawRecord, Record, TopicKey, TopicRacksKey, TopicValue, Trigger, encode_record
from wire.errors import ErrorCode
from wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

NAME_CHARACTERS_MAX = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
DEFAULT = -1
STATES_SINCE = 6


TOPICS_AT_ONCE = 500
"""Topics decided in one entry: about 10 ms of the event loop."""

T = TypeVar("T")

Part = Callable[[Context, list[RawRecord]], bool]
"""A function that decides on the next topics of a request and appends their records; it returns whether
topics are left."""


def _in_parts(
    part: Part, response: object, trigger: Trigger, ctx: Context, builder: DecisionBuilder
) -> Steps:
    """Run one part; the final part returns the response."""
    builder.trigger = trigger
    records: list[RawRecord] = []
    if part(ctx, records):
        builder.continuation = lambda ctx, builder: _in_parts(part, response, trigger, ctx, builder)
    if records:
        yield records
    return response


def _next(left: deque[T]) -> list[T]:
    return [left.popleft() for _ in range(min(TOPICS_AT_ONCE, len(left)))]


def check_topic_name(name: str) -> None:
    """Raise `RequestRefused` (INVALID_TOPIC_EXCEPTION) for a name that Kafka would not accept."""
    if not name or name in (".", ".."):
        problem = "it cannot be empty, '.' or '..'"
    elif len(name) > NAME_CHARACTERS_MAX:
        problem = f"it is longer than {NAME_CHARACTERS_MAX} characters"
    elif not _LEGAL_NAME.fullmatch(name):
        problem = "it may contain only ASCII letters and digits, '.', '_' and '-'"
    else:
        return
    raise RequestRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name '{name}' is illegal: {problem}.")


def _twice(names: Iterable[Hashable]) -> set[Hashable]:
    return {name for name, count in Counter(names).items() if count > 1}


def _write(name: str, topic_id: bytes, num_partitions: int) -> RawRecord:
    return encode_record(
        Record(TopicKey(name=name), TopicValue(topic_id=topic_id, num_partitions=num_partitions))
    )


def create_topics(
    view: CatalogView,
    limits: Limits,
    request: CreateTopicsRequest,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Create topics with fresh ids. A partition count of −1 means the default."""
    twice = _twice(topic.name for topic in request.topics)
    response = CreateTopicsResponse()
    left = deque(request.topics)

    def part(ctx: Context, records: list[RawRecord]) -> bool:
        added = 0
        for asked in _next(left):
            try:
                if asked.name in twice:
                    message = f"Topic {asked.name} is in the request twice."
                    raise RequestRefused(ErrorCode.INVALID_REQUEST, message)
                count = _creatable(view, limits, asked)
                if len(view) + len(records) >= limits.topics_max:
                    raise RequestRefused(
                        ErrorCode.POLICY_VIOLATION,
                        f"There are already {limits.topics_max} topics, the maximum; delete unused ones.",
                    )
                _check_total(view, limits, added + count)
            except RequestRefused as refused:
                response.topics.append(
                    CreatableTopicResult(
                        name=asked.name, error_code=refused.code, error_message=refused.message, configs=[]
                    )
                )
                continue
            topic_id = ZERO_UUID
            if not request.validate_only:
                topic_id = new_topic_id(ctx.fresh_uuid(), ctx.next_index)
                added += count
                records.append(_write(asked.name, topic_id, count))
            response.topics.append(
                CreatableTopicResult(
                    name=asked.name,
                    topic_id=topic_id,
                    error_message=None,
                    num_partitions=count,
                    replication_factor=1,
                    configs=[],
                )
            )
        return bool(left)

    return _in_parts(part, response, Trigger.TOPIC_CREATED, ctx, builder)


def _creatable(view: CatalogView, limits: Limits, asked: CreatableTopic) -> int:
    """The number of partitions for a new topic; raises `RequestRefused` if it cannot be created."""
    check_topic_name(asked.name)
    if view.topic(asked.name) is not None:
        raise RequestRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists.")
    if (other := view.colliding(asked.name)) is not None:
        raise RequestRefused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{asked.name}' collides with existing topic: {other}",
        )
    if asked.assignments:
        if asked.num_partitions != DEFAULT or asked.replication_factor != DEFAULT:
            raise RequestRefused(
                ErrorCode.INVALID_REQUEST,
                "With replica assignments, NumPartitions and ReplicationFactor must both be -1.",
            )
        if {part.partition_index for part in asked.assignments} != set(range(len(asked.assignments))):
            raise RequestRefused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Replica assignments must contain each partition once, counted from 0.",
            )
        _check_count(limits, len(asked.assignments))
        return len(asked.assignments)
    if asked.replication_factor < DEFAULT or asked.replication_factor == 0:
        raise RequestRefused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor must be larger than 0, or -1 (default): {asked.replication_factor}.",
        )
    if asked.num_partitions == DEFAULT:
        return limits.num_partitions_default
    if asked.num_partitions < 1:
        raise RequestRefused(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions must be larger than 0, or -1 (default): {asked.num_partitions}.",
        )
    _check_count(limits, asked.num_partitions)
    return asked.num_partitions


def _check_count(limits: Limits, count: int) -> None:
    if count > limits.partitions_per_topic_max:
        raise RequestRefused(
            ErrorCode.INVALID_PARTITIONS,
            f"{count} partitions exceed the maximum of {limits.partitions_per_topic_max} per topic.",
        )


def _check_total(view: CatalogView, limits: Limits, added: int) -> None:
    if view.num_partitions + added > limits.partitions_max:
        raise RequestRefused(
            ErrorCode.POLICY_VIOLATION,
            f"All topics have {view.num_partitions} partitions; {added} more would exceed the maximum of "
            f"{limits.partitions_max}.",
        )


def create_partitions(
    view: CatalogView,
    limits: Limits,
    request: CreatePartitionsRequest,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Increase the number of partitions of topics to a total count. Topics never shrink."""
    twice = _twice(topic.name for topic in request.topics)
    response = CreatePartitionsResponse()
    left = deque(request.topics)

    def part(ctx: Context, records: list[RawRecord]) -> bool:
        added = 0
        for asked in _next(left):
            result = CreatePartitionsTopicResult(name=asked.name)
            response.results.append(result)
            try:
                if asked.name in twice:
                    message = f"Topic {asked.name} is in the request twice."
                    raise RequestRefused(ErrorCode.INVALID_REQUEST, message)
                topic = _growable(view, limits, asked)
                _check_total(view, limits, added + asked.count - topic.num_partitions)
            except RequestRefused as refused:
                result.error_code, result.error_message = refused.code, refused.message
                continue
            if not request.validate_only:
                added += asked.count - topic.num_partitions
                records.append(_write(topic.name, topic.topic_id, asked.count))
        return bool(left)

    return _in_parts(part, response, Trigger.TOPIC_GROWN, ctx, builder)


def _growable(view: CatalogView, limits: Limits, asked: CreatePartitionsTopic) -> CatalogTopic:
    topic = view.topic(asked.name)
    if topic is None:
        raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{asked.name}' does not exist.")
    if asked.count <= topic.num_partitions:
        raise RequestRefused(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic {asked.name} has {topic.num_partitions} partitions; {asked.count} is not an increase.",
        )
    _check_count(limits, asked.count)
    added = asked.count - topic.num_partitions
    if asked.assignments is not None and len(asked.assignments) != added:
        raise RequestRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{added} partitions are to be added, but the request has {len(asked.assignments)} assignments.",
        )
    return topic


def delete_topics(
    view: CatalogView,
    limits: Limits,
    request: DeleteTopicsRequest,
    version: int,
    ctx: Context,
    builder: DecisionBuilder,
) -> Steps:
    """Delete topics by name or, from version 6, by id.

    Affected groups and offsets follow when they are compared with the catalog."""
    response = DeleteTopicsResponse()
    asked = (
        request.topics if version >= STATES_SINCE else [DeleteTopicState(name=n) for n in request.topic_names]
    )
    twice = _twice(_named(view, asked))
    left = deque(asked)

    def part(ctx: Context, records: list[RawRecord]) -> bool:
        for state in _next(left):
            result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
            response.responses.append(result)
            try:
                topic = _deletable(view, state)
                result.name, result.topic_id = topic.name, topic.topic_id
                if topic.name in twice:
                    message = f"Topic {topic.name} is in the request twice."
                    raise RequestRefused(ErrorCode.INVALID_REQUEST, message)
            except RequestRefused as refused:
                result.error_code, result.error_message = refused.code, refused.message
                continue
            records.append(encode_record(Record(TopicKey(name=topic.name), None)))
            if view.racks(topic.name):
                records.append(encode_record(Record(TopicRacksKey(name=topic.name), None)))
        return bool(left)

    return _in_parts(part, response, Trigger.TOPIC_DELETED, ctx, builder)


def _named(view: CatalogView, asked: Iterable[DeleteTopicState]) -> Iterator[str]:
    for state in asked:
        topic = view.topic(state.name) if state.name is not None else view.topic_by_id(state.topic_id)
        if topic is not None:
            yield topic.name


def _deletable(view: CatalogView, state: DeleteTopicState) -> CatalogTopic:
    if state.name is not None and state.topic_id != ZERO_UUID:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, "Give the topic's name or its id, not both.")
    if state.name is not None:
        topic = view.topic(state.name)
        if topic is None:
            raise RequestRefused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{state.name}' does not exist."
            )
        return topic
    if state.topic_id == ZERO_UUID:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, "Give the topic's name or its id.")
    topic = view.topic_by_id(state.topic_id)
    if topic is None:
        raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_ID, "There is no topic with that id.")
    return topic
