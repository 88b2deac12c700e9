"""Every message of every served version, byte for byte against an independent implementation."""

import dataclasses
import importlib

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from tests.wire.oracle import Case, Sampler, case_id, kafka_cases, kio_bytes, kio_class, message_class, to_kio
from wire.apis import is_private
from wire.decoding import decoder
from wire.encoding import encoder
from wire.errors import ErrorCode
from wire.protocol import decode_request, decode_response, encode_request, encode_response
from wire.schema import Message

RANDOM_SAMPLES = 12


def samples(case: Case) -> list[Message]:
    cls = message_class(case)
    fixed = [Sampler(case[1], style).message(cls) for style in ("full", "empty", "null")]
    return fixed + [Sampler(case[1], "random", seed).message(cls) for seed in range(RANDOM_SAMPLES)]


@pytest.mark.parametrize("case", kafka_cases(), ids=case_id)
def test_bytes_are_kafkas(case: Case) -> None:
    cls, version = message_class(case), case[1]
    for message in samples(case):
        expected = kio_bytes(to_kio(message, kio_class(case)))
        buffer = bytearray()
        encoder(cls, version)(message, buffer)
        assert bytes(buffer) == expected
        assert decoder(cls, version)(expected, 0) == message


@pytest.mark.parametrize("case", kafka_cases(), ids=case_id)
def test_defaults_are_kafkas(case: Case) -> None:
    """A field that kio gives a default has the same here; a message names only what matters."""
    kio = kio_class(case)
    ours = to_kio(message_class(case)(), kio)
    required = [field.name for field in dataclasses.fields(kio) if field.default is dataclasses.MISSING]
    assert ours == kio(**{name: getattr(ours, name) for name in required})


@pytest.mark.parametrize("case", kafka_cases(), ids=case_id)
@pytest.mark.parametrize("client_id", ["rdkafka", "", None], ids=["named", "empty", "null"])
def test_frames_are_kafkas(case: Case, client_id: str | None) -> None:
    api_key, version, side = case
    message = Sampler(version, "full").message(message_class(case))
    body = to_kio(message, kio_class(case))
    header = type(body).__header_schema__
    if side == "request":
        flexible = header.__module__.endswith("v2.header")
        expected = kio_bytes(
            header(
                request_api_key=api_key, request_api_version=version, correlation_id=77, client_id=client_id
            )
        ) + kio_bytes(body)
        frame = encode_request(api_key, version, 77, client_id, message)
        parsed, decoded = decode_request(frame[4:])
        assert parsed[:4] == (api_key, version, 77, client_id)
        assert flexible == (version in message_class(case).SCHEMA.flexible)
    else:
        expected = kio_bytes(header(correlation_id=77)) + kio_bytes(body)
        frame = encode_response(api_key, version, 77, message)
        correlation_id, decoded = decode_response(api_key, version, frame[4:])
        assert correlation_id == 77
    assert frame == len(expected).to_bytes(4, "big") + expected
    assert decoded == message


def test_error_codes_are_kafkas() -> None:
    """But for one, of the private APIs."""
    ours = {code.name.lower(): (int(code), code.retriable) for code in ErrorCode}
    assert ours.pop("invalid_assignment") == (20_001, False)
    assert ours == {code.name: (int(code), code.retriable) for code in KioErrorCode}


def test_api_keys_are_kafkas() -> None:
    index = importlib.import_module("kio.schema.index")
    from wire.apis import ApiKey

    stock = {int(key): key.name.lower() for key in ApiKey if not is_private(key)}
    assert stock == {int(k): v for k, v in index.api_key_map.items()}
