"""The way in which this copy of Quorate was installed, so that hints about missing packages fit it.

The one module of this package that looks at files.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

DISTRIBUTION = "quorate-coordinator"


def checkout() -> Path | None:
    """The directory of the checkout that this code is imported from; None if a wheel was installed."""
    home = Path(__file__).resolve().parents[1]
    try:
        project = (home / "pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        return None
    # wheels of others sometimes leave their pyproject.toml in site-packages
    return home if f'name = "{DISTRIBUTION}"' in project else None


def how_to_install(*extras: str) -> str:
    """Return how to get the packages that ``extras`` list, such as "run `pip install 'pyarrow>=17'`".

    Quorate is on no package index: in a checkout the command installs it again with the extras, from there;
    elsewhere it names the other packages alone.
    """
    home = checkout()
    if home is not None:
        return f"run `pip install -e '.[{','.join(extras)}]'` in {home}"
    needed = dict.fromkeys(_requirements(extras))
    if not needed:  # our code alone, as Spark's executors get it
        return f"install what pyproject.toml lists for {' and '.join(extras)}"
    return f"run `pip install {' '.join(map(shlex.quote, needed))}`"


def _requirements(extras: Iterable[str]) -> Iterator[str]:
    try:
        listed = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return
    for extra in extras:
        for line in listed:
            requirement, _, marker = line.partition(";")
            if marker.replace("'", '"').strip() == f'extra == "{extra}"':
                yield requirement.strip()
