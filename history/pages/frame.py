"""The frame of every page: one HTML file that contains its style, script and data, and loads nothing.

    page(title="billing", lead="shard 2, 12:00 to 13:00", body=section("Moves", table_html(...)),
         styles=("stats.css",), scripts=("stats.js",), data={...}, rests_on=[basis.words()],
         provenance=Provenance(command="quorate log …", source="quorate-data", written_at="…"))

Invariants:

- A page makes no requests. Its policy allows none, and no style and no script but its own, which are named
  by their hashes. A page may therefore not have ``style=`` or ``onclick=`` attributes (a script may still
  set ``element.style``).
- Names that clients chose (groups, members, topics, client ids) never become markup. In Python everything
  goes through `escaped`; in scripts through ``Frame.element``, which only makes text nodes; in the data
  through `embedded`, out of which no string can break.
- ``body`` is HTML made by the caller; all other arguments are plain text. It must show the essentials
  without a script (tickets show attachments without it), so tables are written here and scripts only add.
- Colours come from the names in ``files/frame.css``, which defines each for dark and light; nothing is
  conveyed by colour alone.

Files are given by their names in ``files/`` and read from nowhere else. ``frame.css`` and ``frame.js``
(`Frame`: data, element, times, colours, theme) come first in every page.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import Template
from typing import Self

from history.render import TimeStyle, lower_words
from records import RELEASE

OFFSET_PROBE_MS = 6 * 60 * 60 * 1000
"""Milliseconds between two checks of a zone's offset; no zone has ever changed twice within six hours."""
OFFSET_PROBES_MAX = 4_000
"""Maximum number of checks; a period longer than about three years is checked at larger intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The origin of a page: a file in a ticket is read far from the log and long after it was written."""

    command: str
    source: str
    """The source that was read, as its reader named it: a directory, a URL."""
    written_at: str

    @classmethod
    def now(cls, command: str, source: str, style: TimeStyle) -> Self:
        """The origin of a page that is written now."""
        full = style.full(round(time.time() * 1000))
        return cls(command=command, source=source, written_at=full[:19] + full[23:])

    def html(self) -> str:
        said = f"Written by Quorate {RELEASE} on {self.written_at} from {self.source} with"
        return f'<p class="provenance">{escaped(said)} <code>{escaped(self.command)}</code></p>'


def page(
    *,
    title: str,
    body: str,
    lead: str = "",
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    data: object = None,
    rests_on: Sequence[str] = (),
    provenance: Provenance | None = None,
    css: str = "",
) -> str:
    """The whole HTML file. ``data`` is any JSON value; `rests_on` are the lines of the footer.

    ``css`` are additional rules, for pages whose files are not in ``files/``.
    """
    style = "\n".join([*(resource(name) for name in ("frame.css", *styles)), css])
    script = "\n".join(resource(name) for name in ("frame.js", *scripts))
    foot = [f"<p>{escaped(line)}</p>" for line in rests_on]
    if provenance is not None:
        foot.insert(0, provenance.html())
    return Template(resource("frame.html")).substitute(
        policy=_policy(style, script),
        title=escaped(title),
        heading=escaped(title),
        lead=escaped(lead),
        style=style,
        body=body,
        footer="\n".join(foot),
        data=embedded(data),
        script=script,
    )


def escaped(text: object) -> str:
    """Any value as text in HTML, also within a quoted attribute."""
    return _writable(html.escape(str(text), quote=True))


def embedded(data: object) -> str:
    """JSON that is safe inside a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return _writable(text)


def _writable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot hold, by their numbers; a broken client may send them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def section(heading: str, content: str, *, fold: bool = False) -> str:
    """A card with a heading; with ``fold`` it is initially closed."""
    if fold:
        return f'<details class="card"><summary>{escaped(heading)}</summary>\n{content}\n</details>'
    return f'<section class="card"><h2>{escaped(heading)}</h2>\n{content}\n</section>'


def beside(*sections: str) -> str:
    """Sections in two columns of about the same height, where the screen has room for them."""
    return f'<div class="beside">{"".join(sections)}</div>'


def tiles(values: Sequence[tuple[str, str]]) -> str:
    """Key figures, each a (label, value)."""
    made = (
        f'<div class="tile"><dt>{escaped(what)}</dt><dd>{escaped(value)}</dd></div>' for what, value in values
    )
    return f'<dl class="tiles">{"".join(made)}</dl>'


def legend(entries: Sequence[tuple[str, int]]) -> str:
    """The names of a chart's series, in the order of their colours, each with its total."""
    keys = "".join(
        f'<span class="key"><svg class="swatch" viewBox="0 0 10 10"><rect class="c{at}" width="10"'
        f' height="10"/></svg>{escaped(lower_words(name))} {count:,}</span>'
        for at, (name, count) in enumerate(entries)
    )
    return f'<p class="legend">{keys}</p>'


