"""A node: one directory, the metadata shard, the group shards, and the Kafka listener in front of them.

The node routes requests to shards, tells the group shards when the committed catalog has moved, and starts
and stops everything in the right order: the listener is up as soon as the shards have been opened, so that
clients that come early hear LOAD_IN_PROGRESS and not a refused connection.

What must stay true: a group belongs to the shard that its id hashes to, for the life of the cluster; a group
shard never serves on a catalog older than one it has already decided on; a stopped node has synced its logs
and left the marker that says so.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from cluster.catalog_runtime import CatalogRuntime
from cluster.clock_guard import ClockGuard
from cluster.fanout import FANS, ONE_GROUP_APIS, Gathering
from cluster.group_runtime import GroupRuntime
from cluster.kafka import KafkaListener
from cluster.node_info import ClientInfo, NodeInfo
from cluster.regularity import MeasuredEntry
from cluster.settings import Settings, SettingsError
from cluster.shard_runtime import RuntimeSettings, ShardRuntime, TurnCounter
from coordinator.catalog import CatalogShard
from coordinator.limits import SameForAll, SettingsView
from coordinator.shard import GroupShard
from coordinator.topics import CatalogView
from raftlog.directory import NodeDirectory, open_node
from raftlog.evidence import Evidence
from raftlog.host import Host
from records import METADATA_SHARD, shard_of

LOG = logging.getLogger("quorate.node")

Reply = Callable[[object], None]
Done = Callable[[BaseException | None], None]


class Node:
    """One node on one Host. `start` once, `stop` once; a node that has stopped is not started again."""

    def __init__(self, host: Host, settings: Settings) -> None:
        self.host = host
        self.settings = settings
        self.turns = TurnCounter(host)
        self.group_settings: SettingsView = SameForAll(settings.group_settings())
        self.runtime_settings = RuntimeSettings(
            held_reply_timeout_ms=settings.held_reply_timeout_ms,
            held_replies_max=settings.runtime_held_replies_max,
            log=settings.log_settings(),
        )
        self._clock = ClockGuard(host, self._shift_deadlines)
        self._directory: NodeDirectory | None = None
        self._http_address = ("", 0)
        self._started_ms = host.monotonic_ms()
        self.kafka = KafkaListener(host, self, settings)
        self.evidence: Evidence
        self.metadata: CatalogRuntime
        self.shards: list[GroupRuntime] = []
        self._on_ready: list[Callable[[], None]] = []

    # Life.

    def when_ready(self, fn: Callable[[], None]) -> None:
        """Calls `fn` once, when every shard serves; to be asked before `start`."""
        self._on_ready.append(fn)

    def start(self, done: Done) -> None:
        """Opens the directory, starts the shards, listens; `done(None)` when connections are accepted.

        Raises what `raftlog.directory.open_node` raises: NotFormatted, AlreadyRunning, Corrupt; and
        SettingsError when the settings are those of another directory.
        """
        directory = open_node(self.host.files, self.settings.data_dir, self.host.fresh_id)
        try:
            _check_identity(directory, self.settings)
        except SettingsError:
            directory.close()
            raise
        self._directory = directory
        evidence_bytes_max = self.runtime_settings.log.evidence_bytes_max
        self.evidence = Evidence(self.host, directory.path, evidence_bytes_max)
        limits = self.settings.limits()
        self.metadata = CatalogRuntime(self, directory, CatalogShard(limits))
        self.shards = [
            GroupRuntime(self, directory, number, GroupShard(number, limits))
            for number in range(directory.identity.num_shards)
        ]
        self._clock.start()
        for runtime in self._all_shards():
            runtime.start()
        self.kafka.start(functools.partial(self._listening, done))

    def _listening(self, done: Done, error: BaseException | None) -> None:
        self.__dict__.pop("info", None)
        if error is None:
            LOG.info("node %d serves Kafka clients at %s:%d", self.info.node_id, *self.kafka.address)
        done(error)

    def stop(self, done: Callable[[], None]) -> None:
        """Refuses new requests, syncs and answers the others, marks the stop as clean, gives up the lock."""
        missing = len(self.shards) + 1

        def one_stopped() -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                self._clock.stop()
                self.kafka.stop()
                self.evidence.close()
                assert self._directory is not None
                self._directory.close()
                LOG.info("node stopped")
                done()

        for runtime in self._all_shards():
            runtime.stop(one_stopped)

    # What listeners ask.

    @functools.cached_property
    def info(self) -> NodeInfo:
        """This node as clients are told of it; its ports are final once the listeners are bound."""
        assert self._directory is not None, "the node has not been started"
        identity, settings = self._directory.identity, self.settings
        kafka_host, kafka_port = self.kafka.address
        http_host, http_port = self._http_address
        return NodeInfo(
            node_id=identity.node_id,
            cluster_id=identity.cluster_id,
            kafka_host=settings.kafka_advertised_host or kafka_host,
            kafka_port=settings.kafka_advertised_port or kafka_port,
            http_host=settings.http_advertised_host or http_host,
            http_port=settings.http_advertised_port or http_port,
        )

    @property
    def nodes(self) -> tuple[NodeInfo, ...]:
        """Every node in contact, this one included, by id."""
        return (self.info,)

    @property
    def voters(self) -> tuple[int, ...]:
        """The ids of all nodes of the cluster, in contact or not."""
        return (self.info.node_id,)

    def leader_of(self, shard: int) -> NodeInfo | None:
        """Who leads the shard; never a node that this one has no link to."""
        return self.info

    @property
    def controller(self) -> NodeInfo | None:
        return self.leader_of(METADATA_SHARD)

    @property
    def is_catalog_current(self) -> bool:
        return self.metadata.is_ready

    def http_bound(self, address: tuple[str, int]) -> None:
        """The HTTP listener, which starts last, says where it listens."""
        self._http_address = address
        self.__dict__.pop("info", None)

    @property
    def catalog(self) -> CatalogView:
        """The committed catalog."""
        return self.metadata.committed_catalog

    @property
    def metadata_term(self) -> int:
        return self.metadata.replica.term

    @property
    def is_ready(self) -> bool:
        """Whether every shard serves."""
        return bool(self.shards) and all(runtime.is_ready for runtime in self._all_shards())

    def shard_for(self, group_id: str) -> GroupRuntime:
        return self.shards[shard_of(group_id, len(self.shards))]

    def status(self) -> dict[str, Any]:
        """JSON-ready: who the node is and how each of its shards does."""
        assert self._directory is not None, "the node has not been started"
        identity = self._directory.identity
        return {
            "node_id": identity.node_id,
            "cluster_id": identity.cluster_id,
            "incarnation": identity.incarnation,
            "boot_id": self._directory.boot_id,
            "uptime_ms": int(self.host.monotonic_ms() - self._started_ms),
            "ready": self.is_ready,
            "catalog_version": self.catalog.version,
            "shards": [runtime.status() for runtime in self._all_shards()],
        }

    def fast_entry(self, group_id: str, member_id: str) -> MeasuredEntry | None:
        """What answers a member's steady heartbeats without decisions; None unless steady and served here."""
        return self.shard_for(group_id).fast_entry(group_id, member_id)

    def submit(self, api_key: int, api_version: int, body: Any, client: ClientInfo, reply: Reply) -> None:
        """Takes every request that concerns groups or changes the catalog; `reply` is called exactly once.

        It may be called before this returns. Errors are part of the response body.
        """
        if api_key in ONE_GROUP_APIS:
            self.shard_for(body.group_id).submit(api_key, api_version, body, client, reply)
            return
        fan = FANS.get(api_key)
        if fan is None:
            self.metadata.submit(api_key, api_version, body, client, reply)
            return
        num_shards = len(self.shards)
        parts = fan.split(body, lambda group_id: shard_of(group_id, num_shards), num_shards)
        gathering = Gathering(fan, body, parts, reply)
        for shard, part in parts.items():
            receive = functools.partial(gathering.receive, shard)
            self.shards[shard].submit(api_key, api_version, part, client, receive)

    # What the shards' runtimes ask.

    def is_catalog_usable(self, version: int) -> bool:
        if not self.metadata.is_ready:
            return False
        if self.catalog.version < version:
            LOG.error(
                "a group was decided on version %d of the catalog, which is at %d here: its shard waits for "
                "the rest of the metadata shard's log; was an older copy of it put back?",
                version,
                self.catalog.version,
            )
            return False
        return True

    def catalog_changed(self, topic_names: Sequence[str]) -> None:
        for runtime in self.shards:
            runtime.on_catalog_changed(topic_names)

    def shard_moved(self, runtime: ShardRuntime) -> None:
        if runtime is self.metadata and runtime.is_ready:
            for group_runtime in self.shards:
                group_runtime.check_ready()
        if self._on_ready and self.is_ready:
            waiting, self._on_ready = self._on_ready, []
            for fn in waiting:
                fn()

    def observe_clock(self, now_ms: float) -> None:
        self._clock.observe(now_ms)

    def quiet_ms(self, now_ms: float) -> float:
        return self._clock.quiet_ms(now_ms)

    def _shift_deadlines(self, gap_ms: float) -> None:
        LOG.warning("the loop stood still for %.0f ms: every deadline moves by as much", gap_ms)
        for runtime in self._all_shards():
            runtime.shift_deadlines(gap_ms)

    def _all_shards(self) -> list[ShardRuntime]:
        return [self.metadata, *self.shards]


def _check_identity(directory: NodeDirectory, settings: Settings) -> None:
    """What was fixed when the directory was formatted must not be said otherwise by the settings."""
    identity = directory.identity
    for name, given, formatted in (
        ("node.id", settings.node_id, identity.node_id),
        ("cluster.shards", settings.cluster_shards, identity.num_shards),
    ):
        if given != formatted:
            raise SettingsError(
                f"{name} = {given}, but {directory.path} was formatted with {formatted}, which cannot be "
                f"changed: set {name} = {formatted}, or name another data.dir"
            )
