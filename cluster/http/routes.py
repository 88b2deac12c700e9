"""The HTTP API as a table: paths, parameters with their bounds, answers. The router and `openapi` use it.

So the document cannot name a parameter that the node does not check, nor omit one that it does.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.faults.rule import SPAN_MS_MAX, TIMES_MAX, Action
from cluster.faults.table import ID_MAX
from cluster.http.schemas import (
    ANYTHING,
    AS_OF,
    CONFIG,
    FAULT,
    GROUP,
    NODE,
    OFFSET,
    Schema,
    array_of,
    object_of,
    of_names,
    or_null,
)


class HttpError(Exception):
    """An answer other than 200: status, a word for programs, a message, and advice.

    `leader` is shown if another node has to be asked; `location` is where a client is redirected;
    `first_index` is the oldest entry that is kept, if an older one was requested.
    """

    def __init__(
        self,
        status: int,
        error: str,
        message: str,
        hint: str = "",
        *,
        leader: Mapping[str, Any] | None = None,
        location: str = "",
        retry_after_s: int = 0,
        first_index: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {"error": error, "message": message, "hint": hint}
        if leader is not None:
            self.body["leader"] = dict(leader)
        if first_index is not None:
            self.body["first_index"] = first_index
        self.headers = {"Location": location} if location else {}
        if retry_after_s:
            self.headers["Retry-After"] = str(retry_after_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A path or query parameter, or a field of a body; integers have bounds, texts may have choices."""

    name: str
    reason: str
    default: int | str | None = None
    in_path: bool = False
    is_integer: bool = False
    is_number: bool = False
    """A field of a body that may be a fraction."""
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()

    def schema(self) -> Schema:
        if self.is_integer:
            schema: Schema = {"type": "integer", "minimum": self.low, "maximum": self.high}
        else:
            schema = {"type": "number" if self.is_number else "string"}
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
                raise self._wrong(text, "an integer") from None
            if not self.low <= number <= self.high:
                raise self._wrong(text, f"between {self.low} and {self.high}")
            return number
        if self.choices and text not in self.choices:
            raise self._wrong(text, "one of " + ", ".join(self.choices))
        return text

    def parse_json(self, value: object) -> int | float | str:
        """Parse the same for a field of a body, where true is not a number."""
        given = value if isinstance(value, str) else type(value).__name__
        if self.is_integer:
            if not isinstance(value, int) or isinstance(value, bool):
                raise self._wrong(given, "an integer")
            return self.parse(str(value))
        if self.is_number:
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise self._wrong(given, "a number")
            return value
        if not isinstance(value, str):
            raise self._wrong(given, "a text")
        if not value.isascii() and any("\ud800" <= sign <= "\udfff" for sign in value):
            raise self._wrong(value, "a text that UTF-8 can express")
        return self.parse(value)

    def _wrong(self, text: str, what: str) -> HttpError:
        return HttpError(400, "BAD_PARAMETER", f"{self.name} must be {what}, not {text[:100]!r}", self.reason)


