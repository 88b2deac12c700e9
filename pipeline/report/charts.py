"""Matplotlib charts as SVG for embedding in the page, without inline styles.

The page's policy forbids ``style=`` attributes and external fonts, and the page is dark or light as its
reader prefers. So every colour here is a stand-in for a class of the style sheet (`STAND_INS`), text stays
text, and the styles that matplotlib writes become attributes. Each chart also describes itself in words
(``label``), since no information may be in a picture alone.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from history.render import TimeStyle, duration

WIDTH_INCHES, HEIGHT_INCHES = 10.0, 2.6
COLOURS = 7
STAND_INS = {
    **{f"#0000c{place}": ("fill", f"c{place}") for place in range(COLOURS)},
    "#00aa00": ("stroke", "axis"),
    "#00aa01": ("stroke", "axis soft"),
}
"""Stand-in colour -> the SVG attribute it may appear in, and the class that replaces it."""
AXIS, GRID = "#00aa00", "#00aa01"
TICKS_MAX = 8
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
TICK_STEPS_MS = (
    *(one * _SECOND for one in (1, 2, 5, 10, 30)),
    *(one * _MINUTE for one in (1, 2, 5, 10, 30)),
    *(one * _HOUR for one in (1, 2, 3, 6, 12)),
    *(one * _DAY for one in (1, 2, 5, 10, 30, 100, 365, 1_000)),
)
"""Steps between two ticks of a time axis, in milliseconds; ticks are at round times."""
_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "quorate",  # equal figures give equal bytes
    "font.size": 9,
    "text.parse_math": False,  # two dollar signs in a name are no formula
    "axes.edgecolor": AXIS,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": AXIS,
    "ytick.color": AXIS,
    "grid.color": GRID,
}


def stacked_bars(
    series: Sequence[tuple[str, Mapping[int, int]]],
    *,
    buckets: int,
    from_ms: int,
    step_ms: int,
    style: TimeStyle,
    label: str,
) -> str:
    """A bar chart of counts by time bucket, with the series stacked."""

    def draw(axes: Axes) -> None:
        below = [0] * buckets
        for place, (_, counts) in enumerate(series):
            heights = [counts.get(bucket, 0) for bucket in range(buckets)]
            axes.bar(range(buckets), heights, bottom=below, width=0.9, align="edge", color=_colour(place))
            below = [low + height for low, height in zip(below, heights, strict=True)]
        _time_axis(axes, buckets, from_ms, step_ms, style)
        axes.set_ylim(0, max(1, max(below, default=1)) * 1.05)

    return _chart(draw, label)


def line(
    counts: Mapping[int, int],
    *,
    buckets: int,
    from_ms: int,
    step_ms: int,
    style: TimeStyle,
    label: str,
    colour: int = 0,
) -> str:
    """One count by time bucket, as an area."""

    def draw(axes: Axes) -> None:
        heights = [counts.get(bucket, 0) for bucket in range(buckets)]
        axes.fill_between(
            range(buckets + 1), [*heights, heights[-1]], step="post", color=_colour(colour), linewidth=0
        )
        _time_axis(axes, buckets, from_ms, step_ms, style)
        axes.set_ylim(0, max(1, max(heights)) * 1.05)

    return _chart(draw, label)


def histogram(steps: Mapping[int, int], *, label: str) -> str:
    """A histogram of counts by powers of two times 10 ms."""

    def draw(axes: Axes) -> None:
        first, last = min(steps), max(steps)
        places = range(first, last + 1)
        axes.bar(places, [steps.get(place, 0) for place in places], width=0.85, color=_colour(0))
        axes.set_xticks(list(places), [f"≤ {duration(10 * 2**place)}" for place in places], rotation=35)
        for text in axes.get_xticklabels():
            text.set_horizontalalignment("right")

    return _chart(draw, label)


def bars(rows: Sequence[tuple[str, float]], *, label: str, unit: str) -> str:
    """Horizontal bars, the first row on top."""

    def draw(axes: Axes) -> None:
        places = range(len(rows))
        axes.barh(places, [value for _, value in rows], height=0.75, color=_colour(0))
        axes.set_yticks(list(places), [shortened(name) for name, _ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel(unit)
        axes.xaxis.set_major_formatter(_number)
        axes.locator_params(axis="x", nbins=5)  # labels may have ten digits
        axes.grid(axis="x", linewidth=0.6)
        axes.set_axisbelow(True)

    return _chart(draw, label, height=max(HEIGHT_INCHES / 2, 0.7 + 0.26 * len(rows)), has_grid=False)


def shortened(name: str, most: int = 40) -> str:
    """Shorten a name in the middle: names within one company often start alike and differ at their ends."""
    printable = "".join(one if one.isprintable() else "·" for one in name)
    if len(printable) <= most:
        return printable
    begin = most // 2
    return f"{printable[:begin]}…{printable[begin + 1 - most :]}"


def _number(value: float, _place: float = 0) -> str:
    """A tick label: 30,000,000 rather than 3.0 with a 1e7 elsewhere."""
    return f"{value:,.10g}"


def _colour(place: int) -> str:
    return f"#0000c{place % COLOURS}"


def _time_axis(axes: Axes, buckets: int, from_ms: int, step_ms: int, style: TimeStyle) -> None:
    marks = list(_time_marks(from_ms, buckets * step_ms, style))
    axes.set_xticks([(at_ms - from_ms) / step_ms for at_ms, _ in marks], [word for _, word in marks])
    axes.set_xlim(0, buckets)


def _time_marks(from_ms: int, span_ms: int, style: TimeStyle) -> Iterator[tuple[int, str]]:
    """Ticks at round times, each with the shortest label that is unambiguous."""
    steps = (one for one in TICK_STEPS_MS if span_ms // one < TICKS_MAX)
    step = next(steps, span_ms // TICKS_MAX + 1)
    first = -(-from_ms // step) * step
    for at_ms in range(first, from_ms + span_ms + 1, step) or (from_ms,):
        word = style.full(at_ms)
        date, hour, minute = word[:10], word[11:16], word[11:19]
        if step >= _DAY and hour == "00:00":
            yield at_ms, date
        elif step >= _DAY or span_ms > _DAY:
            yield at_ms, f"{date[5:]} {hour}"
        else:
            yield at_ms, hour if step >= _MINUTE else minute


def _chart(
    draw: Callable[[Axes], None], label: str, *, height: float = HEIGHT_INCHES, has_grid: bool = True
) -> str:
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        axes = figure.add_subplot()
        if has_grid:
            axes.grid(axis="y", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.yaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
            axes.yaxis.set_major_formatter(_number)
        draw(axes)
        file = io.BytesIO()
        # text is only measured here: the browser has the fonts
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return _for_page(file.getvalue(), label)


def _for_page(svg: bytes, label: str) -> str:
    """The SVG without styles and without parts that only a standalone file needs."""
    root = ET.fromstring(svg)
    kept = {found for one in root.iter() for found in _references(one)}
    salt = re.sub(r"\W+", "-", label.lower())[:40]
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    for one in root.iter():
        one.tag = one.tag.removeprefix(f"{{{_SVG}}}")
        _restyle(one)
        _rename(one, kept, salt)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("class", "chart")
    root.set("role", "img")
    root.set("aria-label", label)
    return ET.tostring(root, encoding="unicode").replace("xlink:href", "href").replace("ns1:href", "href")


def _references(one: ET.Element) -> list[str]:
    found = [match[1] for value in one.attrib.values() for match in _REFERENCE.finditer(value)]
    link = one.get(f"{{{_LINK}}}href", "")
    return [*found, link[1:]] if link.startswith("#") else found


def _restyle(one: ET.Element) -> None:
    """Turn styles into attributes and colours into classes."""
    classes: list[str] = []
    for rule in one.attrib.pop("style", "").split(";"):
        name, _, value = (part.strip() for part in rule.partition(":"))
        if value in STAND_INS:
            attribute, class_ = STAND_INS[value]
            if name == attribute:
                classes.append(class_)
        elif name and name != "font-family":
            one.set(name, value)
    if classes:
        one.set("class", " ".join(classes))


def _rename(one: ET.Element, kept: set[str], salt: str) -> None:
    """Keep only the ids that are referenced, prefixed with the chart's name."""
    if "id" in one.attrib:
        if one.attrib["id"] in kept:
            one.set("id", f"{salt}-{one.attrib['id']}")
        else:
            del one.attrib["id"]
    for name, value in list(one.attrib.items()):
        if name == f"{{{_LINK}}}href" and value.startswith("#"):
            del one.attrib[name]
            one.set("href", f"#{salt}-{value[1:]}")
        else:
            one.set(name, _REFERENCE.sub(lambda found: f"url(#{salt}-{found[1]})", value))
