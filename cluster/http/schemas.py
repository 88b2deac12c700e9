"""JSON schemas of the HTTP API's answers, and the parts that they are built of; `routes` uses them.

Every field of a group is listed here, so that the document is complete.
"""

from __future__ import annotations

from typing import Any

from coordinator.groupconfigs import Origin

Schema = dict[str, Any]

_TYPES = {"int": "integer", "num": "number", "str": "string", "bool": "boolean"}


def object_of(fields: str = "", **more: Schema) -> Schema:
    """Return the schema of an object, all of whose fields are required.

    `fields` are those of simple types, as in `epoch int, regex str?, topics [str]`; `?` allows null.
    """
    properties = dict(map(_field, fields.split(", ") if fields else ())) | more
    return {"type": "object", "properties": properties, "required": list(properties)}


def _field(text: str) -> tuple[str, Schema]:
    name, kind = text.split(" ")
    schema = {"type": _TYPES[kind.strip("[]?")]}
    if kind.startswith("["):
        schema = array_of(schema)
    return name, or_null(schema) if kind.endswith("?") else schema


def array_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def of_names(values: Schema) -> Schema:
    """Return the schema of an object whose keys are names of topics."""
    return {"type": "object", "additionalProperties": values}


ANYTHING: Schema = {"type": "object", "additionalProperties": True}
ADDRESS = object_of("host str, port int")
ERROR: Schema = {**object_of("error str, message str, hint str"), "additionalProperties": True}
NODE = object_of(
    "node_id int, is_self bool, in_contact bool, drained bool, release str?, incarnation str?, boot_id str?",
    kafka=or_null(ADDRESS),
    http=or_null(ADDRESS),
    link=or_null(ANYTHING),
)
AS_OF = array_of(object_of("shard int, as_of_index int"))
PARTITIONS = of_names(array_of({"type": "integer"}))

REFUSAL: Schema = {
    **object_of(
        "at_ms int, api str, error_code int, error str, reason str, member_id str, client str, times int"
    ),
    "description": "The newest request refused since this node started, and how often in a row.",
}

WAIT: Schema = {
    **object_of("topic str, partition int, owner str, told_ms_ago num?, left_ms num?"),
    "description": "A partition of the target that another member still owns. Both times are null if the "
    "owner has not been asked to revoke it; only the first is null if a former leader asked, or if the "
    "owner has left temporarily.",
}

MEMBER = object_of(
    "member_id str, number int?, instance_id str?, is_away bool, client_id str, client_host str, "
    "rack_id str?, subscribed_topics [str], regex str?, server_assignor str?, client_assignors [str], "
    "assignment_error int, state str?, since_ms int?, member_epoch int, previous_member_epoch int?, "
    "rebalance_timeout_ms int, last_heartbeat_ms int?, session_left_ms num?",
    assigned=PARTITIONS,
    pending_revocation=PARTITIONS,
    target=PARTITIONS,
    waits_for=array_of(WAIT),
    last_refused=or_null(REFUSAL),
)

OFFSET = object_of("partition int, offset int, end int?, lag int?")

FAULT = object_of(
    "id int, action str, api str?, group str?, member str?, client_id str?, connection str?, error str?, "
    "delay_ms int, throttle_ms int, after int, times int?, rate num, seed int, for_ms int?, words str, "
    "matched int, applied int, has_ended bool, left_ms int?"
)

COMPUTING: Schema = {
    **object_of("member_id str, assignor str, left_ms num, prepared_epoch int?"),
    "description": "The member that computes the group's target, and its remaining time.",
}

REGEX = object_of(
    "regex str, topics [str], catalog_version int?, resolved_ms int?, is_resolving bool, error str?"
)

CONFIG: Schema = {
    **object_of(
        "name str, value int, set_to int?, low int, high int",
        origin={"type": "string", "enum": [str(origin) for origin in Origin]},
    ),
    "description": (
        "A config of a group: `value` is in force; `set_to` is what its origin sets (null: chosen by load)."
    ),
}

GROUP: Schema = {
    **object_of(
        "group_id str, type str, state str, state_since_ms int?, epoch int, assignment_epoch int, "
        "assignor str?, assignor_error str?, heartbeat_interval_ms int, session_timeout_ms int, "
        "created_ms int?, catalog_version int, num_members int, offsets int, pending_offsets int",
        computing=or_null(COMPUTING),
        jobs=array_of(object_of("kind str, deadline_ms int")),
        topics=of_names(object_of("topic_id str, num_partitions int")),
        regexes=array_of(REGEX),
        members=array_of(MEMBER),
        refused_strangers=array_of(REFUSAL),
    ),
    # A group's summary, in a list, has only the number of members; more fields may be added.
    "additionalProperties": True,
}
