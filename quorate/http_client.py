"""HTTP to nodes: requests on connections that stay open, and JSON documents asked for with them.

Nodes are reached directly, whatever proxy the environment names, and a redirect to another node is followed.
The standard library's client is imported with the first request, so that other commands do not wait for it.
"""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from quorate.addresses import host_port
from quorate.errors import CommandError, ExitCode

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""Limit on an answer kept in memory: a group of thousands of members takes a few MiB."""

OTHERS_TIMEOUT_S = 2.0
"""Seconds per node where there are others: a stopped process never answers."""

READ_BYTES = 1 << 20
"""Bytes read at once from an answer."""

BYTES_PER_S_MIN = 10_000
"""A slower answer is abandoned once its time limit has passed: it might never end."""

DIGITS_MAX = 19
"""Limit on the digits of a number in a header: any index has fewer."""

REDIRECTS_MAX = 4
"""Redirects followed by one request: leadership may move meanwhile."""

OK, REDIRECT = 200, 307

NOT_THERE = "is the node running? start one with `quorate up`, or give its address with --url"
NOT_HTTP = (
    "is it the port for Kafka clients? --url takes the HTTP address, which `quorate up` prints too; 8092 is "
    "the default port"
)


NO_TLS = "the port speaks HTTP without TLS"


class NoAnswer(OSError):
    """The answer is not HTTP, is too large, or ended too early."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A node's answer; `node` is its URL."""

    node: str
    status: int
    headers: Mapping[str, str]
    """Header names in lower case, since a proxy may change their case."""
    body: bytes

    @property
    def document(self) -> Any:
        """The body as JSON; raises `CommandError` if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise not_a_node(self.node) from error

    @property
    def refusal(self) -> dict[str, Any]:
        """The JSON object of an error; {} if there is none."""
        try:
            found = self.document
        except CommandError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def words(self) -> str:
        """The reason for an error, in the node's words."""
        return str(self.refusal.get("message", f"HTTP {self.status}"))

    @property
    def first_index(self) -> int:
        """The oldest index that the node keeps, from an error about removed entries; 0 if unknown."""
        first_index = self.refusal.get("first_index", 0)
        return first_index if isinstance(first_index, int) else 0

    def number(self, header: str) -> int | None:
        """The number in a header; None if it is missing or not a number."""
        text = self.headers.get(header.lower(), "")
        return int(text) if text.isdecimal() and len(text) <= DIGITS_MAX else None


class HttpRefused(CommandError):
    """The node answered with a status other than 200; `answer` has the details."""

    def __init__(self, answer: Answer) -> None:
        hint = str(answer.refusal.get("hint", "is that a Quorate node's HTTP port?"))
        words = answer.words if "message" in answer.refusal else f"{answer.node} answers: {answer.words}"
        super().__init__(words, hint=hint, code=ExitCode.REFUSED)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Into:
    """The destination of an answer: memory, or a file that gets the first bytes of a 200."""

    sink: IO[bytes] | None = None
    bytes_max: int = ANSWER_BYTES_MAX

    def body(self, response: HTTPResponse, timeout_s: float) -> bytes:
        """Read the answer's body; b"" if it went to the file."""
        if self.sink is None or response.status != OK:
            body = b"".join(_parts(response, ANSWER_BYTES_MAX + 1, timeout_s))
            if len(body) > ANSWER_BYTES_MAX:
                raise NoAnswer(f"the response has more than {ANSWER_BYTES_MAX} bytes")
            return body
        self.sink.seek(0)
        self.sink.truncate()
        for data in _parts(response, self.bytes_max, timeout_s):
            self.sink.write(data)
        self.sink.flush()
        return b""


def _parts(response: HTTPResponse, bytes_max: int, timeout_s: float) -> Iterator[bytes]:
    """Yield at most `bytes_max` of the answer as it arrives; raises TimeoutError if it is too slow."""
    began_s = time.monotonic()
    received = 0
    while received < bytes_max and (data := response.read1(min(bytes_max - received, READ_BYTES))):
        yield data
        received += len(data)
        if time.monotonic() - began_s > timeout_s + received / BYTES_PER_S_MIN:
            raise TimeoutError
    if received < bytes_max:
        if response.length:  # read1 does not raise for a truncated answer
            raise NoAnswer(f"the response ends {response.length} bytes too early")
        response.read()  # fully read: the connection can be reused


IN_MEMORY = Into()


