"""From a frame to its handler, and the answer if there is none.

The table `HANDLERS` lists everything that this port answers itself; every other served API goes to the
node, which knows the shards. An API that is not served is not advertised. If a client uses it all the same,
the log says what to change, because over the wire Kafka can only close the connection.

Invariants: every frame is answered, or its connection closed with one log line; no request hangs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cluster.kafka import (
    appending,
    auto_topics,
    cluster_apis,
    configs,
    fetching,
    producing,
    reading,
    topic_pages,
)
from cluster.kafka.context import ListenerContext
from cluster.kafka.exchange import Exchange, Requester
from cluster.kafka.injecting import inject
from cluster.kafka.waiting import cut_waits_short
from cluster.runtime.fanout import FANS, ONE_GROUP_APIS
from wire.apis import API_VERSIONS, HEARTBEATS, ApiKey, api_name
from wire.errors import ErrorCode, MalformedFrame, UnsupportedApi
from wire.messages.api_versions import ApiVersionsResponse
from wire.protocol import decode_request

LOG = logging.getLogger("quorate.kafka")

Handler = Callable[["ListenerContext", "Exchange", Any], None]

LONG_READS = frozenset({ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS})
"""APIs whose answers may be as large as everything the node holds, whatever the size of the request."""

LONG_READS_MAX = 64
"""At most this many such requests are unanswered at once, over all connections: each may take some ten
megabytes in the making. An administrator sends a few."""

FAST_FRAME_BYTES_MAX = 1024
"""Largest heartbeat whose reply is cached (see `connection`): a steady one names group, member and little
else."""

SERVED_ALONE = LONG_READS | {
    ApiKey.CREATE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_GROUPS,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.LEAVE_GROUP,
}
"""Requests that may take several decisions, wait for other members, or have very long answers.

The client's later requests wait, as all requests of a connection do in Kafka. So nothing overtakes the rest
of a change, and each connection has one very long answer in the making."""

HANDLERS: dict[int, Handler] = {
    ApiKey.API_VERSIONS: cluster_apis.api_versions,
    ApiKey.METADATA: cluster_apis.metadata,
    ApiKey.FIND_COORDINATOR: cluster_apis.find_coordinator,
    ApiKey.DESCRIBE_CLUSTER: cluster_apis.describe_cluster,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: topic_pages.describe_topic_partitions,
    ApiKey.LIST_OFFSETS: fetching.list_offsets,
    ApiKey.FETCH: fetching.fetch,
    ApiKey.PRODUCE: producing.produce,
    ApiKey.DESCRIBE_CONFIGS: configs.describe_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.alter_configs,
    ApiKey.LIST_CONFIG_RESOURCES: configs.list_config_resources,
}

SCRATCH_LOG_HANDLERS: dict[int, Handler] = HANDLERS | {
    ApiKey.PRODUCE: appending.produce,
    ApiKey.INIT_PRODUCER_ID: appending.init_producer_id,
    ApiKey.DELETE_RECORDS: appending.delete_records,
    ApiKey.FETCH: reading.fetch,
    ApiKey.LIST_OFFSETS: reading.list_offsets,
    ApiKey.METADATA: auto_topics.metadata,
}
"""The same where the node keeps a scratch log."""

_CLASSIC = (
    "this client uses the classic group protocol, which is switched off here "
    "(group.coordinator.rebalance.protocols); set group.protocol=consumer (librdkafka 2.12+, Java client "
    "4.0+), or use assign() instead of subscribe()"
)
_NO_TRANSACTIONS = "transactions are not supported"
_NO_SASL = "SASL is not supported; set security.protocol=PLAINTEXT"
_NO_GROUP_TYPE = "only groups of group.protocol=consumer are supported"
_NO_OLD_ALTER = "use IncrementalAlterConfigs, which every client since Kafka 2.3 has"

HINTS: dict[int, str] = {
    ApiKey.JOIN_GROUP: _CLASSIC,
    ApiKey.SYNC_GROUP: _CLASSIC,
    ApiKey.HEARTBEAT: _CLASSIC,
    ApiKey.PRODUCE: producing.NO_MESSAGES,
    ApiKey.DELETE_RECORDS: producing.NO_MESSAGES,
    ApiKey.INIT_PRODUCER_ID: producing.NO_MESSAGES,
    ApiKey.ADD_PARTITIONS_TO_TXN: _NO_TRANSACTIONS,
    ApiKey.ADD_OFFSETS_TO_TXN: _NO_TRANSACTIONS,
    ApiKey.END_TXN: _NO_TRANSACTIONS,
    ApiKey.TXN_OFFSET_COMMIT: _NO_TRANSACTIONS,
    ApiKey.SASL_HANDSHAKE: _NO_SASL,
    ApiKey.SASL_AUTHENTICATE: _NO_SASL,
    ApiKey.ALTER_CONFIGS: _NO_OLD_ALTER,
    ApiKey.SHARE_GROUP_HEARTBEAT: _NO_GROUP_TYPE,
    ApiKey.STREAMS_GROUP_HEARTBEAT: _NO_GROUP_TYPE,
}
"""Advice for clients that send these APIs although they are not advertised."""

_PRODUCE = ApiKey.PRODUCE.to_bytes(2, "big")

_FIRST_BYTES = {
    b"\x16\x03": "; this looks like TLS: set security.protocol=PLAINTEXT",
    b"GET ": "; this looks like HTTP: use the node's HTTP port (http.port)",
    b"POST": "; this looks like HTTP: use the node's HTTP port (http.port)",
    b"HEAD": "; this looks like HTTP: use the node's HTTP port (http.port)",
}


def hint_of_first_bytes(data: bytes) -> str:
    """Return a guess at the protocol of a connection that is not Kafka's, as a hint for the log."""
    return next((hint for start, hint in _FIRST_BYTES.items() if data.startswith(start)), "")


