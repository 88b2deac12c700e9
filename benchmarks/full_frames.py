"""The largest request of each API that takes lists: a MiB, or as many small elements as a frame may hold.

Elements are identical where that costs most, and distinct where duplicates are refused. `turns_bench`
measures how a node handles them, under the word `frames`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from benchmarks.load import CLIENT_ID
from wire.apis import ApiKey, message_classes
from wire.errors import MalformedFrame
from wire.protocol import decode_request, encode_request
from wire.schema import Message

FRAME_BYTES: Final = (1 << 20) - 200
TOPIC: Final = "t"
"""An existing topic with one partition."""

Fields = dict[str, Any]
"""The fields of a message that have no default; nested messages are dicts too."""


class Full(NamedTuple):
    what: str
    api: ApiKey
    version: int
    fields: Callable[[int], Fields]
    """The request with the given number of elements."""


def frames() -> Iterator[tuple[str, bytes]]:
    """Each request with as many elements as fit and are decoded."""
    for what, api, version, fields in CASES:
        none, some = (len(_encoded(api, version, fields(n))) for n in (1_000, 2_000))
        count = int((FRAME_BYTES - none) / (some - none) * 1_000)
        while (frame := _sound(_encoded(api, version, fields(count)))) is None:
            count -= count // 50
        yield f"{api.name} {version}, {count:,} {what}, {len(frame) / 1024:,.0f} KiB", frame


def _encoded(api: ApiKey, version: int, fields: Fields) -> bytes:
    request, _ = message_classes(api)
    return encode_request(api, version, 1, CLIENT_ID, _message(request, fields))


def _message(of: type[Message], fields: Fields) -> Message:
    """A message made of plain values."""
    schema = dict(of.SCHEMA.fields)
    values = {name: _value(schema[name].of, value) for name, value in fields.items()}
    return of(**values)


def _value(of: type[Message] | None, value: Any) -> Any:
    if of is None:
        return value
    return [_message(of, element) for element in value] if isinstance(value, list) else _message(of, value)


def _sound(frame: bytes) -> bytes | None:
    if len(frame) > FRAME_BYTES:
        return None
    try:
        decode_request(frame[4:])
    except MalformedFrame:
        return None
    return frame


def _names(count: int) -> list[str]:
    return [f"{number:05x}" for number in range(count)]


def _named(count: int, /, **fields: Any) -> list[Fields]:
    return [{"name": name} | fields for name in _names(count)]


def _numbered(count: int, /, **fields: Any) -> list[Fields]:
    return [{"partition_index": number} | fields for number in range(count)]


def _ids(count: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in range(count)]


def _in_topic(**fields: Any) -> Fields:
    """A request about elements of one topic."""
    return {"topics": [{"name": TOPIC} | fields]}


def _create(**fields: Any) -> Fields:
    """A topic to create, which is only checked."""
    topic = {"name": "new", "num_partitions": 1, "replication_factor": 1} | fields
    return SOON | {"topics": [topic], "validate_only": True}


def _join(**fields: Any) -> Fields:
    member = {"group_id": "full-members", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 60_000}
    return member | {"subscribed_topic_names": [TOPIC], "topic_partitions": []} | fields


def _configs(*resources: Fields) -> Fields:
    """Resources of type GROUP."""
    return {"resources": [{"resource_type": 32, "resource_name": "g"} | fields for fields in resources]}


GROUP: Final = {"group_id": "full"}
SOON: Final = {"timeout_ms": 1_000}
NOW: Final = {"max_wait_ms": 0, "min_bytes": 1}
FROM_0: Final = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
LATEST: Final = {"partition_index": 0, "timestamp": -1}
NO_BATCH: Final = {"index": 0, "records": None}
FIRST: Final = {"partition_index": 0}
CONFIG: Final = {"name": "x", "value": "y"}
ONE: Final = {"num_partitions": 1, "replication_factor": 1}

CASES: Final = (
    Full(
        "partitions",
        ApiKey.FETCH,
        4,
        lambda n: NOW | {"topics": [{"topic": TOPIC, "partitions": [FROM_0] * n}]},
    ),
    Full("topics", ApiKey.FETCH, 4, lambda n: {"topics": [{"topic": "x"}] * n}),
    Full(
        "partitions",
        ApiKey.LIST_OFFSETS,
        1,
        lambda n: {"replica_id": -1} | _in_topic(partitions=[LATEST] * n),
    ),
    Full(
        "partitions",
        ApiKey.PRODUCE,
        3,
        lambda n: SOON | {"acks": 1, "topic_data": [{"name": TOPIC, "partition_data": [NO_BATCH] * n}]},
    ),
    Full("times one name", ApiKey.METADATA, 1, lambda n: {"topics": [{"name": TOPIC}] * n}),
    Full("unknown names", ApiKey.METADATA, 9, lambda n: {"topics": _named(n)}),
    Full("names", ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, lambda n: {"topics": _named(n)}),
    Full("keys", ApiKey.FIND_COORDINATOR, 4, lambda n: {"coordinator_keys": [""] * n}),
    Full("large keys", ApiKey.FIND_COORDINATOR, 4, lambda n: {"coordinator_keys": ["k" * 100] * n}),
    Full("times one partition", ApiKey.OFFSET_COMMIT, 2, lambda n: GROUP | _in_topic(partitions=[FIRST] * n)),
    Full("partitions", ApiKey.OFFSET_COMMIT, 2, lambda n: GROUP | _in_topic(partitions=_numbered(n))),
    Full(
        "topics",
        ApiKey.OFFSET_COMMIT,
        8,
        lambda n: GROUP | {"topics": [{"name": TOPIC, "partitions": [{}]}] * n},
    ),
    Full(
        "partitions",
        ApiKey.OFFSET_FETCH,
        8,
        lambda n: {"groups": [GROUP | _in_topic(partition_indexes=[0] * n)]},
    ),
    Full(
        "topics",
        ApiKey.OFFSET_FETCH,
        8,
        lambda n: {"groups": [GROUP | {"topics": [{"name": TOPIC, "partition_indexes": [0]}] * n}]},
    ),
    Full("partitions", ApiKey.OFFSET_DELETE, 0, lambda n: GROUP | _in_topic(partitions=[FIRST] * n)),
    Full("groups", ApiKey.DESCRIBE_GROUPS, 5, lambda n: {"groups": _names(n)}),
    Full("groups", ApiKey.DELETE_GROUPS, 2, lambda n: {"groups_names": _names(n)}),
    Full("groups", ApiKey.CONSUMER_GROUP_DESCRIBE, 0, lambda n: {"group_ids": _names(n)}),
    Full("states", ApiKey.LIST_GROUPS, 4, lambda n: {"states_filter": ["Stable"] * n}),
    Full("members", ApiKey.LEAVE_GROUP, 4, lambda n: GROUP | {"members": [{"member_id": "m"}] * n}),
    Full(
        "names subscribed to",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        lambda n: _join(subscribed_topic_names=_names(n)),
    ),
    Full(
        "partitions owned",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        lambda n: _join(topic_partitions=[{"topic_id": b"x" * 16, "partitions": list(range(n))}]),
    ),
    Full(
        "topics owned",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        lambda n: _join(topic_partitions=[{"topic_id": x, "partitions": [0]} for x in _ids(n)]),
    ),
    Full("resources", ApiKey.DESCRIBE_CONFIGS, 4, lambda n: _configs(*[{"configuration_keys": None}] * n)),
    Full("keys", ApiKey.DESCRIBE_CONFIGS, 4, lambda n: _configs({"configuration_keys": ["x"] * n})),
    Full(
        "resources",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        lambda n: _configs(*({"resource_name": x, "configs": []} for x in _names(n))),
    ),
    Full("configs", ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, lambda n: _configs({"configs": [CONFIG] * n})),
    Full("types", ApiKey.LIST_CONFIG_RESOURCES, 1, lambda n: {"resource_types": [2] * n}),
    Full(
        "topics",
        ApiKey.CREATE_TOPICS,
        5,
        lambda n: SOON | {"topics": _named(n, num_partitions=0, replication_factor=1)},
    ),
    Full("times one topic", ApiKey.CREATE_TOPICS, 5, lambda n: SOON | {"topics": [{"name": "x"} | ONE] * n}),
    Full(
        "assignments",
        ApiKey.CREATE_TOPICS,
        5,
        lambda n: _create(num_partitions=-1, replication_factor=-1, assignments=_numbered(n, broker_ids=[1])),
    ),
    Full("configs", ApiKey.CREATE_TOPICS, 5, lambda n: _create(configs=[CONFIG] * n)),
    Full("topics", ApiKey.CREATE_PARTITIONS, 1, lambda n: SOON | {"topics": _named(n, count=5)}),
    Full(
        "assignments",
        ApiKey.CREATE_PARTITIONS,
        1,
        lambda n: SOON | {"validate_only": True} | _in_topic(count=n, assignments=[{"broker_ids": [1]}] * n),
    ),
    Full("names", ApiKey.DELETE_TOPICS, 5, lambda n: SOON | {"topic_names": _names(n)}),
    Full("ids", ApiKey.DELETE_TOPICS, 6, lambda n: SOON | {"topics": [{"topic_id": x} for x in _ids(n)]}),
)
