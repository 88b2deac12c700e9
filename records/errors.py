"""What can be wrong with bytes that claim to be records.

Everything under this package reads bytes that a disk, a peer or a stranger produced.  Whatever they hold, a
reader sees one of the errors below and nothing else: no index error, no decoding error, no memory error.
That is what lets the journal call a frame damaged, and a tool go on to the next one.
"""

# The release that reads exactly the versions in `records.schemas`; `UnsupportedVersion` names it.
RELEASE = "0.1.0"


class RecordsError(ValueError):
    """Base of every error that this package raises about bytes or values."""


class MalformedRecord(RecordsError):
    """A key, a value or a cause does not have its layout (docs/records.md)."""


class MalformedEntry(RecordsError):
    """The body of a log entry does not add up: lengths beyond its end, or a cause that cannot be read."""


class MalformedId(RecordsError):
    """A text is not a topic id in Kafka's form (22 characters of url-safe base64 without padding)."""


class UnknownType(RecordsError):
    """A typed key or value was asked of a record whose type this release does not know."""


class UnsupportedVersion(RecordsError):
    """A value was written in a version newer than this release reads.

    Skipping it would silently lose state, so a node stops here.  `what` names the record type (or "cause"),
    `version` is what was found and `newest_known` the newest version that this release reads.
    """

    def __init__(self, what: str, version: int, newest_known: int) -> None:
        self.what = what
        self.version = version
        self.newest_known = newest_known
        super().__init__(
            f"{what} version {version} cannot be read: Quorate {RELEASE} knows up to {newest_known}. "
            f"A release later than {RELEASE} is needed: start the one that wrote this log, or newer."
        )
