"""A node's directory: created once by an explicit format, opened by one process at a time.

    node          identity: cluster id, node id, incarnation, number of shards, voters; written last by the
                  format
    boot          the current boot id and the one before
    lock          held by the running process
    evidence.*    facts that the log does not record (see `evidence`)
    metadata/, shard-0/, ...    one log each:
        00000000000000000001.log, .index    segments; one with an index is sealed
        snapshot, term, clean               state up to an index; Raft term and vote with the disk they belong
                                            to; marker of a clean stop
        synced                              up to which entry the log was once synced here
        joining, installing                 a replaced disk that may not vote yet; an install not complete
        archive/                            segments below the snapshot, and their manifest

Invariants: a directory is formatted exactly when `node` exists; a file that formatting wrote and
that is missing later is damage, never an empty start; each start has a boot id of its own, synced before it
is used; a shard of a replaced disk is `joining` from its format on, until that is durably removed; a vote
belongs to one disk, so no node starts on another disk's shard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raftlog.env.errors import AlreadyRunning, Corrupt, NotEmpty, NotFormatted
from raftlog.env.files import TEMPORARY_SUFFIX, Files, Lock, join, parent
from raftlog.storage.archive import ARCHIVE, write_manifest
from raftlog.storage.metafile import decode_meta, read_meta, write_meta
from raftlog.storage.segments import METADATA_SHARD, LogIdentity, create_segment, encode_header, log_name

__all__ = [
    "AlreadyRunning",
    "Corrupt",
    "NodeDirectory",
    "NodeIdentity",
    "NotEmpty",
    "NotFormatted",
    "format_node",
    "is_joining",
    "joined",
    "open_node",
]

NODE_FILE = "node"
BOOT_FILE = "boot"
LOCK_FILE = "lock"
TERM_FILE = "term"
JOINING_FILE = "joining"

_NODE_KIND = "node"
_BOOT_KIND = "boot"
_JOINING_KIND = "joining"
TERM_KIND = "term"

OWNER_HINT = (
    "restore the shard's directory: its vote and its acknowledgements belong to this disk; if it is lost, "
    "start with an empty directory, `quorate node format --replace`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """The identity of a node's directory, fixed when it is formatted.

    `incarnation` is new for each format of the same node id.  `voters` are the ids of all nodes of the
    cluster, ascending, this one's among them; () is a cluster of one.  `is_replacement`: formatted to replace
    a disk that was lost.  `starting_level`: the format level at which a new cluster begins; 1 in directories
    of older releases and of replacements, which bring no new cluster about.  Raises ValueError.
    """

    cluster_id: str
    node_id: int
    incarnation: str
    num_shards: int
    voters: tuple[int, ...] = ()
    is_replacement: bool = False
    starting_level: int = 1

    def __post_init__(self) -> None:
        if self.voters != tuple(sorted(set(self.voters))):
            raise ValueError(f"node ids must be unique and in ascending order: {self.voters}")
        if self.voters and self.node_id not in self.voters:
            raise ValueError(f"node {self.node_id} is not one of the cluster's nodes {self.voters}")
        if self.is_replacement and self.is_alone:
            raise ValueError(
                "a cluster of one node has no other node from which a replaced disk could catch up"
            )

    @property
    def is_alone(self) -> bool:
        """Whether this node is the whole cluster."""
        return len(self.voters) <= 1

    def log(self, shard: int) -> LogIdentity:
        """The identity that segments of `shard` carry."""
        return LogIdentity(cluster_id=self.cluster_id, shard=shard, num_shards=self.num_shards)

    @property
    def shards(self) -> list[int]:
        """The numbers of all shards of the node, the metadata shard first."""
        return [METADATA_SHARD, *range(self.num_shards)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDirectory:
    """An opened directory; holds the lock until `close`."""

    path: str
    identity: NodeIdentity
    boot_id: str
    previous_boot_id: str
    lock: Lock

    def shard_path(self, shard: int) -> str:
        """The directory of one shard's log."""
        return join(self.path, shard_name(shard))

    def close(self) -> None:
        """Release the lock; the replicas must have stopped."""
        self.lock.release()


def shard_name(shard: int) -> str:
    """The directory name of a shard: `metadata`, `shard-0`, ..."""
    return "metadata" if shard == METADATA_SHARD else f"shard-{shard}"


def format_node(files: Files, path: str, identity: NodeIdentity) -> None:
    """Make `path` a node's directory; missing parents are created too.

    Raises NotEmpty when it is formatted or holds anything that an interrupted format did not leave, and
    AlreadyRunning when another process is formatting it.
    """
    _mkdir_durably(files, path)
    _check_empty(files, path, identity)
    lock = _lock(files, path)
    try:
        _check_empty(files, path, identity)
        _make(files, path, identity)
    finally:
        lock.release()


def _check_empty(files: Files, path: str, identity: NodeIdentity) -> None:
    names = files.listdir(path)
    if NODE_FILE in names:
        raise NotEmpty(f"{path} is already formatted: start the node on it, or choose another directory")
    ours = {BOOT_FILE, LOCK_FILE, *map(shard_name, identity.shards)}
    if foreign := [name for name in names if name.removesuffix(TEMPORARY_SUFFIX) not in {NODE_FILE, *ours}]:
        raise NotEmpty(f"{path} is not empty ({foreign[0]} is in it): choose an empty directory")


