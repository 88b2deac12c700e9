"""Authorities and certificates for TLS between nodes, made by the openssl command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from raftlog.env.host import TlsSettings

openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")


NEW_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"


def authority(home: Path, name: str) -> Path:
    """A certificate authority in `home/name`."""
    home = home / name
    home.mkdir()
    _openssl(home, f"req -x509 {NEW_KEY} -keyout ca.key -out ca.pem -days 2 -subj /CN={name}")
    return home


def certificate(home: Path, name: str) -> TlsSettings:
    """A certificate of the authority in `home`."""
    _openssl(home, f"req {NEW_KEY} -keyout {name}.key -out {name}.csr -subj /CN={name}")
    _openssl(
        home, f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out {name}.pem"
    )
    return TlsSettings(
        cert_file=str(home / f"{name}.pem"), key_file=str(home / f"{name}.key"), ca_file=str(home / "ca.pem")
    )


def _openssl(home: Path, arguments: str) -> None:
    subprocess.run(["openssl", *arguments.split()], cwd=home, check=True, capture_output=True, timeout=30)
