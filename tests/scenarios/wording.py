"""The spelling of error codes and partitions in stories."""

from __future__ import annotations

from wire.errors import ErrorCode


def error_words(code: int) -> str:
    return "ok" if code == 0 else ErrorCode(code).name


def ranges(partitions: list[int]) -> str:
    """Return `0-3 7` for 0, 1, 2, 3, 7."""
    words: list[str] = []
    for partition in sorted(partitions):
        first, _, last = words[-1].partition("-") if words else ("", "", "")
        if words and int(last or first) == partition - 1:
            words[-1] = f"{first}-{partition}"
        else:
            words.append(str(partition))
    return " ".join(words)
