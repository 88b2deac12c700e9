"""Failures of stores and of delta-rs in one line each: what failed, why, and what to do."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator

from quorate.spark.errors import OutputError
from raftlog.env.object_stores import meaning_of

UNCHANGED = "the tables are unchanged: "
WORDS_MAX = 300
"""Characters of a library's message that are repeated."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_WORDS = ("no space left on device", "disk quota exceeded")
_REFUSED = re.compile("permission denied|read-only file system", re.IGNORECASE)
_DAMAGED = re.compile(
    "Kernel error: (Json|No table metadata|Generic delta kernel)|parquet (magic|footer)|thrift", re.I
)
"""A table's log or a file of it has been changed, cut or deleted by someone else."""
_NOT_WORDS = re.compile(r"\s*(\x1b\[\d+m|↳)[\s\x1b\[\dm↳]*")
"""Colours and arrows in errors of delta-rs."""
_STACK = re.compile(r"\s+0: <unknown>.*", re.DOTALL)
"""Its stack."""
_SPACE = re.compile(r"\s+")


def is_full(error: BaseException) -> bool:
    """Whether a disk was full, here or (as text) on an executor."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    return any(words in str(error).lower() for words in _FULL_WORDS)


def in_one_line(error: BaseException) -> str:
    text = _SPACE.sub(" ", _NOT_WORDS.sub(": ", _STACK.sub("", str(error)))).strip() or type(error).__name__
    return text if len(text) <= WORDS_MAX else f"{text[: WORDS_MAX - 1]}…"


def why_and_hint(error: BaseException) -> tuple[str, str]:
    """The problem, and its remedy."""
    if is_full(error):
        return "the disk is full", "free space and run again"
    is_local = isinstance(error, OSError) and error.errno is not None
    if not is_local and (meaning := meaning_of(error)) is not None:
        return meaning[1], meaning[2]
    if _REFUSED.search(str(error)):
        return in_one_line(error), "check the permissions, then run again"
    if _DAMAGED.search(str(error)):
        return in_one_line(
            error
        ), "restore the files, or run into a new output: quorate pipeline run -i … -o NEW"
    return in_one_line(error), "run again once the store answers"


@contextlib.contextmanager
def told(doing: str, *, writes: bool = False) -> Iterator[None]:
    """Turn errors of pyarrow, delta-rs and the system into an `OutputError`; ``doing`` is what failed."""
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (OSError, DeltaError, pa.ArrowException) as error:
        why, hint = why_and_hint(error)
        raise OutputError(f"cannot {doing}: {why}", f"{UNCHANGED if writes else ''}{hint}") from error
