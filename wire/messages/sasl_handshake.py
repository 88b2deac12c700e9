"""SaslHandshake: names the SASL mechanism that the client will authenticate with. No node here serves it.

Version 1 says that the mechanism's own messages follow in SaslAuthenticate requests, not bare (KIP-152).
"""

from wire.schema import Message, array_of, int16, message, string


@message(versions="0-1")
class SaslHandshakeRequest(Message):
    mechanism: str = string("0+")


@message(versions="0-1")
class SaslHandshakeResponse(Message):
    error_code: int = int16("0+")
    mechanisms: list[str] = array_of(string, "0+")
