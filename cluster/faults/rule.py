"""One fault as an operator asks for it: what it does, to which requests, how often and for how long.

`rule_of` checks the fields of a JSON body. Every rule from outside is made by it, so a rule that exists
can be applied.
"""

from __future__ import annotations

import difflib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from wire.apis import API_VERSIONS, CLIENT_APIS, ApiKey, api_title
from wire.errors import ErrorCode, error_name

TEXT_CHARACTERS_MAX: Final = 1_024
"""Longest id that can be matched, which the evidence keeps whole; Kafka's own ids are far shorter."""

SPAN_MS_MAX: Final = 3_600_000
"""Longest delay, throttle time and lifetime of a fault, in ms: an hour exceeds every timeout of a client."""

FAULTED_APIS: Final = tuple(api for api in API_VERSIONS if api not in CLIENT_APIS)
"""The APIs that some node serves."""

GROUP_KEY_TYPE: Final = 0
"""FindCoordinator's key type of groups."""

TIMES_MAX: Final = 1_000_000
"""Most applications, and most requests that are let through first: a bound for numbers, not for tests."""


class Action(StrEnum):
    """The effect of a fault on a request that matches."""

    DELAY = "delay"
    """The request is carried out; its reply leaves later."""
    DROP = "drop"
    """The request is carried out; the connection is closed in place of the reply."""
    ERROR = "error"
    """The request is not carried out; the reply has this error."""
    CLOSE = "close"
    """The request is not carried out; the connection is closed."""
    SILENCE = "silence"
    """The request is not carried out; the connection stays open, and nothing on it is answered any more."""
    THROTTLE = "throttle"
    """The request is carried out; the reply has this throttle time."""


class FaultError(Exception):
    """A fault cannot be set; the message says why, `hint` what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Asked(NamedTuple):
    """One request, as far as faults match it."""

    api_key: int
    body: Any
    client_id: str
    address: str
    """HOST:PORT of the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRule:
    """`None` matches everything. All that is given must match."""

    action: Action
    api_keys: frozenset[int] | None = None
    group: str | None = None
    member: str | None = None
    """A member id or a group instance id."""
    client_id: str | None = None
    connection: str | None = None
    """HOST:PORT of a client, or the host alone."""
    error_code: int = 0
    delay_ms: int = 0
    throttle_ms: int = 0
    after: int = 0
    """The number of matching requests that are let through first."""
    times: int | None = None
    rate: float = 1.0
    seed: int = 0
    for_ms: int | None = None

    def matches(self, asked: Asked) -> bool:
        return (
            (self.api_keys is None or asked.api_key in self.api_keys)
            and (self.client_id is None or self.client_id == asked.client_id)
            and (self.connection is None or self.connection in (asked.address, _host(asked.address)))
            and (self.group is None or self.group in groups_in(asked.body))
            and (self.member is None or self.member in members_in(asked.body))
        )

    def chooses(self, number: int) -> bool:
        """Whether the fault applies to the matching request of this number, counted from 1.

        The choice depends on seed and number alone, so that a run can be repeated.
        """
        if number <= self.after:
            return False
        return self.rate >= 1.0 or zlib.crc32(f"{self.seed} {number}".encode()) < self.rate * 2**32

    def words(self) -> str:
        """The fault's effect in words."""
        later = f" after {self.delay_ms} ms" if self.delay_ms else ""
        match self.action:
            case Action.DELAY:
                return f"delay replies by {self.delay_ms} ms"
            case Action.DROP:
                return f"carry requests out, and close the connection{later} instead of replying"
            case Action.ERROR:
                return f"answer {error_name(self.error_code)}{later}"
            case Action.CLOSE:
                return f"close the connection{later}"
            case Action.SILENCE:
                return "stop answering" + (f", and close the connection{later}" if later else "")
            case Action.THROTTLE:
                return f"ask for {self.throttle_ms} ms of throttling{later}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "action": self.action.value,
            "api": None if self.api_keys is None else ",".join(map(api_title, sorted(self.api_keys))),
            "group": self.group,
            "member": self.member,
            "client_id": self.client_id,
            "connection": self.connection,
            "error": error_name(self.error_code) if self.error_code else None,
            "delay_ms": self.delay_ms,
            "throttle_ms": self.throttle_ms,
            "after": self.after,
            "times": self.times,
            "rate": self.rate,
            "seed": self.seed,
            "for_ms": self.for_ms,
        }


