"""Turns Spark's exceptions into one-line errors of ours.

An error raised in a Python worker reaches the driver as text: a traceback inside the task's exception, inside
the stage's, inside the query's. One of our errors is recognised by the last line of its traceback; of the
others, those that a user can act on are recognised by patterns.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb

from quorate.spark import errors
from quorate.spark.errors import OptionError, PipelineError

from .jvm import how_it_ended, kept_logs

LINE_MAX = 500
"""At most this many characters of a message from Spark are shown, so that it stays one line."""

_ABOUT = ("at ", "Traceback", "An error occurred while calling ")
_OURS = re.compile(r"^(?:\s*\S*Exception: )?quorate\.spark\.errors\.(\w+): (.+)$", re.MULTILINE)
_SETTING = re.compile(
    r"""The value '([^']*)' in the config "([^"]+)" is invalid\. *([^\n]*?)\.? *(?:SQLSTATE|\n|$)"""
)
SAYS_NOTHING = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)*(?:Spark\w*|IllegalArgument)Exception: ")
"""Java class names in front of a message from Spark that is clear without them."""
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        r"No module named '(?:records|coordinator|raftlog|history|quorate)\b",
        "the executors do not have Quorate's code",
        ("run spark-submit with --py-files and the file that `python -m quorate.spark zip` writes, or call "
        "ship_code(spark)"),
    ),
    (
        r"No module named '([\w.]+)'",
        "the executors' Python lacks the package {0}",
        "they need msgpack, crc32c, google-re2, numpy, pandas, pyarrow: PYSPARK_PYTHON sets their Python",
    ),
    (
        r"PYTHON_VERSION_MISMATCH[^\n]*",
        "the executors run another version of Python than the driver",
        "set PYSPARK_PYTHON to the same version",
    ),
    (
        r"OutOfMemoryError|GC overhead limit",
        "Spark's JVM ran out of memory",
        "give it more memory (--driver-memory; on a cluster spark.executor.memory), or use more partitions",
    ),
    (
        r"ExecutorLostFailure[^\n]*",
        "executors were lost again and again",
        "usually for lack of memory: raise spark.executor.memory or spark.executor.memoryOverhead",
    ),
    (
        r"All masters are unresponsive",
        "the Spark master stopped answering",
        "",
    ),
    (
        r"No space left on device",
        "a disk that Spark uses is full",
        "Spark's scratch space is SPARK_LOCAL_DIRS (else /tmp)",
    ),
)  # fmt: skip


def unwrapped(error: BaseException) -> PipelineError | None:
    """The pipeline's error for an exception; None if it does not come from Spark."""
    if isinstance(error, PipelineError):
        return error
    text = _text_of(error)
    if text is None:
        return None
    ours = _OURS.findall(text)
    if ours:
        name, message = ours[-1]
        kind = getattr(errors, name, PipelineError)
        return kind(message.strip()) if issubclass(kind, PipelineError) else PipelineError(message.strip())
    setting = _SETTING.search(text)
    if setting:
        value, name, why = setting.groups()
        return OptionError(f"{name}={value} is not a valid Spark setting", why[:1].lower() + why[1:])
    for pattern, message, hint in _KNOWN:
        found = re.search(pattern, text)
        if found:
            return PipelineError(message.format(*found.groups()), hint)
    ended = how_it_ended()
    if ended is not None:  # whatever Spark and py4j make of it: an unknown name, a cancelled job, ...
        return PipelineError(f"Spark's JVM {ended}", _after_the_end(ended))
    return PipelineError(f"Spark failed: {_first_words(text)}", _see_logs())


@contextmanager
def spark_errors() -> Iterator[None]:
    """Raise an exception that comes from Spark as the pipeline's error for it."""
    try:
        yield
    except Exception as error:
        told = unwrapped(error)
        if told is None or told is error:
            raise
        raise told from error


def _text_of(error: BaseException) -> str | None:
    """The message of the first exception in the chain that comes from Spark or its transport."""
    for one in _chain(error):
        if type(one).__module__.partition(".")[0] in ("pyspark", "py4j", "grpc") or _is_refused_by_jvm(one):
            try:
                return str(one)
            except Exception as error:  # py4j asks the JVM for the message
                return str(error) or type(error).__name__
    return None


def _is_refused_by_jvm(error: BaseException) -> bool:
    """py4j does not wrap the error of a connection that the JVM no longer accepts."""
    files = (frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__))
    return isinstance(error, ConnectionError) and any(f"{os.sep}py4j{os.sep}" in file for file in files)


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in chain:
        chain.append(one)
        one = one.__cause__ or one.__context__
    return chain


def _first_words(text: str) -> str:
    """The first informative line of a report that may run to pages."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if not line.endswith(":") and not line.startswith(_ABOUT)]
    words = (said or lines or ["Spark gave no reason"])[0].removeprefix(": ")
    return SAYS_NOTHING.sub("", words)[:LINE_MAX]


def _after_the_end(ended: str) -> str:
    """The kernel's way to get memory back is SIGKILL, Spark's exit code for a heap that is full is 52."""
    if ended.endswith(("SIGKILL", " 52")):
        return "usually for lack of memory: see --driver-memory, and what else uses this machine's memory"
    return _see_logs()


def _see_logs() -> str:
    logs = kept_logs()
    return f"its logs are in {logs}" if logs else ""
