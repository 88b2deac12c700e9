"""The demo's output: lines that stay, and one live line that is redrawn while waiting.

On a terminal the live line is overwritten in place. Elsewhere (a pipe, a CI log) nothing is overwritten and
no escape code is sent: the live line appears as an ordinary line whenever its contents have changed, at most
every `PLAIN_PAUSE_S`.
"""

from __future__ import annotations

import shutil
import time
from typing import TextIO

from quorate.output import use_colour

PLAIN_PAUSE_S = 0.5

_BOLD, _DIM, _GREEN, _RED, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[31m", "\x1b[0m"
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
        self.raw(f"{self._paint(_DIM, f'{elapsed_s:5.1f} s')}  {self._paint(_BOLD, text)}")

    def line(self, text: str = "") -> None:
        """Print a line that belongs to the chapter."""
        self.raw(f"         {text}" if text else "")

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
        mark = (
            self._paint(_GREEN, self._good_mark) if held else self._paint(_RED, self._bad_mark + " NOT TRUE:")
        )
        self.raw(f"       {mark} {text}")

    def raw(self, text: str) -> None:
        """Print a line without indentation (rows of a table)."""
        if self._live_shown:
            self._stream.write(_ERASE_LINE)
            self._live_shown = False
        print(text, file=self._stream, flush=True)

    def _paint(self, code: str, text: str) -> str:
        return f"{code}{text}{_PLAIN}" if self._colour else text
