"""Apply the faults that an operator has set (`cluster.faults`) to requests and their replies.

Invariants: every applied fault is noted as evidence, up to a bound for each; a reply that a fault holds back
counts towards the memory of its connection; a silent connection ends with its client, or after a bound.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from cluster.faults.rule import Action, Asked, groups_in, members_in
from cluster.faults.table import Fault
from cluster.kafka.context import ListenerContext
from cluster.kafka.exchange import Exchange, Requester
from wire.errors import ErrorCode
from wire.refusals import refuse

CLOSED: Final = "fault"
"""The reason why the connection closed, as counted."""

SILENT_MS_MAX: Final = 600_000
"""Longest life of a connection that is not answered any more: its client may have gone without a word, and no
request timeout is as long."""

NOTES_PER_FAULT_MAX: Final = 1_000
"""Applications of one fault that are noted as evidence. Further ones are only counted: a fault on every
heartbeat must not push the other notes out of the file."""

GROUPS_PER_NOTE_MAX: Final = 8
"""Groups of one request that get a note."""


class AppliedFault:
    """The effect of a fault on the reply to a request that is carried out, or answered with an error."""

    __slots__ = ("_context", "_fault")

    def __init__(self, context: ListenerContext, fault: Fault) -> None:
        self._context = context
        self._fault = fault

    def changed(self, body: Any) -> Any:
        """Return the response to be encoded: a copy if it differs, as others may hold the original."""
        if self._fault.rule.action is not Action.THROTTLE:
            return body
        changed = copy.copy(body)
        changed.throttle_time_ms = self._fault.rule.throttle_ms
        return changed

    def holds(self, exchange: Exchange, data: bytes) -> bool:
        """Whether the reply does not leave now, and perhaps never."""
        exchange.fault = None
        connection, rule = exchange.connection, self._fault.rule
        assert connection is not None
        if rule.action is Action.DROP:
            _in(self._context, exchange, rule.delay_ms, lambda: _close(connection, self._fault))
            return True
        if not rule.delay_ms:
            return False

        def send() -> None:
            connection.waits_with(exchange, -len(data))
            exchange.send(data)

        connection.waits_with(exchange, len(data))
        _in(self._context, exchange, rule.delay_ms, send)
        return True


def inject(context: ListenerContext, connection: Requester, exchange: Exchange, body: Any) -> bool:
    """Apply the fault that the request meets, if any; return whether the request must not be carried out."""
    asked = Asked(exchange.api_key, body, exchange.client.client_id, connection.peer)
    fault = context.faults.match(asked, context.host.monotonic_ms())
    if fault is None:
        return False
    rule = fault.rule
    _note(context, fault, exchange, body)
    if rule.action in (Action.DELAY, Action.DROP, Action.THROTTLE):
        exchange.fault = AppliedFault(context, fault)
        return False
    if rule.action is Action.ERROR and getattr(body, "acks", None) != 0:
        exchange.fault = AppliedFault(context, fault)
        message = f"injected by fault {fault.fault_id} of an operator (quorate faults list)"
        code = ErrorCode(rule.error_code)
        exchange.reply(refuse(exchange.api_key, exchange.api_version, body, code, message))
        return True
    # A producer that wants no reply (acks=0) learns of an error by losing its connection, as in Kafka.
    connection.serve_alone(exchange)  # what the client has sent behind it is not served
    if rule.action is Action.SILENCE:
        context.host.call_soon(connection.fall_silent, CLOSED)
        close_ms: float = rule.delay_ms or SILENT_MS_MAX
    else:
        close_ms = rule.delay_ms
    _in(context, exchange, close_ms, lambda: _close(connection, fault))
    return True


def _in(context: ListenerContext, exchange: Exchange, delay_ms: float, call: Callable[[], None]) -> None:
    """Call it after the delay, unless the connection is gone by then; at once without a delay."""
    if not delay_ms:
        call()
        return

    def due() -> None:
        exchange.timer = None
        call()

    exchange.timer = context.host.call_later(delay_ms, due)


def _close(connection: Requester, fault: Fault) -> None:
    connection.refuse(CLOSED, f"fault {fault.fault_id} of an operator: {fault.rule.words()}")


def _note(context: ListenerContext, fault: Fault, exchange: Exchange, body: Any) -> None:
    """Keep as evidence what was done to whom, so that an explanation of the group can name the fault."""
    if fault.applied > NOTES_PER_FAULT_MAX:
        return
    rule = fault.rule
    for group_id in (
        [rule.group] if rule.group else list(islice(groups_in(body), GROUPS_PER_NOTE_MAX)) or [""]
    ):
        context.node.evidence.fault(
            fault_id=fault.fault_id,
            action=rule.action.value,
            api=exchange.api_key,
            error=rule.error_code,
            delay_ms=rule.delay_ms,
            throttle_ms=rule.throttle_ms,
            group_id=group_id,
            member_id=next(members_in(body), ""),
            client=f"{exchange.client.client_id}{exchange.client.host}",
        )
