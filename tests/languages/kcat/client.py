"""kcat as a consumer and as a producer.

They take the options of Kafka's VerifiableConsumer and VerifiableProducer, and tell what happens in the same
lines of JSON.

kcat prints rebalances and messages, but not what it commits: the group's offsets are asked of the
coordinator, for the partitions that kcat has. It commits every five seconds, and when it gives up
partitions: kcat takes `-X auto.commit.interval.ms` for the topic's setting of that name, which groups do not
use.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import re
import signal
import subprocess
import threading
from typing import IO, Any

from quorate.client import Client
from quorate.errors import CommandError

ASK_AGAIN_S = 0.3
ENDS_WITH_THIS_PROCESS = ["setpriv", "--pdeathsig", "KILL"]
REBALANCED = re.compile(r"(assigned|revoked): (\S+ \[\d+\].*)")
PARTITION = re.compile(r"\[(\d+)\]")

telling = threading.Lock()


def tell(name: str, **more: Any) -> None:
    with telling:
        print(json.dumps({"name": name, **more}), flush=True)


class KcatMember:
    """One `kcat -G`."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._owned: frozenset[int] = frozenset()
        self._revoked: frozenset[int] = frozenset()
        self._committed: dict[int, int] = {}
        command = ["kcat", "-b", options.bootstrap_server, "-G", options.group_id, "-J", "-E", "-u"]
        settings = {
            "client.id": options.client_id,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": options.session_timeout,
            "heartbeat.interval.ms": options.session_timeout // 10,
        }
        if options.group_instance_id:
            settings["group.instance.id"] = options.group_instance_id
        for name, value in settings.items():
            command += ["-X", f"{name}={value}"]
        self.process = subprocess.Popen(
            [*ENDS_WITH_THIS_PROCESS, *command, options.topic],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self._take_message)),
            threading.Thread(target=self._read, args=(self.process.stderr, self._take_line)),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, lines: IO[str], take: Any) -> None:
        for line in lines:
            take(line)

    def _take_message(self, line: str) -> None:
        message = json.loads(line)
        where = {name: message[name] for name in ("topic", "partition", "offset")}
        tell("record_data", value=message["payload"], **where)

    def _take_line(self, line: str) -> None:
        if "|COMMITFAIL|" in line:
            tell("offsets_committed", success=False, error=line.strip(), offsets=[])
        elif found := REBALANCED.search(line):
            partitions = frozenset(int(number) for number in PARTITION.findall(found[2]))
            if found[1] == "revoked":
                self._owned, self._revoked = self._owned - partitions, partitions
            else:
                self._owned |= partitions
            self._tell_partitions(found[1], partitions)
        else:
            with telling:
                print(line, end="", flush=True)

    def _tell_partitions(self, what: str, numbers: frozenset[int]) -> None:
        partitions = [{"topic": self._options.topic, "partition": number} for number in sorted(numbers)]
        tell(f"partitions_{what}", partitions=partitions)

    def tell_commits(self) -> None:
        """Ask the coordinator for the group's offsets, and tell those that are new."""
        self._tell_commits(self._owned)

    def _tell_commits(self, numbers: frozenset[int]) -> None:
        options = self._options
        try:
            with Client(options.bootstrap_server, timeout_s=2.0) as client:
                stored = client.offsets(options.group_id).get(options.topic, {})
        except CommandError:
            return  # no coordinator, or nothing committed yet
        new = {number: at for number, at in stored.items() if number in numbers}
        new = dict(new.items() - self._committed.items())
        self._committed |= new
        if new:
            offsets = [
                {"topic": options.topic, "partition": number, "offset": at} for number, at in new.items()
            ]
            tell("offsets_committed", success=True, offsets=offsets)

    def end(self) -> int:
        """Tell the last of it once kcat has ended, and return its exit code."""
        code = self.process.wait()
        for reader in self._readers:
            reader.join()
        if code == 0:
            self._tell_commits(self._revoked)  # as it left
        if self._owned:
            self._tell_partitions("lost", self._owned)
        return code


def consume(options: argparse.Namespace) -> None:
    member = KcatMember(options)
    signal.signal(signal.SIGTERM, lambda *_: member.process.terminate())
    tell("startup_complete")
    while member.process.poll() is None:
        member.tell_commits()
        with contextlib.suppress(subprocess.TimeoutExpired):
            member.process.wait(ASK_AGAIN_S)
    if code := member.end():
        tell("crash", error=f"exit code {code}")
    else:
        tell("shutdown_complete")


def produce(options: argparse.Namespace) -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    command = ["kcat", "-b", options.bootstrap_server, "-P", "-t", options.topic, "-K", ":"]
    sent = []
    with subprocess.Popen(
        [*ENDS_WITH_THIS_PROCESS, *command, "-X", f"client.id={options.client_id}"],
        stdin=subprocess.PIPE,
        text=True,
    ) as kcat:
        tell("startup_complete")
        numbers = itertools.count() if options.max_messages < 0 else range(options.max_messages)
        for number in numbers:
            value = f"{options.value_prefix}.{number}" if options.value_prefix else str(number)
            print(f"{number % options.repeating_keys}:{value}", file=kcat.stdin, flush=options.throughput > 0)
            sent.append(value)
            if options.throughput > 0 and stopped.wait(1 / options.throughput):
                break
    for value in sent:
        if kcat.returncode == 0:
            tell("producer_send_success", value=value)
        else:
            tell("producer_send_error", value=value, message=f"exit code {kcat.returncode}")
    tell("shutdown_complete")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["consume", "produce"])
    parser.add_argument("--client-id", default="kcat")
    parser.add_argument("--bootstrap-server")
    parser.add_argument("--topic")
    parser.add_argument("--group-id")
    parser.add_argument("--group-instance-id")
    parser.add_argument("--session-timeout", type=int, default=45_000)
    parser.add_argument("--max-messages", type=int, default=-1)
    parser.add_argument("--throughput", type=float, default=-1)
    parser.add_argument("--repeating-keys", type=int, default=1)
    parser.add_argument("--value-prefix", default="")
    options = parser.parse_args()
    {"consume": consume, "produce": produce}[options.role](options)


if __name__ == "__main__":
    main()
