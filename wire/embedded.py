"""Kafka's ConsumerProtocol, embedded in the classic protocol: a member's subscription and assignment.

Each is a version and a body. Consumers send the subscription as their metadata in JoinGroup, and SyncGroup
carries the assignment. A coordinator only reads them to migrate a group to the consumer protocol of KIP-848,
or to serve both kinds of members in one. The bytes are the client's, so they are decoded like a request:
every length is checked, and the number of elements is bounded. As in Kafka, a version newer than those known
here is read as the newest known, and bytes after the body are ignored: new versions only append fields.
"""

from struct import Struct
from struct import error as StructError
from typing import TypeVar

from wire.decoding import decoder
from wire.encoding import encoder
from wire.errors import MalformedFrame
from wire.schema import Message, array_of, binary, int32, message, nested, string

CONSUMER = "consumer"
"""Protocol type of the groups whose members embed this protocol."""
VERSION_NEWEST = 3
NO_GENERATION = -1

_version = Struct(">h")


@nested
class TopicPartitionsByName(Message):
    topic: str = string("0+")
    partitions: list[int] = array_of(int32, "0+")


@message(versions="0-3")
class ConsumerProtocolSubscription(Message):
    """The topics that a member wants, and the partitions that it owned in its latest generation."""

    topics: list[str] = array_of(string, "0+")
    user_data: bytes | None = binary("0+", nullable="0+", default=None)
    owned_partitions: list[TopicPartitionsByName] = array_of(TopicPartitionsByName, "1+")
    generation_id: int = int32("2+", default=NO_GENERATION)
    rack_id: str | None = string("3+", nullable="3+", default=None)


@message(versions="0-3")
class ConsumerProtocolAssignment(Message):
    """The partitions that a member is to consume. All versions have the same fields."""

    assigned_partitions: list[TopicPartitionsByName] = array_of(TopicPartitionsByName, "0+")
    user_data: bytes | None = binary("0+", nullable="0+", default=None)


M = TypeVar("M", ConsumerProtocolSubscription, ConsumerProtocolAssignment)


def version_of(data: bytes) -> int:
    """The version that a subscription or an assignment begins with. Raises MalformedFrame."""
    try:
        (version,) = _version.unpack_from(data)
    except StructError:
        raise MalformedFrame("ConsumerProtocol version", f"only {len(data)} bytes") from None
    if version < 0:
        raise MalformedFrame("ConsumerProtocol version", f"{version} is negative")
    return int(version)


def decode(cls: type[M], data: bytes) -> M:
    """Decode a subscription or an assignment. Raises MalformedFrame."""
    version = min(version_of(data), VERSION_NEWEST)
    decoded: M = decoder(cls, version, exact=False, bounded=True)(data, _version.size)
    return decoded


def encode(body: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int) -> bytes:
    """Encode a subscription or an assignment, in the newest version if `version` is newer than that."""
    version = min(version, VERSION_NEWEST)
    buffer = bytearray(_version.pack(version))
    encoder(type(body), version)(body, buffer)
    return bytes(buffer)
