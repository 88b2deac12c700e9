"""kafka-python in the tests leaves no socket to the garbage collector."""

from __future__ import annotations

import gc
import socket
import warnings
from contextlib import ExitStack

from tests.support.kafka_python import kafka

POLL_MS = 50


def test_an_attempt_to_connect_that_is_interrupted_closes_its_socket() -> None:
    with ExitStack() as sockets, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        full = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):  # the backlog is full, so that nobody else gets an answer
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        net = kafka.net.selector.NetworkSelector()
        net.call_soon(lambda: kafka.net.inet.create_connection(net, *full.getsockname()))
        net.poll(timeout_ms=POLL_MS)
        net.close()
        gc.collect()
    assert [str(one.message) for one in told if one.category is ResourceWarning] == []


def test_a_refused_attempt_to_connect_closes_its_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        net = kafka.net.selector.NetworkSelector()
        errors: list[BaseException] = []

        async def connect() -> None:
            try:
                await kafka.net.inet.create_connection(net, "127.0.0.1", port)
            except kafka.errors.KafkaConnectionError as error:
                errors.append(error)

        net.call_soon(connect)
        while not errors:
            net.poll(timeout_ms=POLL_MS)
        net.close()
        errors[0].__traceback__ = None
        gc.collect()
    assert [str(one.message) for one in told if one.category is ResourceWarning] == []
