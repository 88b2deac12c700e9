"""The page that compares two courses: it shows both, requests nothing, and is as small as a picture."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from history.pages.whatif import COLUMNS, whatif_page
from history.render import UTC_STYLE
from history.whatif.answer import WhatIfAnswer, WhatIfResult, whatif
from history.whatif.measures import Measures
from history.whatif.settings import WhatIf, assignor_named
from history.whatif.telling import whatif_text
from history.whatif.verdict import verdict

from .members import GROUP, History


def answered(span_ms: int = 60_000) -> WhatIfResult:
    script = History(4, ("range", "uniform")).run(span_ms).recorded()
    return whatif(script, WhatIf(assignor=assignor_named("uniform"), session_timeout_ms=20_000))


def test_both_courses_and_all_figures_are_on_the_page() -> None:
    result = answered()
    page = whatif_page(result, style=UTC_STYLE)
    assert result.really is not None
    assert result.whatif is not None
    assert page.count('<figure class="course">') == 2
    judged = verdict(result)
    assert page.index(f'<p class="verdict {judged.judgement}">{judged.words}</p>') < page.index("In figures")
    rows = re.findall(
        r"<tr><th scope=row>(.+?)</th><td class=number>(.+?)</td><td class=number>(.+?)</td>", page
    )
    figures = {name: (really, what_if) for name, really, what_if in rows}
    assert figures["epochs"] == (str(result.really.epochs), str(result.whatif.epochs))
    assert len(figures) == 9
    assert "what if assignor uniform and session timeout 20.0 s" in page
    assert "the replay with the recorded settings (assignor range) equals what really happened" in page
    assert "http" not in page.replace("http-equiv", "")


def measures(**others: int) -> Measures:
    return Measures(**dict.fromkeys((one.name for one in fields(Measures)), 4_000) | others)


@pytest.mark.parametrize(
    ("what_if", "replayed", "says"),
    [
        ({}, {}, "The same: no figure would have changed."),
        ({"unstable_ms": 4_099}, {}, "The same: no figure would have changed."),
        (
            {"unstable_ms": 1_000, "epochs": 3_999},
            {},
            "Better: not stable for 3.0 s less (1.0 s instead of 4.0 s) and 1 fewer epoch.",
        ),
        ({"unstable_ms": 65_000}, {}, "Worse: not stable for 1 min 1 s longer (1 min 5 s instead of 4.0 s)."),
        (
            {"moved": 3_998, "epochs": 4_002},
            {},
            "Better and worse. Better: 2 fewer partitions moved. Worse: 2 more epochs.",
        ),
        (
            {"epochs": 4_002},
            {"epochs": 3_998},
            "The same: no figure would have changed by more than the replay itself is off.",
        ),
    ],
)
def test_the_verdict_says_better_or_worse_and_by_how_much(
    what_if: dict[str, int], replayed: dict[str, int], says: str
) -> None:
    really = measures()
    result = WhatIfResult(
        group_id="g",
        shard=0,
        asked=(),
        really=really,
        whatif=measures(**what_if),
        replayed=measures(**replayed),
    )
    assert verdict(result).words == says


def test_a_page_of_a_long_time_is_no_larger_than_a_picture() -> None:
    page = whatif_page(answered(150_000), style=UTC_STYLE)
    assert len(page) < COLUMNS * 120


def test_names_that_clients_chose_stay_text() -> None:
    result = answered()
    object.__setattr__(result, "group_id", "<script>alert(1)</script>")
    assert "<script>alert" not in whatif_page(result, style=UTC_STYLE)


def test_the_text_says_what_it_rests_on() -> None:
    result = answered()
    said = "\n".join(whatif_text(WhatIfAnswer(results=(result,), basis=()), GROUP))
    assert said.splitlines()[1] == verdict(result).words
    assert "assumed delays of members" in said
    assert "as measured for the member at that time" in said