@dataclass(frozen=True, slots=True)
class Route:
    """One GET or DELETE, or POST with the fields of its JSON body.

    `answer` is the JSON schema of a 200; None if the answer is not JSON (`media`).
    """

    path: str
    name: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    answer: Schema | None = None
    media: tuple[str, ...] = ("application/json",)
    refusals: tuple[int, ...] = ()
    ignores_unknown: bool = False
    """Whether query parameters that it does not know are ignored: a link to a page may have some."""
    method: str = "GET"
    fields: tuple[Parameter, ...] = ()

    def parse(self, path: Mapping[str, str], query: Mapping[str, str]) -> dict[str, Any]:
        """Return all parameters with their values; HttpError 400 for an unknown or wrong one."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in () if self.ignores_unknown else query:
            if name not in known or known[name].in_path:
                raise _unknown("parameter", name, known)
        given = {**query, **path}
        return {
            name: parameter.parse(given[name]) if name in given else parameter.default
            for name, parameter in known.items()
        }

    def parse_body(self, data: bytes) -> dict[str, Any]:
        """Return all fields with their values; HttpError 400 unless the body is an object of known fields."""
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            hint = "send a JSON object, at least {}"
            raise HttpError(400, "BAD_BODY", "the body is not a JSON object", hint)
        known = {parameter.name: parameter for parameter in self.fields}
        for name in document:
            if name not in known:
                raise _unknown("field", name, known)
        return {
            name: parameter.default if (value := document.get(name)) is None else parameter.parse_json(value)
            for name, parameter in known.items()
        }


def _unknown(what: str, name: str, known: Mapping[str, Parameter]) -> HttpError:
    close = difflib.get_close_matches(name[:100], known, n=1)
    hint = f"did you mean {close[0]}?" if close else "known: " + (", ".join(known) or "none")
    return HttpError(400, f"UNKNOWN_{what.upper()}", f"unknown {what} {name[:100]!r}", hint)


LOG_FRAMES_MAX = 10_000
"""Entries of one answer, which has a bound in bytes as well; the rest is requested with `from`."""

EVIDENCE_NOTES_MAX = 10_000
"""Notes of one answer, the newest: those of a busy group for a day."""

ADVANCE_MS_MAX = 366 * 86_400_000
"""Milliseconds by which one call may advance the clock: longer than any retention in use."""

LOG_WAIT_MAX_MS = 30_000
"""Longest long poll; below the timeouts of common proxies."""

GROUPS_PAGE_MAX = 1_000
"""Groups of one answer."""


def _integer(name: str, default: int | None, low: int, high: int, reason: str) -> Parameter:
    return Parameter(name=name, reason=reason, default=default, is_integer=True, low=low, high=high)


def _integer_in_path(name: str, low: int, high: int, reason: str) -> Parameter:
    return Parameter(name=name, reason=reason, in_path=True, is_integer=True, low=low, high=high)


_GROUP_ID = Parameter(name="group_id", reason="The group, percent-encoded.", in_path=True)
_SHARD = Parameter(name="shard", reason="Number of a group shard, or `metadata`.", in_path=True)
_NODE = _integer_in_path("node", 0, 2**31 - 1, "The node's id.")
_FROM = _integer("from", 1, 0, 2**63 - 1, "First Raft index to return.")
_LIMIT = _integer("limit", 100, 1, LOG_FRAMES_MAX, "Maximum number of entries; continue from `next_index`.")
_WAIT = _integer(
    "wait_ms", 0, 0, LOG_WAIT_MAX_MS, "How long to wait if the entry at `from` does not exist yet."
)
_FORMAT = Parameter(
    name="format",
    reason="`jsonl`: one JSON object a line; `msgpack`: one [index, term, timestamp_ms, body] each; "
    "`frames`: as on disk, each with its CRC.",
    default="jsonl",
    choices=("jsonl", "msgpack", "frames"),
)
_GROUP = Parameter(name="group", reason="Only entries about this group.", default="")
_NOTES = _integer("limit", 1_000, 1, EVIDENCE_NOTES_MAX, "Maximum number of notes; the newest are returned.")
_NOTE_FORMAT = Parameter(
    name="format",
    reason="`jsonl`: one JSON object a line; `msgpack`: one map each.",
    default="jsonl",
    choices=("jsonl", "msgpack"),
)
# fmt: off
_CONSISTENT = _integer("consistent", 0, 0, 1,
    "1: only the leader responds, after confirming its leadership; other nodes redirect to it.")
_CATALOG = _integer("catalog_index", 0, 0, 2**63 - 1,
    "Set by redirects of `consistent=1`: the commit index that the metadata shard's leader confirmed.")
# fmt: on
_COMMAND = Parameter(
    name="command",
    reason="`kill`: kill -9, it stays down; `restart`: stop it if it runs, and start it.",
    in_path=True,
    choices=("kill", "restart"),
)
# fmt: off
_AFTER_INDEX = _integer("after", None, 0, 2**63 - 1,
    "The id of the last event that was read, as the header `Last-Event-ID`.")
_TO = _integer("to", None, 0, 2**31 - 1,
    "Id of the new leader; by default the node that leads the fewest shards.")
# fmt: on
_AFTER = Parameter(name="after", reason="Return groups after this group id.", default="")
_PAGE = _integer("limit", 100, 1, GROUPS_PAGE_MAX, "Maximum number of groups.")
_FAULT_ID = _integer_in_path("id", 1, ID_MAX, "The fault's id.")
# fmt: off
_FAULT_FIELDS = (
    Parameter(name="action", reason="What the fault does.", choices=tuple(Action)),
    Parameter(name="api", reason="Only requests of these APIs, with commas: Kafka's names or numbers."),
    Parameter(name="group", reason="Only requests that name this group."),
    Parameter(name="member", reason="Only requests that name this member id or group instance id."),
    Parameter(name="client_id", reason="Only requests with this client id."),
    Parameter(name="connection", reason="Only requests from this address: HOST:PORT, or HOST."),
    Parameter(name="error", reason="For `error`: Kafka's name or number of the error, as a text."),
    _integer("delay_ms", None, 0, SPAN_MS_MAX, "How much later the reply leaves, or the connection closes."),
    _integer("throttle_ms", None, 1, SPAN_MS_MAX, "For `throttle`: the throttle time of the reply."),
    _integer("after", None, 0, TIMES_MAX, "How many requests that match are let through first."),
    _integer("times", None, 1, TIMES_MAX, "How often it applies; by default without limit."),
    Parameter(name="rate", reason="Share of the requests that meet it, up to 1.", is_number=True),
    _integer("seed", None, 0, 2**63 - 1, "Seed of the choice that `rate` makes; 0 by default."),
    _integer("for_ms", None, 1, SPAN_MS_MAX, "How long it is in force; by default until it is cleared."),
    _integer("id", None, 1, ID_MAX, "Its id, if other nodes have it too; by default the next one."),
)
_ADVANCE_MS = _integer("advance_ms", 0, 0, ADVANCE_MS_MAX, "How much time passes.")
# fmt: on

_LEASE = Parameter(name="lease", reason="The lease's id, from its `opened` event.", in_path=True)
_CHANGE = _integer("change", None, 0, 2**31 - 1, "The `change` of the event.")
# fmt: off
_LEASE_FIELDS = (
    Parameter(name="group", reason="The group; required."),
    Parameter(name="topics", reason="The topics whose partitions are shared out, with commas; required."),
    Parameter(name="instance_id", reason="The name of a static member, which finds its partitions again."),
    _integer("release_timeout_ms", 300_000, 1, 2**31 - 1,
        "Time to end the work on what must be released; after it the member loses everything."),
)
# fmt: on

# fmt: off
ROUTES: tuple[Route, ...] = (
    Route("/", "page",
        "A page for a browser that shows the cluster, its groups, and one group live. Its script may read "
        "the answers of the cluster's other nodes (CORS, GET only), so that it outlives this one.",
        media=("text/html",), ignores_unknown=True),
    Route("/healthz", "healthz",
        "Liveness: the process responds.",
        answer=object_of("status str")),
    Route("/readyz", "readyz",
        "Readiness: every shard serves here or follows a leader; otherwise 503 with the reasons.",
        answer=object_of("ready bool, reasons [str]"),
        refusals=(503,)),
    Route("/metrics", "metrics",
        "Metrics in Prometheus' text format.",
        media=("text/plain",)),
    Route("/v1/cluster", "cluster",
        "Every node with its addresses and this node's link to it; this node's shards with state, "
        "leader, term, indexes, and, where it leads, its followers. `launcher`: whether `quorate up` runs "
        "this node and can be asked to kill and restart nodes. `transfers_last`: whether a transfer of a "
        "shard lasts, and goes to the metadata leader.",
        answer=object_of(
            "cluster_id str, node_id int, release str, format_level int, transfers_last bool, "
            "uptime_ms int, launcher bool",
            heartbeats=or_null(ANYTHING),
            clock=or_null(ANYTHING),
            nodes=array_of(NODE),
            shards=array_of({**object_of("shard int, asked_leader int?"), "additionalProperties": True}),
        )),
    Route("/v1/cluster/upgrade", "upgrade",
        "Raises the format level to the newest that every node reads. Only the metadata leader "
        "accepts it.",
        method="POST",
        answer=object_of("format_level int"),
        refusals=(400, 403, 408, 409, 413, 415, 503)),
    Route("/v1/shards/{shard}/transfer", "transfer",
        "Transfers the leadership of a shard to another node, where it stays (`lasts`) until another "
        "transfer, or until this one is undone. If the node goes, another leads until it is back. Only the "
        "metadata leader accepts it. Below format level 6 only the shard's leader does, and balancing takes "
        "the shard back (`lasts` is false).",
        method="POST",
        parameters=(_SHARD,),
        fields=(_TO,),
        answer=object_of("shard int, was_leader int?, leader_id int?, lasts bool"),
        refusals=(400, 403, 404, 408, 409, 413, 415, 503)),
    Route("/v1/shards/{shard}/transfer", "undo_transfer",
        "Leaves the choice of a shard's leader to balancing again. Only the metadata leader accepts it.",
        method="DELETE",
        parameters=(_SHARD,),
        answer=object_of("shard int, was_asked int?"),
        refusals=(400, 403, 404, 409, 503)),
    Route("/v1/nodes/{node}/drain", "drain",
        "Drains a node: it hands over all that it leads, and leads nothing while another node can, until it "
        "is undrained. `/v1/cluster` shows when it leads nothing. Only the metadata leader accepts it, from "
        "format level 6 on.",
        method="POST",
        parameters=(_NODE,),
        answer=object_of("node_id int, drained bool"),
        refusals=(400, 403, 408, 409, 413, 415, 503)),
    Route("/v1/nodes/{node}/drain", "undrain",
        "Lets a drained node lead again; balancing gives its shards back. Only the metadata leader accepts "
        "it.",
        method="DELETE",
        parameters=(_NODE,),
        answer=object_of("node_id int, drained bool"),
        refusals=(400, 403, 409, 503)),
    Route("/v1/nodes/{node}/{command}", "run_node",
        "Kills or restarts a node of a cluster that `quorate up` runs, as `quorate cluster kill|restart`. "
        "A restart is answered when the node serves again.",
        method="POST",
        parameters=(_NODE, _COMMAND),
        answer=object_of("said str, node_id int"),
        refusals=(400, 403, 408, 409, 413, 415, 429, 503)),
    Route("/v1/topics", "topics",
        "All topics in the catalog.",
        parameters=(_CONSISTENT,),
        answer=object_of(
            "as_of_index int", topics=array_of(object_of("name str, topic_id str, num_partitions int"))
        ),
        refusals=(307, 400, 503)),
    Route("/v1/groups", "groups",
        "Groups of all shards by name, a page at a time.",
        parameters=(_AFTER, _PAGE),
        answer=object_of("next_after str?", as_of=AS_OF, groups=array_of(ANYTHING)),
        refusals=(400, 503)),
    Route("/v1/groups/{group_id}", "group",
        "One group: epochs, state and what delays its target; each member with the partitions that it "
        "owns, is assigned and waits for, and its last refused request. Fields that only a leader "
        "knows may be null, and so is what members of a classic group do not have; their epoch is the "
        "generation.",
        parameters=(_GROUP_ID, _CONSISTENT),
        answer=object_of("shard int, as_of_index int, at_ms int", group=GROUP),
        refusals=(307, 400, 404, 503)),
    Route("/v1/groups/{group_id}/offsets", "group_offsets",
        "The committed offsets of one group, and how many messages come after each. `end` and `lag` are null "
        "where this cluster does not have the messages (`keeps_messages`: whether `scratch.log.enable` is "
        "set). The metadata leader has them, and other nodes redirect to it.",
        parameters=(_GROUP_ID,),
        answer=object_of(
            "shard int, as_of_index int, at_ms int, keeps_messages bool, lag int?",
            topics=of_names(array_of(OFFSET)),
        ),
        refusals=(307, 400, 404, 503)),
    Route("/v1/groups/{group_id}/events", "group_events",
        "One group live, also before it exists, as server-sent events: `entry`, a committed entry with its "
        "records about the group but offsets, whose id is its index (members of a classic group with what "
        "they were `assigned`, in place of the bytes that clients wrote); `group`, the group as above; "
        "`start` with the first index that is sent; `alive`. A new reader gets the newest entries first, one "
        "that names its last id only what it lacks, from any node.",
        parameters=(_GROUP_ID, _AFTER_INDEX),
        media=("text/event-stream",),
        refusals=(400, 429, 503)),
    Route("/v1/groups/{group_id}/configs", "group_configs",
        "The configs in force for one group, which need not exist: each value and its origin. Only "
        "the leader knows the adaptive heartbeat interval. Configs that were set are in the metadata "
        "shard, so a consistent read confirms them with its leader.",
        parameters=(_GROUP_ID, _CONSISTENT, _CATALOG),
        answer=object_of(
            "shard int, as_of_index int, catalog_index int, group_id str", configs=array_of(CONFIG)
        ),
        refusals=(307, 400, 503)),
    Route("/v1/shards/{shard}/log", "log",
        "Committed entries of a shard: cause and records. `wait_ms` makes it a long poll.",
        parameters=(_SHARD, _FROM, _LIMIT, _WAIT, _FORMAT),
        media=("application/x-ndjson", "application/x-msgpack", "application/octet-stream"),
        refusals=(400, 404, 410, 429)),
    Route("/v1/shards/{shard}/snapshot", "snapshot",
        "The newest snapshot of a shard: the file as on disk, with its CRCs. It replaces the entries "
        "that retention has removed.",
        parameters=(_SHARD,),
        media=("application/octet-stream",),
        refusals=(400, 404, 429)),
    Route("/v1/evidence", "evidence",
        "The evidence that this node keeps beside its log, oldest first: refused requests, failed "
        "work, gaps between heartbeats. Only the leader notes it, so ask every node. "
        "`Quorate-Left-Out` counts the older notes left out.",
        parameters=(_GROUP, _NOTES, _NOTE_FORMAT),
        media=("application/x-ndjson", "application/x-msgpack"),
        refusals=(400, 429)),
    Route("/v1/faults/{id}", "clear_fault",
        "Ends and forgets one fault of this node.",
        method="DELETE",
        parameters=(_FAULT_ID,),
        answer=object_of("cleared int"),
        refusals=(400, 403, 404)),
    Route("/v1/faults", "faults",
        "The faults that an operator has set on this node, with how often each was applied. `enabled`: "
        "whether the node's settings allow them.",
        answer=object_of("enabled bool, next_id int", faults=array_of(FAULT))),
    Route("/v1/faults", "add_fault",
        "Sets a fault on this node: from now on requests that match are delayed, refused, not answered or "
        "cut off. Only this node applies it, and forgets it when it stops.",
        method="POST",
        fields=_FAULT_FIELDS,
        answer=FAULT,
        refusals=(400, 403, 408, 409, 413, 415)),
    Route("/v1/faults", "clear_faults",
        "Ends and forgets all faults of this node.",
        method="DELETE",
        answer=object_of("cleared int"),
        refusals=(400, 403)),
    Route("/v1/clock", "advance_clock",
        "Lets time pass at once for the groups, offsets and transactions of this node, for tests: timeouts "
        "come nearer, and new entries are stamped later. Only with `faults.enable`; ask every node.",
        method="POST",
        fields=(_ADVANCE_MS,),
        answer=object_of("advanced_ms int"),
        refusals=(400, 403, 408, 413, 415)),
    Route("/v1/leases", "open_lease",
        "Joins a group, and streams the partitions that the member holds, each with a fencing token, as "
        "server-sent events: `opened`, `gained`, `release`, `lost`, `closed`, `error`. The member lives as "
        "long as the stream. See `quorate docs leases`.",
        method="POST",
        fields=_LEASE_FIELDS,
        media=("text/event-stream",),
        refusals=(400, 403, 404, 408, 409, 413, 415, 429, 503)),
    Route("/v1/leases/{lease}/acknowledge", "acknowledge_lease",
        "Says that the work on what a `release` or `lost` event named has ended. Saying it again changes "
        "nothing.",
        method="POST",
        parameters=(_LEASE,),
        fields=(_CHANGE,),
        answer=object_of("change int, was_open bool"),
        refusals=(307, 400, 403, 404, 408, 413, 415)),
    Route("/v1/leases/{lease}", "close_lease",
        "Leaves the group for good, also as a static member, and ends the stream.",
        method="DELETE",
        parameters=(_LEASE,),
        answer=object_of("closed str"),
        refusals=(307, 400, 403, 404)),
    Route("/v1/openapi.json", "openapi",
        "This document.",
        answer=ANYTHING),
)
# fmt: on
