"""Requests to the cluster: routing to the right node, retries, and time limits.

This module speaks through `wire`, so the product needs no Kafka client library. Group requests follow
FindCoordinator to the group's node, topic changes go to the controller. A node that is restarting, loading or
handing over leadership answers with a retriable error or not at all. Such a request is repeated, at another
node if there is one, with a short pause, until `timeout_s` has passed; so every call returns or raises within
that bound.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from quorate.connection import ClientConnection, ConnectionLost, NotKafka, VersionMissing
from quorate.errors import CommandError, ExitCode
from wire.apis import ApiKey
from wire.errors import ErrorCode, error_name, is_retriable
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.messages.metadata import MetadataRequest
from wire.schema import Message

T = TypeVar("T")

TIMEOUT_S = 10.0  # covers a restart of a node with a large log
PAUSE_S_MIN = 0.05
PAUSE_S_MAX = 0.5
ATTEMPT_S_MAX = 5.0  # a node holds a reply for at most 5 s before it answers COORDINATOR_NOT_AVAILABLE
LOOKUP_S_MAX = 2.0  # per node, for what a node answers at once or after waiting 1 s for a new leader
NODES_MAX = 100  # node addresses that are remembered besides the bootstrap ones
GROUP_KEY_TYPE = 0
# the last version with one key per request: this client asks for one group at a time
FIND_COORDINATOR_VERSION = 3
FINAL_HERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
"""Retriable for a consumer that waits for a topic, but final for a command that names one."""

WAYS_OUT: dict[int, str] = {
    ErrorCode.GROUP_ID_NOT_FOUND: "`quorate groups list` shows all groups",
    ErrorCode.NON_EMPTY_GROUP: "its members must leave first; `quorate groups describe` lists them",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "offsets can be deleted when no member is subscribed to their topic",
    ErrorCode.UNKNOWN_MEMBER_ID: "`quorate groups describe` lists the members",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`quorate topics list` shows all topics",
    ErrorCode.TOPIC_ALREADY_EXISTS: "`quorate topics grow NAME:PARTITIONS` adds partitions",
    ErrorCode.INVALID_CONFIG: (
        "`quorate docs configuration` has the bounds, `quorate groups config` shows the values"
    ),
    ErrorCode.INVALID_PARTITIONS: (
        "a topic has at most partitions.per.topic.max partitions, a setting of the nodes, and never loses any"
    ),
}
"""Hints for the refusals that commands on groups or topics meet."""


class ClusterRefused(CommandError):
    """The cluster answered with a final error; carries Kafka's error code."""

    def __init__(self, error_code: int, message: str | None, what: str) -> None:
        name = error_name(error_code)
        text = f"{what}: {name} ({error_code})" + (f": {message}" if message else "")
        super().__init__(text.rstrip("."), hint=WAYS_OUT.get(error_code, ""), code=ExitCode.REFUSED)
        self.error_code = error_code


class Unreachable(CommandError):
    """No node answered within the time limit."""

    def __init__(self, bootstrap: str, reason: str) -> None:
        super().__init__(
            f"cannot reach the cluster at {bootstrap} ({reason})",
            hint="is the node running? start one with `quorate up`, or give one with --bootstrap HOST:PORT",
            code=ExitCode.UNREACHABLE,
        )


class NotInTime(CommandError):
    """A node answered, but none could complete the request until the time limit."""

    def __init__(self, bootstrap: str, timeout_s: float, reason: str) -> None:
        super().__init__(
            f"the cluster at {bootstrap} did not complete the request within {timeout_s:g} s ({reason})",
            hint=(
                "without a majority of its nodes it serves nothing: `quorate cluster status` shows which "
                "node, shard or disk is missing"
            ),
            code=ExitCode.UNREACHABLE,
        )


class TryAgain(Exception):
    """A retriable answer; the text says which."""


def parse_bootstrap(bootstrap: str) -> list[tuple[str, int]]:
    """Parse `host:port,host:port` into pairs; raises `CommandError` (usage) naming the wrong part."""
    nodes = []
    for part in bootstrap.split(","):
        if "://" in part:
            address = part.strip().partition("://")[2].rstrip("/")
            raise CommandError(
                f"{part!r} is a URL, not HOST:PORT",
                hint=f"for a Kafka address leave out {part.strip().partition('://')[0]}://, as in {address}",
                code=ExitCode.USAGE,
            )
        host, colon, port = part.strip().rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise CommandError(
                f"{part!r} is not HOST:PORT", hint="for example 127.0.0.1:9092", code=ExitCode.USAGE
            )
        nodes.append((host.strip("[]"), int(port)))
    return nodes


