"""A node's log as lines for people, or one JSON object per line for a log collector (`log.format`).

Invariant: as JSON an event is one line of ASCII, whatever its message or its traceback contains.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
from typing import Final

TEXT: Final = "text"
JSON: Final = "json"
FORMATS: Final = (TEXT, JSON)


class JsonLines(logging.Formatter):
    """Formats an event as a JSON object: timestamp (RFC 3339, UTC), level, node, logger, message, exception.

    `exception`, the traceback, is there only if the event has one.
    """

    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        at = dt.datetime.fromtimestamp(record.created, dt.UTC)
        event = {
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "node": self._node_id,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event)


def without_json(line: str) -> str:
    """Return the message of a line in the JSON format; any other line as it is."""
    try:
        return str(json.loads(line)["message"])
    except (ValueError, TypeError, KeyError):
        return line


def log_to_stderr(log_format: str, level: str, node_id: int) -> None:
    """Send every logger's events from `level` upwards to standard error, as `log_format` (one of FORMATS)."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == JSON:
        handler.setFormatter(JsonLines(node_id))
    else:
        handler.setFormatter(
            logging.Formatter(f"%(asctime)s node {node_id} %(levelname)s %(name)s: %(message)s")
        )
    logging.basicConfig(handlers=[handler], level=level.upper())
