"""The SASL mechanisms: PLAIN (RFC 4616), OAUTHBEARER (RFC 7628), SCRAM (RFC 5802, by the library scramp).

A mechanism is a generator: it yields what to send and receives the server's answer to it, and it raises
`AuthenticationFailed` when the server does not prove that it knows the password.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from client.core.env import Environment
from client.core.settings import ConsumerSettings

ITERATIONS_MAX: Final = 1_000_000
"""Most rounds of hashing that a server may ask for with SCRAM: about a second. Kafka's default is 4,096."""

Mechanism = Generator[bytes, bytes, None]


class AuthenticationFailed(Exception):
    """The server refused the client, or could not prove itself to it."""


def plain(settings: ConsumerSettings, _env: Environment) -> Mechanism:
    """Send name and password as they are; only TLS hides them."""
    yield b"\0".join((b"", settings.sasl_username.encode(), settings.sasl_password.encode()))


def oauthbearer(settings: ConsumerSettings, _env: Environment) -> Mechanism:
    """Send a token, which the user's own function gets or refreshes (sasl.oauthbearer.token.callback).

    The function returns the token, or a tuple that begins with it, as those of confluent-kafka do. It runs
    on the background side, so it has to return soon."""
    get_token = settings.sasl_oauthbearer_token_callback
    if get_token is None:
        raise AuthenticationFailed(
            "OAUTHBEARER needs sasl.oauthbearer.token.callback, a function that returns a token"
        )
    try:
        got = get_token(settings.sasl_oauthbearer_config)
    except Exception as error:  # the user's code
        raise AuthenticationFailed(f"sasl.oauthbearer.token.callback raised {error!r}") from error
    token = str(got[0] if isinstance(got, tuple) else got)
    refusal = yield b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
    if refusal:  # the reason as JSON; the server ends after this answer to it
        yield b"\x01"
        raise AuthenticationFailed(refusal.decode("utf-8", "replace"))


def scram(settings: ConsumerSettings, env: Environment) -> Mechanism:
    """Prove to know the password without sending it, and have the server prove the same."""
    try:
        from scramp import ScramClient, ScramException
    except ImportError:
        from records.installation import how_to_install

        raise AuthenticationFailed(f"SCRAM needs the library scramp: {how_to_install('sasl')}") from None
    name, password = settings.sasl_username, settings.sasl_password
    client: Any = ScramClient([settings.sasl_mechanism], name, password, c_nonce=env.fresh_id())
    try:
        first = yield client.get_client_first().encode()
        _check_iterations(first)
        client.set_server_first(first.decode())
        final = yield client.get_client_final().encode()
        client.set_server_final(final.decode())
    except (ScramException, UnicodeDecodeError) as error:
        raise AuthenticationFailed(str(error)) from error


def _check_iterations(server_first: bytes) -> None:
    count = next((part[2:] for part in server_first.split(b",") if part.startswith(b"i=")), b"")
    # Python refuses to read a number of thousands of digits
    is_number = count.isdigit() and len(count) <= len(str(ITERATIONS_MAX))
    if not is_number or int(count) > ITERATIONS_MAX:
        raise AuthenticationFailed(
            f"the server wants {count[:20]!r} rounds of hashing, above {ITERATIONS_MAX}"
        )


MECHANISMS: Final[dict[str, Callable[[ConsumerSettings, Environment], Mechanism]]] = {
    "PLAIN": plain,
    "SCRAM-SHA-256": scram,
    "SCRAM-SHA-512": scram,
    "OAUTHBEARER": oauthbearer,
}
