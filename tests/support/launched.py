"""`quorate up` as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quorate.errors import ExitCode

QUORATE = [sys.executable, "-P", "-m", "quorate"]
STOP_S = 15.0


@contextmanager
def up(data: Path, *options: str) -> Iterator[dict[str, Any]]:
    """Run `quorate up`; yields what it announced."""
    command = [*QUORATE, "up", "--data", str(data), "--port", "0", "--http-port", "0", "--json", *options]
    with (
        tempfile.TemporaryFile("w+") as told,  # a pipe that nobody reads would stop it when it is full
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=STOP_S)
            told.seek(0)
            said = told.read()
    assert process.returncode == ExitCode.OK, said
    assert "Traceback" not in said
