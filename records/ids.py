"""Identifiers that all packages share: topic ids, shards and the shard of a group.

A topic id is 16 bytes everywhere, on the wire, in records and in memory; its text form is for people and JSON
only.  The shard of a group depends on the group id and on the number of shards, which a cluster fixes when it
is formatted: the function here must never change, or groups would lose their history.
"""

import binascii
import zlib
from base64 import b64decode, urlsafe_b64encode

from records.errors import MalformedId

TOPIC_ID_BYTES = 16
ZERO_UUID = bytes(TOPIC_ID_BYTES)  # "no topic id", as in Kafka

SCRATCH_TERM_BITS = 40
"""Where a cluster keeps messages itself: offsets per term and partition are 2^40, more than four months of
100,000 records per second. They leave room for eight million terms."""

METADATA_SHARD = -1  # topics and configs; the group shards are numbered from 0


def topic_id_text(topic_id: bytes) -> str:
    """The text of a topic id (16 bytes) as Kafka prints it: url-safe base64, no padding, 22 characters."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii")


def parse_topic_id(text: str) -> bytes:
    """The 16 bytes of a topic id from its text.

    Raises `MalformedId` for anything `topic_id_text` cannot print.
    """
    try:
        topic_id = b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        topic_id = b""
    if len(topic_id) != TOPIC_ID_BYTES or topic_id_text(topic_id) != text:
        raise MalformedId(
            f"{text!r} is not a topic id: expected 22 characters of url-safe base64, no padding"
        )
    return topic_id


def shard_of(group_id: str, num_shards: int) -> int:
    """The shard (0..num_shards-1) that owns a group: CRC-32 of its UTF-8 bytes modulo `num_shards`."""
    return zlib.crc32(group_id.encode("utf-8")) % num_shards
