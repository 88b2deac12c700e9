"""Requests and responses on the wire: header and body, for both ends of a connection.

The header has quirks that must be preserved. A request's client id is never compact, even if the rest of the
header is flexible. ApiVersions uses response header version 0 in every version, so that a client that does
not know the node's versions yet can read the response (KIP-511). Bytes after a body are an error, except in
the requests of `SURPLUS_IGNORED`.
"""

from collections.abc import Container, Generator
from functools import cache
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from wire.apis import API_VERSIONS, ApiKey, api_name, message_classes
from wire.decoding import ELEMENTS_MAX, Decoder, decoder, skip_tags, uvarint
from wire.encoding import Encoder, PieceEncoder, encoder, piece_encoder
from wire.errors import MalformedFrame, UnsupportedApi
from wire.schema import Message

LENGTH_BYTES = 4

SURPLUS_IGNORED = frozenset({ApiKey.METADATA})
"""Requests that may have meaningless trailing bytes. librdkafka 2.16 sends three of them when it asks
Metadata 13 for all topics, and reconnects for ever if refused."""

_request_start = Struct(">hhih")
_frame_start = Struct(">ii")
_flexible_frame_start = Struct(">iix")
_correlation_id = Struct(">i")
_length = Struct(">i")


class RequestHeader(NamedTuple):
    """Kafka's request header, versions 1 and 2. The body starts at `body_offset`."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


class _Route(NamedTuple):
    """Message classes and header formats of one API in one version."""

    request: type[Message]
    response: type[Message]
    flexible_request: bool
    flexible_response: bool


@cache
def _route(api_key: int, api_version: int) -> _Route:
    """Look up an API version. Raises KeyError if it is not in API_VERSIONS."""
    first, last = API_VERSIONS[ApiKey(api_key)] if api_key in API_VERSIONS else (0, -1)
    if not first <= api_version <= last:
        raise _unserved(api_key, api_version)
    request, response = message_classes(ApiKey(api_key))
    return _Route(
        request,
        response,
        flexible_request=api_version in request.SCHEMA.flexible,
        flexible_response=api_version in response.SCHEMA.flexible and api_key != ApiKey.API_VERSIONS,
    )


def _unserved(api_key: int, api_version: int) -> KeyError:
    return KeyError(f"{api_name(api_key)} version {api_version} is not served")


@cache
def _request_decoder(api_key: int, api_version: int, bounded: bool) -> Decoder:
    exact = api_key not in SURPLUS_IGNORED
    return decoder(_route(api_key, api_version).request, api_version, exact=exact, bounded=bounded)


@cache
def _response_encoder(api_key: int, api_version: int) -> tuple[Encoder, Struct]:
    route = _route(api_key, api_version)
    return encoder(route.response, api_version), _response_start(route)


@cache
def _response_piece_encoder(api_key: int, api_version: int) -> tuple[PieceEncoder, Struct]:
    route = _route(api_key, api_version)
    return piece_encoder(route.response, api_version), _response_start(route)


def _response_start(route: _Route) -> Struct:
    return _flexible_frame_start if route.flexible_response else _frame_start


def parse_request_header(payload: bytes, served: Container[int] = API_VERSIONS) -> RequestHeader:
    """Parse the header of a request frame (without its length).

    Raises MalformedFrame if the header is invalid. Raises UnsupportedApi, with key, version and correlation
    id, if the API is not in `served` or the version not in API_VERSIONS.
    """
    try:
        api_key, api_version, correlation_id, length = _request_start.unpack_from(payload)
    except StructError:
        raise MalformedFrame("request header", f"only {len(payload)} bytes") from None
    try:
        if api_key not in served:
            raise _unserved(api_key, api_version)
        flexible = _route(api_key, api_version).flexible_request
    except KeyError as error:
        raise UnsupportedApi(api_key, api_version, correlation_id, str(error.args[0])) from None
    offset = _request_start.size
    try:
        client_id = None
        if length >= 0:
            end = offset + length
            if end > len(payload):
                raise ValueError(f"client_id: length {length} exceeds the bytes that remain")
            client_id = payload[offset:end].decode()
            offset = end
        if flexible:
            tags, offset = uvarint(payload, offset + 1, payload[offset])
            if tags:
                offset = skip_tags(payload, offset, tags)
    except IndexError:
        raise MalformedFrame("request header", "the frame ends before the field does") from None
    except ValueError as error:
        raise MalformedFrame("request header", str(error)) from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, offset)


def decode_request(payload: bytes, served: Container[int] = API_VERSIONS) -> tuple[RequestHeader, Any]:
    """Decode header and body of a request frame (without its length) for one of the APIs in `served`.

    Raises MalformedFrame or UnsupportedApi."""
    header = parse_request_header(payload, served)
    return header, decode_body(header.api_key, header.api_version, payload, header.body_offset)


def decode_body(api_key: int, api_version: int, payload: bytes, body_offset: int) -> Any:
    """Decode the body of a request frame whose header is known.

    Raises MalformedFrame."""
    is_long = len(payload) > ELEMENTS_MAX  # an element takes a byte at least: shorter requests need no count
    return _request_decoder(api_key, api_version, is_long)(payload, body_offset)


def encode_response(api_key: int, api_version: int, correlation_id: int, body: Message) -> bytes:
    """Encode a response frame, including its length.

    Raises Unencodable if the body does not fit its version."""
    encode, start = _response_encoder(api_key, api_version)
    frame = bytearray(start.pack(0, correlation_id))
    encode(body, frame)
    _length.pack_into(frame, 0, len(frame) - LENGTH_BYTES)
    return bytes(frame)


def encode_response_in_pieces(
    api_key: int, api_version: int, correlation_id: int, body: Message
) -> Generator[None, None, bytes]:
    """Encode like `encode_response`, but yield after each piece (`wire.encoding`).

    The generator returns the frame."""
    encode, start = _response_piece_encoder(api_key, api_version)
    frame = bytearray(start.pack(0, correlation_id))
    yield from encode(body, frame)
    _length.pack_into(frame, 0, len(frame) - LENGTH_BYTES)
    return bytes(frame)


def encode_request(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, body: Message
) -> bytes:
    """Encode a request frame, including its length, as a client sends it."""
    route = _route(api_key, api_version)
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    frame = bytearray(LENGTH_BYTES)
    frame += _request_start.pack(api_key, api_version, correlation_id, length) + name
    if route.flexible_request:
        frame += b"\0"
    encoder(route.request, api_version)(body, frame)
    _length.pack_into(frame, 0, len(frame) - LENGTH_BYTES)
    return bytes(frame)


def decode_response(api_key: int, api_version: int, payload: bytes) -> tuple[int, Any]:
    """Decode correlation id and body of a response frame (without its length), as a client reads it."""
    route = _route(api_key, api_version)
    offset = _correlation_id.size
    try:
        (correlation_id,) = _correlation_id.unpack_from(payload)
        if route.flexible_response:
            tags, offset = uvarint(payload, offset + 1, payload[offset])
            offset = skip_tags(payload, offset, tags)
    except (IndexError, StructError):
        raise MalformedFrame("response header", "the frame ends before the field does") from None
    except ValueError as error:
        raise MalformedFrame("response header", str(error)) from None
    return correlation_id, decoder(route.response, api_version)(payload, offset)
