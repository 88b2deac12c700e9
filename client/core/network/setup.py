"""The set-up of a connection: the requests that come before the first one of a manager.

Each dialogue is a generator that yields a request and receives the answer's body, so that it reads in the
order of the wire, and a connection runs it without knowing what it is about.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, NamedTuple, TypeVar

from client.core.env import Environment
from client.core.errors import error_name
from client.core.network.sasl import MECHANISMS, AuthenticationFailed
from client.core.requests import RequestFailure
from client.core.settings import ConsumerSettings
from wire.apis import API_VERSIONS, ApiKey
from wire.errors import ErrorCode
from wire.messages.api_versions import ApiVersionsRequest
from wire.messages.sasl_authenticate import SaslAuthenticateRequest
from wire.messages.sasl_handshake import SaslHandshakeRequest
from wire.schema import Message

SOFTWARE: Final = ("quorate", "0.1.0")
"""Name and version of this client, as brokers' metrics show them (KIP-511)."""

AUTHENTICATE_ROUNDS_MAX: Final = 8
"""Most messages of a SASL mechanism; SCRAM has two."""

ServedVersions = dict[int, tuple[int, int]]
"""First and last version by API key, as a node advertises them."""


class SetupRequest(NamedTuple):
    """A request of a dialogue."""

    api: ApiKey
    version: int
    body: Message


Result = TypeVar("Result")
Dialogue = Generator[SetupRequest, Any, Result]


class ConnectionFailed(Exception):
    """A connection that cannot be used; says why."""

    def __init__(self, failure: RequestFailure, words: str) -> None:
        super().__init__(words)
        self.failure = failure


def negotiate() -> Dialogue[ServedVersions]:
    """Ask which versions the node serves: first in the newest version of ApiVersions, then in the node's.

    A node that does not know the version says so in the shape of version 0, with its own range (KIP-511).
    """
    lowest, version = API_VERSIONS[ApiKey.API_VERSIONS]
    name, software_version = SOFTWARE
    body = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    answer = yield SetupRequest(ApiKey.API_VERSIONS, version, body)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        ranges = {one.api_key: one.max_version for one in answer.api_keys}
        known = ranges.get(ApiKey.API_VERSIONS, lowest)
        answer = yield SetupRequest(ApiKey.API_VERSIONS, max(lowest, min(version - 1, known)), body)
    if answer.error_code != ErrorCode.NONE:
        words = f"ApiVersions was answered with {error_name(answer.error_code)}"
        raise ConnectionFailed(RequestFailure.UNSUPPORTED_VERSION, words)
    return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


def authenticate(settings: ConsumerSettings, env: Environment, served: ServedVersions) -> Dialogue[float]:
    """Authenticate by SASL. Returns the session's lifetime in ms, 0 if it has no limit (KIP-368)."""
    mechanism = settings.sasl_mechanism
    answer = yield SetupRequest(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism))
    if answer.error_code != ErrorCode.NONE:
        offered = ", ".join(answer.mechanisms) or "none"
        raise _refused(f"{error_name(answer.error_code)}: {mechanism} is not among the mechanisms {offered}")
    version = min(served.get(ApiKey.SASL_AUTHENTICATE, (0, 0))[1], API_VERSIONS[ApiKey.SASL_AUTHENTICATE][1])
    messages = MECHANISMS[mechanism](settings, env)
    lifetime_ms = 0.0
    try:
        data = next(messages)
        for _ in range(AUTHENTICATE_ROUNDS_MAX):
            body = SaslAuthenticateRequest(auth_bytes=data)
            answer = yield SetupRequest(ApiKey.SASL_AUTHENTICATE, version, body)
            if answer.error_code != ErrorCode.NONE:
                raise _refused(
                    f"{answer.error_message or 'no reason given'} ({error_name(answer.error_code)})"
                )
            lifetime_ms = float(answer.session_lifetime_ms)
            data = messages.send(answer.auth_bytes)
    except StopIteration:
        return lifetime_ms
    except AuthenticationFailed as error:
        raise _refused(str(error)) from error
    raise _refused(f"{mechanism} did not end after {AUTHENTICATE_ROUNDS_MAX} messages")


def _refused(words: str) -> ConnectionFailed:
    return ConnectionFailed(RequestFailure.AUTHENTICATION, f"authentication failed: {words}")
