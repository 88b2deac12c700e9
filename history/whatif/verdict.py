"""The verdict on other settings: better, worse, the same or both, and by how much, in a sentence or two.

In every measure less is better. A difference counts if it can be seen in the figures, and if it is larger
than what the replay under the recorded settings is off by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from history.render import duration, plural, sentence_list

from .answer import WhatIfResult
from .measures import Measures

NAMED_MAX = 4
"""Maximum number of differences named for each side; the figures beside the verdict have all."""
SEEN_MS = 100
"""Times are shown to a tenth of a second, in ms."""


class Judgement(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    MIXED = "mixed"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class WhatIfVerdict:
    """The effect that the other settings would have had on a group."""

    judgement: Judgement
    words: str


def verdict(result: WhatIfResult) -> WhatIfVerdict:
    """The verdict on a result that was not left out."""
    really, what_if, replayed = result.really, result.whatif, result.replayed
    assert really is not None
    assert what_if is not None
    assert replayed is not None
    by, off = what_if.minus(really), replayed.minus(really)
    counted = [
        name
        for name in _WORTH
        if abs(by[name]) > abs(off[name]) and abs(by[name]) >= (SEEN_MS if name.endswith("_ms") else 1)
    ]
    better = _said([name for name in counted if by[name] < 0], really, what_if)
    worse = _said([name for name in counted if by[name] > 0], really, what_if)
    if better and worse:
        return WhatIfVerdict(Judgement.MIXED, f"Better and worse. Better: {better}. Worse: {worse}.")
    if better:
        return WhatIfVerdict(Judgement.BETTER, f"Better: {better}.")
    if worse:
        return WhatIfVerdict(Judgement.WORSE, f"Worse: {worse}.")
    beyond = "" if result.is_faithful else " by more than the replay itself is off"
    return WhatIfVerdict(Judgement.SAME, f"The same: no figure would have changed{beyond}.")


_WORTH = (
    *("unstable_ms", "unowned_ms", "revoking_ms", "fenced_revoking", "sessions_expired"),
    *("epochs", "moved", "spread"),
)
"""The measures that decide, those that matter most first."""


def _said(names: Sequence[str], really: Measures, what_if: Measures) -> str:
    said = [_difference(name, getattr(really, name), getattr(what_if, name)) for name in names[:NAMED_MAX]]
    return sentence_list(said)


def _difference(name: str, really: int, what_if: int) -> str:
    by, is_less = abs(what_if - really), what_if < really
    few = "fewer" if is_less else "more"
    match name:
        case "unstable_ms":
            less = "less" if is_less else "longer"
            return f"not stable for {duration(by)} {less} ({duration(what_if)} instead of {duration(really)})"
        case "unowned_ms":
            return f"{by / 1000:,.1f} {few} partition-seconds without an owner"
        case "revoking_ms":
            return f"{by / 1000:,.1f} {few} partition-seconds of giving up"
        case "fenced_revoking":
            return f"{_some(by, few, 'member')} fenced for not giving up partitions"
        case "sessions_expired":
            return f"{_some(by, few, 'session')} expired"
        case "epochs":
            return _some(by, few, "epoch")
        case "moved":
            return f"{_some(by, few, 'partition')} moved"
    evenly = "more" if is_less else "less"
    return f"partitions spread {evenly} evenly (up to {what_if} apart between members instead of {really})"


def _some(count: int, few: str, noun: str) -> str:
    """``2 fewer epochs``."""
    return plural(count, noun).replace(" ", f" {few} ", 1)
