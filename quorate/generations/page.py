"""The comparison as one HTML page: what each generation cost, in a sentence, in figures and over time.

All pictures have one axis and one scale. Everything is in the markup and needs no script. The page names no
moment at which it was made: the same seed gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from history.pages.frame import escaped, page, section, table_html
from history.render import duration, plural, sentence_list
from quorate.generations.contest import (
    COMMIT_MS,
    HEARTBEAT_MS,
    POLL_INTERVAL_MS,
    SESSION_MS,
    PlayerResult,
    event_times,
)
from quorate.generations.ledger import ITEMS_PER_SECOND, SPEED, LedgerStep, RunFigures
from quorate.generations.schedule import (
    GrowTopic,
    Join,
    KillCoordinator,
    Leave,
    Schedule,
    ScheduledEvent,
    Slow,
)
from records import RELEASE

COLUMNS: Final = 1_000
HEIGHT: Final = 96
STRIP: Final = 8
"""Height of the strip that shows when a group was not stable."""
LANES: Final[tuple[tuple[type[ScheduledEvent], str, str], ...]] = (
    (Join, "join", "joins"),
    (Leave, "leave", "leaves"),
    (Slow, "slow", "slow"),
    (KillCoordinator, "kill", "coordinator killed"),
    (GrowTopic, "grow", "topic grows"),
)
"""Kind of event, class of its mark, and the name of its lane."""
LANE_HEIGHT: Final = 14
COLUMNS_OF_A_SCREEN: Final = 6
"""A table of figures with more columns may be wider than its screen, and scrolls."""

ROWS: Final[tuple[tuple[str, str, Callable[[RunFigures], float], str], ...]] = (
    ("without an owner", "partition-seconds", lambda one: one.unowned_s, ",.0f"),
    ("time to stable, median", "seconds after an event", lambda one: one.settled_median_s, ",.1f"),
    ("time to stable, longest", "seconds after an event", lambda one: one.settled_max_s, ",.1f"),
    ("messages", "requests and answers", lambda one: one.messages.total(), ",.0f"),
    (
        "begun by the coordinator",
        "requests, from its one loop",
        lambda one: one.calls,
        ",.0f",
    ),
    ("moves", "partitions that changed members", lambda one: one.moves, ",.0f"),
    ("work done twice", "items, by two owners at once", lambda one: one.doubled_items, ",.0f"),
    ("work repeated", "items, done and not committed", lambda one: one.repeated_items, ",.0f"),
    ("stopped needlessly", "times", lambda one: one.needless_stops, ",.0f"),
    ("delayed by needless stops", "items", lambda one: one.needless_items, ",.0f"),
)
"""Name, unit, value and format of each figure."""


def generations_page(
    schedule: Schedule, results: Sequence[PlayerResult], *, has_variants: bool = False
) -> str:
    """Return the whole HTML file."""
    what = sentence_list([plural(_count(schedule, kind), name) for kind, name in _NAMES.items()])
    partitions = plural(sum(schedule.topics.values()), "partition")
    return page(
        title="Four generations of one protocol",
        lead=(
            f"the same {duration(schedule.end_ms)} of {plural(schedule.members, 'member')} and "
            f"{partitions}, seed {schedule.seed}: {what}"
        ),
        body="\n".join(
            (
                section("What each cost", _sentences(results)),
                section("In figures", _figures(results)),
                section("Over time", _timelines(schedule, results)),
                section("Messages by name", _messages(results), fold=True),
                section("How it is counted", _method()),
            )
        ),
        styles=("generations.css",),
        rests_on=[_provenance(schedule, has_variants=has_variants)],
    )


def _provenance(schedule: Schedule, *, has_variants: bool) -> str:
    option = " --variants" if has_variants else ""
    return (
        f"Quorate {RELEASE}: quorate generations --members {schedule.members} --churn {schedule.seed} "
        f"--minutes {schedule.minutes:g}{option}. "
        "Played in virtual time: the same command gives the same bytes."
    )


_NAMES: Final[dict[type[ScheduledEvent], str]] = {
    Join: "join",
    Leave: "leave",
    Slow: "slow member",
    KillCoordinator: "coordinator kill",
    GrowTopic: "topic growth",
}


def _count(schedule: Schedule, kind: type[ScheduledEvent]) -> int:
    return sum(isinstance(event, kind) for event in schedule.disturbances)


def _sentences(results: Sequence[PlayerResult]) -> str:
    made = []
    variants: list[str] = []
    for one in reversed(results):
        if one.is_variant:
            variants.insert(0, f"<li><strong>{escaped(one.name)}.</strong> {escaped(one.sentence)}</li>")
            continue
        made.append(_sentence(one, variants))
        variants = []
    return f'<ol class="generations">{"".join(reversed(made))}</ol>'


def _sentence(one: PlayerResult, variants: Sequence[str]) -> str:
    return (
        f'<li><h3>{escaped(one.name)}</h3><p class="cost">{escaped(one.sentence)}</p>'
        f'<p class="idea">{escaped(one.idea)}</p>'
        + (f'<p class="why">{escaped(one.why)}</p>' if one.why else "")
        + (f'<ul class="variants">{"".join(variants)}</ul>' if variants else "")
        + "</li>\n"
    )


def _figures(results: Sequence[PlayerResult]) -> str:
    heads = "".join(f"<th scope=col>{escaped(one.name)}</th>" for one in results)
    rows = []
    for title, unit, value_of, form in ROWS:
        full = _full_bar(results, value_of)
        cells = "".join(_cell(one.name, value_of(one.figures), form, full) for one in results)
        head = f'{escaped(title)} <span class="unit">{escaped(unit)}</span>'
        rows.append(f"<tr><th scope=row>{head}</th>{cells}</tr>")
    body = "\n".join(rows)
    form = "figures many" if len(results) > COLUMNS_OF_A_SCREEN else "figures"
    legend = _BEYOND if "bar beyond" in body else ""
    return (
        f'<div class="scroll"><table class="{form}"><thead><tr><td></td>{heads}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>{legend}"
    )


def _full_bar(results: Sequence[PlayerResult], value_of: Callable[[RunFigures], float]) -> float:
    """Return the value of a whole bar: the largest that is no more than twice each generation's."""
    most = max((value_of(one.figures) for one in results if not one.is_variant), default=0)
    return max((value for one in results if (value := value_of(one.figures)) <= 2 * most), default=0) or 1


