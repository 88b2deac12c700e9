"""The user-facing package: the command line, a small Kafka client for it, and the demo.

This is the top floor of the house. It joins `cluster` (how a node runs) and `history` (what happened), which
do not know each other; no other package imports it.

entry            makes sure that the imported modules are ours
app              the command line; failures become one line and an exit code
commands/        one module per command
demo/            `quorate demo`
spark/           the pipeline: logs as Spark tables, at any scale
generations/     `quorate generations`: the group protocol's generations, compared
errors           anticipated failures and exit codes
output           text for people, JSON for programs
client           a small Kafka client
retrying_client  routing to the right node, retries, time limits
connection       one connection of it
groupclient      lists and descriptions of groups, and changes to them
faultclient      faults on demand, on every node
groupview        the text of `groups describe`
addresses        where the cluster is: Kafka's address leads to HTTP's, and back
http_client      HTTP to one node
nodes            HTTP to the nodes of a cluster
live             the live state of a group, from its leader
livelog          the log of a running cluster, for `history`
following        `--follow`
offsetplan       the plan of an offset reset
resetting        that plan, from an operator's options
endoffsets       begin and end offsets in a Kafka cluster
testing          a cluster for tests of Kafka applications
pytest_plugin    the fixture `quorate`
mirror           mirrors the topics of a Kafka cluster
confluent        the client under confluent-kafka's names

The doors of the client, `Consumer` for asyncio, `SyncConsumer` for threads and `lease()`, and the values and
errors that their users meet are imported from here. Each is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from client.aio.consumer import Consumer
    from client.aio.leases import lease
    from client.core.errors import (
        ConfigError,
        ConsumerError,
        CorruptRecord,
        DeserializationError,
        FatalError,
        FencedError,
        IllegalState,
        KafkaError,
        NoOffset,
        PositionOutOfRange,
        RecordError,
        TimedOut,
    )
    from client.core.types import ConsumerRecord, Lease, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
    from client.sync import SyncConsumer

__all__ = [
    "ConfigError",
    "Consumer",
    "ConsumerError",
    "ConsumerRecord",
    "CorruptRecord",
    "DeserializationError",
    "FatalError",
    "FencedError",
    "IllegalState",
    "KafkaError",
    "Lease",
    "NoOffset",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PositionOutOfRange",
    "RecordError",
    "SyncConsumer",
    "TimedOut",
    "TopicPartition",
    "lease",
]

_DOORS = {"Consumer": "client.aio.consumer", "SyncConsumer": "client.sync", "lease": "client.aio.leases"}
_VALUES = ("ConsumerRecord", "Lease", "OffsetAndMetadata", "OffsetAndTimestamp", "TopicPartition")


def __getattr__(name: str) -> Any:
    """Load a name of the client when it is first asked for (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _DOORS.get(name) or ("client.core.types" if name in _VALUES else "client.core.errors")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
