"""Functions compiled for one layout, instead of loops over a table of columns.

Replay spends most of its time translating fields.  A function that names them, and checks each item in place,
takes a third of the time of one that walks a table of columns.  Invariants: the source is made of
literals, field names and expressions from the class bodies of this package, never of data that is read.
"""

from collections.abc import Callable
from typing import Any


def compiled(title: str, source: str, **names: object) -> Callable[[Any], Any]:
    """The function `made` that `source` defines, which refers to `names`; `title` is shown in tracebacks."""
    space: dict[str, Any] = dict(names)
    exec(compile(source, f"<records {title}>", "exec"), space)
    made: Callable[[Any], Any] = space["made"]
    return made