class RetryingClient:
    """Connections to the cluster at `bootstrap` (`host:port`, several with commas).

    Each call returns or raises within `timeout_s`.
    """

    def __init__(self, bootstrap: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.bootstrap = bootstrap
        self._nodes_known = parse_bootstrap(bootstrap)
        self._timeout_s = timeout_s
        self._connections: dict[tuple[str, int], ClientConnection] = {}
        self._is_answered = False  # whether a node was reached since the request began
        weakref.finalize(self, _close, self._connections)  # of a client that nobody closes

    @property
    def _timeout_ms(self) -> int:
        return int(self._timeout_s * 1000)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        _close(self._connections)

    def serves(self, api: ApiKey) -> bool:
        """Whether a node that has answered before serves this API."""
        return any(connection.serves(api) for connection in self._connections.values())

    def _change(
        self,
        api: ApiKey,
        request: Message,
        row_of: Callable[[Any], Any],
        what: str,
        *,
        done_before: ErrorCode,
        is_done: Callable[[], bool],
    ) -> None:
        """Request a change; after a lost answer, `done_before` counts as success if `is_done` confirms it."""

        def attempt(deadline_s: float, again: bool) -> bool:
            row = row_of(self._ask_controller(api, request, deadline_s))
            if again and row.error_code == done_before:
                return False
            check(row.error_code, row.error_message, what)
            return True

        if not self._until_certain(attempt) and not is_done():
            raise ClusterRefused(
                done_before, "an earlier attempt may have been carried out in part", "changing the catalog"
            )

    def _cluster(self, deadline_s: float) -> dict[int, tuple[str, int]]:
        """The nodes in contact by id, with the controller first."""
        answer = self._ask_any(ApiKey.METADATA, MetadataRequest(topics=[]), deadline_s)
        nodes = {node.node_id: (node.host, node.port) for node in answer.brokers}
        for address in nodes.values():
            if address not in self._nodes_known and len(self._nodes_known) < NODES_MAX:
                self._nodes_known.append(address)
        return dict(sorted(nodes.items(), key=lambda node: node[0] != answer.controller_id))

    def _ask_controller(self, api: ApiKey, request: Message, deadline_s: float) -> Any:
        """Ask the controller; a node that no longer is the controller answers NOT_CONTROLLER."""
        nodes = self._cluster(deadline_s)
        if not nodes:
            raise TryAgain("the cluster returned no node")
        return self._ask(next(iter(nodes.values())), api, request, deadline_s)

    def _ask_any(
        self, api: ApiKey, request: Message, deadline_s: float, *, version_max: int | None = None
    ) -> Any:
        """Ask the first known node that answers; one that does not goes to the end of the list."""
        reasons = []
        for address in list(self._nodes_known):
            until_s = min(deadline_s, time.monotonic() + LOOKUP_S_MAX)
            try:
                return self._ask(address, api, request, until_s, version_max=version_max)
            except ConnectionLost as error:
                reasons.append(str(error))
                self._nodes_known.remove(address)
                self._nodes_known.append(address)
        raise ConnectionLost("; ".join(reasons))

    def _ask_coordinator(
        self,
        group_id: str,
        api: ApiKey,
        request: Message,
        deadline_s: float,
        *,
        version_max: int | None = None,
    ) -> Any:
        found = self._find_coordinator(group_id, deadline_s)
        return self._ask((found.host, found.port), api, request, deadline_s, version_max=version_max)

    def _find_coordinator(self, group_id: str, deadline_s: float) -> Any:
        find = FindCoordinatorRequest(key=group_id, key_type=GROUP_KEY_TYPE)
        found = self._ask_any(ApiKey.FIND_COORDINATOR, find, deadline_s, version_max=FIND_COORDINATOR_VERSION)
        check(found.error_code, found.error_message, f"finding the coordinator of group {group_id!r}")
        return found

    def _ask(
        self,
        address: tuple[str, int],
        api: ApiKey,
        request: Message,
        deadline_s: float,
        *,
        version_max: int | None = None,
    ) -> Any:
        connection = self._connections.get(address)
        try:
            if connection is None:
                connection = self._connections[address] = ClientConnection(*address, deadline_s)
                self._is_answered = True  # by the negotiation of versions, which needs no other node
            answer = connection.call(api, request, deadline_s, version_max=version_max)
            self._is_answered = True
            return answer
        except ConnectionLost:
            self._connections.pop(address, None)
            raise
        except NotKafka as error:
            raise CommandError(
                str(error),
                hint="give the Kafka address, which `quorate up` prints too; 9092 is the default port",
                code=ExitCode.USAGE,
            ) from error
        except VersionMissing as error:
            raise CommandError(
                str(error), hint="this client is for Quorate and Kafka 3.7 or newer", code=ExitCode.REFUSED
            ) from error

    def _until_certain(self, attempt: Callable[[float, bool], T]) -> T:
        """As `_until_done`; `attempt` is also told whether an earlier try may have been carried out."""
        tries = itertools.count()
        return self._until_done(lambda deadline_s: attempt(deadline_s, next(tries) > 0))

    def _until_done(self, attempt: Callable[[float], T]) -> T:
        """Run `attempt` until it returns, raises a final error, or the time limit passes."""
        deadline_s = time.monotonic() + self._timeout_s
        pause_s = PAUSE_S_MIN
        self._is_answered = False
        while True:
            try:
                return attempt(min(deadline_s, time.monotonic() + ATTEMPT_S_MAX))
            except (ConnectionLost, TryAgain) as error:
                if time.monotonic() + pause_s >= deadline_s:
                    if isinstance(error, TryAgain) or self._is_answered:
                        raise NotInTime(self.bootstrap, self._timeout_s, str(error)) from error
                    raise Unreachable(self.bootstrap, str(error)) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)


def _close(connections: dict[tuple[str, int], ClientConnection]) -> None:
    for connection in connections.values():
        connection.close()
    connections.clear()


def check(error_code: int, message: str | None, what: str) -> None:
    """Raise `TryAgain` or `ClusterRefused` for an error code other than 0."""
    if error_code == ErrorCode.NONE:
        return
    if error_code in FINAL_HERE:
        raise ClusterRefused(error_code, message, what)
    if is_retriable(error_code):
        raise TryAgain(f"{what}: {error_name(error_code)}")
    raise ClusterRefused(error_code, message, what)