class Connections:
    """Open connections, one for each address."""

    def __init__(self) -> None:
        self._open: dict[str, HTTPConnection] = {}
        weakref.finalize(self, _close, self._open)  # the owner of a client need not close anything

    def ask(
        self,
        node: str,
        path: str,
        timeout_s: float,
        *,
        into: Into = IN_MEMORY,
        document: object = None,
        method: str = "GET",
    ) -> Answer:
        """GET the path, or POST a JSON document to it; raises OSError without an answer."""
        check_address(node)
        if document is not None:
            method = "POST"
        answer = self._once(node, path, timeout_s, into, document, method)
        for _ in range(REDIRECTS_MAX):
            if answer.status != REDIRECT or "location" not in answer.headers:
                break
            url = urlsplit(urljoin(node + path, answer.headers["location"]))
            node, path = f"{url.scheme}://{url.netloc}", url._replace(scheme="", netloc="").geturl()
            answer = self._once(node, path, timeout_s, into, document, method)
        return answer

    def _once(
        self, node: str, path: str, timeout_s: float, into: Into, document: object, method: str
    ) -> Answer:
        """Send one request on the open connection, or on a new one if it has been closed."""
        from http.client import HTTPException

        base = urlsplit(node)
        target = base.path.rstrip("/") + path if path else base._replace(scheme="", netloc="").geturl()
        for attempt in (1, 2):
            is_fresh = node not in self._open
            connection = self._connection(node, timeout_s)
            try:
                if document is None:
                    connection.request(method, target)
                else:
                    body = json.dumps(document)
                    connection.request(method, target, body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                headers = {name.lower(): value for name, value in response.headers.items()}
                answer = Answer(node, response.status, headers, into.body(response, timeout_s))
                if not response.isclosed():  # the rest is not needed
                    self._open.pop(node).close()
                return answer
            except BaseException as error:
                self._open.pop(node).close()
                may_be_stale = isinstance(error, ConnectionError | HTTPException | NoAnswer)
                if method == "GET" and may_be_stale and not is_fresh and attempt == 1:
                    continue
                if isinstance(error, HTTPException):
                    raise NoAnswer(str(error) or type(error).__name__) from error
                raise
        raise AssertionError("two attempts return or raise")

    def _connection(self, node: str, timeout_s: float) -> HTTPConnection:
        from http.client import HTTPConnection, HTTPSConnection

        connection = self._open.get(node)
        if connection is None:
            parts = urlsplit(node)
            kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
            connection = self._open[node] = kind(parts.netloc)
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        return connection


def _close(connections: dict[str, HTTPConnection]) -> None:
    for connection in connections.values():
        connection.close()


def ask_json(url: str, timeout_s: float, document: object = None, *, method: str = "GET") -> Any:
    """The JSON document at `url`, or the answer to one that is posted there; raises `CommandError`."""
    try:
        answer = Connections().ask(url, "", timeout_s, document=document, method=method)
    except OSError as error:
        raise CommandError(
            f"cannot reach {url} ({reason(error)})",
            hint=NOT_HTTP if isinstance(error, NoAnswer) else way_out(reason(error)),
            code=ExitCode.UNREACHABLE,
        ) from error
    if answer.status != OK:
        raise HttpRefused(answer)
    return answer.document


def first_of(urls: str, timeout_s: float, ask: Callable[[str, float], Any]) -> tuple[Any, str]:
    """The answer of the first reachable address, and that address.

    If there are several, a node that does not respond gets less time.
    """
    addresses = urls_of(urls)
    one_s = timeout_s if len(addresses) == 1 else min(timeout_s, OTHERS_TIMEOUT_S)
    unreachable: CommandError | None = None
    for url in addresses:
        try:
            return ask(url, one_s), url
        except CommandError as error:
            if error.code != ExitCode.UNREACHABLE:
                raise
            unreachable = error
    assert unreachable is not None
    if len(addresses) == 1:
        raise unreachable
    raise CommandError(
        f"none of {', '.join(addresses)} responds", hint=unreachable.hint, code=ExitCode.UNREACHABLE
    )


def node_url(address: Mapping[str, Any]) -> str:
    """The URL of a node from the address in an answer."""
    return f"http://{host_port(address['host'], address['port'])}"


def urls_of(text: str) -> list[str]:
    """The addresses in a text with commas; one without a scheme is HTTP's."""
    words = [word for one in text.split(",") if (word := one.strip())]
    return [(word if "://" in word else f"http://{word}").rstrip("/") for word in words] or [text]


def check_address(url: str) -> None:
    """Raise `CommandError` (usage) unless a connection to the URL can be attempted at all."""
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        is_address = parts.scheme in ("http", "https") and bool(parts.netloc)
    except ValueError:  # half an IPv6 address, or an invalid host name
        is_address = False
    if not is_address:
        raise CommandError(
            f"{url!r} is not an HTTP address",
            hint="for example http://127.0.0.1:8092, several with commas",
            code=ExitCode.USAGE,
        )


def not_a_node(url: str) -> CommandError:
    return CommandError(
        f"{url} does not respond like a Quorate node",
        hint="is that a Quorate node's HTTP port?",
        code=ExitCode.REFUSED,
    )


def reason(error: Exception) -> str:
    """The reason why there was no answer."""
    if isinstance(error, TimeoutError):
        return "no response in time"
    if getattr(error, "reason", "") == "WRONG_VERSION_NUMBER":  # an SSLError: that is no TLS
        return NO_TLS
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def way_out(why: str) -> str:
    """The hint for a node that did not answer for this reason."""
    return "give its address with http://" if why == NO_TLS else NOT_THERE
