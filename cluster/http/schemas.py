"""JSON schemas of the HTTP API's answers, and the parts that they are built of; `routes` uses them.

Every field of a group is listed here, so that the document is complete.
"""

from __future__ import annotations

from typing import Any

from coordinator.groupconfigs import Origin

Schema = dict[str, Any]


def object_of(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def array_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def of_names(values: Schema) -> Schema:
    """Return the schema of an object whose keys are names of topics."""
    return {"type": "object", "additionalProperties": values}


INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
ANYTHING: Schema = {"type": "object", "additionalProperties": True}
ADDRESS = object_of(host=STRING, port=INTEGER)
ERROR: Schema = {**object_of(error=STRING, message=STRING, hint=STRING), "additionalProperties": True}
NODE = object_of(
    node_id=INTEGER,
    is_self=BOOLEAN,
    in_contact=BOOLEAN,
    kafka=or_null(ADDRESS),
    http=or_null(ADDRESS),
    release=or_null(STRING),
    incarnation=or_null(STRING),
    boot_id=or_null(STRING),
    link=or_null(ANYTHING),
)
AS_OF = array_of(object_of(shard=INTEGER, as_of_index=INTEGER))

PARTITIONS = of_names(array_of(INTEGER))

REFUSAL: Schema = {
    **object_of(
        at_ms=INTEGER,
        api=STRING,
        error_code=INTEGER,
        error=STRING,
        reason=STRING,
        member_id=STRING,
        client=STRING,
        times=INTEGER,
    ),
    "description": "The newest request refused since this node started, and how often in a row.",
}

WAIT: Schema = {
    **object_of(
        topic=STRING,
        partition=INTEGER,
        owner=STRING,
        told_ms_ago=or_null(NUMBER),
        left_ms=or_null(NUMBER),
    ),
    "description": "A partition of the target that another member still owns. Both times are null if the "
    "owner has not been asked to revoke it; only the first is null if a former leader asked, or if the "
    "owner has left temporarily.",
}

MEMBER = object_of(
    member_id=STRING,
    instance_id=or_null(STRING),
    is_away=BOOLEAN,
    client_id=STRING,
    client_host=STRING,
    rack_id=or_null(STRING),
    subscribed_topics=array_of(STRING),
    regex=or_null(STRING),
    server_assignor=or_null(STRING),
    client_assignors=array_of(STRING),
    assignment_error=INTEGER,
    state=STRING,
    since_ms=or_null(INTEGER),
    member_epoch=INTEGER,
    previous_member_epoch=INTEGER,
    assigned=PARTITIONS,
    pending_revocation=PARTITIONS,
    target=PARTITIONS,
    waits_for=array_of(WAIT),
    rebalance_timeout_ms=INTEGER,
    last_heartbeat_ms=or_null(INTEGER),
    session_left_ms=or_null(NUMBER),
    last_refused=or_null(REFUSAL),
)

COMPUTING: Schema = {
    **object_of(member_id=STRING, assignor=STRING, left_ms=NUMBER, prepared_epoch=or_null(INTEGER)),
    "description": "The member that computes the group's target, and its remaining time.",
}

REGEX = object_of(
    regex=STRING,
    topics=array_of(STRING),
    catalog_version=or_null(INTEGER),
    resolved_ms=or_null(INTEGER),
    is_resolving=BOOLEAN,
    error=or_null(STRING),
)

CONFIG: Schema = {
    **object_of(
        name=STRING,
        value=INTEGER,
        origin={**STRING, "enum": [str(origin) for origin in Origin]},
        set_to=or_null(INTEGER),
        low=INTEGER,
        high=INTEGER,
    ),
    "description": (
        "A config of a group: `value` is in force; `set_to` is what its origin sets (null: chosen by load)."
    ),
}

GROUP: Schema = {
    **object_of(
        group_id=STRING,
        type=STRING,
        state=STRING,
        state_since_ms=or_null(INTEGER),
        epoch=INTEGER,
        assignment_epoch=INTEGER,
        assignor=or_null(STRING),
        assignor_error=or_null(STRING),
        computing=or_null(COMPUTING),
        heartbeat_interval_ms=INTEGER,
        session_timeout_ms=INTEGER,
        jobs=array_of(object_of(kind=STRING, deadline_ms=INTEGER)),
        created_ms=or_null(INTEGER),
        catalog_version=INTEGER,
        topics=of_names(object_of(topic_id=STRING, num_partitions=INTEGER)),
        regexes=array_of(REGEX),
        num_members=INTEGER,
        offsets=INTEGER,
        members=array_of(MEMBER),
        refused_strangers=array_of(REFUSAL),
    ),
    # A group's summary, in a list, has only the number of members; more fields may be added.
    "additionalProperties": True,
}
