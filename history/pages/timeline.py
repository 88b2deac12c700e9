"""`timeline --html`: a group over time on one page: epochs, members, partitions, failovers, findings.

The page draws the facts and adds nothing: its script gets only `timeline_data`, and every value in that comes
from a row. Without a script (as ticket systems show attachments) the figures, the findings and the table of
epochs are still there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from history.facts.rows import (
    EpochRow,
    GroupFinding,
    GroupRows,
    SpanKind,
    begun_ms,
    shared_noun,
    time_to_stable_ms,
)
from history.protocols import CALLED
from history.reading.notes import Note
from history.render import LOCAL, TimeStyle, duration, plural, ranges, sentence_list
from history.words import partitions_words

from .captions import Captions, bounds_of, left_out_words, shown_findings
from .frame import Provenance, escaped, page, resource, section, severity, table_html, tiles, zone_offsets
from .lanes import Lanes, Segment, lanes_of, tells_behind
from .opening import opening

STYLES = ("timeline.css",)
SCRIPTS = ("timeline_model.js", "timeline_draw.js", "timeline_ruler.js", "timeline_panel.js", "timeline.js")
FINDINGS_OPEN = 4
"""Number of findings that are shown unfolded."""
TABLE_ROWS_MAX = 2_000
"""Maximum number of rows in the table of epochs, the newest; nobody reads more."""


def timeline_page(
    facts: GroupRows,
    findings: Sequence[GroupFinding],
    *,
    style: TimeStyle = LOCAL,
    title: str = "",
    whole: GroupRows | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
    rests_on: Sequence[str] = (),
    notes: Sequence[Note] = (),
    provenance: Provenance | None = None,
) -> str:
    """The HTML file. ``from_ms`` and ``to_ms`` limit the picture to a window.

    ``facts`` are then those of the window, and ``whole`` those from the beginning, which give members their
    names. ``notes`` are those of the evidence file, which tell of faults; ``rests_on`` is the footer.
    """
    captions = Captions(facts, style, whole)
    data = timeline_data(
        facts, findings, captions=captions, style=style, from_ms=from_ms, to_ms=to_ms, notes=notes
    )
    begin, end = data["from"], data["from"] + data["span"] - 1
    faults = [(begin + one["at"], one["words"]) for one in data["faults"]]
    spoken = [CALLED[one] for one in dict.fromkeys(row.protocol for row in facts.epochs) if one in CALLED]
    lead = "".join(f"it speaks {said}; " for said in spoken)
    lead += f"{style.full(begin)} to {style.full(end)} ({duration(end - begin)}), shard {facts.shard}"
    return page(
        title=title or f"Group {facts.group_id}",
        lead=lead,
        body=_body(facts, findings, captions, style, faults),
        styles=STYLES,
        scripts=SCRIPTS,
        data=data,
        rests_on=(*rests_on, *data["leftOut"]),
        provenance=provenance,
    )


def timeline_data(
    facts: GroupRows,
    findings: Sequence[GroupFinding],
    *,
    captions: Captions | None = None,
    style: TimeStyle = LOCAL,
    from_ms: int | None = None,
    to_ms: int | None = None,
    notes: Sequence[Note] = (),
) -> dict[str, Any]:
    """The data of the page: times in ms since ``from``, members by number, ``null`` for an open end."""
    begin, end = bounds_of(facts, from_ms, to_ms)
    captions = captions or Captions(facts, style)
    ids = captions.members
    numbers = {member_id: number for number, member_id in enumerate(ids)}
    lanes = lanes_of(facts, numbers, begin, end)
    data = {
        "group": facts.group_id,
        "shard": facts.shard,
        "noun": shared_noun(facts.epochs),
        "from": begin,
        "span": end - begin,
        "offsets": zone_offsets(begin, end, style),
        "members": [_member(facts, captions, one, lanes.members[number]) for one, number in numbers.items()],
        "rows": [
            {
                "topic": lane.topic,
                "partitions": list(lane.partitions),
                "label": f"{lane.topic} {ranges(lane.partitions)}",
                "segments": list(lane.segments),
            }
            for lane in lanes.partitions
        ],
        "epochs": captions.epochs(begin, end),
        "terms": [captions.term(row) for row in facts.terms if begin <= row.timestamp_ms <= end],
        "gone": [{"index": index, "at": ms} for index, ms in facts.gone if begin <= ms <= end],
        "faults": [{"at": at, "words": words} for at, words in captions.faults(notes, begin, end)],
        "findings": [_finding(one, captions, numbers) for one in shown_findings(findings)],
        "opens": _opens(facts, findings, begin, end),
        "atOnce": _most_at_once(facts),
        "leftOut": [*left_out_words(facts, findings), *_folded_words(facts, lanes)],
    }
    return _relative(data, begin)


def _member(
    facts: GroupRows, captions: Captions, member_id: str, segments: Sequence[Segment]
) -> dict[str, Any]:
    sessions = [one for one in facts.sessions if one.member_id == member_id]
    last = sessions[-1] if sessions else None
    return {
        "name": captions.names.name(member_id),
        "id": member_id,
        "client": captions.client(member_id),
        "host": last.client_host.removeprefix("/") if last else "",
        "instance": last.instance_id if last else None,
        "sessions": [
            {"at": one.from_ms, "end": one.to_ms, "how": one.end.value, "rejoins": one.rejoins}
            for one in sessions
        ],
        "segments": list(segments),
    }


def _finding(finding: GroupFinding, captions: Captions, numbers: dict[str, int]) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "severity": finding.severity.value,
        "at": finding.from_ms,
        "end": finding.to_ms,
        "words": captions.finding(finding),
        "epochs": list(finding.epochs),
        "members": [numbers[one] for one in finding.members if one in numbers],
        "partitions": partitions_words(finding.partitions, none=""),
        "indexes": list(finding.rests_on),
        "certain": finding.is_certain,
    }


def _opens(facts: GroupRows, findings: Sequence[GroupFinding], begin: int, end: int) -> dict[str, int] | None:
    """The finding at which the page opens, and the moment."""
    found = opening(facts, shown_findings(findings), end - 1)
    return None if found is None else {"finding": found[0], "at": min(max(found[1], begin), end - 1)}


def _relative(data: dict[str, Any], begin: int) -> dict[str, Any]:
    """Make times relative to ``begin``: they are half of the file, and epoch ms have 13 digits each."""

    def since(ms: int | None) -> int | None:
        return None if ms is None else ms - begin

    for lane in (*data["members"], *data["rows"]):
        lane["segments"] = [n for a, b, *what in lane["segments"] for n in (a - begin, b - a, *what)]
    for member in data["members"]:
        for session in member["sessions"]:
            session["at"], session["end"] = since(session["at"]), since(session["end"])
    events = (*data["epochs"], *data["terms"], *data["gone"], *data["faults"], *data["findings"])
    for event in (*events, *([data["opens"]] if data["opens"] else [])):
        for name in ("at", "began", "target", "settled", "end"):
            if name in event:
                event[name] = since(event[name])
    for epoch in data["epochs"]:
        epoch["steps"]["lines"] = [[since(at), index, said] for at, index, said in epoch["steps"]["lines"]]
        epoch["waits"]["lines"] = [[since(a), since(b), said] for a, b, said in epoch["waits"]["lines"]]
    return data


def _folded_words(facts: GroupRows, lanes: Lanes) -> list[str]:
    said = []
    if not tells_behind(facts):
        said.append(
            "lanes of members: the times at which members reached an epoch are left out because "
            "there are too many"
        )
    for what, span_ms in (("members", lanes.members_ms), ("partitions", lanes.partitions_ms)):
        if span_ms:
            said.append(
                f"lanes of {what}: changes less than {duration(span_ms)} apart are drawn as one because "
                "there are too many for a page: a shorter window (--since, --until) shows all of them"
            )
    return said


def _body(
    facts: GroupRows,
    findings: Sequence[GroupFinding],
    captions: Captions,
    style: TimeStyle,
    faults: Sequence[tuple[int, str]],
) -> str:
    parts = [tiles(figures(facts)), _findings(findings, captions, style), resource("timeline.html")]
    if faults:
        said = [(style.full(at)[:23], words) for at, words in faults[:TABLE_ROWS_MAX]]
        parts.append(
            section(
                f"Faults set by an operator: {len(faults):,}",
                table_html(("time", "what"), said),
                fold=True,
            )
        )
    told = facts.epochs[-TABLE_ROWS_MAX:]
    rows = [
        (
            row.epoch,
            row.index,
            style.full(row.timestamp_ms)[:23],
            settled_words(row),
            sentence_list(captions.why(row)),
        )
        for row in told
    ]
    zone = "" if not told else style.full(told[-1].timestamp_ms)[23:]
    noun = shared_noun(facts.epochs)
    heading = f"All {noun}s as a table, times at UTC{zone}"
    if len(told) < len(facts.epochs):
        heading += f" (the newest {plural(len(told), noun)} of {len(facts.epochs):,})"
    headers = (noun, "index", "time", "stable after", "why")
    table = table_html(headers, rows, numbers=(0, 1), kind="epochs")
    return "\n".join((*parts, section(heading, table, fold=True)))


def settled_words(row: EpochRow) -> str:
    """``512 ms``, ``3.1 s, after 1 min 16 s of unrest``, ``overtaken`` or ``not by the end``."""
    if row.settled_ms is not None:
        own_ms, whole_ms = row.settled_ms - begun_ms(row), time_to_stable_ms(row)
        unrest = "" if whole_ms in (None, own_ms) else f", after {duration(whole_ms or 0)} of unrest"
        return duration(own_ms) + unrest
    return "overtaken" if row.overtaken_by is not None else "not by the end"


def figures(facts: GroupRows) -> list[tuple[str, str]]:
    """Key figures, each a (label, value)."""
    restless = sum(
        max(_first(row.settled_ms, row.end_ms, facts.last_ms) - begun_ms(row), 0) for row in facts.epochs
    )
    unowned_ms = sum(
        max(_first(span.to_ms, facts.last_ms) - span.from_ms, 0)
        for span in facts.spans
        if span.kind is SpanKind.UNOWNED
    )
    partitions = {span.partition for span in facts.spans}
    return [
        (f"{shared_noun(facts.epochs)}s", f"{len(facts.epochs):,}"),
        ("members at once, at most", f"{_most_at_once(facts):,}"),
        ("partitions", f"{len(partitions):,}"),
        ("failovers", f"{sum(term.is_takeover for term in facts.terms):,}"),
        ("not stable", duration(restless)),
        ("unowned partition-time", duration(unowned_ms)),
    ]


def _most_at_once(facts: GroupRows) -> int:
    """The largest number of members at the same time."""
    changes = sorted(
        [(session.from_ms, 1) for session in facts.sessions]
        + [(session.to_ms, -1) for session in facts.sessions if session.to_ms is not None]
    )
    return max(accumulate(step for _, step in changes), default=0)


def _first(*moments: int | None) -> int:
    return next(moment for moment in moments if moment is not None)


def _findings(findings: Sequence[GroupFinding], captions: Captions, style: TimeStyle) -> str:
    if not findings:
        return section("Findings", "<p>None: no rule found anything unusual.</p>")
    shown = shown_findings(findings)
    is_one_day = len({style.full(one.from_ms)[:10] for one in shown}) == 1
    lines = []
    for number, one in enumerate(shown):
        lasted = "" if one.to_ms is None or one.to_ms <= one.from_ms else duration(one.to_ms - one.from_ms)
        unsure = "" if one.is_certain else ' <span class="unsure">not certain from the log alone</span>'
        when = style.clock(one.from_ms) if is_one_day else style.full(one.from_ms)[:23]
        lines.append(
            f'<li data-finding="{number}">{severity(one.severity)} <strong>{escaped(one.kind)}</strong>'
            f" <time>{escaped(when)}</time> {escaped(lasted)}"
            f"<p>{escaped(captions.finding(one))}{unsure}</p></li>"
        )
    made = f'<ul class="findings">{"".join(lines[:FINDINGS_OPEN])}</ul>'
    if rest := lines[FINDINGS_OPEN:]:
        less = "" if len(findings) == len(shown) else f" of {len(findings) - FINDINGS_OPEN:,}"
        made += (
            f'<details class="more-findings"><summary>{len(rest)}{less} more, the graver first</summary>'
            f'<ul class="findings">{"".join(rest)}</ul></details>'
        )
    return section(plural(len(findings), "finding"), made)
