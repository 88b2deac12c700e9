"""The real Host: the disk thread, jobs with deadlines, loopback listening, ids."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cluster.host.host_asyncio import AsyncioHost, new_event_loop
from cluster.host.jobs import JobFailed
from raftlog.env.host import Host
from tests.support.waiting import has_ended, until

JOBS = {
    "job_echo": (
        "import sys, msgpack; request = msgpack.unpackb(sys.stdin.buffer.read());"
        "sys.stdout.buffer.write(msgpack.packb([request]))"
    ),
    "job_none": "import sys, msgpack; sys.stdin.buffer.read(); sys.stdout.buffer.write(msgpack.packb(None))",
    "job_crash": "import sys; sys.stdin.buffer.read(); raise SystemExit('out of luck')",
    "job_garbage": "import sys; sys.stdin.buffer.read(); sys.stdout.buffer.write(bytes([0xc1]))",
    "job_list_as_key": (
        "import sys; sys.stdin.buffer.read(); sys.stdout.buffer.write(bytes([0x81, 0x90, 0x01]))"
    ),
    "job_cut_short": "import sys; sys.stdin.buffer.read(); sys.stdout.buffer.write(bytes([0x92, 0x01]))",
    "job_killed_while_it_answers": (
        "import os, signal, sys; sys.stdin.buffer.read(); sys.stdout.buffer.write(bytes([0x92, 0x01]))\n"
        "sys.stdout.buffer.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    ),
    "job_leaves_a_stranger": (
        "import os, sys, time; sys.stdin.buffer.read();os.fork() or (os.setsid(), time.sleep(60))"
    ),
    "job_leaves_somebody": (
        "import os, sys, time, msgpack; sys.stdin.buffer.read(); pid = os.fork()\n"
        "if not pid: os.close(1); time.sleep(60)\n"
        "sys.stdout.buffer.write(msgpack.packb(pid))"
    ),
    "job_hangs": "import sys, time; sys.stdin.buffer.read(); time.sleep(60)",
}


@pytest.fixture
async def host() -> AsyncIterator[AsyncioHost]:
    host = AsyncioHost(asyncio.get_running_loop())
    yield host
    host.close()


@pytest.fixture
def jobs_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in JOBS.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)


REQUEST: Any = {"a": [1, b"x"]}


async def run_job(
    host: AsyncioHost,
    module: str,
    request: object = REQUEST,
    *,
    deadline_ms: int = 10_000,
    cancel: bool = False,
) -> Any:
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def on_done(result: object | None, error: BaseException | None) -> None:
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    job = host.spawn_job(module, request, on_done, low_priority=True, deadline_ms=deadline_ms)
    if cancel:
        job.cancel()
    return await done


async def test_is_a_host(host: AsyncioHost) -> None:
    typed: Host = host
    assert typed.monotonic_ms() <= typed.monotonic_ms()
    assert len({typed.fresh_uuid() for _ in range(100)}) == 100
    assert all(len(typed.fresh_id()) == 22 and typed.fresh_id()[0] != "-" for _ in range(200))


async def test_disk_work_runs_in_order_on_one_other_thread_and_reports_on_the_loop(host: AsyncioHost) -> None:
    seen: list[object] = []
    finished = asyncio.Event()
    loop_thread = threading.get_ident()

    def note(result: object | None, error: BaseException | None) -> None:
        assert threading.get_ident() == loop_thread
        seen.append(result if error is None else str(error))
        if len(seen) == 4:
            finished.set()

    def fail() -> None:
        raise OSError("disk on fire")

    host.run_on_disk(threading.get_ident, note)
    host.run_on_disk(lambda: "second", note)
    host.run_on_disk(fail, note)
    host.run_on_disk(threading.get_ident, note)
    await asyncio.wait_for(finished.wait(), 5)
    assert seen[1:3] == ["second", "disk on fire"]
    assert seen[0] == seen[3] != loop_thread


@pytest.mark.usefixtures("jobs_on_path")
async def test_job_answers_msgpack_with_msgpack(host: AsyncioHost) -> None:
    assert await run_job(host, "job_echo") == [REQUEST]
    assert await run_job(host, "job_none") is None


@pytest.mark.usefixtures("jobs_on_path")
@pytest.mark.parametrize(
    ("module", "what"),
    [
        ("job_crash", "out of luck"),
        ("job_garbage", "not msgpack"),
        ("job_list_as_key", "not msgpack"),
        ("job_cut_short", "not msgpack"),
        ("job_killed_while_it_answers", "was killed by signal 9"),
        ("job_missing", "No module named job_missing"),
    ],
)
async def test_job_that_fails_says_why(host: AsyncioHost, module: str, what: str) -> None:
    with pytest.raises(JobFailed, match=what):
        await run_job(host, module)


@pytest.mark.usefixtures("jobs_on_path")
async def test_a_request_that_cannot_be_packed_is_told_as_a_failure(host: AsyncioHost) -> None:
    """The failure is reported once, and the child that was to get the request has ended."""
    with pytest.raises(JobFailed, match=r"could not be run: .*'set'"):
        await run_job(host, "job_echo", {1})


@pytest.mark.usefixtures("jobs_on_path")
async def test_job_ends_at_its_deadline_and_on_cancel(host: AsyncioHost) -> None:
    with pytest.raises(JobFailed, match="took over 300 ms"):
        await run_job(host, "job_hangs", deadline_ms=300)
    with pytest.raises(JobFailed, match="cancelled"):
        await run_job(host, "job_hangs", cancel=True)


@pytest.mark.usefixtures("jobs_on_path")
async def test_a_process_that_a_job_left_behind_goes_with_it(host: AsyncioHost) -> None:
    pid = await run_job(host, "job_leaves_somebody")
    await until(lambda: has_ended(pid))


@pytest.mark.usefixtures("jobs_on_path")
async def test_the_pipe_of_an_orphaned_process_is_not_read_for_ever(host: AsyncioHost) -> None:
    """The orphan has its own session, so no signal to the job reaches it; it holds the job's pipe open."""
    with pytest.raises(JobFailed, match="took over 500 ms"):
        await run_job(host, "job_leaves_a_stranger", deadline_ms=500)
    await until(lambda: not any("job_leaves" in thread.name for thread in threading.enumerate()))


