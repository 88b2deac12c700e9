"""JSON requests to a node over HTTP; every failure becomes one line with a hint.

The HTTP client is imported when the first request is made, so that other commands do not wait for it.
"""

from __future__ import annotations

import json as json_module
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from quorate.errors import CommandError, ExitCode

if TYPE_CHECKING:
    from urllib.error import HTTPError

ANSWER_BYTES_MAX = 64 * 1024 * 1024  # a group of thousands of members takes a few MiB
OTHERS_TIMEOUT_S = 2.0  # per node where there are others: a stopped process never answers


class HttpRefused(CommandError):
    """The node answered with a status other than 200.

    `error` is its machine-readable code, `leader` the address of the node to ask instead, if it named one.
    """

    def __init__(
        self,
        message: str,
        hint: str,
        status: int,
        *,
        error: str = "",
        leader: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, hint=hint, code=ExitCode.REFUSED)
        self.status = status
        self.error = error
        self.leader = leader


def get_json(url: str, timeout_s: float) -> Any:
    """The JSON document at `url`; raises `CommandError` if there is none."""
    return _ask(url, timeout_s, None)


def post_json(url: str, document: Mapping[str, Any], timeout_s: float) -> Any:
    """Post a JSON document to `url` and return the JSON answer; raises `CommandError`."""
    return _ask(url, timeout_s, json_module.dumps(document).encode())


def _ask(url: str, timeout_s: float, body: bytes | None) -> Any:
    if not url.startswith(("http://", "https://")):
        raise CommandError(
            f"{url!r} is not an HTTP address", hint="for example http://127.0.0.1:8092", code=ExitCode.USAGE
        )
    from urllib.error import HTTPError
    from urllib.request import ProxyHandler, Request, build_opener

    headers = {} if body is None else {"Content-Type": "application/json"}
    try:
        # No proxy: nodes are reached directly, whatever the environment says.
        opener = build_opener(ProxyHandler({}))
        request = Request(url, body, headers)
        with opener.open(request, timeout=timeout_s) as answer:
            return json_module.loads(answer.read(ANSWER_BYTES_MAX))
    except HTTPError as error:
        with error:
            raise _refused(url, error) from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise CommandError(
            f"cannot reach {url} ({reason})",
            hint="is the node running? start one with `quorate up`, or name its address with --url",
            code=ExitCode.UNREACHABLE,
        ) from error
    except ValueError as error:
        raise CommandError(
            f"{url} does not answer with JSON",
            hint="is that a Quorate node's HTTP port?",
            code=ExitCode.REFUSED,
        ) from error


def _refused(url: str, error: HTTPError) -> HttpRefused:
    """The node's own words, if it is one: every error of the HTTP API has a message and a hint."""
    try:
        said = json_module.loads(error.read(ANSWER_BYTES_MAX))
        message, hint, word = str(said["message"]), str(said["hint"]), str(said["error"])
        leader = said.get("leader")
    except (ValueError, TypeError, KeyError, OSError):
        message, hint = f"{error.code} {error.reason}", "is that a Quorate node's HTTP port?"
        word, leader = "", None
    named = leader if isinstance(leader, dict) else None
    return HttpRefused(f"{url} answers: {message}", hint, error.code, error=word, leader=named)


def first_of(urls: str, timeout_s: float, ask: Callable[[str, float], Any]) -> tuple[Any, str]:
    """The answer of the first reachable address, and that address.

    If there are several, a node that does not respond gets less time.
    """
    addresses = [text.strip().rstrip("/") for text in urls.split(",")]
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
        f"none of {', '.join(addresses)} answers", hint=unreachable.hint, code=ExitCode.UNREACHABLE
    )


def node_url(address: Mapping[str, Any]) -> str:
    """The URL of a node from the address in an answer."""
    host = f"[{address['host']}]" if ":" in address["host"] else address["host"]
    return f"http://{host}:{address['port']}"
