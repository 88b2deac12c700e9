"""SaslAuthenticate: carries one message of a SASL mechanism each way (KIP-152). No node here serves it.

From version 1 on, the answer limits the session; the client authenticates again before it ends (KIP-368).
"""

from wire.schema import Message, binary, int16, int64, message, string


@message(versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Message):
    auth_bytes: bytes = binary("0+")


@message(versions="0-2", flexible="2+")
class SaslAuthenticateResponse(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = binary("0+")
    session_lifetime_ms: int = int64("1+")
