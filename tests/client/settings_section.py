"""The settings table in docs/client.md: `python -m tests.client.settings_section` writes it into the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from client.core.settings import table

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
BEGIN = "<!-- The table is written by python -m tests.client.settings_section. -->\n"
END = "<!-- End of the table. -->\n"


def render() -> str:
    """Return the table as Markdown, with a newline at its end."""
    head = "| Setting | Default | Accepts | Used in | Meaning |\n|---|---|---|---|---|\n"
    return head + "".join(
        f"| `{name}` | {_shown(default)} | {row.accepts} | {row.used_in} | {row.words} |\n"
        for name, default, row in table()
    )


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int):
        return f"{default:,}"
    return f"`{default}`" if default else ""


def replaced(page: str) -> str:
    """Return the page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{render()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text()))
