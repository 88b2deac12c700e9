"""kafka-python for the tests: import `kafka` from here.

Two of its habits would fail whichever test runs at the time. It reads its message schemas, at import and at
first use, by a call that Python deprecates. And it leaves the socket of an attempt to connect that failed, or
that `close()` interrupted, to the garbage collector (seen in 3.0.12); here such an attempt closes its socket.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated")
    import kafka
    import kafka.errors
    from kafka.net.inet import KafkaNetSocket

__all__ = ["FROM_KAFKA_PYTHON", "kafka"]

FROM_KAFKA_PYTHON = "ignore:(read|open)_text is deprecated"
"""The warning filter of tests that use kafka-python."""

_connect = KafkaNetSocket.sock_connect


@functools.wraps(_connect)
async def _connect_or_close(self: Any, net: Any, sock: Any, *arguments: Any, **keywords: Any) -> Any:
    try:
        return await _connect(self, net, sock, *arguments, **keywords)
    except BaseException:  # GeneratorExit, if the consumer is closed meanwhile
        sock.close()
        raise


KafkaNetSocket.sock_connect = _connect_or_close
