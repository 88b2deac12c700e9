"""The starts ("boots") of peers' disks that this node has accepted: detects an old disk that is put back.

    DIR/boots   metafile: one row per peer [node id, incarnation, [boot ids, oldest first], [incarnations
                that were replaced]]

Each start of a node makes a boot id and remembers the one before.  A peer whose previous boot id is known
here but is not its latest has started from a copy of an old disk: entries that it acknowledged since then are
missing on it, and it must not vote.  An unknown one only means that the peer was away, or that this node was.

Invariants: a boot id is synced here before the peer learns that it is accepted, so a node that has
peers has the file before its log has an entry; an incarnation that was replaced never comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from raftlog.env.errors import Corrupt
from raftlog.env.files import Files, join, replace, way_out
from raftlog.env.host import Host
from raftlog.storage.directory import NodeIdentity, has_entries
from raftlog.storage.metafile import encode_meta, read_meta
from raftlog.transport.hello import Hello
from raftlog.transport.refusals import HelloRefusal, HelloRefused

BOOTS_FILE: Final = "boots"
BOOTS_KEPT: Final = 64
"""Boot ids kept per peer.

An image older than that many starts, months in practice, is taken for a peer that was away.
"""

_KIND: Final = "boots"

MISSING_HINT: Final = (
    "restore the file: without it this node could not recognise a peer with an old copy of its disk; if it "
    "is lost, start the node with an empty directory, `quorate node format --replace`"
)


@dataclass(slots=True)
class _Known:
    incarnation: str
    boot_ids: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)


class Boots:
    """The accepted boots of all peers; raises Corrupt when the file is damaged or gone."""

    def __init__(self, host: Host, directory: str, identity: NodeIdentity) -> None:
        self._host = host
        self._path = join(directory, BOOTS_FILE)
        self._known = read_boots(host.files, directory)
        check_boots(host.files, directory, identity)
        self._writes_under_way = 0

    def accept(self, hello: Hello, accepted: Callable[[], None]) -> None:
        """Call `accepted` once this boot of the peer is durably noted, or at once if it was noted before.

        Raises HelloRefused: INCARNATION or OLD_DISK.  If the note cannot be written, the node stops.
        """
        is_new = self._check(hello)
        if not is_new and not self._writes_under_way:
            accepted()
            return
        data = encode_meta(_KIND, *self._rows())
        self._writes_under_way += 1

        def written(_: object | None, error: BaseException | None) -> None:
            self._writes_under_way -= 1
            if error is not None:
                hint = f": {way_out(error)}" if isinstance(error, OSError) else ""
                self._host.fatal(
                    f"cannot record the boot of node {hello.node_id} in {self._path}: {error}{hint}"
                )
                return
            accepted()

        self._host.run_on_disk(lambda: replace(self._host.files, self._path, data), written)

    def is_latest(self, hello: Hello) -> bool:
        """Whether no later boot of that peer was accepted."""
        known = self._known.get(hello.node_id)
        return known is not None and known.boot_ids[-1:] == [hello.boot_id]

    def _check(self, hello: Hello) -> bool:
        """Note the boot in memory; returns whether it is new."""
        known = self._known.get(hello.node_id)
        if known is None:
            known = self._known[hello.node_id] = _Known(hello.incarnation)
        elif hello.incarnation != known.incarnation:
            _check_replacement(hello, known)
            replaced = [*known.replaced, known.incarnation][-BOOTS_KEPT:]
            known = self._known[hello.node_id] = _Known(hello.incarnation, replaced=replaced)
        if known.boot_ids and hello.boot_id == known.boot_ids[-1]:
            return False
        if hello.boot_id in known.boot_ids or _is_old(hello.previous_boot_id, known.boot_ids):
            raise HelloRefused(
                HelloRefusal.OLD_DISK,
                "started from an old copy of its disk, which lacks entries that it has acknowledged; format "
                f"an empty directory for node {hello.node_id} with --replace",
            )
        known.boot_ids = [*known.boot_ids, hello.boot_id][-BOOTS_KEPT:]
        return True

    def _rows(self) -> list[list[object]]:
        return [
            [node_id, known.incarnation, known.boot_ids, known.replaced]
            for node_id, known in sorted(self._known.items())
        ]


def _check_replacement(hello: Hello, known: _Known) -> None:
    if hello.incarnation in known.replaced:
        raise HelloRefused(
            HelloRefusal.OLD_DISK,
            f"runs on a disk that has been replaced; format an empty directory for node {hello.node_id} "
            "with --replace",
        )
    if not hello.is_replacement:
        raise HelloRefused(
            HelloRefusal.INCARNATION,
            f"was formatted again, so its earlier votes are lost; format node {hello.node_id} with "
            "--replace, or stop the second node with this id",
        )


def _is_old(previous_boot_id: str, boot_ids: list[str]) -> bool:
    """Whether a disk is older than the latest start known here; "" is a disk that never started."""
    return bool(boot_ids) and previous_boot_id != boot_ids[-1] and previous_boot_id in ("", *boot_ids)


def check_boots(files: Files, directory: str, identity: NodeIdentity) -> None:
    """Raise Corrupt when the file is missing although it must have existed."""
    path = join(directory, BOOTS_FILE)
    if not (identity.is_alone or files.exists(path)) and has_entries(files, directory, identity):
        what = "is missing, though the logs have entries, which are written only after a peer was accepted"
        raise Corrupt(path, 0, what, MISSING_HINT)


def read_boots(files: Files, directory: str) -> dict[int, _Known]:
    """The boots noted in `directory`, by peer; raises Corrupt."""
    path = join(directory, BOOTS_FILE)
    if not files.exists(path):
        return {}
    return {
        node_id: _Known(incarnation, list(boot_ids), list(replaced))
        for node_id, incarnation, boot_ids, replaced in (row[:4] for row in read_meta(files, path, _KIND))
    }
