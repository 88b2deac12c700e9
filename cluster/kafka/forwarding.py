"""Hands a request on to the controller, for clients that may ask any node.

Kafka's own clients send IncrementalAlterConfigs for groups to whichever broker is least busy, and take
NOT_CONTROLLER for final, since Kafka's brokers pass such requests on. So does this node: over a connection of
its own to the address that the controller advertises, one request each, then closed. The controller sees
this node as the client; the client id tells which one that is, and for whom it asks, and so does the cause of
what is written. While nobody is known to lead, the request waits a moment, as others do (`waiting`).

What must stay true: each request is answered once; one that was passed on already is not passed on again, so
two nodes that take each other for the controller do not play ball; their number at once is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from raftlog.host import Stream
from records import METADATA_SHARD
from wire.apis import ApiKey
from wire.errors import ErrorCode, MalformedFrame
from wire.framing import Framer
from wire.protocol import decode_response, encode_request
from wire.refusals import refuse

if TYPE_CHECKING:
    from cluster.kafka.exchange import Exchange
    from cluster.kafka.listener import KafkaListener

CLIENT_ID: Final = "quorate-node-"
"""How a node names itself, with its id, in what it passes on."""

CLIENT_CHARS_MAX: Final = 200
"""Of the client id and the address of the one who asked, as the controller is told them."""

FORWARDS_MAX: Final = 64
"""At once: an admin's changes come one by one. Beyond it a client is told to ask the controller itself."""

WAIT_SPARE_MS: Final = 1_000
"""Longer than the controller holds a reply, so that its answer comes before this node gives up."""


def submit_or_forward(listener: KafkaListener, exchange: Exchange, request: Any, num_named: int) -> None:
    """To this node's metadata shard if it leads it, or if nobody better is known; else to the controller.
    `num_named` is how many resources the request names."""
    listener.leaders.when_led(
        exchange, (METADATA_SHARD,), num_named, lambda: _submit_or_forward(listener, exchange, request)
    )


def _submit_or_forward(listener: KafkaListener, exchange: Exchange, request: Any) -> None:
    node = listener.node
    controller = node.controller
    was_forwarded = exchange.client.client_id.startswith(CLIENT_ID)
    if (
        controller is None
        or controller.node_id == node.info.node_id
        or was_forwarded
        or listener.forwards >= FORWARDS_MAX
    ):
        node.submit(exchange.api_key, exchange.api_version, request, exchange.client, exchange.reply)
        return
    forward = _Forward(listener, exchange, request)
    listener.host.connect(
        controller.kafka_host,
        controller.kafka_port,
        lambda: forward,
        lambda _, error: forward.connected(error),
    )


class _Forward:
    """One request on its way; a `raftlog.host.StreamHandler`."""

    def __init__(self, listener: KafkaListener, exchange: Exchange, request: Any) -> None:
        self._listener = listener
        self._exchange = exchange
        self._request = request
        self._api = ApiKey(exchange.api_key), exchange.api_version
        self._framer = Framer(listener.settings.connection_buffered_max_bytes)
        self._transport: Stream | None = None
        self._is_done = False
        listener.forwards += 1
        wait_ms = listener.settings.held_reply_timeout_ms + WAIT_SPARE_MS
        self._timer = listener.host.call_later(wait_ms, self._fail, ErrorCode.REQUEST_TIMED_OUT)

    def connected(self, error: BaseException | None) -> None:
        if error is not None:
            self._fail(ErrorCode.NOT_CONTROLLER)

    def connection_made(self, transport: Stream) -> None:
        self._transport = transport
        if self._is_done:
            transport.abort()
            return
        asker = self._exchange.client
        asked_by = f"{asker.client_id}{asker.host}"[:CLIENT_CHARS_MAX]
        client_id = f"{CLIENT_ID}{self._listener.node.info.node_id} for {asked_by}"
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
        """One request, of a size that a listener takes."""

    def resume_writing(self) -> None:
        """As above."""

    def _fail(self, code: ErrorCode) -> None:
        message = (
            "the controller could not be reached, or did not answer; the change may still happen, so ask"
        )
        self._end(refuse(*self._api, self._request, code, f"{message} again"))

    def _end(self, response: object) -> None:
        if self._is_done:
            return
        self._is_done = True
        self._listener.forwards -= 1
        self._timer.cancel()
        if self._transport is not None:
            self._transport.close()
        self._exchange.reply(response)
