"""The kinds of settings of a consumer: the values that a row of the table in `settings` accepts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field
from typing import Any, Final, NamedTuple

from client.core.errors import ConfigError

INT_MAX: Final = 2**31 - 1
"""The greatest value of Kafka's numeric settings, which are 32-bit integers."""

KAFKA_PORT: Final = 9092
"""The port of a bootstrap server that names none."""

BY_DURATION: Final = "by_duration:"
"""Begins the value of auto.offset.reset that names a time before now (KIP-1106)."""

_DURATION: Final = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)
"""An ISO 8601 duration as Java's `Duration` reads it, without signs; the greatest fits into 64 bits of ms."""
_UNIT_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000)

CLASSIC: Final = (
    "group.protocol=classic is not spoken by this client: leave the setting out, or use confluent-kafka or"
    " aiokafka, whose members share the group with this client's while the group is upgraded"
)


class ConsumerSetting(NamedTuple):
    """A row of the table beside its name and default."""

    read: Callable[[Any], Any]
    """Checks and converts what the user gave; raises ValueError with the reason."""
    accepts: str
    used_in: str
    words: str


def row(default: Any, read: Callable[[Any], Any], accepts: str, used_in: str, words: str) -> Any:
    """Return a field of `ConsumerSettings` whose values `read` checks. Secrets are not shown by repr()."""
    setting = ConsumerSetting(read, accepts, used_in, words)
    return field(default=default, repr="secret" not in accepts, metadata={"row": setting})


def number(default: int, low: int, used_in: str, words: str) -> Any:
    """Return a field for a whole number, which may be given as text."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError("is not a whole number")
        try:
            whole = int(value)
        except ValueError:
            raise ValueError("is not a whole number") from None
        if not low <= whole <= INT_MAX:
            raise ValueError(f"is not between {low:,} and {INT_MAX:,}")
        return whole

    return row(default, read, f"{low:,} to {INT_MAX:,}", used_in, words)


def flag(default: bool, used_in: str, words: str) -> Any:
    """Return a field for a truth value, which may be given as text."""

    def read(value: Any) -> bool:
        word = str(value).lower()
        if word not in ("true", "false"):
            raise ValueError("is neither true nor false")
        return word == "true"

    return row(default, read, "true, false", used_in, words)


def text(default: str | None, used_in: str, words: str, accepts: str = "text") -> Any:
    """Return a field for a text that is not empty."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise ValueError("is not a text of at least one character")
        return value

    return row(default, read, accepts, used_in, words)


def choice(default: str, values: tuple[str, ...], used_in: str, words: str, **others: str) -> Any:
    """Return a field for one of some words; `others` are further words for them."""

    def read(value: Any) -> str:
        found = next((known for known in values if known.lower() == str(value).lower()), None)
        found = found or others.get(str(value).lower())
        if found is None:
            raise ValueError(f"is none of {', '.join(values)}")
        return found

    return row(default, read, ", ".join(values), used_in, words)


def reset_duration_ms(value: str) -> int | None:
    """Return the milliseconds of `by_duration:PnDTnHnMnS`, None if the value is of another form.

    Raises ValueError if the duration is malformed, negative or too long."""
    if not value.lower().startswith(BY_DURATION):
        return None
    found = _DURATION.fullmatch(value[len(BY_DURATION) :])
    if found is None or not any(found.groups()):
        raise ValueError("has no duration such as P3D or PT1H30M (ISO 8601) after by_duration:")
    return sum(int(float(part or 0) * ms) for part, ms in zip(found.groups(), _UNIT_MS, strict=True))


def reset(default: str, used_in: str, words: str, **others: str) -> Any:
    """The value of auto.offset.reset; `others` are further words for some."""
    named = choice(default, ("earliest", "latest", "none"), used_in, words, **others).metadata["row"]

    def read(value: Any) -> Any:
        return value if reset_duration_ms(str(value)) is not None else named.read(value)

    return row(default, read, f"{named.accepts}, {BY_DURATION}DURATION", used_in, words)


def function(used_in: str, words: str) -> Any:
    """Return a field for a function, without which it is None."""

    def read(value: Any) -> Any:
        if not callable(value):
            raise ValueError("cannot be called")
        return value

    return row(None, read, "a function", used_in, words)


def read_protocol(value: Any) -> str:
    """Refuse every group protocol but consumer."""
    if str(value).lower() == "classic":
        raise ConfigError(CLASSIC)
    if str(value).lower() != "consumer":
        raise ValueError("is not consumer")
    return "consumer"


def read_servers(value: Any) -> tuple[tuple[str, int], ...]:
    """Read "host:port,host:port", or a sequence of such texts. An IPv6 address stands in brackets."""
    texts = value.split(",") if isinstance(value, str) else list(value)
    servers = tuple(_read_server(text.strip()) for text in texts if text.strip())
    if not servers:
        raise ValueError("names no server")
    return servers


def _read_server(text: str) -> tuple[str, int]:
    text = text.rpartition("://")[2]
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(KAFKA_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"has {text!r}, which is not host:port")
    return host, int(port)


def read_assignors(value: Any) -> tuple[Any, ...]:
    """Check that assignors have what a client-side assignor needs: a name, and a method that assigns."""
    assignors = tuple(value) if isinstance(value, list | tuple) else (value,)
    for assignor in assignors:
        if not (
            isinstance(getattr(assignor, "name", None), str) and callable(getattr(assignor, "assign", None))
        ):
            raise ValueError(f"has {assignor!r}, which has no name or no method assign")
    return assignors
