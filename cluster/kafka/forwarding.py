"""Forward a request to the controller, for clients that may ask any node.

Kafka's own clients send IncrementalAlterConfigs for groups to whichever broker is least busy, and take
NOT_CONTROLLER as final, since Kafka's brokers forward such requests. So does this node: over a separate
connection to the address that the controller advertises, with one request each, then closed. The controller
sees this node as the client. The client id names the node and the original client, and so does the cause of
what is written. While no leader is known, the request waits a moment, as others do (`waiting`).

Invariants: each request is answered once; a forwarded request is not forwarded again, so that two
nodes that take each other for the controller do not send it back and forth; the number of open forwards is
bounded.
"""

from __future__ import annotations

from typing import Any, Final

from cluster.kafka.context import ListenerContext
from cluster.kafka.exchange import Exchange
from cluster.kafka.node_view import Reply
from cluster.node_info import ClientInfo
from raftlog.env.host import Stream
from records import METADATA_SHARD
from wire.apis import ApiKey
from wire.errors import ErrorCode, MalformedFrame
from wire.framing import Framer
from wire.protocol import decode_response, encode_request
from wire.refusals import refuse

CLIENT_ID: Final = "quorate-node-"
"""Prefix of the client id in forwarded requests; the node id follows."""

CLIENT_CHARS_MAX: Final = 200
"""At most this many characters of the original client's id and address are passed to the controller."""

FORWARDS_MAX: Final = 64
"""At most this many forwards at once; administrators send changes one by one. Beyond it, the client is
answered that it must ask the controller itself."""

WAIT_SPARE_MS: Final = 1_000
"""Added to the time for which the controller may hold a reply, so that this node does not give up first."""


def submit_or_forward(context: ListenerContext, exchange: Exchange, request: Any, num_named: int) -> None:
    """Submit to this node's metadata shard if it leads it or knows no other leader, else to the controller.

    `num_named` is how many resources the request names.
    """
    api = ApiKey(exchange.api_key), exchange.api_version
    context.leaders.when_led(
        exchange,
        (METADATA_SHARD,),
        num_named,
        lambda: submit_to_controller(context, api, request, exchange.client, exchange.reply),
    )


def submit_to_controller(
    context: ListenerContext, api: tuple[ApiKey, int], request: Any, client: ClientInfo, reply: Reply
) -> None:
    """Submit to this node's metadata shard, or to the controller; `reply` is called exactly once."""
    node = context.node
    controller = node.controller
    was_forwarded = client.client_id.startswith(CLIENT_ID)
    if (
        controller is None
        or controller.node_id == node.info.node_id
        or was_forwarded
        or context.forwards >= FORWARDS_MAX
    ):
        node.submit(*api, request, client, reply)
        return
    forward = _Forward(context, api, request, client, reply)
    context.host.connect(
        controller.kafka_host,
        controller.kafka_port,
        lambda: forward,
        lambda _, error: forward.connected(error),
    )


class _Forward:
    """One request being forwarded; a `raftlog.env.host.StreamHandler`."""

    def __init__(
        self,
        context: ListenerContext,
        api: tuple[ApiKey, int],
        request: Any,
        client: ClientInfo,
        reply: Reply,
    ) -> None:
        self._context = context
        self._api = api
        self._request = request
        self._client = client
        self._reply = reply
        self._framer = Framer(context.settings.connection_buffered_max_bytes)
        self._transport: Stream | None = None
        self._is_done = False
        context.forwards += 1
        wait_ms = context.settings.held_reply_timeout_ms + WAIT_SPARE_MS
        self._timer = context.host.call_later(wait_ms, self._fail, ErrorCode.REQUEST_TIMED_OUT)

    def connected(self, error: BaseException | None) -> None:
        if error is not None:
            self._fail(ErrorCode.NOT_CONTROLLER)

    def connection_made(self, transport: Stream) -> None:
        self._transport = transport
        if self._is_done:
            transport.abort()
            return
        asker = self._client
        asked_by = f"{asker.client_id}{asker.host}"[:CLIENT_CHARS_MAX]
        client_id = f"{CLIENT_ID}{self._context.node.info.node_id} for {asked_by}"
        transport.write(encode_request(*self._api, 0, client_id, self._request))

    def data_received(self, data: bytes) -> None:
        try:
            payloads = self._framer.feed(data)
            if payloads:
                self._end(decode_response(*self._api, payloads[0])[1])
        except MalformedFrame:
            self._fail(ErrorCode.REQUEST_TIMED_OUT)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ErrorCode.REQUEST_TIMED_OUT)

    def eof_received(self) -> bool | None:
        return None

    def pause_writing(self) -> None:
        """Do nothing: this is a single request, of a size that a listener accepts."""

    def resume_writing(self) -> None:
        """Do nothing, see `pause_writing`."""

    def _fail(self, code: ErrorCode) -> None:
        message = (
            "the controller could not be reached or did not respond; the change may still happen, so check"
        )
        self._end(refuse(*self._api, self._request, code, f"{message} again"))

    def _end(self, response: object) -> None:
        if self._is_done:
            return
        self._is_done = True
        self._context.forwards -= 1
        self._timer.cancel()
        if self._transport is not None:
            self._transport.close()
        self._reply(response)
