"""Subscriptions and assignments of consumers, against an independent implementation, and hostile bytes."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

import pytest

from tests.wire.oracle import Sampler, kio_bytes, to_kio
from wire.decoding import ELEMENTS_MAX
from wire.embedded import (
    VERSION_NEWEST,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode,
    encode,
    version_of,
)
from wire.errors import MalformedFrame

VERSIONS = range(VERSION_NEWEST + 1)
BOTH = [ConsumerProtocolSubscription, ConsumerProtocolAssignment]

both = pytest.mark.parametrize("cls", BOTH, ids=lambda cls: cls.__name__)
every_version = pytest.mark.parametrize("version", VERSIONS)


def kio_class(cls: type[Any], version: int) -> Any:
    name = {"ConsumerProtocolSubscription": "subscription", "ConsumerProtocolAssignment": "assignment"}
    module = importlib.import_module(f"kio.schema.consumer_protocol_{name[cls.__name__]}.v{version}.data")
    return getattr(module, cls.__name__)


@both
@every_version
def test_bytes_are_kafkas(cls: type[Any], version: int) -> None:
    styles = [("full", 0), ("empty", 0), ("null", 0), *[("random", seed) for seed in range(12)]]
    for style, seed in styles:
        message = Sampler(version, style, seed).message(cls)
        expected = version.to_bytes(2, "big") + kio_bytes(to_kio(message, kio_class(cls, version)))
        assert encode(message, version) == expected
        assert decode(cls, expected) == message
        assert version_of(expected) == version


@both
def test_a_newer_version_is_read_as_the_newest_known(cls: type[Any]) -> None:
    message = Sampler(VERSION_NEWEST, "full").message(cls)
    newest = encode(message, VERSION_NEWEST)
    newer = b"\x7f\xff" + newest[2:] + b"fields of the future"
    assert version_of(newer) == 32767
    assert decode(cls, newer) == message
    assert encode(message, 32767) == newest


@both
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "ConsumerProtocol version: only 0 bytes"),
        (b"\0", "ConsumerProtocol version: only 1 bytes"),
        (b"\xff\xff\0\0\0\0\0\0\0\0", "ConsumerProtocol version: -1 is negative"),
        (b"\0\1\xff\xff\xff\xff", "null, which this version does not allow"),
        (b"\0\1\x7f\xff\xff\xff", "2147483647 elements cannot fit"),
        (b"\0\1\0\0\0\1\0\1\xff", "elements cannot fit|not UTF-8"),
    ],
)
def test_what_does_not_parse_is_refused(cls: type[Any], data: bytes, why: str) -> None:
    with pytest.raises(MalformedFrame, match=why):
        decode(cls, data)


@both
@every_version
def test_damaged_bytes_decode_or_are_refused(cls: type[Any], version: int) -> None:
    data = encode(Sampler(version, "full").message(cls), version)
    damaged = [
        data[:at] + bytes((data[at] ^ mask,)) + data[at + 1 :] for at in range(len(data)) for mask in (1, 128)
    ]
    for bad in damaged:
        with suppress(MalformedFrame):
            decode(cls, bad)
    for end in range(len(data)):
        with pytest.raises(MalformedFrame):
            decode(cls, data[:end])


def test_elements_are_bounded_by_number() -> None:
    many = ConsumerProtocolSubscription(topics=[""] * ELEMENTS_MAX)
    assert decode(ConsumerProtocolSubscription, encode(many, 3)) == many
    many.topics.append("")
    with pytest.raises(MalformedFrame, match=f"topics: {ELEMENTS_MAX + 1} elements"):
        decode(ConsumerProtocolSubscription, encode(many, 3))
