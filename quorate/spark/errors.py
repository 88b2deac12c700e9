"""Errors of the pipeline, with hints; commands turn each into one line and an exit code."""

from __future__ import annotations


class PipelineError(Exception):
    """An anticipated failure: ``message`` says what is wrong, ``hint`` what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)  # both, so that it survives pickling by an executor
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class InputError(PipelineError):
    """The input is not a log, is of a newer format, of two clusters, or is damaged."""


class OptionError(PipelineError):
    """An option of the source or of a command is wrong."""


class OutputError(PipelineError):
    """The output is another cluster's, of a newer release, or cannot be written."""


class OutputBusy(OutputError):
    """Another run is writing to the output."""


class NoSpark(PipelineError):
    """PySpark or Java is missing."""