def _make(files: Files, path: str, identity: NodeIdentity) -> None:
    for shard in identity.shards:
        home = join(path, shard_name(shard))
        _mkdir_durably(files, home)
        _mkdir_durably(files, join(home, ARCHIVE))
        write_manifest(files, join(home, ARCHIVE), ())
        write_term(files, home, identity, 0, None)
        if identity.is_replacement:
            write_meta(files, join(home, JOINING_FILE), _JOINING_KIND, identity.incarnation)
        create_segment(files, home, identity.log(shard), 1)
    write_meta(files, join(path, BOOT_FILE), _BOOT_KIND, "", "")
    fields = (identity.cluster_id, identity.node_id, identity.incarnation, identity.num_shards)
    members = (list(identity.voters), identity.is_replacement, identity.starting_level)
    write_meta(files, join(path, NODE_FILE), _NODE_KIND, *fields, *members)
    files.fsync_dir(parent(path))


def open_node(files: Files, path: str, fresh_id: Callable[[], str]) -> NodeDirectory:
    """Lock the directory and give it a new boot id, synced together with the previous one.

    Raises NotFormatted, AlreadyRunning, Corrupt.
    """
    if not files.exists(join(path, NODE_FILE)):
        raise NotFormatted(
            f"{path} is not a node's directory: format it first, with `quorate node format`, or for a "
            "cluster of one node with `quorate node run --format`"
        )
    lock = _lock(files, path)
    try:
        identity = read_identity(files, path)
        current, _ = read_boot_ids(files, path)
        boot_id = fresh_id()
        write_meta(files, join(path, BOOT_FILE), _BOOT_KIND, boot_id, current)
    except BaseException:
        lock.release()
        raise
    return NodeDirectory(path=path, identity=identity, boot_id=boot_id, previous_boot_id=current, lock=lock)


def _lock(files: Files, path: str) -> Lock:
    try:
        return files.lock(join(path, LOCK_FILE))
    except BlockingIOError:
        raise AlreadyRunning(f"another process uses {path}: stop it first") from None


def read_identity(files: Files, path: str) -> NodeIdentity:
    """The identity of a formatted directory; raises NotFormatted or Corrupt."""
    file = join(path, NODE_FILE)
    if not files.exists(file):
        raise NotFormatted(f"{path} is not a node's directory: {NODE_FILE} is missing")
    return _identity(read_meta(files, file, _NODE_KIND))


def decode_identity(data: bytes, path: str) -> NodeIdentity:
    """The identity in the bytes of a node file; raises Corrupt."""
    return _identity(decode_meta(data, path, _NODE_KIND))


def _identity(fields: list[Any]) -> NodeIdentity:
    cluster_id, node_id, incarnation, num_shards = fields[:4]
    voters, is_replacement = fields[4:6] or ((), False)  # absent in the oldest releases: alone
    (starting_level,) = fields[6:7] or (1,)  # absent in older releases
    return NodeIdentity(
        cluster_id=cluster_id,
        node_id=node_id,
        incarnation=incarnation,
        num_shards=num_shards,
        voters=tuple(voters),
        is_replacement=is_replacement,
        starting_level=starting_level,
    )


def has_entries(files: Files, path: str, identity: NodeIdentity) -> bool:
    """Whether one of the logs ever had more than the empty first segment that formatting wrote."""
    for shard in identity.shards:
        first = join(path, shard_name(shard), log_name(1))
        if not files.exists(first) or files.size(first) > len(encode_header(identity.log(shard), 1)):
            return True
    return False


def is_joining(files: Files, home: str) -> bool:
    """Whether the shard in `home` is on a replaced disk that is not level: no votes, no acknowledgements."""
    return files.exists(join(home, JOINING_FILE))


def check_joining(files: Files, home: str) -> None:
    """Check the marker of a joining shard; raises Corrupt when it is damaged."""
    if is_joining(files, home):
        read_meta(files, join(home, JOINING_FILE), _JOINING_KIND)


def joined(files: Files, home: str) -> None:
    """Note durably that the shard in `home` has caught up: from now on it votes."""
    files.unlink(join(home, JOINING_FILE))
    files.fsync_dir(home)


def read_term(files: Files, home: str, identity: NodeIdentity | None) -> tuple[int, str | None, bool]:
    """Term and vote of the shard in `home`, and whether the file names its owner: older releases wrote none.

    Raises Corrupt, also when the owner is another disk than that of `identity` (None: not checked).
    """
    path = join(home, TERM_FILE)
    term, vote, *owner = read_meta(files, path, TERM_KIND)[:4]
    if owner and identity is not None and owner != [identity.node_id, identity.incarnation]:
        what = (
            f"belongs to node {owner[0]}, disk {owner[1]}; this directory belongs to node "
            f"{identity.node_id}, disk {identity.incarnation}"
        )
        raise Corrupt(path, 0, what, OWNER_HINT)
    return term, vote, bool(owner)


def write_term(files: Files, home: str, identity: NodeIdentity, term: int, vote: str | None) -> None:
    """Durably replace term and vote, with the disk that owns them.

    The owner was appended because exchanged directories went unnoticed.
    """
    path = join(home, TERM_FILE)
    write_meta(files, path, TERM_KIND, term, vote, identity.node_id, identity.incarnation)


def read_boot_ids(files: Files, path: str) -> tuple[str, str]:
    """(current, previous) boot id; empty before the first start; raises Corrupt."""
    current, previous = read_meta(files, join(path, BOOT_FILE), _BOOT_KIND)[:2]
    return current, previous


def _mkdir_durably(files: Files, path: str) -> None:
    if files.is_dir(path):
        return
    up = parent(path)
    if up != path:
        _mkdir_durably(files, up)
    files.mkdir(path)
    files.fsync_dir(up)
