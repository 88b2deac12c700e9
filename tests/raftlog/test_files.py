"""The real and the simulated file layer behave alike; the simulated one also forgets what was not synced."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from raftlog.env.files import Files, OsFiles, join, parent, replace
from raftlog.env.simulated_files import Crash, SimFiles


@pytest.fixture(params=["simulated", "real"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    if request.param == "real":
        return OsFiles(), str(tmp_path)
    files = SimFiles()
    files.mkdir("/d")
    return files, "/d"


def test_both_layers_agree(place: tuple[Files, str]) -> None:
    files, home = place
    path = join(home, "a")
    file = files.open(path, "x")
    file.pwrite(b"hello", 2)
    assert files.read(path) == b"\0\0hello"
    file.pwrite(memoryview(b"HE"), 2)
    assert file.pread(100, 1) == b"\0HEllo"
    assert file.pread(2, 3) == b"El"
    assert file.pread(5, 100) == b""
    file.truncate(4)
    assert (file.size(), files.size(path)) == (4, 4)
    file.truncate(6)
    assert files.read(path) == b"\0\0HE\0\0"
    file.fdatasync()
    file.close()
    with pytest.raises(FileExistsError):
        files.open(path, "x")
    with pytest.raises(FileNotFoundError):
        files.open(join(home, "none"), "r")
    with pytest.raises(FileNotFoundError):
        files.read(join(home, "none"))
    files.mkdir(join(home, "sub"))
    with pytest.raises(FileExistsError):
        files.mkdir(join(home, "sub"))
    files.rename(path, join(home, "sub", "b"))
    files.fsync_dir(home)
    assert files.listdir(home) == ["sub"]
    assert files.is_dir(join(home, "sub"))
    assert not files.is_dir(join(home, "sub", "b"))
    files.unlink(join(home, "sub", "b"))
    assert files.listdir(join(home, "sub")) == []
    assert not files.exists(join(home, "sub", "b"))
    with pytest.raises(FileNotFoundError):
        files.unlink(join(home, "sub", "b"))
    assert files.free_bytes(home) > 0


def test_read_only_files_are(place: tuple[Files, str]) -> None:
    files, home = place
    files.open(join(home, "a"), "x").close()
    file = files.open(join(home, "a"), "r")
    with pytest.raises(OSError, match=r"Bad file|reading"):
        file.pwrite(b"x", 0)
    file.close()


def test_replace_is_all_or_nothing(place: tuple[Files, str]) -> None:
    files, home = place
    replace(files, join(home, "a"), b"one")
    replace(files, join(home, "a"), b"2")
    assert files.read(join(home, "a")) == b"2"
    assert files.listdir(home) == ["a"]


def test_paths() -> None:
    assert join("/", "a") == "/a"
    assert join("/a/", "b", "c") == "/a/b/c"
    assert parent("/a/b") == "/a"
    assert parent("/a") == "/"
    assert parent("a") == "."
    assert parent("a/b/") == "a"


def test_a_crash_forgets_what_was_not_synced() -> None:
    disk = SimFiles()
    file = disk.open("/a", "x")
    file.pwrite(b"synced", 0)
    file.fdatasync()
    assert not disk.crash(Crash.LOST).exists("/a"), "the name was never synced"
    disk.fsync_dir("/")
    file.pwrite(b"lost", 0)
    assert disk.crash(Crash.LOST).read("/a") == b"synced"
    assert disk.crash(Crash.KEPT).read("/a") == b"losted"
    seen = {disk.crash(Crash.TORN, seed).read("/a") for seed in range(100)}
    assert {b"synced", b"losted", b"lynced", b"lonced"} <= seen


def test_a_rename_without_a_directory_sync_may_be_undone() -> None:
    disk = SimFiles()
    replace(disk, "/a", b"old")
    file = disk.open("/a.tmp", "x")
    file.pwrite(b"new", 0)
    file.fdatasync()
    disk.rename("/a.tmp", "/a")
    assert disk.crash(Crash.LOST).read("/a") == b"old"
    assert {disk.crash(Crash.TORN, seed).read("/a") for seed in range(50)} == {b"old", b"new"}
    disk.fsync_dir("/")
    assert disk.crash(Crash.LOST).read("/a") == b"new"
    assert disk.crash(Crash.LOST).listdir("/") == ["a"]


def test_after_a_failed_sync_the_bytes_are_gone() -> None:
    """Bytes that fsync failed to write stay in the page cache and never reach the disk by themselves."""
    disk = SimFiles()
    file = disk.open("/a", "x")
    disk.fsync_dir("/")
    file.pwrite(b"data", 0)
    disk.fail = lambda number, operation, path: OSError(errno.EIO, "io") if operation == "fdatasync" else None
    with pytest.raises(OSError, match="io"):
        file.fdatasync()
    disk.fail = None
    assert disk.read("/a") == b"data"
    for how in (Crash.LOST, Crash.TORN):
        assert disk.crash(how).read("/a") == b""


def test_a_failed_write_may_have_written_some() -> None:
    sizes = set()
    for seed in range(40):
        disk = SimFiles(seed)
        file = disk.open("/a", "x")
        disk.fail = lambda number, operation, path: OSError(errno.ENOSPC, "full", path)
        with pytest.raises(OSError, match="full"):
            file.pwrite(b"12345", 0)
        sizes.add(disk.size("/a"))
    assert sizes == {0, 1, 2, 3, 4, 5}
