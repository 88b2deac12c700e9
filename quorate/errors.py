"""Failures of commands: one line for people, one exit code for scripts.

Every anticipated failure is a `CommandError` with a message, a hint and an exit code from the table below.
docs/commands.md and `quorate --help` have the same table.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """The exit codes of every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    UNREADABLE = 5
    INSTALLATION = 6
    UNWRITTEN = 7
    DEGRADED = 8
    NO_MAJORITY = 9
    NODE_STOPPED = 70
    INTERRUPTED = 130


EXIT_CODE_MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "success",
    ExitCode.FAILED: "a claim of the demo did not hold, a verification found damage, or Spark failed",
    ExitCode.USAGE: "a wrong option, argument or setting",
    ExitCode.UNREACHABLE: "the cluster cannot be reached or did not respond in time",
    ExitCode.REFUSED: "the cluster returned an error",
    ExitCode.UNREADABLE: (
        "a directory is not a node's, is in use or too damaged, or does not contain what was requested"
    ),
    ExitCode.INSTALLATION: (
        "another module has the name of one of Quorate's packages, or an optional package is missing"
    ),
    ExitCode.UNWRITTEN: (
        "the output could not be written (disk full, not writable, in use, of another cluster)"
    ),
    ExitCode.DEGRADED: (
        "`cluster status`: the cluster is degraded; `cluster drain`: the node must not be stopped yet"
    ),
    ExitCode.NO_MAJORITY: "`cluster status`: too few nodes are up or connected for a majority",
    ExitCode.NODE_STOPPED: (
        "a node did not start or stopped itself (port in use, disk full, failed sync, damaged log)"
    ),
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C, which stops `up` and `node run` with code 0",
}


class CommandError(Exception):
    """An anticipated failure: `message` says what is wrong, `hint` what to do, `code` is the exit code."""

    def __init__(self, message: str, *, hint: str = "", code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def as_dict(self) -> dict[str, Any]:
        """The error as `--json` prints it."""
        return {"error": self.message, "hint": self.hint, "exit_code": int(self.code)}


class WrongArguments(CommandError):
    """Arguments are missing or too many; whoever knows the command adds its example to the hint."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint, code=ExitCode.USAGE)
