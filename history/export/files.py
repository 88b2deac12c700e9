"""Files that appear complete or not at all: written to temporary files, then renamed."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from .formats import CannotWrite, DiskRefuses

MODE = "xb"


class _File(io.BufferedWriter):
    """A file that raises `DiskRefuses` for errors of the disk, as other `OSError`s mean an unreadable log."""

    def __init__(self, path: Path, place: Path) -> None:
        super().__init__(io.FileIO(path, MODE))
        self._place = place

    def write(self, data: Any) -> int:
        if self.closed:  # aborted: a Parquet writer still writes its footer when it is closed
            return len(data)
        with told(self._place):
            return super().write(data)


class OutputFiles:
    """The files of one export, all or none.

    Call `claim` before any work and `place` at its end. Without `place`, the context manager removes
    everything written.
    """

    def __init__(self, paths: Sequence[Path], *, force: bool) -> None:
        self._paths = paths
        self._force = force
        self._open: dict[Path, _File] = {}

    def claim(self) -> None:
        """Refuse, before any work, files that could not be placed at the end; raises `CannotWrite`."""
        for path in self._paths:
            with told(path):
                if path.is_dir():
                    raise CannotWrite(f"{path} is a directory: give a file")
                if path.exists() and not self._force:
                    raise CannotWrite(f"{path} already exists: --force overwrites it")
        for path in self._paths:
            with told(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    self._open[path] = _File(self._beside(path), path)
                except FileExistsError as error:
                    raise CannotWrite(
                        f"{error.filename} exists: another export is running; remove the file if that export "
                        "was killed"
                    ) from error

    def __getitem__(self, path: Path) -> _File:
        return self._open[path]

    def place(self) -> dict[Path, int]:
        """Rename every file into its place; return their sizes in bytes."""
        sizes = {}
        for path, file in self._open.items():
            with told(path):
                file.flush()
                os.fsync(file.fileno())
                sizes[path] = file.tell()
                file.close()
        for path in list(self._open):
            with told(path):
                self._beside(path).replace(path)
                del self._open[path]
        return sizes

    def __enter__(self) -> OutputFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for path, file in self._open.items():
            with contextlib.suppress(OSError):
                file.close()
            with contextlib.suppress(OSError):
                self._beside(path).unlink()

    @staticmethod
    def _beside(path: Path) -> Path:
        return path.with_name(f".{path.name}.partial")


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """Raises `DiskRefuses`, which names `path`, instead of an `OSError`."""
    try:
        yield
    except OSError as error:
        raise DiskRefuses(f"cannot write {path}: {error.strerror or error}") from error
