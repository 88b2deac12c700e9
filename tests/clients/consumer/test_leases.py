"""A lease on a server that gives no tokens: a sentence, and no lease."""

from __future__ import annotations

import pytest

from quorate import FatalError, TimedOut, lease


async def test_a_lease_needs_a_server_with_tokens(
    server: str, topic: str, group: str, request: pytest.FixtureRequest
) -> None:
    """Apache Kafka has none; of Quorate, a cluster has them whose format level was raised."""
    is_kafka = "kafka" in request.node.callspec.id
    error = FatalError if is_kafka else TimedOut
    words = "gives no fencing tokens" if is_kafka else "run `quorate cluster upgrade`"
    with pytest.raises(error, match=words):
        async with lease(group, topic, bootstrap_servers=server, default_api_timeout_ms=1_000):
            pass
