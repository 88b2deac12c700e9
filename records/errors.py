"""Errors in bytes that claim to be records.

This package reads bytes from a disk, from peers and from untrusted sources.  Whatever they hold, a reader
gets one of the errors below and nothing else: no index error, no decoding error, no memory error.  So the
journal can report a frame as damaged, and a tool can continue with the next one.
"""

# This release reads exactly the versions in `records.schemas`; `UnsupportedVersion` names it.
RELEASE = "0.1.0"


class RecordsError(ValueError):
    """Base of every error that this package raises about bytes or values."""


class MalformedRecord(RecordsError):
    """A key, a value or a cause does not have its layout (docs/records.md)."""


class MalformedEntry(RecordsError):
    """The body of a log entry is inconsistent: lengths beyond its end, or a cause that cannot be read."""


class MalformedId(RecordsError):
    """A text is not a topic id in Kafka's form (22 characters of url-safe base64 without padding)."""


class UnknownType(RecordsError):
    """A typed key or value was requested of a record whose type this release does not know."""


class UnsupportedVersion(RecordsError):
    """A value was written in a version newer than this release reads.

    Skipping it would silently lose state, so a node stops here.  `what` names the record type (or "cause"),
    `version` is the one found and `newest_known` the newest that this release reads.
    """

    def __init__(self, what: str, version: int, newest_known: int) -> None:
        self.what = what
        self.version = version
        self.newest_known = newest_known
        super().__init__(
            f"{what} version {version} cannot be read: Quorate {RELEASE} knows up to {newest_known}. Start "
            "the release that wrote this log, or a newer one."
        )
