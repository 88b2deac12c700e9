"""Our code as one zip, for executors that have its dependencies but not the code.

Spark puts a zip on the path of Python workers (``--py-files``, `addPyFile`, `addArtifacts`); it does not
accept a wheel. Compiled packages (msgpack, crc32c, google-re2, numpy, pyarrow, pandas) cannot be imported
from a zip and must be installed where executors run. The zip's bytes depend on the code alone.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.spark.errors import OutputError

from .jvm import private_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOMS = ("records", "wire", "coordinator", "raftlog", "history", "quorate/spark")
"""The packages in the zip, with `quorate/__init__.py`."""
OLDEST = (1980, 1, 1, 0, 0, 0)
"""The earliest timestamp that a zip can hold; all files have it."""


def ship_code(spark: SparkSession) -> None:
    """Make our packages importable on the executors of ``spark``, classic or Connect; may be repeated."""
    staged = private_folder() / "quorate.zip"
    if not staged.exists():
        write_zip(staged)
    named = staged.with_name(f"quorate-{sha256(staged.read_bytes()).hexdigest()[:16]}.zip")
    if not named.exists():
        staged.replace(named)
    spark.addArtifacts(str(named), pyfile=True)


def write_zip(path: Path) -> None:
    """Write the zip atomically; raises `OutputError`."""
    partial = path.with_name(path.name + ".partial")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            top = "quorate/__init__.py"
            found = [(top, resources.files("quorate") / "__init__.py")]
            for room in ROOMS:
                found += _files(resources.files(room.replace("/", ".")), room)
            for name, file in found:
                archive.writestr(zipfile.ZipInfo(name, OLDEST), file.read_bytes(), zipfile.ZIP_DEFLATED)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error


def _files(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    for one in sorted(folder.iterdir(), key=lambda child: child.name):
        if one.is_dir() and one.name != "__pycache__":
            yield from _files(one, f"{name}/{one.name}")
        elif one.is_file() and not one.name.endswith((".pyc", ".pyo")):
            yield f"{name}/{one.name}", one