def _cell(name: str, value: float, form: str, full: float) -> str:
    kind = "bar beyond" if value > full else "bar"
    return (
        f'<td data-name="{escaped(name)}"><svg viewBox="0 0 100 6" preserveAspectRatio="none" '
        f'aria-hidden="true"><rect class="{kind}" width="{100 * min(value / full, 1):.2f}" height="6"/></svg>'
        f"<span>{escaped(format(value, form))}</span></td>"
    )


_BEYOND: Final = (
    '<p class="legend"><span class="key beyond"></span> a variant with more than twice the largest figure of '
    "the generations, whose bar is cut off</p>"
)


# Over time.


class _Axis:
    def __init__(self, end_ms: float) -> None:
        self._end_ms = end_ms

    def x(self, at_ms: float) -> float:
        return COLUMNS * min(max(at_ms, 0.0), self._end_ms) / self._end_ms


def _timelines(schedule: Schedule, results: Sequence[PlayerResult]) -> str:
    axis = _Axis(schedule.end_ms)
    steps = [one.ledger.steps() for one in results]
    most = max((max(step.unowned, step.double) for found in steps for step in found), default=0) or 1
    drawn: dict[object, list[int]] = {}
    for place, one in enumerate(results):  # a variant that only commits otherwise has its protocol's picture
        unsettled = one.ledger.unsettled(event_times(schedule))
        drawn.setdefault((tuple(steps[place]), tuple(unsettled)), []).append(place)
    pictures = "\n".join(
        f'<figure class="run"><figcaption>{escaped("; ".join(results[place].name for place in same))}'
        f"</figcaption>{_picture(axis, schedule, results[same[0]], steps[same[0]], most)}</figure>"
        for same in drawn.values()
    )
    minutes = range(0, int(schedule.minutes) + 1, max(1, int(schedule.minutes) // 5))
    ticks = "".join(f"<span>{minute} min</span>" for minute in minutes)
    legend = (
        '<p class="legend"><span class="key unowned"></span> partitions without an owner, the full height is '
        f'{most:,} <span class="key double"></span> partitions with two owners <span class="key unsettled">'
        "</span> not stable</p>"
    )
    return f'{_schedule_lanes(axis, schedule)}\n{pictures}\n<p class="axis">{ticks}</p>\n{legend}'


def _schedule_lanes(axis: _Axis, schedule: Schedule) -> str:
    marks = []
    for lane, (kind, mark, _) in enumerate(LANES):
        y = lane * LANE_HEIGHT
        for event in schedule.disturbances:
            if isinstance(event, kind):
                for_ms = getattr(event, "for_ms", 0.0)
                width = max(axis.x(event.at_ms + for_ms) - axis.x(event.at_ms), 3.0)
                marks.append(
                    f'<rect class="mark {mark}" x="{axis.x(event.at_ms):.1f}" y="{y + 3}" width="{width:.1f}"'
                    f' height="{LANE_HEIGHT - 5}"><title>{escaped(_words(event))}</title></rect>'
                )
    names = "".join(f'<span class="key {mark}"></span> {escaped(name)} ' for _, mark, name in LANES)
    height = len(LANES) * LANE_HEIGHT
    return (
        '<figure class="run lanes"><figcaption>What happened</figcaption>'
        f'<svg viewBox="0 0 {COLUMNS} {height}"'
        f' preserveAspectRatio="none" role="img" aria-label="the schedule">{"".join(marks)}</svg>'
        f'<p class="legend">{names}</p></figure>'
    )


def _words(event: ScheduledEvent) -> str:
    at = f"{duration(event.at_ms)}: "
    match event:
        case Join():
            return f"{at}{event.member} joins"
        case Leave():
            return f"{at}{event.member} leaves"
        case Slow():
            return f"{at}{event.member} does not poll for {duration(event.for_ms)}"
        case KillCoordinator():
            return f"{at}the coordinator is killed, for {duration(event.for_ms)}"
        case GrowTopic():
            return f"{at}{event.topic} grows to {plural(event.num_partitions, 'partition')}"
    return at


def _picture(
    axis: _Axis, schedule: Schedule, result: PlayerResult, steps: Sequence[LedgerStep], most: int
) -> str:
    unsettled = "".join(
        f'<rect class="unsettled" x="{axis.x(begin):.1f}" y="0"'
        f' width="{max(axis.x(end) - axis.x(begin), 1.0):.1f}" height="{STRIP}"/>'
        for begin, end in result.ledger.unsettled(event_times(schedule))
    )
    guides = "".join(f"M{axis.x(event.at_ms):.1f} {STRIP}V{HEIGHT}" for event in schedule.disturbances)
    areas = [
        f'<path class="{kind}" d="{_area(axis, [(step.at_ms, value_of(step)) for step in steps], most)}"/>'
        for kind, value_of in (("unowned", _unowned), ("double", _double))
    ]
    figures = result.figures
    words = (
        f"{result.name}: {figures.unowned_s:,.0f} partition-seconds without an owner, "
        f"{figures.double_s:,.0f} with two"
    )
    return (
        f'<svg viewBox="0 0 {COLUMNS} {HEIGHT}" preserveAspectRatio="none" role="img"'
        f' aria-label="{escaped(words)}"><rect class="calm" width="{COLUMNS}" height="{STRIP}"/>{unsettled}'
        f'<path class="guide" d="{guides}"/>{"".join(areas)}</svg>'
    )


def _unowned(step: LedgerStep) -> int:
    return step.unowned


def _double(step: LedgerStep) -> int:
    return step.double


def _area(axis: _Axis, values: Sequence[tuple[float, int]], most: int) -> str:
    """Return an outline over time; a column that has several values shows the highest."""
    highest: dict[int, int] = {}
    before = 0
    for at_ms, value in values:
        column = int(axis.x(at_ms))
        highest[column] = max(highest.get(column, before), value)
        before = value
        highest[column + 1] = value
    room = HEIGHT - STRIP - 4
    outline = f"M0 {HEIGHT}"
    level = 0
    for column, value in sorted(highest.items()):
        if value != level:
            outline += f"H{column}V{HEIGHT - room * value / most:.1f}"
            level = value
    return f"{outline}H{COLUMNS}V{HEIGHT}Z"


def _messages(results: Sequence[PlayerResult]) -> str:
    names = sorted({name for one in results for name in one.figures.messages})
    rows = [(name, *(f"{one.figures.messages[name]:,}" for one in results)) for name in names]
    heads = ("message", *(one.name for one in results))
    return table_html(heads, rows, numbers=range(1, len(results) + 1))


def _method() -> str:
    played = (
        "The same schedule, drawn from the seed, is played to each protocol in virtual time, by whole "
        "members and three whole nodes, which serve all of them. A killed node is the coordinator again 10 s "
        "after its return, so each kill means two new coordinators."
    )
    work = (
        "A member works on a partition from when its program is given it and its committed offset until the "
        f"program gives it up. Each partition has {ITEMS_PER_SECOND} items of work a second; a member does "
        f"those that wait {SPEED} times as fast as they come. Push commits with the replies to Ping, every "
        f"{HEARTBEAT_MS / 2000:g} s; the others every {COMMIT_MS // 1000} s and before members join again or "
        "give partitions up, Classic and KIP-848 also before they leave. An item that is done again is "
        "repeated if it had been done when the member that does it again began, and done twice if not: then "
        "two had the partition at once."
    )
    timeouts = (
        f"All have a heartbeat interval of {duration(HEARTBEAT_MS)}, a session timeout of "
        f"{duration(SESSION_MS)} and a poll interval (rebalance timeout) of {duration(POLL_INTERVAL_MS)}. A "
        "slow member does not poll, but works on; its client goes on sending heartbeats if its protocol has "
        "another thread for them."
    )
    counted = (
        "Time to stable is from an event to the last change of ownership before the next event, if every "
        "partition then has one owner. A needless stop is a partition that is taken from a member and next "
        "given to the same one. The forming of the group counts as the first event."
    )
    return "".join(f"<p>{escaped(one)}</p>" for one in (played, work, timeouts, counted))
