"""The launcher's loop over a running cluster, until it is interrupted.

It shows what the nodes log and which have ended, and carries out `quorate cluster kill|stop|cont|restart`.
One thread checks everything in turn. Anything that takes longer than a moment, a restart above all, is a
generator that is advanced once per turn, so that nothing waits for it.

Invariants: the end of a node is shown, and it stays down until a restart is requested; whatever
happens to this process, no node outlives it for long (each holds its lifeline; a node that is suspended at
that moment is woken or ended by the system's hang-up of orphaned process groups).
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import signal
import socket
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

from cluster.launching.launcher import ClusterProcess
from cluster.launching.node_process import LOG_FILE, LaunchError, NodeProcess
from cluster.supervisor_socket import LINE_BYTES_MAX, listening

IDLE_S: Final = 0.1
"""Delay within which a node's log lines and its end are seen; a tenth of a second is immediate for people."""

BUSY_S: Final = 0.005
"""The same while a request is under way."""

SESSIONS_MAX: Final = 16
REQUEST_TIMEOUT_S: Final = 1.0
STOP_TIMEOUT_S: Final = 10.0

LOG_BYTES_A_TURN_MAX: Final = 256 * 1024
"""Bytes of one node's log per turn; the rest stays in its file for the next turn."""

LOG_HEAD: Final = re.compile(r"[-0-9]+ ([:,0-9]+) node \d+ ")
"""Date, time and node at the head of a log line; of these only the time is not shown already."""

Show = Callable[[str], None]
Work = Generator[None, None, dict[str, Any]]


