"""Globally unique ids: of clusters, formats, starts."""

from __future__ import annotations

import base64
import uuid


def fresh_id() -> str:
    """Return 22 characters of base64 without padding, as Kafka writes a Uuid; never begins with "-".

    A leading "-" would look like a flag on a command line.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text
