"""From a request that concerns groups or changes the catalog to the shards that decide it.

A group's requests go to the shard that its id hashes to. A request about several groups is split by shard,
and the answers are merged (`cluster.runtime.fanout`). All others go to the metadata shard.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Protocol

from cluster.node_info import ClientInfo
from cluster.runtime.answers import Unavailable
from cluster.runtime.catalog_duties import CatalogRuntime
from cluster.runtime.fanout import FANS, ONE_GROUP_APIS, Gathering
from cluster.runtime.group_duties import GroupRuntime
from cluster.runtime.pending_replies import PendingReply
from coordinator.topics import CatalogView
from raftlog.env.host import Host
from raftlog.env.rate_limit import RateLimitedLogger
from records import TRANSACTIONS_SINCE, shard_of
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.txn_offset_commit import TxnOffsetCommitRequest

LOG = logging.getLogger("quorate.node")

Reply = Callable[[object], None]


class RoutedNode(Protocol):
    """The part of a Node that is used here."""

    host: Host
    metadata: CatalogRuntime
    shards: list[GroupRuntime]

    @property
    def catalog(self) -> CatalogView: ...

    @property
    def format_level(self) -> int: ...

    def is_led_elsewhere(self, shard: int) -> bool: ...

    def shard_for(self, group_id: str) -> GroupRuntime: ...

    def upgrade(self, done: Callable[[str | None], None]) -> None: ...


class Routing:
    """The routing of one node's requests."""

    def __init__(self, node: RoutedNode) -> None:
        self._node = node
        self._limited_log = RateLimitedLogger(LOG, node.host.monotonic_ms)

    def submit(self, api_key: int, api_version: int, body: Any, client: ClientInfo, reply: Reply) -> None:
        """Submit a request to its shards; `reply` is called exactly once, perhaps at once."""
        node = self._node
        if api_key in ONE_GROUP_APIS:
            pending = PendingReply(api_key, api_version, body, reply)
            if api_key == ApiKey.TXN_OFFSET_COMMIT and not self._knows_transaction(body):
                self._submit_when_known(pending, body, client)
            else:
                node.shard_for(body.group_id).requests.submit(pending, client)
            return
        fan = FANS.get(api_key)
        if api_key == ApiKey.INIT_PRODUCER_ID and node.format_level < TRANSACTIONS_SINCE:
            self._raise_level_first(api_key, api_version, body, client, reply)
            return
        if fan is None:
            node.metadata.duties.submit(api_key, api_version, body, client, reply)
            return
        num_shards = len(node.shards)
        parts = fan.split(body, lambda group_id: shard_of(group_id, num_shards), num_shards)
        if api_key == ApiKey.LIST_GROUPS:
            parts = {shard: part for shard, part in parts.items() if not node.is_led_elsewhere(shard)}
            if not parts:
                reply(fan.merge(body, parts))
                return
        gathering = Gathering(fan, body, parts, reply)
        for shard, part in parts.items():
            receive = functools.partial(gathering.receive, shard)
            node.shards[shard].requests.submit(PendingReply(api_key, api_version, part, receive), client)

    def _knows_transaction(self, request: TxnOffsetCommitRequest) -> bool:
        """Whether the committed catalog has the transaction that the request names, with its group."""
        error = self._node.catalog.transactions.error_for_group(
            request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
        )
        return error is ErrorCode.NONE

    def _submit_when_known(
        self, pending: PendingReply, request: TxnOffsetCommitRequest, client: ClientInfo
    ) -> None:
        """Submit a commit whose transaction this node may only not know yet, once that is certain."""
        node = self._node
        runtime = node.shard_for(request.group_id)

        def unknown() -> None:
            if runtime.is_ready and not self._knows_transaction(request):
                pending.refuse(Unavailable.STALE)
            else:
                runtime.requests.submit(pending, client)

        submit = functools.partial(runtime.requests.submit, pending, client)
        node.metadata.duties.known_waits.when_known(submit, unknown)

    def _raise_level_first(self, *asked: Any) -> None:
        """Raise the format level to one that has transactions, then submit the first request that needs it.

        A node offers transactions only with a scratch log, so no cluster for anything but tests gets here."""

        node = self._node

        def raised(why: str | None) -> None:
            if why is not None:
                self._limited_log.error("format", "transactions need a newer format level: %s", why)
            node.metadata.duties.submit(*asked)

        if node.metadata.is_ready:
            node.upgrade(raised)
        else:
            node.metadata.duties.submit(*asked)
