"""One shard's replica: loads, leads or follows, appends entries, makes them durable, reports commits.

Its states, and what changes them, are a table in `replica_state`.

Entries proposed in one turn of the loop are written and synced together at the end of the turn, and sent to
the peers just before, so that all disks work at the same time.  The state machine's `committed` is called
when a majority has synced them.  Invariants:

- Nothing is committed that is not synced; no entry is applied twice, though its proposer applies it at once.
- A failing write or sync, damage, or an exception while applying stops the node through `Host.fatal`; nothing
  is acknowledged after it.
- Work that grows with the log (restore, scan, apply) is done in slices (`sliced_work`, `delivery`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from raftlog.consensus.core import (
    Action,
    AppendToLog,
    Deposed,
    Elected,
    RaftCore,
    SaveTerm,
    SendVote,
    TruncateLog,
)
from raftlog.env.errors import RESTORE_HINT, Corrupt
from raftlog.env.files import failure_words, join
from raftlog.env.host import Host
from raftlog.env.obstacles import Obstacle, obstacle_words
from raftlog.env.settings import LogSettings
from raftlog.env.state_machine import LogFull, NotLeader, SnapshotHeader, StateMachine
from raftlog.replica.applier import Applier
from raftlog.replica.balancing import NO_WISH, LeaderWish
from raftlog.replica.clock import AgreedClock, LogTime
from raftlog.replica.committed_log import CommittedLog
from raftlog.replica.delivery import CommitDelivery
from raftlog.replica.disk_room import DiskRoom
from raftlog.replica.leadership import ReplicaLeadership
from raftlog.replica.peering import Peering
from raftlog.replica.replica_state import ReplicaEvent, ReplicaState, ReplicaStatus
from raftlog.replica.sliced_work import SlicedWork
from raftlog.replica.term_start import term_start
from raftlog.storage.directory import TERM_FILE, NodeDirectory, read_term, shard_name, write_term
from raftlog.storage.group_commit import GroupCommit
from raftlog.storage.journal import Journal
from raftlog.storage.loader import clean_up, load_journal, mark_clean
from raftlog.storage.segments import LogIdentity
from raftlog.storage.snapshotter import Snapshotter
from raftlog.transport.shard_links import PeerLinks, ShardLinks
from records import TermWhy

LOG = logging.getLogger("quorate.raftlog")


class Replica:
    """The replica of `shard` in an opened directory; all methods are to be called on the loop."""

    core: type[RaftCore] = RaftCore
    """Raft's rules; tests substitute a core that lacks one of them."""

    def __init__(
        self,
        host: Host,
        directory: NodeDirectory,
        shard: int,
        machine: StateMachine,
        settings: LogSettings,
        links: PeerLinks | None = None,
        clock: AgreedClock | None = None,
    ) -> None:
        self._host = host
        self._directory = directory
        self._machine = machine
        self._settings = settings
        self._links = links
        self._linked: set[int] = set()
        self.shard = shard
        self.keeps_leadership: Callable[[], bool] = lambda: False
        """Whether a node that leads does not hand the shard to the preferred one."""
        self.wish = NO_WISH
        """Requests of operators about the shard's leader, as far as this node knows."""
        self.home = directory.shard_path(shard)
        identity: LogIdentity = directory.identity.log(shard)
        self._journal = Journal(
            host.files, self.home, identity, settings, is_alone=directory.identity.is_alone
        )
        self._time = LogTime(AgreedClock(host) if clock is None else clock, self.home)
        self.replica_status = ReplicaStatus(host.wall_ms)
        self._applying = Applier(host, self._journal, machine, settings)
        self._delivery = CommitDelivery(
            host, self._journal, machine, self._applying, self.replica_status, self.fail
        )
        self._slow_work = SlicedWork(host, settings.load_slice_ms, self.replica_status, self.fail)
        self._raft: RaftCore | None = None
        self._peering: Peering | None = None
        self._snapshotter: Snapshotter | None = None
        self.group_commit = GroupCommit(
            host,
            self._journal,
            settings,
            is_over=lambda: self._is_over,
            send_first=self._send_first,
            synced=self._synced,
            fail=self.fail,
        )
        self.log = CommittedLog(host.files, self._journal, lambda: self.commit_index)
        self.leadership = ReplicaLeadership(host, self.fail)
        self.disk_room = DiskRoom(host, self.home, settings.disk_free_bytes_min, self.fail)
        self._told_leader: int | None = None
        self._stop_done: Callable[[], None] | None = None
        self.term = 0
        self.vote: str | None = None
        self.term_start_index = 0  # the first entry of the newest term that this node has led
        self.halted_reason: str | None = None

    # Life

    def start(self) -> None:
        """Begin to load, in slices; `StateMachine.ready` is called later."""
        self.replica_status.on(ReplicaEvent.STARTS)
        self._slow_work.start(self._load_steps(), self._open)

    def stop(self, done: Callable[[], None]) -> None:
        """Sync the proposed entries, mark a clean stop, close the journal, then call `done()`."""
        self._stop_done = done
        self._delivery.stop()
        if self._snapshotter is not None:
            self._snapshotter.stop()
        if self._peering is not None:
            self._peering.stop()
        self._finish_stop()

    @property
    def state(self) -> ReplicaState:
        """The state that operators see."""
        return self.replica_status.state

    @property
    def _is_over(self) -> bool:
        return self.replica_status.state is ReplicaState.DOWN

    @property
    def is_ready(self) -> bool:
        """Whether this node leads, has applied everything before its term, and is not about to stop."""
        return self.replica_status.state is ReplicaState.READY and self._stop_done is None

    @property
    def leader_since_ms(self) -> int | None:
        """The wall-clock time of this node's election; None while it does not lead."""
        status = self.replica_status
        is_leading = status.state in (ReplicaState.CATCH_UP, ReplicaState.READY)
        return status.entered_ms[ReplicaState.CATCH_UP] if is_leading else None

    def fail(self, error: BaseException) -> None:
        """Stop the node; no further entry is acknowledged."""
        if self._is_over:
            return
        self.replica_status.on(ReplicaEvent.ENDS)
        self.leadership.end()
        if self._peering is not None:
            self._peering.stop()
        self._host.fatal(f"{shard_name(self.shard)} of {self._directory.path}: {failure_words(error)}")

    def halt(self, reason: str) -> None:
        """Stop serving this shard until an operator steps in: no majority agrees on the log or the state."""
        if self._is_over or self.state is ReplicaState.HALTED:
            return
        LOG.error("%s: halted: %s", self.home, reason)
        self._delivery.is_current = False
        self.halted_reason = reason
        if self.is_leader:
            assert self._raft is not None
            self._raft.step_down()
        self.replica_status.on(ReplicaEvent.HALTED)
        if self._peering is not None:
            self._peering.stop()

    def _finish_stop(self) -> None:
        """Complete a pending stop once nothing is in flight."""
        done = self._stop_done
        if done is None:
            return
        adopting = self._snapshotter is not None and self._snapshotter.is_adopting
        installing = None if self._peering is None else self._peering.installing
        adopting = adopting or (installing is not None and installing.is_on_disk)
        adopting = adopting or (self._peering is not None and self._peering.backfilling.is_on_disk)
        is_writing = self._raft is not None and (self._journal.is_flushing or self._journal.is_dirty)
        if not self._is_over and (adopting or is_writing):
            if adopting:
                self._host.call_later(1.0, self._finish_stop)
            return  # the flush calls this method again
        try:
            is_ours = installing is None or not installing.has_replaced_log
            if self._raft is not None and not self._is_over and is_ours:
                mark_clean(self._host.files, self._journal, self.commit_index)
        except OSError as error:
            LOG.warning(
                "%s: could not write the clean stop marker (the log itself is synced): %s", self.home, error
            )
        self._journal.close()
        self.replica_status.on(ReplicaEvent.ENDS)
        self.leadership.end()
        self._stop_done = None
        done()

    # Load

    def _load_steps(self) -> Iterator[None]:
        files, identity = self._host.files, self._directory.identity
        self.term, self.vote, is_named = read_term(files, self.home, identity)
        if not is_named:
            write_term(files, self.home, identity, self.term, self.vote)
        clean_up(files, self.home)
        snapshot: SnapshotHeader | None = None
        for header in self._applying.restore():
            snapshot = header
            yield
        yield from load_journal(files, self._journal, snapshot)
        if self.term < self._journal.last_term:
            what = (
                f"the stored term is {self.term}, but the log has entries of term {self._journal.last_term}"
            )
            raise Corrupt(join(self.home, TERM_FILE), 0, what, RESTORE_HINT)

    def _open(self) -> None:
        """Everything is loaded: lead when alone, otherwise follow and look for the leader."""
        host, journal, settings = self._host, self._journal, self._settings
        identity = self._directory.identity
        peers = [one for one in identity.voters if one != identity.node_id]
        if peers and self._links is None:
            self.fail(ValueError(f"it is one of nodes {identity.voters}, but has no links to the others"))
            return
        self._time.clock.loaded(journal.last_timestamp_ms)
        self._snapshotter = Snapshotter(
            host, journal, self._machine, settings, self._time.clock.past_ms, self.fail
        )
        self._applying.loaded()
        self._applying.observers.append(self._snapshotter)
        saved = SaveTerm(self.term, self.vote)
        self._raft = self.core(identity.node_id, peers, journal, saved, settings, self._act)
        self._delivery.begin(self._raft, self._snapshotter)
        if self._links is None or not peers:
            self.replica_status.on(ReplicaEvent.CAMPAIGNS)
            self.leadership.begin(self._raft, None, None)
            self._raft.campaign(host.monotonic_ms())
            return
        self.replica_status.on(ReplicaEvent.LOADED)
        self._peering = Peering(
            host,
            self,
            ShardLinks(self._links, self.shard),
            journal,
            self._raft,
            self._applying,
            self._snapshotter,
        )
        self._delivery.compare_with_peers(self._peering.is_level)
        self.leadership.begin(self._raft, self._peering.leading, self._peering.following)
        self._peering.start(sorted(self._linked))

    def wish_for(self, wish: LeaderWish) -> None:
        """Follow what operators ask for about the shard's leader, now and after each load of the log."""
        if wish != self.wish:
            self.wish = wish
            if self._peering is not None and not self._is_over:
                self._peering.wish_changed()

    # Calls from the links (`transport.contract.LinkUser`)

    def peer_up(self, node_id: int) -> None:
        """Note that the link to a peer came up."""
        self._linked.add(node_id)
        if self._peering is not None and not self._is_over:
            self._peering.link_up(node_id)

    def peer_down(self, node_id: int) -> None:
        """Note that the link to a peer is gone."""
        self._linked.discard(node_id)
        if self._peering is not None and not self._is_over:
            self._peering.link_down(node_id)

    def peer_message(self, node_id: int, payload: bytes) -> None:
        """Handle a message from a peer's replica of this shard; dropped while the log is still loading."""
        if self._peering is not None and not self._is_over:
            self._peering.message(node_id, payload)

    def peer_writable(self, node_id: int) -> None:
        """Note that there is room again in the send buffer to a peer."""
        if self._peering is not None and not self._is_over:
            self._peering.writable(node_id)

    # What the core decides

    def _act(self, action: Action) -> None:
        """Carry out an action before the core continues."""
        match action:
            case AppendToLog(frames):
                self._journal.append_frames(frames)
            case TruncateLog(index):
                self._truncate_after(index)
            case SaveTerm(term, vote):
                self._save_term(term, vote)
            case SendVote(node_id, message):
                if self._links is not None:
                    self._links.send(node_id, self.shard, message.encode())
            case Elected(term, index):
                self._lead(term, index)
            case Deposed():
                self._no_longer_leads()

    def _save_term(self, term: int, vote: str | None) -> None:
        """Sync term and vote before they take effect."""
        write_term(self._host.files, self.home, self._directory.identity, term, vote)
        self.term, self.vote = term, vote

    def _lead(self, term: int, index: int) -> None:
        """This node was elected; it serves once its term's first entry, at `index`, is applied."""
        peering = self._peering
        self._open_term(term, index)
        self.term_start_index = index
        if peering is not None:
            peering.replicate()
        self.replica_status.on(ReplicaEvent.ELECTED)
        if peering is not None:
            peering.on_elected()
            self._machine.leading(term)
            self.leader_changed()

    def _open_term(self, term: int, index: int) -> None:
        """Append the first frame of a term that this node leads."""
        peering = self._peering
        why, previous = (
            (TermWhy.START, None)
            if peering is None
            else (peering.candidacy.why, peering.candidacy.last_leader)
        )
        body = term_start(self._directory, term, why, previous)
        commit_index = min(self.commit_index, index - 1)
        opened = self._journal.append(term, commit_index, self.time_at(self._host.monotonic_ms()), 1, body)
        assert opened == index
        self.group_commit.queue()

    def _no_longer_leads(self) -> None:
        """Leadership ended: another term began, or no majority answers."""
        if self._is_over:
            return
        assert self._raft is not None
        assert self._peering is not None
        self.replica_status.on(ReplicaEvent.DEPOSED)
        is_planned = self.leadership.is_handing_over
        self._peering.no_longer_leads()
        what = "handed over" if is_planned else "another node leads, or no majority answers,"
        self._machine.deposed(f"{what} in term {self._raft.term}")
        self._host.call_soon(self.leader_changed)

    def _truncate_after(self, index: int) -> None:
        """Remove the entries after `index`, which another leader replaced; rebuild the machine if need be."""
        LOG.info("%s: entries %d to %d are replaced", self.home, index + 1, self._journal.last_index)
        self._journal.truncate_after(index)
        if self._applying.truncated(index):
            self._rebuild()

    def installed(self, header: SnapshotHeader) -> None:
        """Continue after a snapshot from the leader that has just been put in place."""
        assert self._raft is not None
        LOG.info("%s: continues after the snapshot up to entry %d", self.home, header.last_index)
        assert self._snapshotter is not None
        self._journal.adopt_snapshot(header)
        self._snapshotter.installed()
        self._applying.installed()
        self._raft.installed(header.last_index)
        self._rebuild()

    def _rebuild(self) -> None:
        """Rebuild the machine from scratch, in slices; a rebuild under way is abandoned."""
        self._applying.is_rebuilding = True
        self._slow_work.start(self._applying.rebuild(), self.advance)

    def leader_changed(self) -> None:
        """Notify the machine if the known leader has changed."""
        leader_id = self.leader_id
        if leader_id != self._told_leader:
            self._told_leader = leader_id
            self._machine.followed(leader_id)

    # Propose

    @property
    def has_room(self) -> bool:
        """Whether there is room in memory for one more entry."""
        return self._journal.has_room

    @property
    def can_append(self) -> bool:
        """Whether there is room for one more entry, in memory and, at the last `disk_room.observe`, on disk.

        To be asked before the first record of a decision is applied, because `propose` must not fail after
        that.
        """
        if self.disk_room.is_full or self.leadership.is_handing_over:
            return False
        return self.is_ready and self._journal.has_room

    def observe_obstacles(self, now_ms: float) -> None:
        """Look again at what may keep this node from serving the shard.

        Done at each tick of a leader, before a follower reports its obstacle or takes the lead when asked to,
        and before an operator is answered. Nothing else changes the answers of `serving_obstacle`.
        """
        self.disk_room.observe(now_ms)
        if self._peering is not None:
            self._machine.observe_obstacles(now_ms)

    def _obstacle(self) -> Obstacle:
        """The obstacle that keeps this node from serving the shard, or would if it led it."""
        if self._peering is not None:
            return self._peering.candidacy.obstacle()
        return Obstacle.DISK_FULL if self.disk_room.is_full else Obstacle.NONE

    def serving_obstacle(self) -> Obstacle:
        """The obstacle of a replica that may campaign: its disk's, or the machine's."""
        return Obstacle.DISK_FULL if self.disk_room.is_full else self._machine.obstacle()

    @property
    def is_installing(self) -> bool:
        """Whether a snapshot of the leader is complete and being put in place."""
        return self._peering is not None and self._peering.installing.is_finishing

    def propose(self, body: bytes, record_count: int, timestamp_ms: int) -> int:
        """Append an entry that the caller has applied already; returns its index, the `next_index` before.

        `timestamp_ms` is raised to the newest entry's if it is smaller.  Raises NotLeader and LogFull;
        nothing was appended then.
        """
        raft = self._raft
        if not self.is_ready or raft is None:
            raise NotLeader(f"shard {self.shard} is {self.state.value}")
        journal = self._journal
        if not journal.has_room:
            raise LogFull(f"{journal.uncommitted_bytes} bytes are not committed yet (uncommitted_bytes_max)")
        term = raft.term
        time_ms = max(timestamp_ms, journal.last_timestamp_ms)
        index = journal.append(term, raft.commit_index, time_ms, record_count, body)
        self._applying.proposed(index)
        self.group_commit.queue()
        return index

    # Group commit

    def _send_first(self) -> bool:
        """Send entries to the peers before the own sync blocks the loop: all disks then work in parallel."""
        if self._peering is None or not self.is_leader:
            return False
        assert self._links is not None
        self._peering.leading.replicate(is_heartbeat=False)
        self._links.flush()
        return True

    def _synced(self) -> None:
        """A group of entries is durable: acknowledge or commit it."""
        assert self._raft is not None
        if self._peering is not None and not self.is_leader:
            self._peering.flushed()
            self._delivery.advance_soon()  # acknowledge the synced entries before applying takes its time
        else:
            self._raft.commit()
            self.advance()
        if self._stop_done is not None:
            self._finish_stop()

    def advance(self) -> None:
        """Deliver what is committed."""
        self._delivery.advance()

    @property
    def is_current(self) -> bool:
        """Whether the machine was level with the cluster once, and the replica has not been halted since."""
        return self._delivery.is_current

    # Properties and calls for the runtime

    @property
    def next_index(self) -> int:
        """The index that the next proposal gets."""
        return self._journal.last_index + 1

    @property
    def last_index(self) -> int:
        """The index of the newest entry, committed or not."""
        return self._journal.last_index

    @property
    def commit_index(self) -> int:
        """The index of the last entry known to be committed."""
        return self._journal.base_index if self._raft is None else self._raft.commit_index

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the shard; it may still be catching up."""
        return self.leadership.is_leader

    @property
    def leader_id(self) -> int | None:
        """The leader of the current term as far as this node knows; None if there is none in contact."""
        if self._raft is None or self._is_over or self.state is ReplicaState.HALTED:
            return None
        return self._raft.leader_id

    @property
    def is_disk_full(self) -> bool:
        """Whether writes are refused for want of disk space."""
        return self.disk_room.is_full

    @property
    def is_rebuilding(self) -> bool:
        """Whether the machine is being rebuilt and so holds less than is committed."""
        return self._applying.is_rebuilding

    @property
    def applied_everywhere(self) -> int:
        """The last entry that every node, in contact or not, has applied, as far as this leader knows."""
        return self._delivery.applied_everywhere

    def time_at(self, now_ms: float) -> int:
        """The timestamp of an entry that arrives at `now_ms` of the monotonic clock.

        It is the time that most nodes' clocks agree on, and never less than the newest entry's.
        """
        return self._time.at(now_ms, self._journal.last_timestamp_ms)

    def past_ms(self) -> int:
        """A wall-clock time that has certainly passed, whatever one clock or entry says; for retention."""
        return self._time.clock.past_ms()

    @property
    def last_timestamp_ms(self) -> int:
        """The newest entry's timestamp: the log's own clock."""
        return self._journal.last_timestamp_ms

    def status(self) -> dict[str, Any]:
        """The replica's state for operators, after a look at its obstacles; JSON-ready."""
        self.observe_obstacles(self._host.monotonic_ms())
        journal, snapshotter = self._journal, self._snapshotter
        return {
            "shard": self.shard,
            "state": self.state.value,
            "state_since_ms": {state.value: ms for state, ms in self.replica_status.entered_ms.items()},
            "is_leader": self.is_leader,
            "term": self.term,
            "last_index": self.last_index,
            "durable_index": journal.durable_index,
            "commit_index": self.commit_index,
            "last_timestamp_ms": journal.last_timestamp_ms,
            "is_disk_full": self.disk_room.is_full,
            "cannot_serve": obstacle_words(self._obstacle()),
            "uncommitted_bytes": journal.uncommitted_bytes,
            "tail_records": journal.tail_records,
            "torn_bytes_cut": journal.torn_bytes,
            "segments": len(journal.segments),
            "snapshot_index": journal.base_index,
            "snapshots_made": 0 if snapshotter is None else snapshotter.snapshots_made,
            "chain_index": journal.chain.index,
            "chain_hash": journal.chain.digest.hex(),
            "syncs": self.group_commit.count,
            "sync_average_ms": round(self.group_commit.average_ms, 3),
            "sync_outstanding_ms": self.group_commit.outstanding_ms,
            "leader_id": self.leader_id,
            "halted_reason": self.halted_reason,
            "leader_since_ms": self.leader_since_ms,
            "is_joining": self._peering is not None and self._peering.candidacy.is_joining,
            "rebuilds": self._applying.rebuilds,
            "backfill": None if self._peering is None else self._peering.backfilling.status(),
            "followers": self.leadership.followers() if self.is_leader else [],
        }
