"""Requests that concern several shards: split by shard, answered by each, merged in the order of the request.

These are pure functions in a table; the node supplies the shards. ListGroups goes to every shard except those
that another node leads, because that node lists them: clients ask all nodes. It fails as a whole on any
error, also if a shard has no leader at the moment, because a list that silently lacks groups is worse than a
retry. The other requests name their groups, and each shard answers for its own.

Invariants: every group of the request is answered by the shard that it belongs to, in the order of
the request; the failure of a shard affects only its own groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.list_groups import ListGroupsResponse

ShardOf = Callable[[str], int]
Parts = dict[int, Any]
"""Requests or responses by shard number."""

GROUPS_MAX: Final = 10_000
"""At most this many groups in one request, which is generous for an admin client."""

REPEATS_MAX: Final = 10
"""At most this many repeated group names in one request.

No client repeats any, and each repetition costs as much as the first. A frame that named a large group a
hundred thousand times would be answered with gigabytes.
"""


@dataclass(frozen=True, slots=True)
class Fan:
    """The functions that split the requests of one API and merge its responses."""

    split: Callable[[Any, ShardOf, int], Parts]
    merge: Callable[[Any, Mapping[int, Any]], Any]
    names: Callable[[Any], list[str]]

    def flood_of(self, request: Any) -> str | None:
        """Return a message that says in which way the request is too large, or None if it is not."""
        names = self.names(request)
        if len(names) > GROUPS_MAX:
            return f"{len(names)} groups in one request exceed the maximum of {GROUPS_MAX}"
        repeats = len(names) - len(set(names))
        if repeats > REPEATS_MAX:
            return f"{repeats} groups in the request are duplicates"
        return None


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields in which a request and its response name their groups."""

    asked: str
    asked_id: Callable[[Any], str]
    answered: str

    def names(self, request: Any) -> list[str]:
        return [self.asked_id(item) for item in getattr(request, self.asked)]

    def split(self, request: Any, shard_of: ShardOf, num_shards: int) -> Parts:
        asked: list[Any] = getattr(request, self.asked)
        by_shard: dict[int, list[Any]] = {}
        for item in asked:
            by_shard.setdefault(shard_of(self.asked_id(item)), []).append(item)
        if len(by_shard) <= 1:
            return {next(iter(by_shard), 0): request}
        return {shard: replace(request, **{self.asked: items}) for shard, items in by_shard.items()}

    def merge(self, request: Any, responses: Mapping[int, Any]) -> Any:
        first = next(iter(responses.values()))
        if len(responses) == 1:
            return first
        places = {self.asked_id(item): place for place, item in enumerate(getattr(request, self.asked))}
        answers = [item for response in responses.values() for item in getattr(response, self.answered)]
        answers.sort(key=lambda answer: places.get(answer.group_id, len(places)))
        return replace(first, **{self.answered: answers})


def _split_list(request: Any, shard_of: ShardOf, num_shards: int) -> Parts:
    return dict.fromkeys(range(num_shards), request)


def _merge_list(request: Any, responses: Mapping[int, Any]) -> Any:
    if not responses:
        return ListGroupsResponse()
    parts = list(responses.values())
    for part in parts:
        if part.error_code == ErrorCode.NOT_COORDINATOR:  # clients retry this error only
            return replace(part, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if part.error_code != ErrorCode.NONE:
            return part
    return replace(parts[0], groups=[group for part in parts for group in part.groups])


def _named(item: str) -> str:
    return item


def _with_group_id(item: Any) -> str:
    group_id: str = item.group_id
    return group_id


def _fields(asked: str, asked_id: Callable[[Any], str], answered: str) -> Fan:
    fields = _Fields(asked, asked_id, answered)
    return Fan(fields.split, fields.merge, fields.names)


_OFFSET_FETCH: Final = _Fields("groups", _with_group_id, "groups")


def _split_offset_fetch(request: Any, shard_of: ShardOf, num_shards: int) -> Parts:
    """Split by group. Up to version 7 a request has a single group, at the top level."""
    if not request.groups:
        return {shard_of(request.group_id): request}
    return _OFFSET_FETCH.split(request, shard_of, num_shards)


FANS: Final[dict[int, Fan]] = {
    ApiKey.LIST_GROUPS: Fan(_split_list, _merge_list, lambda request: []),
    ApiKey.DESCRIBE_GROUPS: _fields("groups", _named, "groups"),
    ApiKey.DELETE_GROUPS: _fields("groups_names", _named, "results"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _fields("group_ids", _named, "groups"),
    ApiKey.OFFSET_FETCH: Fan(_split_offset_fetch, _OFFSET_FETCH.merge, _OFFSET_FETCH.names),
}

ONE_GROUP_APIS: Final = frozenset(
    {
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT,
        ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT,
        ApiKey.OFFSET_COMMIT,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.OFFSET_DELETE,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
    }
)
"""Requests that name one group, in `group_id`."""


class Gathering:
    """Collects the answers of the shards and passes the merged one on after the last."""

    __slots__ = ("_fan", "_missing", "_reply", "_request", "_responses")

    def __init__(self, fan: Fan, request: object, parts: Parts, reply: Callable[[object], None]) -> None:
        self._fan = fan
        self._request = request
        self._reply = reply
        self._missing = len(parts)
        self._responses: dict[int, Any] = dict.fromkeys(parts)

    def receive(self, shard: int, response: object) -> None:
        self._responses[shard] = response
        self._missing -= 1
        if not self._missing:
            self._reply(self._fan.merge(self._request, self._responses))
