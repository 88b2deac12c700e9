"""The demo's output: lines that stay, and one live line that is redrawn while waiting.

On a terminal the live line is overwritten in place. Elsewhere (a pipe, a CI log) nothing is overwritten and
no escape code is sent: the live line appears as an ordinary line whenever its contents have changed, at most
every `PLAIN_PAUSE_S`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import TextIO

from history.columns import wrapped
from quorate.output import painted, terminal_width, use_colour

PLAIN_PAUSE_S = 0.5

_BOLD, _GREEN, _RED, _PLAIN = "\x1b[1m", "\x1b[32m", "\x1b[31m", "\x1b[0m"
_ERASE_LINE = "\r\x1b[2K"


class Display:
    """Writes the demo's output to `stream`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._colour = use_colour(stream)
        self._terminal = self._colour
        self._live_shown = False
        self._live_text = ""
        self._live_at_s = 0.0
        self._started_s = time.monotonic()
        self._good_mark, self._bad_mark = "✓", "✗"
        try:
            "✓✗".encode(stream.encoding or "ascii")
        except UnicodeEncodeError:
            self._good_mark, self._bad_mark = "+", "!"

    def step(self, text: str) -> None:
        """Start a chapter: the next action, with the seconds since the start."""
        elapsed_s = time.monotonic() - self._started_s
        self._print(f"{elapsed_s:5.1f} s  {text}", lambda line: f"{_BOLD}{line}{_PLAIN}")

    def line(self, text: str = "") -> None:
        """Print a line that belongs to the chapter."""
        self._print(f"         {text}" if text else "")

    def live(self, text: str, *, change: str) -> None:
        """Redraw the live line; without a terminal, print it when `change` (the untimed part) changes."""
        now_s = time.monotonic()
        if self._terminal:
            width = shutil.get_terminal_size().columns
            self._stream.write(_ERASE_LINE + f"         {text}"[: width - 1])
            self._live_shown = True
            self._stream.flush()
        elif change != self._live_text and now_s - self._live_at_s >= PLAIN_PAUSE_S:
            self._live_text, self._live_at_s = change, now_s
            self.line(text)

    def claim(self, held: bool, text: str) -> None:
        """Print a claim and whether it held."""
        mark = self._good_mark if held else f"{self._bad_mark} NOT TRUE:"
        code = _GREEN if held else _RED
        self._print(f"       {mark} {text}", lambda line: line.replace(mark, f"{code}{mark}{_PLAIN}", 1))

    def row(self, text: str) -> None:
        """Print a line of a table."""
        self._print(text, painted)

    def _print(self, text: str, paint: Callable[[str], str] = str) -> None:
        """Print a line, wrapped to the terminal; `paint` adds colours to each line where they are wanted."""
        if self._live_shown:
            self._stream.write(_ERASE_LINE)
            self._live_shown = False
        for line in wrapped(text, terminal_width(self._stream)):
            print(paint(line) if self._colour else line, file=self._stream, flush=True)
