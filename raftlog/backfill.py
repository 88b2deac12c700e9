"""Old history back into an archive that begins too late: after a snapshot was installed, segment by segment.

A peer's archived segment is taken when it ends where this archive begins and its hash chain runs into what is
known here: then every byte is what this cluster once committed, whoever sent it.  Order: the log and its
index into the archive, then the manifest; a crash before that leaves files that the manifest calls dropped,
which the next start removes.
"""

from __future__ import annotations

from raftlog.archive import ARCHIVE, Manifest, read_manifest, write_manifest
from raftlog.errors import Corrupt, Refused
from raftlog.files import Files, join, replace
from raftlog.sealed import build_index
from raftlog.segments import LogIdentity, check_header, decode_header, index_name, log_name
from raftlog.snapshots import SNAPSHOT_FILE, SnapshotFile


def missing_before(files: Files, home: str) -> int:
    """The newest entry that the archive in `home` lacks at its beginning; 0 when it begins with the first.

    Raises Corrupt.
    """
    return read_manifest(files, join(home, ARCHIVE)).dropped_index


def adopt_segment(
    files: Files, home: str, identity: LogIdentity, segment: bytes, chain_before: bytes
) -> Manifest:
    """Put a peer's `segment`, which ends with `missing_before`, in front of the archive in `home`.

    `chain_before` is the hash chain before it, as the peer's manifest says.  For the disk thread.  Raises
    Refused, and then nothing has changed, and Corrupt for damage of what is here.
    """
    archive = join(home, ARCHIVE)
    manifest = read_manifest(files, archive)
    sender = "a segment from a peer"
    try:
        header = decode_header(segment, sender)
        check_header(header, sender, identity, header.first_index)
        sealed, index = build_index(segment, sender, chain_before)
    except Corrupt as damage:
        raise Refused(str(damage)) from None
    if sealed.last_index != manifest.dropped_index:
        raise Refused(f"a segment that ends with entry {sealed.last_index}, not {manifest.dropped_index}")
    if sealed.chain_after != _chain_at_start(files, home, manifest):
        raise Refused(f"the segment of entry {sealed.first_index} does not lead to what is known here")
    # The log first: a log without an index is found again by the next start, the reverse is not.
    replace(files, join(archive, log_name(sealed.first_index)), segment)
    replace(files, join(archive, index_name(sealed.first_index)), index)
    whole = Manifest(segments=(sealed, *manifest.segments), dropped_index=sealed.first_index - 1)
    write_manifest(files, archive, whole.segments, whole.dropped_index)
    return whole


def _chain_at_start(files: Files, home: str, manifest: Manifest) -> bytes:
    """The hash chain before the first entry that is kept."""
    if manifest.segments:
        return manifest.segments[0].chain_before
    file = SnapshotFile(files, join(home, SNAPSHOT_FILE))
    file.close()
    if file.header.last_index != manifest.dropped_index:
        raise Refused(f"the hash chain at entry {manifest.dropped_index} is not known here")
    return file.header.chain_hash