def serve(context: ListenerContext, connection: Requester, exchange: Exchange, payload: bytes) -> None:
    """Answer one frame through `exchange`, at once or later, or close the connection."""
    length_max = context.settings.socket_request_max_bytes
    if len(payload) > length_max and not payload.startswith(_PRODUCE):
        connection.refuse("malformed", f"frame: length {len(payload)} is outside 0 to {length_max}")
        return
    try:
        header, body = decode_request(payload, context.served)
    except MalformedFrame as error:
        connection.refuse("malformed", f"malformed request{_first_api(payload)}: {error}")
        return
    except UnsupportedApi as error:
        _unsupported(context, connection, exchange, error, payload)
        return
    exchange.api_key = api_key = header.api_key
    exchange.api_version = header.api_version
    exchange.correlation_id = header.correlation_id
    exchange.client = connection.client_named(header.client_id)
    context.counters.requests[api_key] += 1
    if connection.deferred:
        cut_waits_short(connection, api_key)
    try:
        if context.faults.is_set and inject(context, connection, exchange, body):
            return
        handlers = HANDLERS if context.scratch_log is None else SCRATCH_LOG_HANDLERS
        handler = handlers.get(api_key)
        if handler is not None:
            handler(context, exchange, body)
        else:
            submit(context, exchange, body, payload)
    except Exception:
        LOG.exception(
            "%s version %d failed; answering UNKNOWN_SERVER_ERROR", api_name(api_key), header.api_version
        )
        exchange.fail(body, ErrorCode.UNKNOWN_SERVER_ERROR)


def submit(context: ListenerContext, exchange: Exchange, body: Any, payload: bytes) -> None:
    """Pass a request about groups or the catalog to the node.

    Marks a heartbeat that may be a steady one, and the shards that the connection uses.
    """
    api_key, connection = exchange.api_key, exchange.connection
    assert connection is not None
    fan = FANS.get(api_key)
    if fan is not None and (flood := fan.flood_of(body)) is not None:
        connection.refuse("flooding", flood)
        return
    if api_key in LONG_READS and len(context.long_reads) >= LONG_READS_MAX:
        message = f"the node is already preparing {LONG_READS_MAX} long responses; try again"
        exchange.fail(body, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)
        return
    if api_key in SERVED_ALONE:
        connection.serve_alone(exchange)
        if api_key in LONG_READS:
            context.long_reads[exchange] = None
    if api_key in HEARTBEATS:
        connection.uses(body.group_id)
        joins_or_leaves = api_key != ApiKey.HEARTBEAT and body.member_epoch <= 0
        if not joins_or_leaves and len(payload) <= FAST_FRAME_BYTES_MAX:
            exchange.entry = context.node.fast_entry(body.group_id, body.member_id)
            exchange.tail = payload[8:]
        elif joins_or_leaves and not body.member_epoch and context.node.joins_in_turns(body.group_id):
            connection.serve_alone(exchange)
    elif api_key in ONE_GROUP_APIS:
        connection.uses(body.group_id)
        if api_key == ApiKey.OFFSET_COMMIT and context.node.is_in_parts(body, len(payload)):
            connection.serve_alone(exchange)
    elif api_key == ApiKey.OFFSET_FETCH:
        for group in body.groups or (body,):  # up to version 7 a single group is at the top level
            connection.uses(group.group_id)
    client = exchange.client
    if api_key == ApiKey.JOIN_GROUP and context.arrivals.are_several(body.group_id, exchange.started_ms):
        client = replace(client, is_one_of_several=True)
    context.node.submit(api_key, exchange.api_version, body, client, exchange.reply)


def _unsupported(
    context: ListenerContext,
    connection: Requester,
    exchange: Exchange,
    error: UnsupportedApi,
    payload: bytes,
) -> None:
    if error.api_key == ApiKey.API_VERSIONS:
        # KIP-511: whatever the version, the answer has the shape of version 0, which every client can read.
        exchange.api_key, exchange.api_version = ApiKey.API_VERSIONS, 0
        exchange.correlation_id = error.correlation_id
        keys = cluster_apis.advertised(context)
        exchange.reply(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys))
        return
    connection.client_named(_client_id(payload))
    range_text = "it is not served"
    if error.api_key in context.served:
        low, high = API_VERSIONS[ApiKey(error.api_key)]
        range_text = f"versions {low} to {high} are served"
    hint = HINTS.get(error.api_key, "")
    connection.refuse(
        "unsupported",
        f"{api_name(error.api_key)} version {error.api_version}: {range_text}{'; ' if hint else ''}{hint}",
    )


def _first_api(payload: bytes) -> str:
    if len(payload) < 4:
        return ""
    api_key = int.from_bytes(payload[:2], "big", signed=True)
    version = int.from_bytes(payload[2:4], "big", signed=True)
    return f", {api_name(api_key)} version {version}"


def _client_id(payload: bytes) -> str:
    """Return the client id of a request that is not understood: every header since version 1 has it here."""
    length = int.from_bytes(payload[8:10], "big", signed=True)
    return payload[10 : 10 + max(0, length)].decode(errors="replace")
