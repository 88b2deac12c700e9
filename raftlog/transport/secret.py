"""The cluster's secret: a file on every node of the cluster that only its owner and group can read."""

from __future__ import annotations

from typing import Final

from raftlog.env.host import Host
from raftlog.transport.contract import PeersError

SECRET_BYTES_MIN: Final = 16
SECRET_BYTES_MAX: Final = 4096
"""At most this many bytes; a longer file is certainly the wrong one."""


def read_secret(host: Host, path: str) -> bytes:
    """Read the cluster's secret; raises PeersError when the file cannot be one."""
    try:
        secret = host.files.read(path).strip()
        is_private = host.files.is_private(path)
    except OSError as error:
        raise PeersError(f"cluster.secret.file {path} cannot be read: {error.strerror or error}") from None
    if not is_private:
        raise PeersError(f"cluster.secret.file {path} is readable by all users: run chmod 600 on it")
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise PeersError(
            f"cluster.secret.file {path} holds {len(secret)} bytes; a secret has {SECRET_BYTES_MIN} to "
            f"{SECRET_BYTES_MAX}, for example from `openssl rand -hex 32`"
        )
    return secret