class Markup(str):
    """HTML that was made here; in tables every other text is escaped."""

    __slots__ = ()


def severity(word: str) -> Markup:
    """A finding's severity, in its colour."""
    return Markup(f'<span class="severity {escaped(word)}">{escaped(word)}</span>')


def table_html(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    numbers: Sequence[int] = (),
    empty: str = "none",
    kind: str = "",
) -> str:
    """A table of texts and `Markup`; columns whose positions are in ``numbers`` are aligned right.

    On a narrow screen each row becomes a block, whose cells bear the names of their columns, without those
    that hold `-`. ``kind`` is a class of the page.
    """
    if not rows:
        return f"<p>{escaped(empty)}</p>"
    labels = [f' data-label="{escaped(name)}"' if name else "" for name in headers]

    def cells(tag: str, row: Sequence[object]) -> str:
        made = [cell if isinstance(cell, Markup) else escaped(cell) for cell in row]
        kinds = [_classes(at in numbers, cell) for at, cell in enumerate(made)]
        named = labels if tag == "td" else [""] * len(row)
        return "".join(
            f"<{tag}{kind}{label}>{cell}</{tag}>"
            for cell, kind, label in zip(made, kinds, named, strict=True)
        )

    names = f"{kind} stack".lstrip()
    head = f"<thead><tr>{cells('th', headers)}</tr></thead>"
    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return scrolling(f'<table class="{names}">{head}<tbody>\n{body}\n</tbody></table>')


def _classes(is_number: bool, cell: str) -> str:
    names = ["number"] * is_number + ["nothing"] * (cell == "-")
    return f' class="{" ".join(names)}"' if names else ""


def scrolling(content: str) -> str:
    """Content that scrolls sideways where it does not fit: with a shadow where there is more, and by keys."""
    return f'<div class="scroll" tabindex="0">{content}</div>'


def shortened(name: str, most: int = 40, sign: str = "…") -> str:
    """Shorten a name in the middle: names within one company often start alike and differ at their ends."""
    printable = "".join(one if one.isprintable() else "·" for one in name)
    if len(printable) <= most:
        return printable
    begin = most // 2
    return f"{printable[:begin]}{sign}{printable[begin + 1 - most :]}"


def time_axis(from_ms: int, until_ms: int, style: TimeStyle) -> str:
    """The times below a chart: its begin, middle and end; with dates unless all are of one day."""
    is_one_day = style.full(from_ms)[:10] == style.full(until_ms)[:10]
    moments = (from_ms, (from_ms + until_ms) // 2, until_ms)
    said = [style.clock(ms)[:8] if is_one_day else style.full(ms)[:16] for ms in moments]
    kind = "times" if is_one_day else "times dated"
    return f'<p class="{kind}">{"".join(f"<span>{escaped(one)}</span>" for one in said)}</p>'


def zone_offsets(from_ms: int, to_ms: int, style: TimeStyle) -> list[list[int]]:
    """``[[from ms, minutes ahead of UTC], …]`` over a period, for the page's ``data["offsets"]``.

    The page then shows the same times as the terminal, wherever it is opened.
    """
    found = [[from_ms, _offset(from_ms, style)]]
    step = max(OFFSET_PROBE_MS, (to_ms - from_ms) // OFFSET_PROBES_MAX)
    at = from_ms
    while at < to_ms:
        before, at = at, min(at + step, to_ms)
        if _offset(at, style) == found[-1][1]:
            continue
        low, high = before, at
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _offset(middle, style) == found[-1][1] else (low, middle)
        found.append([high, _offset(high, style)])
    return found


def _offset(at_ms: int, style: TimeStyle) -> int:
    ahead = style.moment(at_ms).utcoffset()
    return 0 if ahead is None else round(ahead.total_seconds() / 60)


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)};"
        " base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def resource(name: str) -> str:
    """The text of a file in ``files/``."""
    return (resources.files(__package__) / "files" / name).read_text(encoding="utf-8")