async def test_a_job_for_which_there_is_no_thread_is_told_as_a_failure(
    host: AsyncioHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(JobFailed, match="can't start new thread"):
        await run_job(host, "job_echo")


@pytest.mark.usefixtures("jobs_on_path")
def test_a_cancelled_job_ends_though_the_loop_never_turns_again(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "job_writes.py").write_text(
        "import sys, time, msgpack; path = msgpack.unpackb(sys.stdin.buffer.read());"
        "out = open(path, 'w'); out.write('here\\n'); out.flush(); time.sleep(60)"
    )
    loop = asyncio.new_event_loop()
    host = AsyncioHost(loop)
    job = host.spawn_job("job_writes", str(fifo), print, low_priority=True, deadline_ms=60_000)
    with fifo.open() as stream:
        assert stream.readline() == "here\n"
        job.cancel()
        loop.close()
        assert select.select([stream], [], [], 10.0)[0], "its end closes it"


async def test_listens_on_loopback_by_default_and_reports_a_taken_port(host: AsyncioHost) -> None:
    class Greeter(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.write(b"hello")
            transport.close()

    class Reader(asyncio.Protocol):
        def __init__(self) -> None:
            self.data = b""
            self.lost = asyncio.Event()

        def data_received(self, data: bytes) -> None:
            self.data += data

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set()

    loop = asyncio.get_running_loop()
    listening: asyncio.Future[Any] = loop.create_future()
    host.listen("", 0, Greeter, lambda listener, error: listening.set_result((listener, error)))
    listener, error = await listening
    assert error is None
    reader = Reader()
    connected: asyncio.Future[Any] = loop.create_future()
    host.connect(
        "127.0.0.1", listener.port, lambda: reader, lambda handler, error: connected.set_result(handler)
    )
    assert await connected is reader
    await asyncio.wait_for(reader.lost.wait(), 5)
    assert reader.data == b"hello"

    taken: asyncio.Future[Any] = loop.create_future()
    host.listen("", listener.port, Greeter, lambda listener, error: taken.set_result(error))
    assert isinstance(await taken, OSError)
    listener.close()
    refused: asyncio.Future[Any] = loop.create_future()
    host.connect("", listener.port, Reader, lambda handler, error: refused.set_result(error))
    assert isinstance(await refused, OSError)


async def test_fatal_goes_to_the_given_callback() -> None:
    said: list[str] = []
    AsyncioHost(asyncio.get_running_loop(), on_fatal=said.append).fatal("cannot sync")
    assert said == ["cannot sync"]


async def test_fatal_ends_the_process_with_code_70() -> None:
    program = (
        "import asyncio, logging; from cluster.host.host_asyncio import AsyncioHost, new_event_loop\n"
        "logging.basicConfig(); loop = new_event_loop(); host = AsyncioHost(loop)\n"
        "loop.call_soon(host.fatal, 'the disk is full')\nloop.call_later(5, print, 'went on')\n"
        "loop.run_forever()"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 10)
    assert (process.returncode, out) == (70, b"")
    assert b"the disk is full" in err


@pytest.mark.usefixtures("jobs_on_path")
@pytest.mark.parametrize("missing", [False, True], ids=["uvloop", "plain asyncio"])
def test_jobs_and_timers_work_on_either_loop(missing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        assert missing == type(loop).__module__.startswith("asyncio")
        host = AsyncioHost(loop)
        assert loop.run_until_complete(run_job(host, "job_echo")) == [{"a": [1, b"x"]}]
        fired = loop.create_future()
        host.call_later(5, fired.set_result, None)
        host.call_later(1, fired.set_exception, AssertionError("was cancelled")).cancel()
        loop.run_until_complete(asyncio.wait_for(fired, 5))
        host.close()
    finally:
        asyncio.set_event_loop(None)
        loop.close()
