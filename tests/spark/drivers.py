"""Driver programs as processes of their own, since a process has only one JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from quorate.spark.session.settings import BRIEF_JAVA
from tests.support.recorded_incident import ROOT

JOB = Path(__file__).with_name("job.py")
FINISHED_S = 300.0
"""A driver takes ten seconds; the rest is for an overloaded machine."""


def driver_environment(scratch: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a user's environment; our checkout is on the driver's path alone; Java is for a short run."""
    keep = ("PATH", "LANG", "JAVA_HOME")
    environment = {name: os.environ[name] for name in keep if name in os.environ}
    given = {"HOME": str(scratch), "TMPDIR": str(scratch), "PYTHONPATH": str(ROOT)}
    return {**environment, **given, "SPARK_SUBMIT_OPTS": BRIEF_JAVA, **(more or {})}


def run_driver(
    command: Sequence[str | Path], scratch: Path, more: Mapping[str, str] | None = None, *, exit_code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run the driver in ``scratch``; a failure reports its output."""
    done = subprocess.run(
        [str(one) for one in command],
        cwd=scratch,
        env=driver_environment(scratch, more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=FINISHED_S,
        check=False,
    )
    assert done.returncode == exit_code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def start_driver(command: Sequence[str | Path], scratch: Path) -> subprocess.Popen[str]:
    """Start the driver, to be ended by the test; its output is in pipes."""
    return subprocess.Popen(
        [str(one) for one in command],
        cwd=scratch,
        env=driver_environment(scratch),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_python(
    script: str, scratch: Path, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return run_driver([sys.executable, "-c", script], scratch, more)