class CommandRefused(Exception):
    """A request that cannot be carried out: a message, and a way out."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Supervisor:
    """The launcher's loop over one cluster; `show` prints a line."""

    def __init__(self, cluster: ClusterProcess, show: Show) -> None:
        self._cluster = cluster
        self._show = show
        self._logs = {node.node_id: LogTail(node.data / LOG_FILE) for node in cluster.nodes}
        self._running: set[int] = set()
        self._restarting: set[int] = set()
        self._is_serving = False
        self._sessions: list[Generator[None, None, None]] = []
        self._commands: dict[str, Callable[[NodeProcess], Work]] = {
            "kill": self._kill,
            "stop": self._stop,
            "cont": self._cont,
            "restart": self._restart,
        }

    def run(self, on_ready: Callable[[], None]) -> None:
        """Start the cluster, call `on_ready` when all nodes serve, continue until interrupted, stop them.

        Raises LaunchError if they do not start. A second interrupt is left to the caller.
        """
        try:
            with listening(self._cluster.data) as listener:
                self._cluster.start(meanwhile=self._look)
                self._is_serving = True
                on_ready()
                while True:
                    self._turn(listener)
        except KeyboardInterrupt:
            self._is_serving = False
            self._cluster.stop(STOP_TIMEOUT_S)
        finally:
            self._look()

    def _turn(self, listener: socket.socket) -> None:
        has_room = len(self._sessions) < SESSIONS_MAX
        pause_s = BUSY_S if self._sessions else IDLE_S
        if select.select([listener] if has_room else [], [], [], pause_s)[0]:
            with contextlib.suppress(OSError):  # the client has gone again
                self._sessions.append(self._session(listener.accept()[0]))
        self._sessions = [one for one in self._sessions if next(one, self) is not self]
        self._look()

    def _look(self) -> None:
        for node in self._cluster.nodes:
            prefix = f"node {node.node_id} | "
            ended = node.node_id in self._running and not node.is_running  # before its last lines are read
            for line in self._logs[node.node_id].new_lines():
                self._show(prefix + LOG_HEAD.sub(r"\1 ", line, count=1))
            if node.is_running:
                self._running.add(node.node_id)
            elif ended:
                self._running.discard(node.node_id)
                self._show(prefix + self._how_it_ended(node))

    def _how_it_ended(self, node: NodeProcess) -> str:
        code = node.poll()
        assert code is not None, "a node that ended has its exit code"
        how = f"it ended with exit code {code}" if code else "it has stopped"
        if code < 0:
            how = f"it was ended by signal {-code} ({signal.strsignal(-code)})"
        if not self._is_serving or node.node_id in self._restarting:
            return how
        again = f"quorate cluster restart {node.node_id} --data {self._cluster.data}"
        return f"{how}; `{again}` starts it again"

    # Requests.

    def _session(self, connection: socket.socket) -> Generator[None, None, None]:
        """Serve one connection: a line in, a line out. A client that is too slow or has gone is dropped."""
        with connection, contextlib.suppress(OSError):
            connection.setblocking(False)
            line = b""
            deadline_s = time.monotonic() + REQUEST_TIMEOUT_S
            while not line.endswith(b"\n"):
                try:
                    piece = connection.recv(LINE_BYTES_MAX)
                except BlockingIOError:
                    if time.monotonic() > deadline_s:
                        return
                    yield
                    continue
                line += piece
                if not piece or len(line) > LINE_BYTES_MAX:
                    return
            try:
                answer = yield from self._answer(line)
            except CommandRefused as refused:
                answer = {"error": str(refused), "hint": refused.hint}
            connection.send(json.dumps(answer, ensure_ascii=False).encode() + b"\n")

    def _answer(self, line: bytes) -> Work:
        try:
            request = json.loads(line)
            command, node_id = request["command"], request["node"]
            work = self._commands[command]
        except (ValueError, TypeError, KeyError):
            raise CommandRefused(
                "this is not a request", f"commands are {', '.join(self._commands)}"
            ) from None
        try:
            node = self._cluster.node(node_id)
        except KeyError:
            there = ", ".join(str(node.node_id) for node in self._cluster.nodes)
            raise CommandRefused(f"there is no node {node_id}", f"the cluster has nodes {there}") from None
        if node_id in self._restarting:
            raise CommandRefused(f"node {node_id} is being restarted", "try again in a moment")
        if command != "restart" and not node.is_running:
            raise CommandRefused(
                f"node {node_id} is not running",
                f"`quorate cluster restart {node_id} --data {self._cluster.data}` starts it again",
            )
        answer = yield from work(node)
        return answer

    def _kill(self, node: NodeProcess) -> Work:
        node.kill(wait=False)
        while node.is_running:
            yield
        node.kill()
        return _done(node, f"node {node.node_id} was killed (SIGKILL, process {node.pid})")

    def _stop(self, node: NodeProcess) -> Work:
        node.pause()
        yield
        return _done(node, f"node {node.node_id} was paused (SIGSTOP, process {node.pid})")

    def _cont(self, node: NodeProcess) -> Work:
        node.resume()
        yield
        return _done(node, f"node {node.node_id} was resumed (SIGCONT, process {node.pid})")

    def _restart(self, node: NodeProcess) -> Work:
        self._restarting.add(node.node_id)
        try:
            yield from self._ended(node)
            self._look()  # show its end before its new start
            node.spawn()
            self._cluster.write_down()
            wait_ready_s = self._cluster.start_timeout_s
            deadline_s = time.monotonic() + wait_ready_s
            while not node.is_announced():
                if time.monotonic() > deadline_s:
                    node.await_announced(deadline_s, wait_ready_s)
                yield
        except LaunchError as error:
            raise CommandRefused(str(error), f"its log is {node.data / LOG_FILE}") from error
        finally:
            self._restarting.discard(node.node_id)
        return _done(node, f"node {node.node_id} serves again (process {node.pid})")

    def _ended(self, node: NodeProcess) -> Generator[None, None, None]:
        if not node.is_running:
            return
        node.ask_to_stop()
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while node.is_running and time.monotonic() < deadline_s:
            yield
        node.kill()


def _done(node: NodeProcess, said: str) -> dict[str, Any]:
    state = "paused" if node.is_paused else "running" if node.is_running else "down"
    return {"said": said, "node": {**node.as_dict(), "state": state}}


class LogTail:
    """The lines appended to a file from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = path.stat().st_size if path.exists() else 0

    def new_lines(self) -> list[str]:
        """Return whole lines only, unless one is longer than a turn's read."""
        try:
            if self._path.stat().st_size <= self._position:
                return []
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read(LOG_BYTES_A_TURN_MAX)
        except OSError:
            return []
        if len(data) < LOG_BYTES_A_TURN_MAX or b"\n" in data:
            data = data[: data.rfind(b"\n") + 1]
        self._position += len(data)
        return data.decode(errors="replace").splitlines()