def rule_of(given: Mapping[str, Any]) -> FaultRule:
    """Make a rule of the fields of a body; None stands for a field that is not given. Raises FaultError."""
    action = _action(given["action"])
    for name in ("group", "member", "client_id", "connection"):
        text = given[name]
        if text is not None and not 0 < len(text) <= TEXT_CHARACTERS_MAX:
            raise FaultError(
                f"{name} must have 1 to {TEXT_CHARACTERS_MAX} characters", "leave it out for any"
            )
    for name, owner in (("error", Action.ERROR), ("throttle_ms", Action.THROTTLE)):
        if (given[name] is not None) != (action is owner):
            verb = "needs" if action is owner else "has no"
            raise FaultError(f"the fault {action} {verb} {name}", f"{name} goes with the fault {owner}")
    if action is Action.DELAY and not given["delay_ms"]:
        raise FaultError("the fault delay needs delay_ms", "for example 500")
    rate = 1.0 if given["rate"] is None else given["rate"]
    if not 0 < rate <= 1:
        raise FaultError(f"rate must be above 0 and at most 1, not {rate:g}", "0.1 is one request in ten")
    return FaultRule(
        action=action,
        api_keys=None if given["api"] is None else frozenset(map(api_named, given["api"].split(","))),
        group=given["group"],
        member=given["member"],
        client_id=given["client_id"],
        connection=given["connection"],
        error_code=0 if given["error"] is None else error_named(given["error"]),
        delay_ms=given["delay_ms"] or 0,
        throttle_ms=given["throttle_ms"] or 0,
        after=given["after"] or 0,
        times=given["times"],
        rate=rate,
        seed=given["seed"] or 0,
        for_ms=given["for_ms"],
    )


def _action(text: str | None) -> Action:
    try:
        return Action(text or "")
    except ValueError:
        said = f"there is no fault {text[:100]!r}" if text else "the fault's action is missing"
        raise FaultError(said, "faults: " + ", ".join(Action)) from None


def api_named(text: str) -> int:
    """Return the key of an API by Kafka's name, in any spelling (OffsetCommit, OFFSET_COMMIT), or number."""
    named = {_plain(api.name): api for api in FAULTED_APIS}
    found = named.get(_plain(text))
    if found is None and text in {str(int(api)) for api in FAULTED_APIS}:
        found = ApiKey(int(text))
    if found is None:
        titles = sorted(api_title(api) for api in FAULTED_APIS)
        raise FaultError(f"there is no API {text[:100]!r}", _suggestion(text, titles, "OffsetCommit"))
    return int(found)


def error_named(text: str) -> int:
    """Return an error code by Kafka's name or number; it must be an error."""
    named = {error.name: error for error in ErrorCode if error is not ErrorCode.NONE}
    found = named.get(text.upper()) or next((one for one in named.values() if str(int(one)) == text), None)
    if found is None:
        raise FaultError(
            f"Kafka has no error {text[:100]!r}", _suggestion(text.upper(), sorted(named), "NOT_COORDINATOR")
        )
    return int(found)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _suggestion(text: str, names: list[str], example: str) -> str:
    by_plain = {_plain(name): name for name in names}
    close = difflib.get_close_matches(_plain(text[:100]), by_plain, n=1)
    return f"did you mean {by_plain[close[0]]}?" if close else f"give Kafka's name, such as {example}"


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def groups_in(body: Any) -> Iterator[str]:
    """Yield the group ids that a request names, wherever its API has them."""
    if group_id := getattr(body, "group_id", None):
        yield group_id
    for name in ("groups", "group_ids", "groups_names"):
        for item in getattr(body, name, None) or ():
            yield item if isinstance(item, str) else item.group_id
    if getattr(body, "key_type", None) == GROUP_KEY_TYPE:
        yield from (body.key, *body.coordinator_keys) if body.key else body.coordinator_keys


def members_in(body: Any) -> Iterator[str]:
    """Yield the member ids and group instance ids that a request names."""
    whole: Iterable[Any] = getattr(body, "members", None) or ()
    for item in (body, *whole, *(getattr(body, "groups", None) or ())):
        for name in ("member_id", "group_instance_id", "instance_id"):
            if member := getattr(item, name, None):
                yield member
