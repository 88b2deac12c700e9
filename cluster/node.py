"""A node: one directory, the metadata shard, the group shards, links to its peers, and a Kafka listener.

The node routes requests to shards, notifies the group shards of changes to the committed catalog, and starts
and stops everything in the right order. The listener starts as soon as the shards have been opened, so that
early clients are answered LOAD_IN_PROGRESS instead of having their connection refused. The links start after
it, because a node tells its peers the address of its Kafka listener. A stop hands over what the node leads
before anything is closed.

Invariants: a group belongs to the shard that its id hashes to, for the life of the cluster; a group
shard never serves on a catalog older than one it has already decided on; a stopped node has synced its logs
and left the marker that says so.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cluster.adaptive import AdaptiveInterval
from cluster.format_level import FormatLevel
from cluster.group_settings import CommittedSettings
from cluster.handover import HandOver
from cluster.host.clock_guard import ClockGuard
from cluster.interval_rule import IntervalRule
from cluster.kafka import KafkaListener
from cluster.membership import Membership, check_identity
from cluster.node_info import ClientInfo, NodeInfo
from cluster.routing import Reply, Routing
from cluster.runtime.catalog_duties import CatalogDuties, CatalogRuntime
from cluster.runtime.group_duties import GroupDuties, GroupRuntime
from cluster.runtime.heartbeat_gaps import MeasuredEntry
from cluster.runtime.job_slots import JobSlots
from cluster.runtime.pending_replies import PendingRun
from cluster.runtime.shard_context import RuntimeSettings, TurnCounter
from cluster.runtime.shard_runtime import AnyShardRuntime, ShardRuntime
from cluster.settings import Settings, SettingsError
from cluster.shipping import Shipper
from coordinator.api import JobKind
from coordinator.catalog.shard import CatalogShard
from coordinator.leadership import asked_leader
from coordinator.limits import SettingsView
from coordinator.offsets.commits import is_in_parts
from coordinator.shard import GroupShard
from coordinator.topics import CatalogView
from coordinator.transactions import DECIDED
from raftlog.env.host import Host
from raftlog.env.rate_limit import RateLimitedLogger
from raftlog.replica.balancing import LeaderWish
from raftlog.replica.clock import AgreedClock
from raftlog.storage.directory import NodeDirectory, NodeIdentity, open_node
from raftlog.storage.evidence import Evidence
from raftlog.transport import SelfDescription
from raftlog.transport.links import Links
from records import (
    LATEST_FORMAT_LEVEL,
    METADATA_SHARD,
    RELEASE,
    LeadershipValue,
    TransactionValue,
    shard_of,
)
from wire.errors import ErrorCode
from wire.messages.offset_commit import OffsetCommitRequest

if TYPE_CHECKING:
    from cluster.lineage.serving import LineageListeners

LOG = logging.getLogger("quorate.node")

Done = Callable[[BaseException | None], None]


class Node:
    """One node on one Host. `start` once, `stop` once; a node that has stopped is not started again."""

    format_level_max = LATEST_FORMAT_LEVEL
    """The highest format level that this release reads and writes."""

    def __init__(self, host: Host, settings: Settings) -> None:
        self.host = host
        self.settings = settings
        self.turns = TurnCounter(host)
        self.job_slots = {kind: JobSlots(host) for kind in JobKind}
        self._committed_settings = CommittedSettings(settings.group_settings(), lambda: self.catalog)
        self.group_settings: SettingsView = self._committed_settings
        self.runtime_settings = RuntimeSettings(
            held_reply_timeout_ms=settings.held_reply_timeout_ms,
            held_replies_max=settings.runtime_held_replies_max,
            log=settings.log_settings(),
        )
        self._clock = ClockGuard(host, self._shift_deadlines)
        self.observe_clock = self._clock.observe
        self.clock: AgreedClock
        self._directory: NodeDirectory | None = None
        self._http_address = ("", 0)
        self._started_ms = host.monotonic_ms()
        self.kafka = KafkaListener(host, self, settings)
        self.slices = self.kafka.context.slices
        self._shipper: Shipper | None = None
        self._adaptive = (
            self._make_adaptive() if settings.group_consumer_heartbeat_interval_adaptive else None
        )
        self.evidence: Evidence
        self.metadata: CatalogRuntime
        self.shards: list[GroupRuntime] = []
        self.links: Links | None = None
        self._membership: Membership
        self._level: FormatLevel
        self._limited_log = RateLimitedLogger(LOG, host.monotonic_ms)
        self._on_ready: list[Callable[[], None]] = []
        self._routing = Routing(self)
        self._lineage: LineageListeners | None = None
        """The listeners of older group protocols, if one is on."""

    def _make_adaptive(self) -> AdaptiveInterval:
        broker = self._committed_settings.defaults
        rule = IntervalRule(
            broker.heartbeat_interval_min_ms, broker.heartbeat_interval_ms, broker.heartbeat_interval_max_ms
        )
        choose = self._committed_settings.set_interval
        return AdaptiveInterval(self.host, rule, self.kafka.context.counters, self._followers, choose)

    def _followers(self) -> tuple[int, float]:
        """Return how many members follow the node's interval, and the heartbeats per second of all others."""
        members = sum(runtime.machine.num_sessions for runtime in self.shards if runtime.is_ready)
        fixed_per_s = 0.0
        for group_id in self._committed_settings.with_own_interval():
            runtime = self.shard_for(group_id)
            if runtime.is_ready and (others := runtime.machine.num_members(group_id)):
                members -= others
                interval_ms = self.group_settings.for_group(group_id).heartbeat_interval_ms
                fixed_per_s += others * 1_000 / interval_ms
        return max(0, members), fixed_per_s

    # Start and stop.

    def when_ready(self, fn: Callable[[], None]) -> None:
        """Call `fn` once every shard serves here or follows its leader; to be registered before `start`."""
        self._on_ready.append(fn)

    def start(self, done: Done) -> None:
        """Open the directory, start the shards and listen; `done(None)` once connections are accepted.

        Raises what `raftlog.storage.directory.open_node` raises (NotFormatted, AlreadyRunning, Corrupt), and
        SettingsError if the settings belong to another directory. PeersError is passed to `done`.
        """
        directory = open_node(self.host.files, self.settings.data_dir, self.host.fresh_id)
        try:
            check_identity(directory, self.settings)
        except SettingsError:
            directory.close()
            raise
        self._directory = directory
        evidence_bytes_max = self.runtime_settings.log.evidence_bytes_max
        self.evidence = Evidence(self.host, directory.path, evidence_bytes_max)
        self._make_shards(directory)
        self._clock.start()
        self.clock.start()
        if self._adaptive is not None:
            self._adaptive.start()
        if self.settings.log_archive_url:
            self._shipper = Shipper(
                self.host,
                directory.path,
                self.settings.log_archive_url,
                lambda: self.metadata.commit_index,
            )
            self._shipper.start()
        LOG.info("node %d is reading the logs of %d shards", directory.identity.node_id, len(self.shards) + 1)
        for runtime in self.all_shards:
            runtime.start()
        for group_shard in self.shards:
            group_shard.duties.start()
        self.kafka.start(functools.partial(self._listening, done))

    def _make_shards(self, directory: NodeDirectory) -> None:
        identity, limits = directory.identity, self.settings.limits()
        peer_settings = self.settings.peer_settings()
        if peer_settings is not None:
            self.links = Links(self.host, directory, peer_settings, self._describe)
        self._make_clock(identity)
        make_catalog = functools.partial(CatalogShard, limits, identity.num_shards)
        self.metadata = ShardRuntime(self, directory, METADATA_SHARD, make_catalog, CatalogDuties)
        self.metadata.replica.keeps_leadership = self._has_messages
        self.shards = [
            ShardRuntime(self, directory, number, functools.partial(GroupShard, number, limits), GroupDuties)
            for number in range(identity.num_shards)
        ]
        if self.settings.serves_lineage:
            from cluster.lineage.serving import LineageListeners  # nobody else needs any of it

            self._lineage = LineageListeners(self)
        runtimes = {runtime.shard: runtime for runtime in self.all_shards}
        voters = identity.voters or (identity.node_id,)
        self._membership = Membership(lambda: self.info, voters, self.links, runtimes)
        self._level = FormatLevel(
            self.host,
            self._membership,
            self.metadata,
            self.links,
            self._tell_ready,
            level_max=self.format_level_max,
            starting_level=identity.starting_level,
        )

    def _has_messages(self) -> bool:
        """Whether messages would be lost if another node led the metadata shard."""
        scratch_log = self.kafka.context.scratch_log
        return scratch_log is not None and scratch_log.num_bytes > 0

    def _make_clock(self, identity: NodeIdentity) -> None:
        num_logs = identity.num_shards + 1
        if self.links is None:
            self.clock = AgreedClock(self.host, num_logs=num_logs)
        else:
            num_nodes, others = len(identity.voters), self.links.clock_offsets
            self.clock = AgreedClock(self.host, num_nodes=num_nodes, num_logs=num_logs, others=others)
            self.links.on_clock = self.clock.compared

    def _listening(self, done: Done, error: BaseException | None) -> None:
        if error is None and self._lineage is not None:
            self._lineage.start(functools.partial(self._listening_to_all, done))
        else:
            self._listening_to_all(done, error)

    def _listening_to_all(self, done: Done, error: BaseException | None) -> None:
        self.__dict__.pop("info", None)
        if error is None:
            LOG.info("node %d serves Kafka clients at %s:%d", self.info.node_id, *self.kafka.address)
            if self.links is not None:
                self.links.start(done)
                return
        done(error)

    def _describe(self) -> SelfDescription:
        """Return what this node sends to a peer in each hello."""
        info = self.info
        return SelfDescription(
            release=RELEASE,
            kafka_host=info.kafka_host,
            kafka_port=info.kafka_port,
            http_host=info.http_host or self.settings.http_host,  # HTTP is bound later
            http_port=info.http_port or self.settings.http_port,
            format_level_max=self.format_level_max,
            format_level=self.format_level,
            lineage_ports=(info.push_port, info.rewrite_port),
        )

    def stop(self, done: Callable[[], None], *, hand_over: bool = True) -> None:
        """Stop the node cleanly.

        Hands over what this node leads, refuses new requests, syncs and answers the others, writes the marker
        of a clean stop, and releases the lock.
        """
        if self.links is None or not hand_over:
            self._stop_shards(done)
        else:
            HandOver(self.host, self.all_shards, functools.partial(self._stop_shards, done))

    def _stop_shards(self, done: Callable[[], None]) -> None:
        missing = len(self.shards) + 1

        def one_stopped() -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                self._close(done)

        for group_shard in self.shards:
            group_shard.duties.stop()
        for runtime in self.all_shards:
            runtime.stop(one_stopped)

    def _close(self, done: Callable[[], None]) -> None:
        self._clock.stop()
        self.clock.stop()
        if self._adaptive is not None:
            self._adaptive.stop()
        if self._shipper is not None:
            self._shipper.stop()
        self.kafka.stop()
        if self._lineage is not None:
            self._lineage.stop()
        if self.links is not None:
            self.links.stop()
        self.evidence.close()
        assert self._directory is not None
        self._directory.close()
        LOG.info("node stopped")
        done()

    # For the listeners.

    @functools.cached_property
    def info(self) -> NodeInfo:
        """This node as clients see it; its ports are final once the listeners are bound."""
        assert self._directory is not None, "the node has not been started"
        identity, settings = self._directory.identity, self.settings
        kafka_host, kafka_port = self.kafka.address
        http_host, http_port = self._http_address
        push_port, rewrite_port = (0, 0) if self._lineage is None else self._lineage.ports
        return NodeInfo(
            node_id=identity.node_id,
            cluster_id=identity.cluster_id,
            kafka_host=settings.kafka_advertised_host or kafka_host,
            kafka_port=settings.kafka_advertised_port or kafka_port,
            http_host=settings.http_advertised_host or http_host,
            http_port=settings.http_advertised_port or http_port,
            push_port=push_port,
            rewrite_port=rewrite_port,
        )

    @property
    def nodes(self) -> tuple[NodeInfo, ...]:
        """Every node in contact, this one included, ordered by id."""
        return self._membership.nodes

    @property
    def listed_nodes(self) -> tuple[NodeInfo, ...]:
        """The nodes that Metadata lists: those in contact, and those lost a moment ago; ordered by id."""
        return self._membership.listed_nodes

    @property
    def known_nodes(self) -> tuple[NodeInfo, ...]:
        """The nodes that were in contact since the start; ordered by id."""
        return self._membership.known_nodes

    @property
    def has_met_all(self) -> bool:
        """Whether this node has had time to meet the others, and so may tell clients who they are."""
        return self._membership.has_met_all

    @property
    def voters(self) -> tuple[int, ...]:
        """The ids of all nodes of the cluster, in contact or not."""
        return self._membership.voters

    def leader_of(self, shard: int) -> NodeInfo | None:
        """Return the leader of the shard, if this node has a link to it."""
        return self._membership.leader_of(shard)

    def is_led_elsewhere(self, shard: int) -> bool:
        """Whether another node that this one has a link to leads the shard."""
        return self._membership.is_led_elsewhere(shard)

    def coordinator_of(self, group_id: str) -> NodeInfo | None:
        return self.leader_of(shard_of(group_id, len(self.shards)))

    @property
    def controller(self) -> NodeInfo | None:
        return self.leader_of(METADATA_SHARD)

    @property
    def is_catalog_current(self) -> bool:
        """Whether the committed catalog has caught up with its leader's since the node started."""
        return self.metadata.replica.is_current

    @property
    def is_level_awaited(self) -> bool:
        """Whether the cluster is new and about to have its format level."""
        return self._level.is_awaited

    @property
    def format_level(self) -> int:
        """The highest format level that writers may use."""
        return self._level.now

    def http_bound(self, address: tuple[str, int]) -> None:
        """Set the address of the HTTP listener, which starts last."""
        self._http_address = address
        self.__dict__.pop("info", None)

    @property
    def catalog(self) -> CatalogView:
        """The committed catalog."""
        return self.metadata.duties.committed.view

    @property
    def metadata_term(self) -> int:
        return self.metadata.replica.term

    @property
    def metadata_lead(self) -> tuple[int, int] | None:
        replica = self.metadata.replica
        return (replica.term, replica.term_start_index) if replica.is_leader else None

    @property
    def is_ready(self) -> bool:
        """Whether every shard serves here, or follows a leader that serves it."""
        if not self.shards or self.is_level_awaited:
            return False
        return all(runtime.is_ready or runtime.is_following for runtime in self.all_shards)

    @property
    def all_shards(self) -> list[AnyShardRuntime]:
        """The metadata shard, then the group shards."""
        return [self.metadata, *self.shards]

    def shard_for(self, group_id: str) -> GroupRuntime:
        return self.shards[shard_of(group_id, len(self.shards))]

    def status(self) -> dict[str, Any]:
        """Return the identity of the node and the state of each of its shards, ready for JSON."""
        assert self._directory is not None, "the node has not been started"
        identity = self._directory.identity
        return {
            "node_id": identity.node_id,
            "cluster_id": identity.cluster_id,
            "incarnation": identity.incarnation,
            "boot_id": self._directory.boot_id,
            "uptime_ms": int(self.host.monotonic_ms() - self._started_ms),
            "ready": self.is_ready,
            "voters": list(self.voters),
            "format_level": self.format_level,
            "catalog_version": self.catalog.version,
            "clock": self.clock.status(),
            "heartbeats": None if self._adaptive is None else self._adaptive.status(),
            "shipping": None if self._shipper is None else self._shipper.status(),
            "shards": [runtime.status() for runtime in self.all_shards],
        }

    def fast_entry(self, group_id: str, member_id: str) -> MeasuredEntry | None:
        """Return the entry that answers a member's steady heartbeats without a decision.

        None unless the member is steady and served here.
        """
        return self.shard_for(group_id).duties.fast_entry(group_id, member_id)

    def transaction_error(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: tuple[str, int]
    ) -> ErrorCode:
        """Return why the producer may not write to the partition in its transaction; NONE if it may.

        For the leader of the metadata shard, which has the log of messages too.
        """
        if not self.metadata.is_ready:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        transactions = self.metadata.machine.view.transactions
        return transactions.error_for_partition(transactional_id, producer_id, producer_epoch, *partition)

    def is_in_parts(self, commit: OffsetCommitRequest, num_bytes: int) -> bool:
        """Whether a commit, in a frame of `num_bytes`, may take more than one decision."""
        pending = self.shard_for(commit.group_id).machine.projection.pending
        return is_in_parts(pending, commit, num_bytes)

    def joins_in_turns(self, group_id: str) -> bool:
        """Whether a join of the consumer protocol may take more than one decision."""
        return self.shard_for(group_id).machine.joins_in_turns(group_id)

    def submit(self, api_key: int, api_version: int, body: Any, client: ClientInfo, reply: Reply) -> None:
        """Handle any request that concerns groups or changes the catalog; `reply` is called exactly once.

        It may be called before this returns. Errors are part of the response body.
        """
        self._routing.submit(api_key, api_version, body, client, reply)

    def submit_run(
        self, api_key: int, api_version: int, bodies: list[Any], client: ClientInfo, reply: Reply
    ) -> None:
        """Handle requests of one API to one group that came together; `reply` gets the list of responses."""
        run = PendingRun(api_key, api_version, bodies, reply)
        self.shard_for(bodies[0].group_id).requests.submit_run(run, client)

    # For operators.

    def transfer(self, shard: int, to: int | None, done: Callable[[str | None], None]) -> None:
        """Hand a shard that this node leads to `to`, or to the most caught-up peer; balancing may undo it.

        Calls `done(None)`, or `done` with a message that says why not.
        """
        runtime = next(runtime for runtime in self.all_shards if runtime.shard == shard)
        if self.links is None:
            done("this cluster has no other node")
        elif not runtime.replica.is_leader:
            done(f"node {self.info.node_id} does not lead {runtime.name}")
        else:
            runtime.replica.leadership.transfer(to, done)

    def upgrade(self, done: Callable[[str | None], None]) -> None:
        """Raise the format level to the highest that every node can read; `done` gets None or the reason."""
        self._level.upgrade(done)

    def advance(self, ms: int) -> None:
        """Let time pass for groups, offsets and transactions at once; Raft and links keep the real time."""
        self.clock.advance(ms)
        self.metadata.duties.advance(ms)
        for runtime in self.shards:
            runtime.duties.advance(ms)
        if self._lineage is not None:
            self._lineage.shift_deadlines(-ms)

    # For the runtimes of the shards.

    def is_catalog_usable(self, version: int) -> bool:
        return self.is_catalog_current and self.catalog.version >= version

    def report_missing_catalog(self, version: int) -> None:
        nobody_has_more = self.metadata.is_ready
        if nobody_has_more and self.catalog.version < version:
            self._limited_log.error(
                "catalog",
                "a group uses version %d of the catalog, which is at version %d here: its shard waits "
                "for the rest of the metadata shard's log; was an older copy of it restored?",
                version,
                self.catalog.version,
            )

    def is_catalog_fresh(self, now_ms: float) -> bool:
        return self.metadata.duties.committed.is_fresh(now_ms)

    def catalog_changed(self, topic_names: Sequence[str], *, is_complete: bool) -> None:
        for runtime in self.shards:
            runtime.duties.on_catalog_changed(topic_names, is_complete=is_complete)
        if self._lineage is not None:
            self._lineage.topics_changed()
        if (scratch_log := self.kafka.context.scratch_log) is not None:
            catalog = self.catalog
            scratch_log.keep_only(lambda topic_id: catalog.topic_by_id(topic_id) is not None)

    def leadership_asked(self, leadership: LeadershipValue) -> None:
        drained = frozenset(leadership.drained)
        for runtime in self.all_shards:
            runtime.replica.wish_for(LeaderWish(asked_leader(leadership, runtime.shard), drained))

    def configs_changed(self, group_ids: Sequence[str]) -> None:
        self._committed_settings.forget(group_ids)
        for runtime in self.shards:
            runtime.duties.on_configs_changed(group_ids)
        if self._lineage is not None:
            self._lineage.configs_changed(group_ids)

    def transactions_changed(self, changes: Sequence[tuple[str, TransactionValue]]) -> None:
        for runtime in self.shards:
            runtime.duties.on_transactions_changed(changes)
        if self.metadata_lead is not None:
            self.kafka.transactions_decided([value for _, value in changes if value.state in DECIDED])
        self.metadata.duties.on_transactions_changed(changes)

    def decisions_followed(self, shard: int, decided: int) -> None:
        self.metadata.duties.on_decisions_followed(shard, decided)

    def followed_decisions(self) -> list[tuple[int, int]]:
        return [(runtime.shard, runtime.duties.listener.decided) for runtime in self.shards]

    def catalog_moved(self) -> None:
        for runtime in self.shards:
            runtime.check_ready()
        self._tell_ready()

    def shard_moved(self, shard: int) -> None:
        if shard == METADATA_SHARD:
            self._level.begin()
            self.catalog_moved()
            if (scratch_log := self.kafka.context.scratch_log) is not None and self.metadata_lead is None:
                scratch_log.resign()
        elif self.shards[shard].is_ready and self._adaptive is not None:
            self._adaptive.took_over()
        if self._lineage is not None and shard != METADATA_SHARD:
            self._lineage.shard_moved(shard)
        self._tell_ready()

    def _tell_ready(self) -> None:
        if self._on_ready and self.is_ready:
            waiting, self._on_ready = self._on_ready, []
            for fn in waiting:
                fn()

    def shard_given_away(self, shard: int) -> None:
        """Close the connections that used the shard: clients notice that sooner than an error."""
        self.kafka.close_users_of(shard)

    def quiet_ms(self, now_ms: float) -> float:
        return self._clock.quiet_ms(now_ms)

    def _shift_deadlines(self, gap_ms: float) -> None:
        LOG.warning("the event loop stalled for %.0f ms: all deadlines are extended by that time", gap_ms)
        for runtime in self.all_shards:
            runtime.shift_deadlines(gap_ms)
        self.metadata.duties.shift_deadlines(gap_ms)
        for group_shard in self.shards:
            group_shard.duties.shift_deadlines(gap_ms)
        if self._lineage is not None:
            self._lineage.shift_deadlines(gap_ms)
