"""The HTTP API as a table: paths, parameters with their bounds, answers. Router and OpenAPI both read it.

So the document cannot name a parameter that the node does not check, nor the other way round.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]


class HttpError(Exception):
    """An answer that is not 200: status, a word for programs, a sentence, and what to do."""

    def __init__(self, status: int, error: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": error, "message": message, "hint": hint}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A path or query parameter; integers have bounds, texts may have a choice."""

    name: str
    reason: str
    default: int | str | None = None
    in_path: bool = False
    is_integer: bool = False
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()

    def schema(self) -> Schema:
        if self.is_integer:
            return {"type": "integer", "minimum": self.low, "maximum": self.high, "default": self.default}
        schema: Schema = {"type": "string"}
        if self.choices:
            schema["enum"] = list(self.choices)
        if self.default is not None:
            schema["default"] = self.default
        return schema

    def parse(self, text: str) -> int | str:
        if self.is_integer:
            try:
                number = int(text)
            except ValueError:
                raise self._wrong(text, "a whole number") from None
            if not self.low <= number <= self.high:
                raise self._wrong(text, f"between {self.low} and {self.high}")
            return number
        if self.choices and text not in self.choices:
            raise self._wrong(text, "one of " + ", ".join(self.choices))
        return text

    def _wrong(self, text: str, what: str) -> HttpError:
        return HttpError(400, "BAD_PARAMETER", f"{self.name} must be {what}, not {text[:100]!r}", self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One GET. `answer` is the JSON schema of a 200; None where the answer is not JSON (`media`)."""

    path: str
    name: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    answer: Schema | None = None
    media: tuple[str, ...] = ("application/json",)
    refusals: tuple[int, ...] = ()
    keeps_waiting: bool = False  # a long poll has a bound of its own

    def parse(self, path: Mapping[str, str], query: Mapping[str, str]) -> dict[str, Any]:
        """All parameters with their values; HttpError 400 for an unknown or wrong one."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in query:
            if name not in known or known[name].in_path:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]}?" if close else "known: " + (", ".join(known) or "none")
                raise HttpError(400, "UNKNOWN_PARAMETER", f"unknown parameter {name[:100]!r}", hint)
        given = {**query, **path}
        return {
            name: parameter.parse(given[name]) if name in given else parameter.default
            for name, parameter in known.items()
        }


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


INTEGER: Schema = {"type": "integer"}
STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
ANYTHING: Schema = {"type": "object", "additionalProperties": True}
ADDRESS = _object(host=STRING, port=INTEGER)
ERROR = _object(error=STRING, message=STRING, hint=STRING)
AS_OF = _array(_object(shard=INTEGER, as_of_index=INTEGER))

LOG_FRAMES_MAX = 1_000
"""Frames of one answer: it is encoded between other requests, and the next one is a `from` away."""

LOG_WAIT_MAX_MS = 30_000
"""Longest long poll; below the timeouts of common proxies."""

GROUPS_PAGE_MAX = 1_000
"""Groups of one answer."""

_GROUP_ID = Parameter(name="group_id", reason="The group, percent-encoded.", in_path=True)
_SHARD = Parameter(name="shard", reason="Number of a group shard, or `metadata`.", in_path=True)
_FROM = Parameter(
    name="from", reason="First Raft index wanted.", default=1, is_integer=True, low=0, high=2**63 - 1
)
_LIMIT = Parameter(
    name="limit",
    reason="Most entries of one answer; ask again from `next_index`.",
    default=100,
    is_integer=True,
    low=1,
    high=LOG_FRAMES_MAX,
)
_WAIT = Parameter(
    name="wait_ms",
    reason="How long to wait for an entry at `from` when there is none yet.",
    default=0,
    is_integer=True,
    low=0,
    high=LOG_WAIT_MAX_MS,
)
_FORMAT = Parameter(
    name="format",
    reason="`jsonl`: one JSON object a line; `msgpack`: [index, term, timestamp_ms, body] each.",
    default="jsonl",
    choices=("jsonl", "msgpack"),
)
_AFTER = Parameter(name="after", reason="Group id after which the page begins.", default="")
_PAGE = Parameter(
    name="limit",
    reason="Most groups of one answer.",
    default=100,
    is_integer=True,
    low=1,
    high=GROUPS_PAGE_MAX,
)

ROUTES: tuple[Route, ...] = (
    Route(path="/healthz", name="healthz", summary="The process answers.", answer=_object(status=STRING)),
    Route(
        path="/readyz",
        name="readyz",
        summary="Every shard serves; 503 with the reasons while one does not.",
        answer=_object(ready=BOOLEAN, reasons=_array(STRING)),
        refusals=(503,),
    ),
    Route(
        path="/metrics",
        name="metrics",
        summary="Metrics in Prometheus' text format.",
        media=("text/plain",),
    ),
    Route(
        path="/v1/cluster",
        name="cluster",
        summary="Every node's Kafka and HTTP address; this node's shards with state, term and indexes.",
        answer=_object(
            cluster_id=STRING,
            node_id=INTEGER,
            nodes=_array(_object(node_id=INTEGER, kafka=ADDRESS, http=ADDRESS)),
            shards=_array(ANYTHING),
        ),
    ),
    Route(
        path="/v1/topics",
        name="topics",
        summary="All topics of the catalog.",
        answer=_object(
            as_of_index=INTEGER,
            topics=_array(_object(name=STRING, topic_id=STRING, num_partitions=INTEGER)),
        ),
        refusals=(503,),
    ),
    Route(
        path="/v1/groups",
        name="groups",
        summary="Groups of all shards by name, a page at a time.",
        parameters=(_AFTER, _PAGE),
        answer=_object(as_of=AS_OF, groups=_array(ANYTHING), next_after={"type": ["string", "null"]}),
        refusals=(400, 503),
    ),
    Route(
        path="/v1/groups/{group_id}",
        name="group",
        summary="One group: epochs, state, members with what they own and should own.",
        parameters=(_GROUP_ID,),
        answer=_object(shard=INTEGER, as_of_index=INTEGER, group=ANYTHING),
        refusals=(400, 404, 503),
    ),
    Route(
        path="/v1/shards/{shard}/log",
        name="log",
        summary="Committed entries of a shard: cause and records. `wait_ms` makes it a long poll.",
        parameters=(_SHARD, _FROM, _LIMIT, _WAIT, _FORMAT),
        media=("application/x-ndjson", "application/x-msgpack"),
        refusals=(400, 404, 410, 429),
        keeps_waiting=True,
    ),
    Route(path="/v1/openapi.json", name="openapi", summary="This document.", answer=ANYTHING),
)


STATUS_WORDS = {
    400: "A parameter is unknown or wrong.",
    404: "There is no such thing.",
    410: "These entries were removed by retention.",
    429: "Too many requests wait already.",
    503: "Not now: a shard is not ready, or the node is busy.",
}


def openapi(version: str) -> Schema:
    """The OpenAPI 3.1 document of ROUTES."""
    paths = {route.path: {"get": _operation(route)} for route in ROUTES}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Quorate",
            "version": version,
            "description": "Reads of one node: health, metrics, groups, topics and the committed log.",
        },
        "paths": paths,
        "components": {"schemas": {"Error": ERROR}},
    }


def _operation(route: Route) -> Schema:
    content: Schema = {
        media: ({"schema": route.answer} if route.answer is not None else {}) for media in route.media
    }
    responses: Schema = {"200": {"description": route.summary, "content": content}}
    for status in (*route.refusals, 503) if 503 not in route.refusals else route.refusals:
        schema = route.answer if route.name == "readyz" else {"$ref": "#/components/schemas/Error"}
        responses[str(status)] = {
            "description": STATUS_WORDS[status],
            "content": {"application/json": {"schema": schema}},
        }
    parameters = [
        {
            "name": parameter.name,
            "in": "path" if parameter.in_path else "query",
            "required": parameter.in_path,
            "description": parameter.reason,
            "schema": parameter.schema(),
        }
        for parameter in route.parameters
    ]
    return {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
    }
